"""Infer: which configuration a trace was recorded with, from shapes and repetition."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from gnomon.errors import InputError
from gnomon.model.accelerator.operator_family import WORK_FAMILIES
from gnomon.systems.training.prediction.recorded.cut import CutRank, Template, is_score_softmax
from gnomon.systems.training.prediction.recorded.growth import (
    Linear,
    attention_sizes,
    gemm_sizes,
    name_linears,
)
from gnomon.systems.training.prediction.recorded.units import Units

_TYPES = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "float": "fp32",
    "c10::Float8_e4m3fn": "fp8",
}
#: Sizes of which shapes and repetition speak for themselves.
_SEEN = ("layers", "hidden", "heads", "seq", "batch", "ffn", "accumulation")
#: A loss computed a piece at a time has no more pieces than this.
_MOST_PIECES = 64


def infer_values(
    ranks: Sequence[CutRank],
    layer: Template,
    embedding: Template,
    head: Template,
    given: Mapping[str, Any],
    where: str,
) -> dict[str, Any]:
    """What the shapes and the repetition in a recorded job say of its configuration.

    Args:
        ranks: The ranks that were traced.
        layer, embedding, head: Their forward parts.
        given: What the user says; it fills in what shapes do not tell.
        where: The trace, for messages.

    Raises:
        InputError: The shapes do not tell, and the user does not say.
    """
    all_units = [rank.units for rank in ranks]
    units = all_units[layer.rank]
    gemms = _forward_gemms(units, layer)
    if not gemms:
        raise InputError(
            "what repeats in it holds no matrix multiplication of known shape", where=where,
            hint="predictions need a transformer, profiled with record_shapes=True",
        )  # fmt: skip
    tokens = Counter(p[0] for _, p in gemms).most_common(1)[0][0]
    hidden = _hidden(units, layer, {sizes[2] for _, sizes in gemms})
    linears = linears_of(units, layer, hidden)
    values: dict[str, Any] = {"hidden": hidden, "dtype": _dtype(units, layer)}
    values |= _attention_values(units, layer, tokens, given, where)
    values["kv_heads"] = _key_heads(values, linears)
    # A flattened batch (packed sequences) shows as one long sequence.
    values["batch"] = max(tokens // values["seq"], 1)
    values |= _feed_forward(linears)
    values["vocab"] = _vocabulary(all_units, embedding, head, tokens, values["batch"]) or 50304
    values["accumulation"] = ranks[0].micro_batches
    return values | _parallel(ranks, values, where)


def contradictions(inferred: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, ...]:
    """Where the user and the trace's shapes disagree, in words.

    >>> contradictions({"hidden": 2048, "seq": 512}, {"hidden": 4096, "seq": 512, "gpu": "H100"})
    ("--base hidden=4096: the trace's shapes say 2048",)
    """
    return tuple(
        f"--base {name}={given[name]}: the trace's shapes say {inferred[name]}"
        for name in _SEEN
        if name in given and inferred.get(name) and int(given[name]) != inferred[name]
    )


def _attention_values(
    units: Units, layer: Template, tokens: int, given: Mapping[str, Any], where: str
) -> dict[str, Any]:
    seen = _attention(units, layer) or _unfused_attention(units, layer, tokens)
    if seen is not None:
        return seen
    if "heads" in given and "seq" in given:
        return {"heads": int(given["heads"]), "seq": int(given["seq"])}
    raise InputError(
        "the shapes of its attention do not tell its heads and sequence", where=where,
        hint="say what they are: --base heads=16,seq=2048",
    )  # fmt: skip


def _key_heads(values: Mapping[str, Any], linears: Sequence[Linear]) -> int:
    """Heads of keys, from the GEMM that makes them: keys may be repeated for the attention."""
    heads, seen = values["heads"], values.get("kv_heads", values["heads"])
    width = values.get("head_dim", 0)
    outs = [int(linear.out.value) for linear in linears if linear.group == "qkv"]
    if not width or not outs or seen != heads:
        return int(seen)
    columns = min(outs) if len(outs) == 3 else (sum(outs) - heads * width) // 2
    inferred = columns // width
    exact = 0 < inferred < heads and columns == inferred * width and heads % inferred == 0
    return inferred if exact else int(seen)


def linears_of(units: Units, layer: Template, hidden: int) -> list[Linear]:
    """The GEMMs with weights of a layer's forward part, those before the attention first."""
    gemms = _forward_gemms(units, layer)
    if not gemms:
        return []
    family = units.family[layer.place]
    marks = np.flatnonzero(family == WORK_FAMILIES.index("attention"))
    if not len(marks):
        marks = np.flatnonzero(family == WORK_FAMILIES.index("softmax"))
    at = marks[0] if len(marks) else gemms[0][0] + 1
    ahead = [sizes for place, sizes in gemms if place < at]
    behind = [sizes for place, sizes in gemms if place > at]
    # A repeat may begin anywhere in a layer. What feeds the attention reads the hidden size; what
    # stands before that is the end of the layer before.
    own = 0
    while own < len(ahead) and ahead[-1 - own][2] == hidden:
        own += 1
    own = own or len(ahead)
    order = ahead[len(ahead) - own :] + behind + ahead[: len(ahead) - own]
    return name_linears([sizes[:3] for sizes in order], own, hidden)


