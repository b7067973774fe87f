"""The operators of a transformer's training step, part by part, as one rank runs them.

What is here are sizes, not times: GEMMs with their three sizes, attention with its heads,
kernels that move so many bytes, collectives over so many ranks. `operators` puts times to them.

The order of operators, and what tensor parallelism communicates, follow Shoeybi et al. 2019
(section 3) and, for sequence parallelism and selective recomputation, Korthikanti et al. 2022
(sections 4.2 and 5).
"""

from __future__ import annotations

import msgspec

from gnomon.systems.training.prediction.analytic.style import Style
from gnomon.systems.training.prediction.analytic.work import (
    TENSOR_LANE,
    Rank,
    Work,
    Works,
    alignment,
    collective,
    gemm,
    moves,
)
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.memory import (
    expert_copies,
    expert_counts,
    layer_kinds,
    parameter_counts,
)

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


def list_work(configuration: Configuration, style: Style) -> dict[str, tuple[Work, ...]]:
    """The operators of every part of a step, named as in `program.PARTS`."""
    c, r = configuration, Rank.of(configuration, style)
    parts: dict[str, tuple[Work, ...]] = {
        "embedding.forward": tuple(_embedding_forward(r)),
        "embedding.backward": tuple(_embedding_backward(r)),
        "head.forward": tuple(_head_forward(r)),
        "head.backward": tuple(_head_backward(r)),
    }
    kinds = tuple(dict.fromkeys(layer_kinds(c)))
    for kind in kinds:
        parts[f"{kind}.forward"] = forward = tuple(_layer_forward(r, kind))
        parts[f"{kind}.backward"] = (*_recomputed(style, forward), *_layer_backward(r, kind))
    counts, experts = parameter_counts(c, style), expert_counts(c, style)
    for name in ("embedding", *kinds, "head"):
        update = _optimizer(r, name, counts[name], experts.get(name, 0.0))
        parts[f"optimizer.{name}"] = tuple(update)
    parts["optimizer.step"] = tuple(_optimizer_ends(r))
    return parts


def _recomputed(style: Style, forward: tuple[Work, ...]) -> Works:
    """What the backward pass runs again before its own work."""
    inside = style.recompute == "selective" and not style.fused_attention
    for work in forward:
        if style.recompute == "full" or (inside and work.name in _INSIDE_ATTENTION):
            yield msgspec.structs.replace(work, name=f"recomputed {work.name}")


# --- pieces that several parts share -----------------------------------------------------------


def _norm(r: Rank, name: str) -> Work:
    return moves(name, 2 * r.w * r.outside * r.c.hidden, "normalisation", r.outside)


def _norm_backward(r: Rank, name: str) -> Works:
    size = r.w * r.outside * r.c.hidden
    yield moves(f"{name} gradient", 3 * size, "normalisation", r.outside)
    yield moves(f"{name} weight gradient", 2 * size, "reduction")


def _enter(r: Rank, name: str) -> Works:
    """Before a GEMM whose columns are shared out: tokens come together."""
    if r.c.tp > 1 and r.style.sequence_parallel:
        yield collective(f"gather {name}", "all-gather", r.w * r.tokens * r.c.hidden, r.c.tp)


def _leave(r: Rank, name: str) -> Works:
    """After a GEMM whose rows are shared out: sums come together."""
    if r.c.tp > 1:
        kind = "reduce-scatter" if r.style.sequence_parallel else "all-reduce"
        yield collective(f"reduce {name}", kind, r.w * r.tokens * r.c.hidden, r.c.tp)


def _add_residual(r: Rank, name: str) -> Works:
    size = r.outside * r.c.hidden
    if r.style.dropout and not r.style.fused_pointwise:
        yield moves(f"{name} dropout", (2 * r.w + 1) * size)
        yield moves(f"{name} residual", 3 * r.w * size)
        return
    yield moves(f"{name} residual", (3 * r.w + (1 if r.style.dropout else 0)) * size)


def _add_residual_backward(r: Rank, name: str) -> Works:
    size = r.outside * r.c.hidden
    if r.style.dropout:
        slower = 1.0 if r.style.fused_pointwise else MIXED
        yield moves(f"{name} dropout gradient", slower * (2 * r.w + 1) * size)
    if r.style.bias and r.style.fused_pointwise:
        yield moves(f"{name} bias gradient", r.w * size, "reduction")


