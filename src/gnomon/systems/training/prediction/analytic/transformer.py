"""The operators of a transformer's training step, part by part, as one rank runs them.

What is here are sizes, not times: GEMMs with their three sizes, attention with its heads,
kernels that move so many bytes, collectives over so many ranks. `operators` puts times to them.

The order of operators, and what tensor parallelism communicates, follow Shoeybi et al. 2019
(section 3) and, for sequence parallelism and selective recomputation, Korthikanti et al. 2022
(sections 4.2 and 5).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gnomon.systems.training.prediction.analytic.style import Style, width
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.memory import (
    expert_copies,
    expert_counts,
    layer_kinds,
    parameter_counts,
    vocab_share,
)

__all__ = ["Work", "list_work"]

#: A copy between layouts moves its bytes this much slower than a plain one (measured on an H200:
#: 0.9 to 1.1 TB/s of 4.2, the gradients of heads going back to their GEMM).
STRIDED = 4.0
#: The same for a copy that widens numbers (1.9 TB/s of 4.2).
WIDENING = 2.2
#: The same for a kernel that reads two types at once: a gradient and the mask of a dropout (3.1 to
#: 3.4 times the bytes' time in NeuSight's H100 labels).
MIXED = 3.0
#: Passes over the activation's width of a tanh-GELU written out in eight operators, and of their
#: gradients.
_WRITTEN_OUT = (18.0, 21.0)
#: The lane on which tensor-parallel communications run beside GEMMs.
TENSOR_LANE = "tensor"


class Work(msgspec.Struct, frozen=True, gc=False):
    """One kernel's sizes.

    Attributes:
        family: gemm, attention, one of the kinds of memory-bound work, or communication.
        sizes: gemm: m, n, k, batch. attention: batch, heads, seq_q, seq_k, head_dim, v_dim,
            kv_heads. communication: bytes, members, and of how many ranks side by side one is a
            member. Else: bytes, rows.
        detail: Kind of collective; "backward" for attention's gradient; for a GEMM the number
            of elements that its matrices' widths are multiples of, where that is too few for
            whole loads of 16 bytes, or "grouped" where a batch's GEMMs have matrices of their
            own.
        launches: Launches that the host makes for it.
        wait_us: What the device waits before it.
    """

    name: str
    family: str
    sizes: tuple[float, ...]
    detail: str = ""
    lane: str = "compute"
    joins: tuple[str, ...] = ()
    launches: float = 1.0
    wait_us: float = 0.0


_Works = Iterator[Work]


def list_work(configuration: Configuration, style: Style) -> dict[str, tuple[Work, ...]]:
    """The operators of every part of a step, named as in `program.PARTS`."""
    c = configuration
    parts: dict[str, tuple[Work, ...]] = {
        "embedding.forward": tuple(_embedding_forward(c, style)),
        "embedding.backward": tuple(_embedding_backward(c, style)),
        "head.forward": tuple(_head_forward(c, style)),
        "head.backward": tuple(_head_backward(c, style)),
    }
    counts, experts = parameter_counts(c, style), expert_counts(c, style)
    for kind in dict.fromkeys(layer_kinds(c)):
        forward = tuple(_layer_forward(c, style, kind))
        backward = tuple(_layer_backward(c, style, kind))
        parts[f"{kind}.forward"] = forward
        parts[f"{kind}.backward"] = _recomputed(c, style, forward) + backward
    for name in ("embedding", *dict.fromkeys(layer_kinds(c)), "head"):
        parts[f"optimizer.{name}"] = tuple(
            _optimizer(c, style, name, counts[name], experts.get(name, 0.0))
        )
    parts["optimizer.step"] = tuple(_optimizer_ends(c, style))
    return parts


def _recomputed(c: Configuration, style: Style, forward: tuple[Work, ...]) -> tuple[Work, ...]:
    if style.recompute == "full":
        again = forward
    elif style.recompute == "selective" and not style.fused_attention:
        again = tuple(w for w in forward if w.name in _INSIDE_ATTENTION)
    else:
        return ()
    return tuple(msgspec.structs.replace(w, name=f"recomputed {w.name}") for w in again)


# --- pieces that several parts share -----------------------------------------------------------


def _memory(name: str, bytes_: float, family: str = "elementwise", rows: float = 0.0) -> Work:
    return Work(name, family, (bytes_, rows))


def _gemm(name: str, m: float, n: float, k: float, batch: float = 1.0, align: str = "") -> Work:
    return Work(name, "gemm", (m, n, k, batch), align)


def _alignment(c: Configuration, *widths: float) -> str:
    """Elements that all widths are multiples of, or "" where that does not matter.

    Units for narrow numbers want loads of 16 bytes; those for floats take what they get.
    """
    if width(c.dtype) > 2:
        return ""
    shared = min(int(size) & -int(size) for size in widths)
    return "" if shared >= 16 // width(c.dtype) else str(shared)


def _collective(
    name: str, kind: str, bytes_: float, ranks: int, *, beside: bool = False, stride: int = 1
) -> Work:
    lane = TENSOR_LANE if beside else "compute"
    return Work(name, "communication", (bytes_, ranks, stride), kind, lane)


class _Sizes(msgspec.Struct, frozen=True):
    """Sizes that every operator asks for."""

    w: int
    tokens: int
    outside: float

    @classmethod
    def of(cls, c: Configuration, style: Style) -> _Sizes:
        split = c.tp if style.sequence_parallel else 1
        return cls(width(c.dtype), c.tokens, c.tokens / split)


def _norm(c: Configuration, style: Style, name: str) -> Work:
    s = _Sizes.of(c, style)
    return _memory(name, 2 * s.w * s.outside * c.hidden, "normalisation", s.outside)


def _norm_backward(c: Configuration, style: Style, name: str) -> _Works:
    s = _Sizes.of(c, style)
    size = s.w * s.outside * c.hidden
    yield _memory(f"{name} gradient", 3 * size, "normalisation", s.outside)
    yield _memory(f"{name} weight gradient", 2 * size, "reduction")


def _enter(c: Configuration, style: Style, name: str) -> _Works:
    """Before a GEMM whose columns are shared out: tokens come together."""
    if c.tp > 1 and style.sequence_parallel:
        s = _Sizes.of(c, style)
        yield _collective(f"gather {name}", "all-gather", s.w * s.tokens * c.hidden, c.tp)


def _leave(c: Configuration, style: Style, name: str) -> _Works:
    """After a GEMM whose rows are shared out: sums come together."""
    if c.tp > 1:
        s = _Sizes.of(c, style)
        kind = "reduce-scatter" if style.sequence_parallel else "all-reduce"
        yield _collective(f"reduce {name}", kind, s.w * s.tokens * c.hidden, c.tp)


def _add_residual(c: Configuration, style: Style, name: str) -> _Works:
    s = _Sizes.of(c, style)
    size = s.outside * c.hidden
    if style.dropout and not style.fused_pointwise:
        yield _memory(f"{name} dropout", (2 * s.w + 1) * size)
        yield _memory(f"{name} residual", 3 * s.w * size)
        return
    yield _memory(f"{name} residual", (3 * s.w + (1 if style.dropout else 0)) * size)


def _add_residual_backward(c: Configuration, style: Style, name: str) -> _Works:
    s = _Sizes.of(c, style)
    size = s.outside * c.hidden
    if style.dropout:
        slower = 1.0 if style.fused_pointwise else MIXED
        yield _memory(f"{name} dropout gradient", slower * (2 * s.w + 1) * size)
    if style.bias and style.fused_pointwise:
        yield _memory(f"{name} bias gradient", s.w * size, "reduction")


def _join_residual(c: Configuration, style: Style, name: str) -> _Works:
    """Gradients of the two ways around a part are added."""
    s = _Sizes.of(c, style)
    yield _memory(f"{name} residual gradient", 3 * s.w * s.outside * c.hidden)


def _weight_gradient(c: Configuration, style: Style, name: str, out: float, into: float,
                     rows: float, batch: float = 1.0, bias: bool = True) -> _Works:  # fmt: skip
    w = width(c.dtype)
    align = "grouped" if batch > 1 else _alignment(c, out, into)
    yield _gemm(f"{name} weight gradient", out, into, rows, batch, align)
    if style.bias and bias:
        yield _memory(f"{name} bias gradient", w * rows * out, "reduction")
    size = out * into * batch
    if style.fused_gradients:
        # The GEMM adds to what is there: one more reading, and the wider writing.
        extra = 2 * style.gradient_bytes - w
        yield Work(f"{name} accumulate", "copy", (extra * size, 0.0), launches=0.0)
    elif c.accumulation > 1:
        yield _memory(f"{name} accumulate", 3 * style.gradient_bytes * size, "elementwise")


def _column_backward(
    c: Configuration, style: Style, name: str, out: float, into: float, *, bias: bool = True
) -> _Works:
    """Backward of a GEMM whose columns are shared out over tensor-parallel ranks.

    The communication of the input's gradient runs beside the weight's gradient, and so does the
    gathering of the input that sequence parallelism needs again.
    """
    s = _Sizes.of(c, style)
    full = s.w * s.tokens * c.hidden
    shares = c.tp > 1
    beside = style.overlap_tensor
    if shares and style.sequence_parallel:
        yield _collective(f"gather {name} again", "all-gather", full, c.tp, beside=beside)
    yield _gemm(f"{name} input gradient", s.tokens, into, out, 1.0, _alignment(c, out, into))
    if shares:
        kind = "reduce-scatter" if style.sequence_parallel else "all-reduce"
        yield _collective(f"reduce {name} gradient", kind, full, c.tp, beside=beside)
    yield from _weight_gradient(c, style, name, out, into, s.tokens, bias=bias)


def _row_backward(c: Configuration, style: Style, name: str, out: float, into: float) -> _Works:
    s = _Sizes.of(c, style)
    if c.tp > 1 and style.sequence_parallel:
        yield _collective(f"gather {name} gradient", "all-gather", s.w * s.tokens * out, c.tp)
    yield _gemm(f"{name} input gradient", s.tokens, into, out)
    yield from _weight_gradient(
        c, style, name, out, into, s.tokens, bias=not style.fused_pointwise
    )


# --- attention ---------------------------------------------------------------------------------

_INSIDE_ATTENTION = frozenset(
    {"scores", "scale", "mask", "softmax", "attention dropout", "values"}
)


def _scores(c: Configuration) -> tuple[float, float]:
    """How many (sequence, head) pairs a rank has, and queries times keys of one."""
    return c.batch * c.heads / c.tp / c.cp, float(c.seq) * c.seq


def _attention_forward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    pairs, square = _scores(c)
    yield from _all_to_all_sequence(c, style, (c.heads + 2 * c.kv_heads) * c.head_dim, "queries")
    if style.fused_attention:
        yield Work("attention", "attention", _attention_sizes(c), "forward")
    else:
        yield _gemm("scores", c.seq, c.seq, _query_width(c), pairs)
        if not style.fused_softmax:
            yield _memory("scale", 2 * s.w * pairs * square)
            yield _memory("mask", (2 * s.w + 1) * pairs * square)
        yield _memory("softmax", 2 * s.w * pairs * square, "softmax", pairs * c.seq)
        if style.dropout:
            yield _memory("attention dropout", (2 * s.w + 1) * pairs * square)
        yield _gemm("values", c.seq, c.v_dim, c.seq, pairs)
        yield _memory("merge heads", 2 * s.w * s.tokens * c.heads * c.v_dim / c.tp, "copy")
    yield from _all_to_all_sequence(c, style, c.heads * c.v_dim, "attention")


def _attention_backward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    pairs, square = _scores(c)
    yield from _all_to_all_sequence(c, style, c.heads * c.v_dim, "attention gradient")
    if style.fused_attention:
        yield Work("attention gradient", "attention", _attention_sizes(c), "backward")
        if style.packed_heads:
            packed = STRIDED * 2 * s.w * s.tokens * (c.heads + 2 * c.kv_heads) * c.head_dim / c.tp
            yield _memory("stack heads gradient", packed, "copy")
            yield _memory("reorder heads gradient", packed, "copy")
    else:
        yield _gemm("values gradient", c.seq, c.v_dim, c.seq, pairs)
        yield _gemm("chances gradient", c.seq, c.seq, c.v_dim, pairs)
        if style.dropout:
            dropped = MIXED * (2 * s.w + 1) * pairs * square
            yield _memory("attention dropout gradient", dropped)
        # Without a kernel of its own, both inputs are read for the sum and again for the result.
        passes = 3 if style.fused_softmax else 5
        yield _memory("softmax gradient", passes * s.w * pairs * square, "softmax", pairs * c.seq)
        if not style.fused_softmax:
            yield _memory("mask gradient", (2 * s.w + 1) * pairs * square)
            yield _memory("scale gradient", 2 * s.w * pairs * square)
        yield _gemm("queries gradient", c.seq, _query_width(c), c.seq, pairs)
        yield _gemm("keys gradient", c.seq, _query_width(c), c.seq, pairs)
        merged = 2 * s.w * s.tokens * (c.heads + 2 * c.kv_heads) * c.head_dim / c.tp
        yield _memory("split heads gradient", merged, "copy")
    yield from _all_to_all_sequence(
        c, style, (c.heads + 2 * c.kv_heads) * c.head_dim, "queries gradient"
    )


def _query_width(c: Configuration) -> int:
    return c.head_dim + (c.rope_dim if c.kv_rank else 0)


def _attention_sizes(c: Configuration) -> tuple[float, ...]:
    shared = max(1.0, c.kv_heads / c.tp / c.cp)
    heads = c.heads / c.tp / c.cp
    return (c.batch, heads, c.seq, c.seq, _query_width(c), c.v_dim, shared)


def _all_to_all_sequence(c: Configuration, style: Style, wide: int, name: str) -> _Works:
    """Context parallelism: parts of sequences become parts of heads, or back."""
    if c.cp > 1:
        s = _Sizes.of(c, style)
        bytes_ = s.w * s.tokens * wide / c.tp
        yield _collective(f"all-to-all {name}", "all-to-all", bytes_, c.cp, stride=c.tp)
        yield _memory(f"reorder {name}", 4 * bytes_, "copy")


def _rotary(c: Configuration, style: Style, name: str) -> _Works:
    if not style.rotary:
        return
    s = _Sizes.of(c, style)
    if c.kv_rank:
        turned = 2 * c.heads * (c.head_dim + c.rope_dim)
    else:
        turned = (c.heads + c.kv_heads) * c.head_dim
    yield Work(name, "elementwise", (2 * s.w * s.tokens * turned / c.tp, 0.0), launches=2)


def _queries_forward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    if not c.kv_rank:
        yield _gemm("qkv", s.tokens, (c.heads + 2 * c.kv_heads) * c.head_dim / c.tp, c.hidden)
        return
    for name, out, into, normed in _latent_gemms(c):
        yield _gemm(name, s.tokens, out, into)
        if normed:
            yield _memory(f"{name} norm", 2 * s.w * s.tokens * normed, "normalisation", s.tokens)


def _latent_gemms(c: Configuration) -> list[tuple[str, float, float, int]]:
    """GEMMs of latent attention: name, outputs, inputs, width of the norm that follows."""
    query = c.heads * _query_width(c) / c.tp
    queries = (
        [("query down", c.q_rank, c.hidden, c.q_rank), ("query up", query, c.q_rank, 0)]
        if c.q_rank
        else [("query", query, c.hidden, 0)]
    )
    return [
        *queries,
        ("latent down", c.kv_rank + c.rope_dim, c.hidden, c.kv_rank),
        ("latent up", c.heads * (c.head_dim + c.v_dim) / c.tp, c.kv_rank, 0),
    ]


def _queries_backward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    if not c.kv_rank:
        out = (c.heads + 2 * c.kv_heads) * c.head_dim / c.tp
        yield from _column_backward(c, style, "qkv", out, c.hidden)
        return
    for name, out, into, normed in reversed(_latent_gemms(c)):
        if normed:
            moved = 5 * s.w * s.tokens * normed
            yield _memory(f"{name} norm gradient", moved, "normalisation", s.tokens)
        yield _gemm(f"{name} input gradient", s.tokens, into, out)
        yield from _weight_gradient(c, style, name, out, into, s.tokens)


# --- the feed-forward part ---------------------------------------------------------------------


def _activation(c: Configuration, style: Style, tokens: float, ffn: float, name: str) -> _Works:
    w = width(c.dtype)
    size = w * tokens * ffn
    if style.fused_pointwise:
        yield _memory(name, (3 if c.gated else 2) * size)
    elif style.written_out_gelu and not c.gated:
        yield Work(name, "elementwise", (_WRITTEN_OUT[0] * size, 0.0), launches=8)
    else:
        yield _memory(name, 2 * size)
    if c.gated and not style.fused_pointwise:
        yield _memory(f"{name} gate", 3 * size)


def _activation_backward(
    c: Configuration, style: Style, tokens: float, ffn: float, name: str
) -> _Works:
    w = width(c.dtype)
    size = w * tokens * ffn
    if c.gated:
        yield _memory(f"{name} gradient", 5 * size)
        if not style.fused_pointwise:
            yield _memory(f"{name} gate gradient", 3 * size)
    elif style.written_out_gelu:
        moved = _WRITTEN_OUT[1] * size
        yield Work(f"{name} gradient", "elementwise", (moved, 0.0), launches=9)
    else:
        yield _memory(f"{name} gradient", 3 * size)
        if style.bias and style.fused_pointwise:
            yield _memory(f"{name} bias gradient", size, "reduction")


def _dense_forward(c: Configuration, style: Style, ffn: float, name: str = "") -> _Works:
    s = _Sizes.of(c, style)
    yield _gemm(f"{name}up", s.tokens, (2 if c.gated else 1) * ffn / c.tp, c.hidden)
    yield from _activation(c, style, s.tokens, ffn / c.tp, f"{name}activation")
    yield _gemm(f"{name}down", s.tokens, c.hidden, ffn / c.tp)


def _dense_backward(c: Configuration, style: Style, ffn: float, name: str = "") -> _Works:
    s = _Sizes.of(c, style)
    yield from _row_backward(c, style, f"{name}down", c.hidden, ffn / c.tp)
    yield from _activation_backward(c, style, s.tokens, ffn / c.tp, f"{name}activation")
    wide = (2 if c.gated else 1) * ffn / c.tp
    # With shared kernels the activation's gradient has dealt with the bias.
    bias = not style.fused_pointwise
    yield from _column_backward(c, style, f"{name}up", wide, c.hidden, bias=bias)


def _experts_forward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    routed, here, each = _routing(c, style)
    moved = 2 * s.w * routed * c.hidden
    yield _gemm("router", s.outside, c.experts, c.hidden)
    yield Work("choose experts", "softmax", (20 * s.outside * c.experts, s.outside), launches=12)
    yield _memory("sort tokens", moved, "copy")
    yield from _all_to_all_tokens(c, s.w * routed * c.hidden, "tokens to experts")
    if here > 1:
        yield _memory("sort by expert", moved, "copy")
    wide = (2 if c.gated else 1) * c.expert_ffn
    up = _gemm("expert up", each, wide, c.hidden, here, "grouped")
    yield msgspec.structs.replace(up, wait_us=style.pause_routing_us)
    yield from _activation(c, style, routed, c.expert_ffn, "expert activation")
    yield _gemm("expert down", each, c.hidden, c.expert_ffn, here, "grouped")
    if here > 1:
        yield _memory("unsort by expert", moved, "copy")
    yield from _all_to_all_tokens(c, s.w * routed * c.hidden, "tokens from experts")
    yield _memory("unsort tokens", moved, "copy")
    if c.shared_ffn:
        yield from _dense_forward(c, style, c.shared_ffn, "shared ")
        yield _memory("add shared", 3 * s.w * s.outside * c.hidden)


def _experts_backward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    routed, here, each = _routing(c, style)
    wide = (2 if c.gated else 1) * c.expert_ffn
    moved = 2 * s.w * routed * c.hidden
    if c.shared_ffn:
        yield from _dense_backward(c, style, c.shared_ffn, "shared ")
    yield _memory("unsort tokens gradient", moved, "copy")
    yield from _all_to_all_tokens(c, s.w * routed * c.hidden, "gradients to experts")
    if here > 1:
        yield _memory("unsort by expert gradient", moved, "copy")
    down = _gemm("expert down input gradient", each, c.expert_ffn, c.hidden, here, "grouped")
    yield msgspec.structs.replace(down, wait_us=style.pause_routing_us)
    yield from _weight_gradient(
        c, style, "expert down", c.hidden, c.expert_ffn, each, here, bias=False
    )
    yield from _activation_backward(c, style, routed, c.expert_ffn, "expert activation")
    yield _gemm("expert up input gradient", each, c.hidden, wide, here, "grouped")
    yield from _weight_gradient(c, style, "expert up", wide, c.hidden, each, here, bias=False)
    if here > 1:
        yield _memory("sort by expert gradient", moved, "copy")
    yield from _all_to_all_tokens(c, s.w * routed * c.hidden, "gradients from experts")
    yield _memory("sort tokens gradient", moved, "copy")
    yield Work("router gradient", "softmax", (20 * s.outside * c.experts, s.outside), launches=10)
    yield _gemm("router input gradient", s.outside, c.hidden, c.experts)
    yield from _weight_gradient(c, style, "router", c.experts, c.hidden, s.outside, bias=False)


def _routing(c: Configuration, style: Style) -> tuple[float, float, float]:
    """Tokens times experts of a rank, experts it holds, tokens of each, evenly spread."""
    routed = _Sizes.of(c, style).outside * c.top_k
    here = c.experts // c.ep
    return routed, float(here), max(1.0, routed / here)


def _all_to_all_tokens(c: Configuration, bytes_: float, name: str) -> _Works:
    if c.ep > 1:
        yield _collective(name, "all-to-all", bytes_, c.ep, stride=c.tp)


# --- a layer -----------------------------------------------------------------------------------


def _layer_forward(c: Configuration, style: Style, kind: str) -> _Works:
    yield _norm(c, style, "attention norm")
    yield from _enter(c, style, "attention")
    yield from _queries_forward(c, style)
    yield from _rotary(c, style, "rotary")
    yield from _attention_forward(c, style)
    yield _gemm("projection", c.tokens, c.hidden, c.heads * c.v_dim / c.tp)
    yield from _leave(c, style, "attention")
    yield from _add_residual(c, style, "attention")
    yield _norm(c, style, "feed-forward norm")
    if c.experts and kind == "layer":
        yield from _experts_forward(c, style)
    else:
        yield from _enter(c, style, "feed-forward")
        yield from _dense_forward(c, style, c.ffn)
        yield from _leave(c, style, "feed-forward")
    yield from _add_residual(c, style, "feed-forward")


def _layer_backward(c: Configuration, style: Style, kind: str) -> _Works:
    yield from _add_residual_backward(c, style, "feed-forward")
    if c.experts and kind == "layer":
        yield from _experts_backward(c, style)
    else:
        yield from _dense_backward(c, style, c.ffn)
    yield from _joined(_norm_backward(c, style, "feed-forward norm"))
    yield from _join_residual(c, style, "feed-forward")
    yield from _add_residual_backward(c, style, "attention")
    yield from _row_backward(c, style, "projection", c.hidden, c.heads * c.v_dim / c.tp)
    yield from _attention_backward(c, style)
    yield from _rotary(c, style, "rotary gradient")
    yield from _queries_backward(c, style)
    yield from _joined(_norm_backward(c, style, "attention norm"))
    yield from _join_residual(c, style, "attention")


def _joined(works: _Works) -> _Works:
    """These, the first of which waits for what tensor parallelism communicates beside."""
    for number, work in enumerate(works):
        yield msgspec.structs.replace(work, joins=(TENSOR_LANE,)) if not number else work


# --- the ends of the model ---------------------------------------------------------------------


def _vocab(c: Configuration, style: Style) -> float:
    return float(vocab_share(c, style))


def _embedding_forward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    size = s.w * s.tokens * c.hidden
    yield _memory("words", 2 * size, "embedding", s.tokens)
    if c.tp > 1:
        kind = "reduce-scatter" if style.sequence_parallel else "all-reduce"
        yield _collective("reduce words", kind, size, c.tp)
    if not style.rotary:
        yield _memory("positions", 2 * size, "embedding", s.tokens)
        yield _memory("add positions", 3 * size)
    if style.dropout:
        yield _memory("embedding dropout", (2 * s.w + 1) * s.outside * c.hidden)


def _embedding_backward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    size = s.w * s.tokens * c.hidden
    table = s.w * _vocab(c, style) * c.hidden
    if style.dropout:
        yield _memory("embedding dropout gradient", (2 * s.w + 1) * s.outside * c.hidden)
    if c.tp > 1 and style.sequence_parallel:
        yield _collective("gather words gradient", "all-gather", size, c.tp)
    if not style.rotary:
        yield _memory("positions gradient", 3 * size, "embedding", s.tokens)
    yield _memory("words gradient clear", table, "copy")
    yield Work("words gradient", "embedding", (3 * size, s.tokens), launches=6)
    if style.tied_head and c.pp == 1:
        yield _memory("words gradient link", 3 * table)
    elif c.accumulation > 1 or style.fused_gradients:
        yield _memory("words gradient accumulate", table + 2 * style.gradient_bytes / s.w * table)


def _head_forward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    yield _norm(c, style, "last norm")
    yield from _enter(c, style, "head")
    vocab = _vocab(c, style)
    yield _gemm("head", s.tokens, vocab, c.hidden, 1.0, _alignment(c, vocab, c.hidden))
    logits = s.tokens * vocab
    if style.loss == "fused":
        yield _memory("loss", 3 * s.w * logits, "softmax", s.tokens)
        if c.tp > 1:
            yield _collective("gather loss", "all-gather", 12.0 * s.tokens * c.tp, c.tp)
        return
    number = style.loss_bytes
    if s.w < number:
        yield _memory("logits to float", WIDENING * (s.w + number) * logits, "copy")
    if style.loss == "eager":
        # A row of the vocabulary does not fit a processor: it is read for its largest, for its
        # sum, and to be written.
        yield _memory("log-softmax", 4 * number * logits, "softmax", s.tokens)
        yield _memory("loss", 12 * s.tokens, "reduction")
        return
    sums = c.tp > 1
    yield _memory("largest logit", number * logits, "reduction", s.tokens)
    if sums:
        yield _collective("reduce largest", "all-reduce", 4.0 * s.tokens, c.tp)
    yield _memory("logits less largest", 2 * number * logits)
    yield Work("target logit", "elementwise", (40 * s.tokens, 0.0), launches=8)
    if sums:
        yield _collective("reduce target", "all-reduce", 4.0 * s.tokens, c.tp)
    yield _memory("exponentials", 2 * number * logits)
    yield _memory("sum", number * logits, "reduction", s.tokens)
    if sums:
        yield _collective("reduce sum", "all-reduce", 4.0 * s.tokens, c.tp)
    yield _memory("chances", 2 * number * logits)


def _head_backward(c: Configuration, style: Style) -> _Works:
    s = _Sizes.of(c, style)
    logits, number = s.tokens * _vocab(c, style), style.loss_bytes
    if style.loss == "eager":
        yield _memory("loss gradient clear", number * logits, "copy")
        yield _memory("loss gradient", 16 * s.tokens)
        yield _memory("log-softmax gradient", 5 * number * logits, "softmax", s.tokens)
    elif style.loss == "parallel":
        yield Work("target gradient", "elementwise", (24 * s.tokens, 0.0), launches=5)
        yield _memory("loss gradient", 2 * number * logits)
    if style.loss != "fused" and s.w < number:
        yield _memory("logits gradient to narrow", (s.w + number) * logits, "copy")
    yield from _column_backward(c, style, "head", _vocab(c, style), c.hidden, bias=False)
    yield from _joined(_norm_backward(c, style, "last norm"))


# --- the optimiser -----------------------------------------------------------------------------


def _optimizer(c: Configuration, style: Style, name: str, number: float, experts: float) -> _Works:
    if not style.optimizer_in_step:
        return
    w, g = width(c.dtype), style.gradient_bytes
    if style.loss_scale:
        # Gradients are copied to float, looked through for overflow, and scaled back.
        yield Work(f"unscale {name}", "optimizer", ((g + 4 + 4 + 8) * number, 0.0))
    if style.clip:
        yield Work(f"norm {name}", "reduction", (g * number, 0.0))
    if not style.gradients_released:
        yield Work(f"clear gradients {name}", "copy", (g * number, 0.0), launches=0.2)
    mine = number
    if style.shard_optimizer:
        mine = (number - experts) / (c.dp * c.cp) + experts / expert_copies(c)
    state = 2 * style.state_bytes
    copy = w if style.state_bytes > 2 * w + 2 else 2 * w
    passes = 1.0 if style.optimizer == "fused" else 2.5
    bytes_ = passes * (g + state + copy) * mine
    yield Work(f"update {name}", "optimizer", (bytes_, 0.0), launches=passes)


def _optimizer_ends(c: Configuration, style: Style) -> _Works:
    if style.clip and style.optimizer_in_step:
        yield _memory("norm of norms", 4096.0, "reduction")
        if c.world > 1:
            yield _collective("reduce norm", "all-reduce", 4.0, c.pp * c.tp)