def _forward_gemms(units: Units, part: Template) -> list[tuple[int, tuple[int, int, int, int]]]:
    """Place within the part and sizes of each GEMM that is not batched."""
    found = []
    gemm = units.is_family("gemm")
    for place, unit in enumerate(part.place.tolist()):
        if not gemm[unit]:
            continue
        sizes = gemm_sizes(units.operator_name(unit), units.shapes(unit))
        if sizes is not None and sizes[3] == 1:
            found.append((place, sizes))
    return found


def _attention(units: Units, layer: Template) -> dict[str, Any] | None:
    """Heads, heads of keys, sequence and width of a fused attention."""
    for unit in layer.place[units.is_family("attention")[layer.place]].tolist():
        shapes = units.shapes(unit)
        sizes = attention_sizes(units.operator_name(unit), shapes)
        if sizes is not None:
            _, heads, queries, _, width = sizes
            four = [s for s in shapes if len(s) == 4]
            keys = four[1][1] if four[1][1] != queries else four[1][2]
            keys = keys if heads % keys == 0 else heads
            return {"heads": heads, "kv_heads": keys, "seq": queries, "head_dim": width}
    return None


def _unfused_attention(units: Units, layer: Template, tokens: int) -> dict[str, Any] | None:
    """The same from a softmax over scores, and a batched GEMM."""
    for unit in layer.place[units.is_family("softmax")[layer.place]].tolist():
        for shape in units.shapes(unit) if is_score_softmax(units, unit) else ():
            seq = shape[-1]
            width = _batched_inner(units, layer, seq) if shape[-2:] == (seq, seq) else 0
            # Where batch and heads are one size, the tokens tell how many are of the batch.
            heads = math.prod(shape[:-2]) // max(tokens // seq, 1)
            if width and heads:
                return {"heads": heads, "seq": seq, "head_dim": width}
    return None


def _batched_inner(units: Units, layer: Template, seq: int) -> int:
    for unit in layer.place[units.is_family("gemm")[layer.place]].tolist():
        sizes = gemm_sizes(units.operator_name(unit), units.shapes(unit))
        if sizes is not None and sizes[3] > 1 and sizes[:2] == (seq, seq):
            return sizes[2]
    return 0


def _hidden(units: Units, layer: Template, read: Container[int]) -> int:
    """The width that normalisations and GEMMs both work on, else the most GEMMs read.

    Args:
        units: The units of the rank.
        layer: A layer's forward part.
        read: The inner sizes of its GEMMs.
    """
    seen: Counter[int] = Counter()
    for unit in layer.place[units.is_family("normalisation")[layer.place]].tolist():
        shapes = units.shapes(unit)
        if shapes and len(shapes[0]) >= 2 and shapes[0][-1] in read:
            seen[shapes[0][-1]] += 1
    if not seen:
        return int(_forward_gemms(units, layer)[0][1][2])
    return max(seen, key=lambda width: (seen[width], width))