def _join_residual(r: Rank, name: str) -> Works:
    """Gradients of the two ways around a part are added."""
    yield moves(f"{name} residual gradient", 3 * r.w * r.outside * r.c.hidden)


def _weight_gradient(r: Rank, name: str, out: float, into: float,
                     rows: float, batch: float = 1.0, bias: bool = True) -> Works:  # fmt: skip
    align = "grouped" if batch > 1 else alignment(r, out, into)
    yield gemm(f"{name} weight gradient", out, into, rows, batch, align)
    if r.style.bias and bias:
        yield moves(f"{name} bias gradient", r.w * rows * out, "reduction")
    size = out * into * batch
    if r.style.fused_gradients:
        # The GEMM adds to what is there: one more reading, and the wider writing.
        extra = 2 * r.style.gradient_bytes - r.w
        yield Work(f"{name} accumulate", "copy", (extra * size, 0.0), launches=0.0)
    elif r.c.accumulation > 1:
        yield moves(f"{name} accumulate", 3 * r.style.gradient_bytes * size, "elementwise")


def _column_backward(r: Rank, name: str, out: float, into: float, *, bias: bool = True) -> Works:
    """Backward of a GEMM whose columns are shared out over tensor-parallel ranks.

    The communication of the input's gradient runs beside the weight's gradient, and so does the
    gathering of the input that sequence parallelism needs again.
    """
    full = r.w * r.tokens * r.c.hidden
    shares = r.c.tp > 1
    beside = r.style.overlap_tensor
    if shares and r.style.sequence_parallel:
        yield collective(f"gather {name} again", "all-gather", full, r.c.tp, beside=beside)
    yield gemm(f"{name} input gradient", r.tokens, into, out, 1.0, alignment(r, out, into))
    if shares:
        kind = "reduce-scatter" if r.style.sequence_parallel else "all-reduce"
        yield collective(f"reduce {name} gradient", kind, full, r.c.tp, beside=beside)
    yield from _weight_gradient(r, name, out, into, r.tokens, bias=bias)


def _row_backward(r: Rank, name: str, out: float, into: float) -> Works:
    if r.c.tp > 1 and r.style.sequence_parallel:
        yield collective(f"gather {name} gradient", "all-gather", r.w * r.tokens * out, r.c.tp)
    yield gemm(f"{name} input gradient", r.tokens, into, out)
    yield from _weight_gradient(r, name, out, into, r.tokens, bias=not r.style.fused_pointwise)


# --- attention ---------------------------------------------------------------------------------

_INSIDE_ATTENTION = frozenset(
    {"scores", "scale", "mask", "softmax", "attention dropout", "values"}
)


def _scores(r: Rank) -> tuple[float, float]:
    """How many (sequence, head) pairs a rank has, and queries times keys of one."""
    return r.c.batch * r.c.heads / r.c.tp / r.c.cp, float(r.c.seq) * r.c.seq


def _attention_forward(r: Rank) -> Works:
    pairs, square = _scores(r)
    yield from _all_to_all_sequence(r, r.qkv, "queries")
    if r.style.fused_attention:
        yield Work("attention", "attention", _attention_sizes(r), "forward")
    else:
        yield gemm("scores", r.c.seq, r.c.seq, _query_width(r), pairs)
        if not r.style.fused_softmax:
            yield moves("scale", 2 * r.w * pairs * square)
            yield moves("mask", (2 * r.w + 1) * pairs * square)
        yield moves("softmax", 2 * r.w * pairs * square, "softmax", pairs * r.c.seq)
        if r.style.dropout:
            yield moves("attention dropout", (2 * r.w + 1) * pairs * square)
        yield gemm("values", r.c.seq, r.c.v_dim, r.c.seq, pairs)
        yield moves("merge heads", 2 * r.w * r.tokens * r.c.heads * r.c.v_dim / r.c.tp, "copy")
    yield from _all_to_all_sequence(r, r.c.heads * r.c.v_dim, "attention")


