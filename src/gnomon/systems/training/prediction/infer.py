"""Infer: which configuration a trace was recorded with, from shapes and repetition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnomon.errors import InputError
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.cut import CutRank, Template
from gnomon.systems.training.prediction.growth import (
    Linear,
    attention_sizes,
    name_linears,
    product_sizes,
)
from gnomon.systems.training.prediction.units import FAMILIES, Units

__all__ = ["infer_configuration", "linears_of"]

_TYPES = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "float": "fp32",
    "c10::Float8_e4m3fn": "fp8",
}


def infer_configuration(
    ranks: Sequence[CutRank],
    layer: Template,
    embedding: Template,
    head: Template,
    overrides: dict[str, Any],
    where: str,
    gpu: str,
) -> Configuration:
    """The configuration of a recorded job.

    Args:
        ranks: The ranks that were traced.
        layer, embedding, head: Their forward parts.
        overrides: What the user knows better.
        where: The trace, for messages.
        gpu: The device's name.
    """
    all_units = [rank.units for rank in ranks]
    units = all_units[layer.rank]
    seen = _attention(units, layer) or _unfused_attention(units, layer)
    products = _forward_products(units, layer)
    if not products:
        raise InputError(
            "what repeats in it holds no matrix product of known shape", where=where,
            hint="predictions need a transformer, profiled with record_shapes=True",
        )  # fmt: skip
    tokens = Counter(p[0] for _, p in products).most_common(1)[0][0]
    hidden = _hidden(units, layer) or products[0][1][2]
    values: dict[str, Any] = {"hidden": hidden, "gpu": gpu, "dtype": _dtype(units, layer)}
    if seen is not None:
        _batch, heads, keys, seq, width = seen
        values |= {"heads": heads, "kv_heads": keys, "seq": seq, "head_dim": width}
        # A flattened batch (packed sequences) shows as one long sequence.
        values["batch"] = max(tokens // seq, 1)
    else:
        values |= {"heads": 1, "seq": tokens, "batch": 1}
    values |= _feed_forward(linears_of(units, layer, hidden))
    values["vocab"] = _vocabulary(all_units, embedding, head) or 50304
    values["accumulation"] = ranks[0].micro_batches
    values |= _parallel(ranks, values)
    values |= {k: v for k, v in overrides.items() if k not in ("dp", "pp", "tp")}
    for name in ("dp", "pp", "tp"):
        values[name] = overrides.get(name, values[name])
    return Configuration(**values)


def linears_of(units: Units, layer: Template, hidden: int) -> list[Linear]:
    """The products with weights of a layer's forward part, those before the attention first."""
    products = _forward_products(units, layer)
    if not products:
        return []
    family = units.family[layer.place]
    marks = np.flatnonzero(family == FAMILIES.index("attention"))
    if not len(marks):
        marks = np.flatnonzero(family == FAMILIES.index("softmax"))
    at = marks[0] if len(marks) else products[0][0] + 1
    ahead = [sizes for place, sizes in products if place < at]
    behind = [sizes for place, sizes in products if place > at]
    # A repeat may begin anywhere in a layer. What feeds the attention reads the hidden size; what
    # stands before that is the end of the layer before.
    own = 0
    while own < len(ahead) and ahead[-1 - own][2] == hidden:
        own += 1
    own = own or len(ahead)
    order = ahead[len(ahead) - own :] + behind + ahead[: len(ahead) - own]
    return name_linears([sizes[:3] for sizes in order], own, hidden)


def _forward_products(units: Units, part: Template) -> list[tuple[int, tuple[int, int, int, int]]]:
    """Place within the part and sizes of each product that is not batched."""
    found = []
    product = units.is_family("product")
    for place, unit in enumerate(part.place.tolist()):
        if not product[unit]:
            continue
        sizes = product_sizes(units.operator_name(unit), units.shapes(unit))
        if sizes is not None and sizes[3] == 1:
            found.append((place, sizes))
    return found


def _attention(units: Units, layer: Template) -> tuple[int, int, int, int, int] | None:
    """Batch, heads, heads of keys, sequence and width of a fused attention."""
    for unit in layer.place[units.is_family("attention")[layer.place]].tolist():
        shapes = units.shapes(unit)
        sizes = attention_sizes(units.operator_name(unit), shapes)
        if sizes is not None:
            batch, heads, queries, _, width = sizes
            four = [s for s in shapes if len(s) == 4]
            keys = four[1][1] if four[1][1] != queries else four[1][2]
            return batch, heads, keys if heads % keys == 0 else heads, queries, width
    return None