def _feed_forward(linears: Sequence[Linear]) -> dict[str, Any]:
    down = [linear for linear in linears if linear.group == "down"]
    up = [linear for linear in linears if linear.group == "up"]
    if not down:
        return {}
    ffn = int(down[0].into.value)
    gated = len(up) == 2 or (len(up) == 1 and int(up[0].out.value) == 2 * ffn)
    return {"ffn": ffn, "gated": gated}


def _vocabulary(
    units: Sequence[Units], embedding: Template, head: Template, tokens: int, batch: int
) -> int:
    """Columns of the head where it sees every token; else rows of the largest table.

    A head that sees one row a sequence is a classifier's. The largest table is of words, unless
    there are more positions than words: the head knows better.
    """
    for _, (rows, columns, _, _) in reversed(_forward_gemms(units[head.rank], head)):
        # A loss that is computed a piece at a time sees some of the rows.
        if rows not in (1, batch) and tokens % rows == 0 and rows * _MOST_PIECES >= tokens:
            return columns
    own = units[embedding.rank]
    looks_up = own.is_family("embedding")[embedding.place]
    tables = [own.shapes(unit)[:1] for unit in embedding.place[looks_up].tolist()]
    return max((shape[0] for first in tables for shape in first if len(shape) == 2), default=0)


def _dtype(units: Units, layer: Template) -> str:
    for unit in layer.place[units.is_family("gemm")[layer.place]].tolist():
        text = units.trace.shapes[units.trace.shape[int(units.operator[unit])]]
        pieces = text.split("\t")
        for name, short in _TYPES.items():
            if len(pieces) > 1 and f'"{name}"' in pieces[1]:
                return short
    return "bf16"


def _parallel(ranks: Sequence[CutRank], values: dict[str, Any], where: str) -> dict[str, int]:
    """Layers, and how ranks share the work."""
    tp = _tensor_parallel(values)
    pipelines = _pipelines(ranks, where)
    pp = len(pipelines[0])
    world = ranks[0].units.trace.world_size or len(ranks)
    return {
        "layers": max(sum(ranks[i].layers for i in group) for group in pipelines),
        "pp": pp, "tp": tp, "dp": max(world // (pp * tp), 1),
        "heads": values["heads"] * tp, "kv_heads": values["kv_heads"] * tp,
        # Ranks that share heads share the vocabulary too, as Megatron's do.
        "ffn": values.get("ffn", 0) * tp, "vocab": values["vocab"] * tp,
    }  # fmt: skip


def _tensor_parallel(values: dict[str, Any]) -> int:
    """Heads that are missing from the hidden size are on other ranks."""
    held = values["heads"] * values.get("head_dim", values["hidden"] // values["heads"])
    return int(values["hidden"] // held) if held and values["hidden"] % held == 0 else 1


def _pipelines(ranks: Sequence[CutRank], where: str) -> list[list[int]]:
    """Ranks that pass activations on to one another, first stage first.

    Stages follow one another by rank number in a pipeline, whichever way ranks are dealt out.
    """
    if not any(rank.sends for rank in ranks):
        return [[i] for i in range(len(ranks))]
    first = [i for i, rank in enumerate(ranks) if rank.holds_embedding]
    last = [i for i, rank in enumerate(ranks) if rank.holds_head]
    many = len(ranks) // max(len(first), 1)
    if not first or len(first) != len(last) or many < 2 or many * len(first) != len(ranks):
        raise InputError(
            "it is of a pipeline, not all of whose stages are there", where=where,
            hint="give the folder with the traces of all ranks of a pipeline",
        )  # fmt: skip
    if any(ranks[i].embeds < len(ranks[i].steps) * ranks[i].micro_batches for i in first):
        raise InputError(
            "its stages hold several stretches of layers each (an interleaved pipeline), which "
            "predictions do not understand yet",
            where=where, hint="record it with one stretch a stage",
        )  # fmt: skip
    adjacent = all(i % many == 0 for i in first)
    step = 1 if adjacent else len(first)
    return [[i + s * step for s in range(many)] for i in first]