def _attention_backward(r: Rank) -> Works:
    pairs, square = _scores(r)
    yield from _all_to_all_sequence(r, r.c.heads * r.c.v_dim, "attention gradient")
    if r.style.fused_attention:
        yield Work("attention gradient", "attention", _attention_sizes(r), "backward")
        if r.style.packed_heads:
            packed = STRIDED * 2 * r.w * r.tokens * r.qkv / r.c.tp
            yield moves("stack heads gradient", packed, "copy")
            yield moves("reorder heads gradient", packed, "copy")
    else:
        yield gemm("values gradient", r.c.seq, r.c.v_dim, r.c.seq, pairs)
        yield gemm("chances gradient", r.c.seq, r.c.seq, r.c.v_dim, pairs)
        if r.style.dropout:
            dropped = MIXED * (2 * r.w + 1) * pairs * square
            yield moves("attention dropout gradient", dropped)
        # Without a kernel of its own, both inputs are read for the sum and again for the result.
        passes = 3 if r.style.fused_softmax else 5
        yield moves("softmax gradient", passes * r.w * pairs * square, "softmax", pairs * r.c.seq)
        if not r.style.fused_softmax:
            yield moves("mask gradient", (2 * r.w + 1) * pairs * square)
            yield moves("scale gradient", 2 * r.w * pairs * square)
        yield gemm("queries gradient", r.c.seq, _query_width(r), r.c.seq, pairs)
        yield gemm("keys gradient", r.c.seq, _query_width(r), r.c.seq, pairs)
        merged = 2 * r.w * r.tokens * r.qkv / r.c.tp
        yield moves("split heads gradient", merged, "copy")
    yield from _all_to_all_sequence(r, r.qkv, "queries gradient")


def _query_width(r: Rank) -> int:
    return r.c.head_dim + (r.c.rope_dim if r.c.kv_rank else 0)


def _attention_sizes(r: Rank) -> tuple[float, ...]:
    shared = max(1.0, r.c.kv_heads / r.c.tp / r.c.cp)
    heads = r.c.heads / r.c.tp / r.c.cp
    return (r.c.batch, heads, r.c.seq, r.c.seq, _query_width(r), r.c.v_dim, shared)


def _all_to_all_sequence(r: Rank, wide: int, name: str) -> Works:
    """Context parallelism: parts of sequences become parts of heads, or back."""
    if r.c.cp > 1:
        bytes_ = r.w * r.tokens * wide / r.c.tp
        yield collective(f"all-to-all {name}", "all-to-all", bytes_, r.c.cp, stride=r.c.tp)
        yield moves(f"reorder {name}", 4 * bytes_, "copy")


def _rotary(r: Rank, name: str) -> Works:
    if not r.style.rotary:
        return
    if r.c.kv_rank:
        turned = 2 * r.c.heads * (r.c.head_dim + r.c.rope_dim)
    else:
        turned = (r.c.heads + r.c.kv_heads) * r.c.head_dim
    yield Work(name, "elementwise", (2 * r.w * r.tokens * turned / r.c.tp, 0.0), launches=2)


def _queries_forward(r: Rank) -> Works:
    if not r.c.kv_rank:
        yield gemm("qkv", r.tokens, r.qkv / r.c.tp, r.c.hidden)
        return
    for name, out, into, normed in _latent_gemms(r):
        yield gemm(name, r.tokens, out, into)
        if normed:
            yield moves(f"{name} norm", 2 * r.w * r.tokens * normed, "normalisation", r.tokens)


def _latent_gemms(r: Rank) -> list[tuple[str, float, float, int]]:
    """GEMMs of latent attention: name, outputs, inputs, width of the norm that follows."""
    query = r.c.heads * _query_width(r) / r.c.tp
    queries = (
        [("query down", r.c.q_rank, r.c.hidden, r.c.q_rank), ("query up", query, r.c.q_rank, 0)]
        if r.c.q_rank
        else [("query", query, r.c.hidden, 0)]
    )
    return [
        *queries,
        ("latent down", r.c.kv_rank + r.c.rope_dim, r.c.hidden, r.c.kv_rank),
        ("latent up", r.c.heads * (r.c.head_dim + r.c.v_dim) / r.c.tp, r.c.kv_rank, 0),
    ]


def _queries_backward(r: Rank) -> Works:
    if not r.c.kv_rank:
        out = r.qkv / r.c.tp
        yield from _column_backward(r, "qkv", out, r.c.hidden)
        return
    for name, out, into, normed in reversed(_latent_gemms(r)):
        if normed:
            moved = 5 * r.w * r.tokens * normed
            yield moves(f"{name} norm gradient", moved, "normalisation", r.tokens)
        yield gemm(f"{name} input gradient", r.tokens, into, out)
        yield from _weight_gradient(r, name, out, into, r.tokens)


# --- the feed-forward part ---------------------------------------------------------------------


