"""Memory: what one rank holds at its fullest moment, derived tensor by tensor.

A rank's memory is fullest in one of three moments: when the loss is differentiated (every layer's
activations are kept, and the logits exist several times), inside the backward pass of a layer
(one layer less kept, its gradients beside), or in the optimiser's step (all gradients, no
activations). Each is written down from what the code keeps for its backward pass; no factor is
fitted.
"""

from __future__ import annotations

import functools
from collections import Counter

import msgspec

from gnomon.errors import InputError
from gnomon.systems.training.prediction.analytic.style import Style, width
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.schedule import in_flight, split_layers

#: What a rank's share of the vocabulary is padded to a multiple of.
VOCAB_STEP = 128


class Memory(msgspec.Struct, frozen=True):
    """Bytes of one rank at its fullest moment.

    Attributes:
        activations: Kept for the backward pass by the layers of all micro-batches in flight.
        logits: Kept and used by the head and the loss at that moment.
        temporary: What the running operator needs beside.
        other: Libraries' workspaces and the like.
        moment: "loss", "backward" or "optimizer".
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    temporary: float
    other: float
    stage: int = 0
    moment: str = "loss"

    @property
    def total(self) -> float:
        """All of it."""
        return (
            self.parameters + self.gradients + self.optimizer
            + self.activations + self.logits + self.temporary + self.other
        )  # fmt: skip


def layer_kinds(configuration: Configuration) -> tuple[str, ...]:
    """The kind of each layer, first to last: `layer`, or `dense` before layers with experts."""
    c = configuration
    if not c.experts:
        return ("layer",) * c.layers
    dense = min(c.dense_layers, c.layers)
    return ("dense",) * dense + ("layer",) * (c.layers - dense)


class _Weights(msgspec.Struct, frozen=True):
    """Matrices of one layer as (outputs, inputs) on one rank, how many of each; and the rest."""

    matrices: tuple[tuple[int, int, int], ...]
    experts: tuple[tuple[int, int, int], ...]
    small: float

    @property
    def shared(self) -> float:
        return sum(n * a * b for a, b, n in self.matrices) + self.small

    @property
    def expert(self) -> float:
        return sum(n * a * b for a, b, n in self.experts)


def _attention_matrices(c: Configuration) -> list[tuple[int, int, int]]:
    t, h = c.tp, c.hidden
    if not c.kv_rank:
        return [
            ((c.heads + 2 * c.kv_heads) * c.head_dim // t, h, 1),
            (h, c.heads * c.v_dim // t, 1),
        ]
    query = c.heads * (c.head_dim + c.rope_dim) // t
    queries = [(c.q_rank, h, 1), (query, c.q_rank, 1)] if c.q_rank else [(query, h, 1)]
    return [
        *queries,
        (c.kv_rank + c.rope_dim, h, 1),
        (c.heads * (c.head_dim + c.v_dim) // t, c.kv_rank, 1),
        (h, c.heads * c.v_dim // t, 1),
    ]


def _feed_forward(
    hidden: int, ffn: int, gated: bool, number: int = 1
) -> list[tuple[int, int, int]]:
    return [((2 if gated else 1) * ffn, hidden, number), (hidden, ffn, number)]


@functools.lru_cache(4096)
def _weights(c: Configuration, style: Style, kind: str) -> _Weights:
    matrices = _attention_matrices(c)
    experts: list[tuple[int, int, int]] = []
    if c.experts and kind == "layer":
        experts = _feed_forward(c.hidden, c.expert_ffn, c.gated, c.experts // c.ep)
        if c.shared_ffn:
            matrices += _feed_forward(c.hidden, c.shared_ffn // c.tp, c.gated)
        matrices.append((c.experts, c.hidden, 1))
    else:
        matrices += _feed_forward(c.hidden, c.ffn // c.tp, c.gated)
    norms = (2 if style.rms_norm else 4) * c.hidden + c.q_rank + c.kv_rank
    bias = sum(n * a for a, _, n in matrices) if style.bias else 0
    return _Weights(tuple(matrices), tuple(experts), norms + bias)


def parameter_counts(configuration: Configuration, style: Style) -> dict[str, float]:
    """Parameters of one rank's share: `embedding`, a layer of each kind, `head`.

    A tied head has none of its own unless a pipeline puts it on another rank, which then holds a
    copy of the embedding.

    >>> from gnomon.systems.training.prediction.analytic.style import find_style
    >>> c = Configuration(layers=12, hidden=2048, heads=16, seq=2048, batch=4)
    >>> p = parameter_counts(c, find_style("torch"))
    >>> int(p["embedding"] + 12 * p["layer"] + p["head"])
    814542848
    """
    c = configuration
    words = float(vocab_share(c, style) * c.hidden)
    positions = 0.0 if style.rotary else float(c.seq * c.hidden)
    own_head = not style.tied_head or c.pp > 1
    counts = {
        "embedding": words + positions,
        "head": (words if own_head else 0.0) + (1 if style.rms_norm else 2) * c.hidden,
    }
    for kind in dict.fromkeys(layer_kinds(c)):
        weights = _weights(c, style, kind)
        counts[kind] = weights.shared + weights.expert
    return counts


def model_parameters(configuration: Configuration, style: Style) -> tuple[float, float]:
    """Parameters of the whole model, and of those the ones a token is multiplied with.

    >>> from gnomon.systems.training.prediction.analytic.style import find_style
    >>> c = Configuration(layers=12, hidden=2048, heads=16, seq=2048, batch=4)
    >>> [round(n / 1e6) for n in model_parameters(c, find_style("torch"))]
    [815, 707]
    """
    one = msgspec.structs.replace(configuration, dp=1, pp=1, tp=1, cp=1, ep=1, interleave=1)
    counts, experts = parameter_counts(one, style), expert_counts(one, style)
    layers = Counter(layer_kinds(one))
    everything = counts["embedding"] + counts["head"]
    everything += sum(n * counts[kind] for kind, n in layers.items())
    idle = sum(
        n * experts.get(kind, 0.0) * (1.0 - one.top_k / max(one.experts, 1))
        for kind, n in layers.items()
    )
    # A lookup multiplies nothing; a tied head multiplies with the words all the same.
    active = everything - counts["embedding"] - idle
    if style.tied_head:
        active += one.vocab * one.hidden
    return everything, active


def expert_counts(configuration: Configuration, style: Style) -> dict[str, float]:
    """How many of `parameter_counts` are experts', by kind of layer; kinds without are left out.

    >>> from gnomon.systems.training.prediction.analytic.style import find_style
    >>> c = Configuration(
    ...     layers=2, hidden=64, heads=4, seq=8, batch=1, experts=8, expert_ffn=32, ep=4, dp=4
    ... )
    >>> expert_counts(c, find_style("megatron"))
    {'layer': 8192}
    """
    kinds = dict.fromkeys(layer_kinds(configuration))
    counts = {kind: _weights(configuration, style, kind).expert for kind in kinds}
    return {kind: count for kind, count in counts.items() if count}


def expert_copies(configuration: Configuration) -> int:
    """Ranks of a stage that hold the same experts: tensor parallelism does not split these.

    >>> c = Configuration(
    ...     layers=2, hidden=64, heads=4, seq=8, batch=1, experts=8, dp=8, tp=2, ep=4
    ... )
    >>> expert_copies(c)
    4
    """
    c = configuration
    return max(1, c.dp * c.cp * c.tp // c.ep)


def vocab_share(configuration: Configuration, style: Style) -> int:
    """Words of the vocabulary that one tensor-parallel rank holds, padding included.

    >>> from gnomon.systems.training.prediction.analytic.style import find_style
    >>> c = Configuration(layers=2, hidden=64, heads=4, seq=8, batch=1, vocab=50257, tp=2)
    >>> vocab_share(c, find_style("megatron")), vocab_share(c, find_style("torch"))
    (25216, 25128)
    """
    c = configuration
    if not style.padded_vocab:
        return c.vocab // c.tp
    return -(-c.vocab // (c.tp * VOCAB_STEP)) * VOCAB_STEP


def stage_layers(configuration: Configuration, stage: int) -> tuple[str, ...]:
    """Kinds of the layers that a stage holds, of all its chunks."""
    c = configuration
    kinds = iter(layer_kinds(c))
    held: list[str] = []
    for chunk, size in enumerate(split_layers(c.layers, c.pp, c.interleave)):
        layers = [next(kinds) for _ in range(size)]
        if chunk % c.pp == stage:
            held += layers
    return tuple(held)


class _Kept(msgspec.Struct, frozen=True):
    """What one layer keeps for one micro-batch, and what its backward pass needs beside."""

    saved: float
    recomputed: float
    temporary: float


@functools.lru_cache(4096)
def _kept(c: Configuration, style: Style, kind: str) -> _Kept:
    saved = _attention_saved(c, style) + _feed_forward_saved(c, style, kind)
    temporary = _layer_temporary(c, style, kind)
    if style.recompute == "full":
        boundary = width(c.dtype) * c.tokens * c.hidden / _token_split(c, style)
        return _Kept(boundary, saved - boundary, temporary)
    if style.recompute == "selective" and not style.fused_attention:
        inside = _scores_saved(c, style)
        return _Kept(saved - inside, inside, temporary)
    return _Kept(saved, 0.0, temporary)


def _token_split(c: Configuration, style: Style) -> int:
    return c.tp if style.sequence_parallel else 1


def _scores_saved(c: Configuration, style: Style) -> float:
    """Softmax's output, and with dropout its mask and its output."""
    w = width(c.dtype)
    scores = c.batch * (c.heads // c.tp) * (c.seq // c.cp) * c.seq
    return float(scores * (2 * w + 1 if style.dropout else w))


def _attention_saved(c: Configuration, style: Style) -> float:
    w, tokens, t = width(c.dtype), c.tokens, c.tp
    split = _token_split(c, style)
    outside = w * tokens * c.hidden / split
    norm = tokens * (4 if style.rms_norm else 8) / split
    out = w * tokens * c.heads * c.v_dim / t
    saved = 2 * outside + norm + out + _queries_saved(c, style)
    if style.fused_attention:
        saved += 4 * tokens * c.heads / t
        # All-to-all context parallelism keeps what the kernel wrote beside what was sent back.
        saved += out if c.cp > 1 else 0
    else:
        saved += _scores_saved(c, style)
    if style.dropout:
        saved += tokens * c.hidden / split
    return saved


def _queries_saved(c: Configuration, style: Style) -> float:
    """Queries, keys and values as the attention kernel gets them, and what made them."""
    w, tokens, t = width(c.dtype), c.tokens, c.tp
    if not c.kv_rank:
        return w * tokens * (c.heads + 2 * c.kv_heads) * c.head_dim / t
    turned = c.head_dim + c.rope_dim
    heads = w * tokens * c.heads * (2 * turned + c.head_dim + c.v_dim) / t
    # Compressed ones before and after their norm.
    compressed = w * tokens * (2 * c.q_rank + 2 * c.kv_rank + c.rope_dim)
    return heads + compressed


def _feed_forward_saved(c: Configuration, style: Style, kind: str) -> float:
    w, tokens = width(c.dtype), c.tokens
    split = _token_split(c, style)
    outside = w * tokens * c.hidden / split
    norm = tokens * (4 if style.rms_norm else 8) / split
    saved = 2 * outside + norm + (tokens * c.hidden / split if style.dropout else 0)
    # Before and after the activation; with a gate also what it is multiplied with, and where the
    # GEMM is a kernel of its own the activation's output too.
    inner = (3 if style.fused_pointwise else 4) if c.gated else 2
    if not c.experts or kind != "layer":
        return saved + inner * w * tokens * c.ffn / c.tp
    routed = tokens * c.top_k / split
    saved += w * routed * c.hidden + inner * w * routed * c.expert_ffn
    saved += inner * w * tokens * c.shared_ffn / c.tp
    # The router's scores and chances in float, and the map of tokens to experts.
    return saved + tokens / split * c.experts * (4 + 4 + 1) + 4 * routed


def _layer_temporary(c: Configuration, style: Style, kind: str) -> float:
    """The most that the backward pass of a layer needs beside what was kept.

    It is at the activation of the feed-forward part: the gradient that came in waits for the
    residual, the one of the wide middle exists after and before the activation. What the second
    GEMM had kept is gone by then.
    """
    w, tokens = width(c.dtype), c.tokens
    full = float(w * tokens * c.hidden)
    wide = 2 if c.gated else 1
    if c.experts and kind == "layer":
        routed = tokens * c.top_k / _token_split(c, style)
        return full + w * routed * c.expert_ffn * wide
    middle = w * tokens * c.ffn / c.tp * wide
    gradients = 0.0
    if not style.fused_gradients:
        gradients = w * max(a * b for a, b, _ in _weights(c, style, kind).matrices)
    return full / _token_split(c, style) + middle + gradients


def _loss_bytes(c: Configuration, style: Style) -> float:
    """Bytes a logit has at the loss's fullest moment."""
    w, number = width(c.dtype), style.loss_bytes
    if style.loss == "eager":
        # The gradient that came, log-softmax's output, the gradient that leaves.
        return 3.0 * number
    if style.loss == "parallel":
        # A wide copy of the logits becomes their exponentials in place; the gradient is made
        # of it, and copied back to the model's dtype.
        return 2.0 * number + (w if w < number else 0)
    return float(w)


def _head_memory(c: Configuration, style: Style) -> tuple[float, float]:
    """Logits at the loss, and what the head's backward pass needs beside."""
    w, tokens = width(c.dtype), c.tokens
    share = vocab_share(c, style)
    split = _token_split(c, style)
    ends = 2 * w * tokens * c.hidden / split
    logits = _loss_bytes(c, style) * tokens * share + ends
    full = w * tokens * c.hidden
    # Backward of the head's GEMM: logits' gradient, its input gathered, the input's gradient
    # before and after it is scattered, and a place for the weight's gradient.
    gemm = w * tokens * share + ends + full * (2 if split > 1 else 1)
    gemm += w * share * c.hidden
    if style.loss == "fused":
        return w * tokens * share + ends, gemm - (w * tokens * share + ends)
    return max(logits, gemm), 0.0


@functools.lru_cache(4096)
def _dummies(c: Configuration, style: Style, kinds: tuple[str, ...]) -> float:
    if not style.dummy_gradients:
        return 0.0
    shapes = {
        (a, b)
        for kind in set(kinds)
        for a, b, _ in (_weights(c, style, kind).matrices + _weights(c, style, kind).experts)
        if not (c.experts and a == c.experts)
    }
    return float(width(c.dtype) * sum(a * b for a, b in shapes))


def _stage(c: Configuration, style: Style, stage: int) -> Memory:
    kinds = stage_layers(c, stage)
    # Parameters that all ranks of a tensor group share out, and those of experts.
    counts = parameter_counts(c, style)
    shared = sum(_weights(c, style, k).shared for k in kinds)
    shared += counts["embedding"] if stage == 0 else 0.0
    shared += counts["head"] if stage == c.pp - 1 else 0.0
    expert = sum(_weights(c, style, k).expert for k in kinds)
    number = shared + expert
    sharded = number
    if style.shard_optimizer:
        sharded = shared / (c.dp * c.cp) + expert / expert_copies(c)
    gradients = style.gradient_bytes * number
    kept = {k: _kept(c, style, k) for k in set(kinds)}
    passes = in_flight(c.pp, c.accumulation, stage, c.interleave) / c.interleave
    saved = passes * sum(kept[k].saved for k in kinds)
    widest = max((kept[k].recomputed + kept[k].temporary for k in kinds), default=0.0)
    backward = Memory(
        parameters=(style.weight_bytes or width(c.dtype)) * number,
        # The first micro-batch's gradients stay while the others run.
        gradients=0.0 if style.gradients_released and c.accumulation == 1 else gradients,
        optimizer=style.state_bytes * sharded,
        activations=saved,
        logits=0.0,
        temporary=widest,
        other=style.workspace_bytes
        + _dummies(c, style, kinds)
        + 16.0 * c.tokens  # token ids and labels, eight bytes each
        + _copies(c, style, number, gradients),
        stage=stage,
        moment="backward",
    )
    replace = msgspec.structs.replace
    moments = [
        backward,
        replace(backward, gradients=gradients, activations=0.0, temporary=0.0, moment="optimizer"),
    ]
    if stage == c.pp - 1:
        logits, beside = _head_memory(c, style)
        moments.append(replace(backward, logits=logits, temporary=beside, moment="loss"))
    return max(moments, key=lambda m: m.total)


def _copies(c: Configuration, style: Style, number: float, gradients: float) -> float:
    """Copies that wrappers make of weights and gradients."""
    # Weights that are wider than what computes with them are cast once a step.
    cast = width(c.dtype) * number if style.weight_bytes > width(c.dtype) else 0.0
    # Reductions beside the backward pass have buckets that gradients are copied into.
    buckets = style.overlap_gradients and not style.shard_optimizer and c.dp * c.cp > 1
    return cast + (gradients if buckets else 0.0)


def stage_memory(configuration: Configuration, style: Style, stage: int | None = None) -> Memory:
    """The fullest moment of a pipeline stage, or of the fullest stage.

    >>> from gnomon.systems.training.prediction.analytic.style import find_style
    >>> c = Configuration(layers=12, hidden=2048, heads=16, seq=2048, batch=4)
    >>> round(stage_memory(c, find_style("torch")).total / 2**30, 1)
    15.3
    """
    if stage is None:
        # The first stage holds the embedding and most micro-batches, the second most layers, the
        # last the logits; those between hold what the second does, for fewer micro-batches.
        # Dense layers among others may make any stage the fullest.
        last = configuration.pp - 1
        few = sorted({0, min(1, last), last})
        stages = range(configuration.pp) if configuration.dense_layers else few
        return max((_stage(configuration, style, s) for s in stages), key=lambda m: m.total)
    if not 0 <= stage < configuration.pp:
        raise InputError(f"there is no stage {stage} in a pipeline of {configuration.pp}")
    return _stage(configuration, style, stage)


def least_recompute(configuration: Configuration, style: Style, memory_bytes: float) -> Style:
    """The style with as little recomputation as fits: none, the inside of attention, or all.

    Where nothing fits, all is recomputed: `stage_memory` then says by how much it is too large.

    >>> from gnomon.systems.training.prediction.analytic.style import find_style
    >>> c = Configuration(layers=24, hidden=2048, heads=16, seq=1024, batch=8, dtype="fp16")
    >>> old = find_style("megatron-2022")
    >>> [least_recompute(c, old, gib * 2**30).recompute for gib in (80, 32)]
    ['none', 'full']
    """
    kinds = ("none", "full") if style.fused_attention else ("none", "selective", "full")
    for kind in kinds:
        candidate = style if style.recompute == kind else style.changed(recompute=kind)
        if stage_memory(configuration, candidate).total <= memory_bytes:
            return candidate
    return candidate