def _unfused_attention(units: Units, layer: Template) -> tuple[int, int, int, int, int] | None:
    """The same from a softmax over scores, and a batched product."""
    for unit in layer.place[units.is_family("softmax")[layer.place]].tolist():
        for shape in units.shapes(unit):
            if len(shape) == 4 and shape[2] == shape[3]:
                width = _batched_inner(units, layer, shape[2])
                if width:
                    return shape[0], shape[1], shape[1], shape[2], width
    return None


def _batched_inner(units: Units, layer: Template, seq: int) -> int:
    for unit in layer.place[units.is_family("product")[layer.place]].tolist():
        sizes = product_sizes(units.operator_name(unit), units.shapes(unit))
        if sizes is not None and sizes[3] > 1 and sizes[:2] == (seq, seq):
            return sizes[2]
    return 0


def _hidden(units: Units, layer: Template) -> int:
    """The width that normalisations work on."""
    widths = Counter(
        units.shapes(unit)[0][-1]
        for unit in layer.place[units.is_family("normalisation")[layer.place]].tolist()
        if units.shapes(unit) and len(units.shapes(unit)[0]) >= 2
    )
    return int(widths.most_common(1)[0][0]) if widths else 0


def _feed_forward(linears: Sequence[Linear]) -> dict[str, Any]:
    down = [linear for linear in linears if linear.group == "down"]
    up = [linear for linear in linears if linear.group == "up"]
    if not down:
        return {}
    ffn = int(down[0].into.value)
    gated = len(up) == 2 or (len(up) == 1 and int(up[0].out.value) == 2 * ffn)
    return {"ffn": ffn, "gated": gated}


def _vocabulary(units: Sequence[Units], embedding: Template, head: Template) -> int:
    tables = [
        shape[0]
        for unit in embedding.place[
            units[embedding.rank].is_family("embedding")[embedding.place]
        ].tolist()
        for shape in units[embedding.rank].shapes(unit)[:1]
        if len(shape) == 2
    ]
    outputs = [sizes[1] for _, sizes in _forward_products(units[head.rank], head)]
    # The largest table is of tokens; a smaller one is of positions.
    return max([*tables, *outputs], default=0)


def _dtype(units: Units, layer: Template) -> str:
    for unit in layer.place[units.is_family("product")[layer.place]].tolist():
        text = units.trace.shapes[units.trace.shape[int(units.operator[unit])]]
        pieces = text.split("\t")
        for name, short in _TYPES.items():
            if len(pieces) > 1 and f'"{name}"' in pieces[1]:
                return short
    return "bf16"


def _parallel(ranks: Sequence[CutRank], values: dict[str, Any]) -> dict[str, int]:
    """Layers, and how ranks share the work."""
    tp = _tensor_parallel(values)
    pipelines = _pipelines(ranks)
    pp = max(len(group) for group in pipelines)
    held = [sum(ranks[i].layers for i in group) for group in pipelines if len(group) == pp]
    first = ranks[0].units.trace
    world = first.world_size or len(ranks)
    dp = max(world // (pp * tp), 1)
    return {
        "layers": max(held), "pp": pp, "tp": tp, "dp": dp,
        "heads": values["heads"] * tp, "kv_heads": values.get("kv_heads", values["heads"]) * tp,
        # Ranks that share heads share the vocabulary too, as Megatron's do.
        "ffn": values.get("ffn", 0) * tp, "vocab": values["vocab"] * tp,
    }  # fmt: skip


def _tensor_parallel(values: dict[str, Any]) -> int:
    """Heads that are missing from the hidden size are on other ranks."""
    held = values["heads"] * values.get("head_dim", values["hidden"] // values["heads"])
    return int(values["hidden"] // held) if held and values["hidden"] % held == 0 else 1


def _pipelines(ranks: Sequence[CutRank]) -> list[list[int]]:
    """Ranks that pass activations on to one another, first stage first.

    Stages follow one another by rank number in a pipeline, whichever way ranks are dealt out.
    """
    first = [i for i, rank in enumerate(ranks) if rank.holds_embedding]
    if not any(rank.sends for rank in ranks) or not first:
        return [[i] for i in range(len(ranks))]
    many = len(ranks) // len(first)
    if many <= 1:
        return [[i] for i in range(len(ranks))]
    adjacent = all(i % many == 0 for i in first)
    step = 1 if adjacent else len(first)
    return [[i + s * step for s in range(many)] for i in first]