def _activation(r: Rank, tokens: float, ffn: float, name: str) -> Works:
    size = r.w * tokens * ffn
    if r.style.fused_pointwise:
        yield moves(name, (3 if r.c.gated else 2) * size)
    elif r.style.written_out_gelu and not r.c.gated:
        yield Work(name, "elementwise", (_WRITTEN_OUT[0] * size, 0.0), launches=8)
    else:
        yield moves(name, 2 * size)
    if r.c.gated and not r.style.fused_pointwise:
        yield moves(f"{name} gate", 3 * size)


def _activation_backward(r: Rank, tokens: float, ffn: float, name: str) -> Works:
    size = r.w * tokens * ffn
    if r.c.gated:
        yield moves(f"{name} gradient", 5 * size)
        if not r.style.fused_pointwise:
            yield moves(f"{name} gate gradient", 3 * size)
    elif r.style.written_out_gelu:
        moved = _WRITTEN_OUT[1] * size
        yield Work(f"{name} gradient", "elementwise", (moved, 0.0), launches=9)
    else:
        yield moves(f"{name} gradient", 3 * size)
        if r.style.bias and r.style.fused_pointwise:
            yield moves(f"{name} bias gradient", size, "reduction")


def _dense_forward(r: Rank, ffn: float, name: str = "") -> Works:
    yield gemm(f"{name}up", r.tokens, (2 if r.c.gated else 1) * ffn / r.c.tp, r.c.hidden)
    yield from _activation(r, r.tokens, ffn / r.c.tp, f"{name}activation")
    yield gemm(f"{name}down", r.tokens, r.c.hidden, ffn / r.c.tp)


def _dense_backward(r: Rank, ffn: float, name: str = "") -> Works:
    yield from _row_backward(r, f"{name}down", r.c.hidden, ffn / r.c.tp)
    yield from _activation_backward(r, r.tokens, ffn / r.c.tp, f"{name}activation")
    wide = (2 if r.c.gated else 1) * ffn / r.c.tp
    # With shared kernels the activation's gradient has dealt with the bias.
    bias = not r.style.fused_pointwise
    yield from _column_backward(r, f"{name}up", wide, r.c.hidden, bias=bias)


def _experts_forward(r: Rank) -> Works:
    routed, here, each = _routing(r)
    moved = 2 * r.w * routed * r.c.hidden
    yield gemm("router", r.outside, r.c.experts, r.c.hidden)
    yield Work("choose experts", "softmax", (20 * r.outside * r.c.experts, r.outside), launches=12)
    yield moves("sort tokens", moved, "copy")
    yield from _all_to_all_tokens(r, r.w * routed * r.c.hidden, "tokens to experts")
    if here > 1:
        yield moves("sort by expert", moved, "copy")
    wide = (2 if r.c.gated else 1) * r.c.expert_ffn
    up = gemm("expert up", each, wide, r.c.hidden, here, "grouped")
    yield msgspec.structs.replace(up, wait_us=r.style.pause_routing_us)
    yield from _activation(r, routed, r.c.expert_ffn, "expert activation")
    yield gemm("expert down", each, r.c.hidden, r.c.expert_ffn, here, "grouped")
    if here > 1:
        yield moves("unsort by expert", moved, "copy")
    yield from _all_to_all_tokens(r, r.w * routed * r.c.hidden, "tokens from experts")
    yield moves("unsort tokens", moved, "copy")
    if r.c.shared_ffn:
        yield from _dense_forward(r, r.c.shared_ffn, "shared ")
        yield moves("add shared", 3 * r.w * r.outside * r.c.hidden)


def _experts_backward(r: Rank) -> Works:
    routed, here, each = _routing(r)
    wide = (2 if r.c.gated else 1) * r.c.expert_ffn
    moved = 2 * r.w * routed * r.c.hidden
    if r.c.shared_ffn:
        yield from _dense_backward(r, r.c.shared_ffn, "shared ")
    yield moves("unsort tokens gradient", moved, "copy")
    yield from _all_to_all_tokens(r, r.w * routed * r.c.hidden, "gradients to experts")
    if here > 1:
        yield moves("unsort by expert gradient", moved, "copy")
    down = gemm("expert down input gradient", each, r.c.expert_ffn, r.c.hidden, here, "grouped")
    yield msgspec.structs.replace(down, wait_us=r.style.pause_routing_us)
    yield from _weight_gradient(
        r, "expert down", r.c.hidden, r.c.expert_ffn, each, here, bias=False
    )
    yield from _activation_backward(r, routed, r.c.expert_ffn, "expert activation")
    yield gemm("expert up input gradient", each, r.c.hidden, wide, here, "grouped")
    yield from _weight_gradient(r, "expert up", wide, r.c.hidden, each, here, bias=False)
    if here > 1:
        yield moves("sort by expert gradient", moved, "copy")
    yield from _all_to_all_tokens(r, r.w * routed * r.c.hidden, "gradients from experts")
    yield moves("sort tokens gradient", moved, "copy")
    yield Work(
        "router gradient", "softmax", (20 * r.outside * r.c.experts, r.outside), launches=10
    )
    yield gemm("router input gradient", r.outside, r.c.hidden, r.c.experts)
    yield from _weight_gradient(r, "router", r.c.experts, r.c.hidden, r.outside, bias=False)


def _routing(r: Rank) -> tuple[float, float, float]:
    """Tokens times experts of a rank, experts it holds, tokens of each, evenly spread."""
    routed = r.outside * r.c.top_k
    here = r.c.experts // r.c.ep
    return routed, float(here), max(1.0, routed / here)


def _all_to_all_tokens(r: Rank, bytes_: float, name: str) -> Works:
    if r.c.ep > 1:
        yield collective(name, "all-to-all", bytes_, r.c.ep, stride=r.c.tp)


# --- a layer -----------------------------------------------------------------------------------


def _layer_forward(r: Rank, kind: str) -> Works:
    yield _norm(r, "attention norm")
    yield from _enter(r, "attention")
    yield from _queries_forward(r)
    yield from _rotary(r, "rotary")
    yield from _attention_forward(r)
    yield gemm("projection", r.tokens, r.c.hidden, r.c.heads * r.c.v_dim / r.c.tp)
    yield from _leave(r, "attention")
    yield from _add_residual(r, "attention")
    yield _norm(r, "feed-forward norm")
    if r.c.experts and kind == "layer":
        yield from _experts_forward(r)
    else:
        yield from _enter(r, "feed-forward")
        yield from _dense_forward(r, r.c.ffn)
        yield from _leave(r, "feed-forward")
    yield from _add_residual(r, "feed-forward")


def _layer_backward(r: Rank, kind: str) -> Works:
    yield from _add_residual_backward(r, "feed-forward")
    if r.c.experts and kind == "layer":
        yield from _experts_backward(r)
    else:
        yield from _dense_backward(r, r.c.ffn)
    yield from _joined(_norm_backward(r, "feed-forward norm"))
    yield from _join_residual(r, "feed-forward")
    yield from _add_residual_backward(r, "attention")
    yield from _row_backward(r, "projection", r.c.hidden, r.c.heads * r.c.v_dim / r.c.tp)
    yield from _attention_backward(r)
    yield from _rotary(r, "rotary gradient")
    yield from _queries_backward(r)
    yield from _joined(_norm_backward(r, "attention norm"))
    yield from _join_residual(r, "attention")


def _joined(works: Works) -> Works:
    """These, the first of which waits for what tensor parallelism communicates beside."""
    for number, work in enumerate(works):
        yield msgspec.structs.replace(work, joins=(TENSOR_LANE,)) if not number else work


# --- the ends of the model ---------------------------------------------------------------------


def _embedding_forward(r: Rank) -> Works:
    size = r.w * r.tokens * r.c.hidden
    yield moves("words", 2 * size, "embedding", r.tokens)
    if r.c.tp > 1:
        kind = "reduce-scatter" if r.style.sequence_parallel else "all-reduce"
        yield collective("reduce words", kind, size, r.c.tp)
    if not r.style.rotary:
        yield moves("positions", 2 * size, "embedding", r.tokens)
        yield moves("add positions", 3 * size)
    if r.style.dropout:
        yield moves("embedding dropout", (2 * r.w + 1) * r.outside * r.c.hidden)


def _embedding_backward(r: Rank) -> Works:
    size = r.w * r.tokens * r.c.hidden
    table = r.w * r.vocab * r.c.hidden
    if r.style.dropout:
        yield moves("embedding dropout gradient", (2 * r.w + 1) * r.outside * r.c.hidden)
    if r.c.tp > 1 and r.style.sequence_parallel:
        yield collective("gather words gradient", "all-gather", size, r.c.tp)
    if not r.style.rotary:
        yield moves("positions gradient", 3 * size, "embedding", r.tokens)
    yield moves("words gradient clear", table, "copy")
    yield Work("words gradient", "embedding", (3 * size, r.tokens), launches=6)
    if r.style.tied_head and r.c.pp == 1:
        yield moves("words gradient link", 3 * table)
    elif r.c.accumulation > 1 or r.style.fused_gradients:
        yield moves("words gradient accumulate", table + 2 * r.style.gradient_bytes / r.w * table)


def _head_forward(r: Rank) -> Works:
    yield _norm(r, "last norm")
    yield from _enter(r, "head")
    vocab = r.vocab
    yield gemm("head", r.tokens, vocab, r.c.hidden, 1.0, alignment(r, vocab, r.c.hidden))
    logits = r.tokens * vocab
    if r.style.loss == "fused":
        yield moves("loss", 3 * r.w * logits, "softmax", r.tokens)
        if r.c.tp > 1:
            yield collective("gather loss", "all-gather", 12.0 * r.tokens * r.c.tp, r.c.tp)
        return
    number = r.style.loss_bytes
    if r.w < number:
        yield moves("logits to float", WIDENING * (r.w + number) * logits, "copy")
    if r.style.loss == "eager":
        # A row of the vocabulary does not fit a processor: it is read for its largest, for its
        # sum, and to be written.
        yield moves("log-softmax", 4 * number * logits, "softmax", r.tokens)
        yield moves("loss", 12 * r.tokens, "reduction")
        return
    sums = r.c.tp > 1
    yield moves("largest logit", number * logits, "reduction", r.tokens)
    if sums:
        yield collective("reduce largest", "all-reduce", 4.0 * r.tokens, r.c.tp)
    yield moves("logits less largest", 2 * number * logits)
    yield Work("target logit", "elementwise", (40 * r.tokens, 0.0), launches=8)
    if sums:
        yield collective("reduce target", "all-reduce", 4.0 * r.tokens, r.c.tp)
    yield moves("exponentials", 2 * number * logits)
    yield moves("sum", number * logits, "reduction", r.tokens)
    if sums:
        yield collective("reduce sum", "all-reduce", 4.0 * r.tokens, r.c.tp)
    yield moves("chances", 2 * number * logits)


def _head_backward(r: Rank) -> Works:
    logits, number = r.tokens * r.vocab, r.style.loss_bytes
    if r.style.loss == "eager":
        yield moves("loss gradient clear", number * logits, "copy")
        yield moves("loss gradient", 16 * r.tokens)
        yield moves("log-softmax gradient", 5 * number * logits, "softmax", r.tokens)
    elif r.style.loss == "parallel":
        yield Work("target gradient", "elementwise", (24 * r.tokens, 0.0), launches=5)
        yield moves("loss gradient", 2 * number * logits)
    if r.style.loss != "fused" and r.w < number:
        yield moves("logits gradient to narrow", (r.w + number) * logits, "copy")
    yield from _column_backward(r, "head", r.vocab, r.c.hidden, bias=False)
    yield from _joined(_norm_backward(r, "last norm"))


# --- the optimiser -----------------------------------------------------------------------------


def _optimizer(r: Rank, name: str, number: float, experts: float) -> Works:
    if not r.style.optimizer_in_step:
        return
    w, g = r.w, r.style.gradient_bytes
    if r.style.loss_scale:
        # Gradients are copied to float, looked through for overflow, and scaled back.
        yield Work(f"unscale {name}", "optimizer", ((g + 4 + 4 + 8) * number, 0.0))
    if r.style.clip:
        yield Work(f"norm {name}", "reduction", (g * number, 0.0))
    if not r.style.gradients_released:
        yield Work(f"clear gradients {name}", "copy", (g * number, 0.0), launches=0.2)
    mine = number
    if r.style.shard_optimizer:
        mine = (number - experts) / (r.c.dp * r.c.cp) + experts / expert_copies(r.c)
    state = 2 * r.style.state_bytes
    copy = w if r.style.state_bytes > 2 * w + 2 else 2 * w
    passes = 1.0 if r.style.optimizer == "fused" else 2.5
    bytes_ = passes * (g + state + copy) * mine
    yield Work(f"update {name}", "optimizer", (bytes_, 0.0), launches=passes)


def _optimizer_ends(r: Rank) -> Works:
    if r.style.clip and r.style.optimizer_in_step:
        yield moves("norm of norms", 4096.0, "reduction")
        if r.c.world > 1:
            yield collective("reduce norm", "all-reduce", 4.0, r.c.pp * r.c.tp)
