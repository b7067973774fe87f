"""Growth: what a piece computes, in terms of the configuration, so that it can be sized anew.

A kernel of a trace has the shapes of its tensors. Each of their sizes stands for something: the
tokens of a micro-batch, the hidden size, the feed-forward part's width, the vocabulary. With every
size named, the same kernel can be sized for another configuration; what it then takes, relative
to now, is a matter of `model.kernel_time`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.recorded.units import Shapes

#: The sizes that a configuration gives one rank.
_SYMBOLS: dict[str, Callable[[Configuration], float]] = {
    "tokens": lambda c: c.tokens,
    "batch": lambda c: c.batch,
    "seq": lambda c: c.seq / c.cp,
    "hidden": lambda c: c.hidden,
    "inner": lambda c: c.heads * c.v_dim / c.tp,
    "qkv": lambda c: c.heads / c.tp * c.head_dim + _kv_heads(c) * (c.head_dim + c.v_dim),
    "kv": lambda c: _kv_heads(c) * c.head_dim,
    "heads": lambda c: c.heads / c.tp,
    "head_dim": lambda c: c.head_dim,
    "ffn": lambda c: c.ffn / c.tp,
    "vocab": lambda c: c.vocab / c.tp,
    "table": lambda c: c.vocab / c.tp * c.hidden,
    "layer": lambda c: layer_matrices(c),
}


def _kv_heads(c: Configuration) -> float:
    """Heads of keys on a rank; ranks that outnumber them hold copies."""
    return max(c.kv_heads / c.tp, 1.0)


def layer_matrices(configuration: Configuration) -> float:
    """Elements of a layer's matrices on one rank."""
    c = configuration
    heads = c.heads / c.tp
    attention = heads * (c.head_dim + c.v_dim) + _kv_heads(c) * (c.head_dim + c.v_dim)
    return c.hidden * (attention + (3 if c.gated else 2) * c.ffn / c.tp)


#: The widths that tensors of a part may have; equal ones are distinguished by the part alone.
_WIDTHS: dict[str, tuple[str, ...]] = {
    "embedding": ("hidden", "vocab"),
    "layer": ("qkv", "ffn", "hidden", "inner", "kv", "heads"),
    "head": ("vocab", "hidden"),
}


def symbol_value(symbol: str, configuration: Configuration) -> float:
    """What a symbol stands for on one rank of a configuration."""
    return _SYMBOLS[symbol](configuration)


class Size(msgspec.Struct, frozen=True, gc=False):
    """A size as it is now, and the symbols it grows with."""

    value: float
    symbols: tuple[str, ...] = ()

    def under(self, base: Configuration, target: Configuration) -> float:
        """The size in another configuration."""
        value = self.value
        for symbol in self.symbols:
            value *= symbol_value(symbol, target) / symbol_value(symbol, base)
        return value


class Linear(msgspec.Struct, frozen=True, gc=False):
    """A matrix multiplication with weights: tokens times `into`, to tokens times `out`.

    Attributes:
        group: Where it stands: `qkv` (before the attention), `proj` (after it), `up`, `down`,
            `head`. GEMMs of one group share their input or output, and so what tensor
            parallelism communicates.
        column: Tensor parallelism splits its output; else its input.
    """

    into: Size
    out: Size
    group: str
    column: bool


class Growth(msgspec.Struct, frozen=True, gc=False):
    """What a piece computes.

    Attributes:
        kind: `gemm` has sizes m, n, k and batch; `attention` batch, heads, queries, keys,
            width; `memory` the bytes that move; `fixed` does not change.
        sizes: As the kind has them.
        family: What kernel models call memory-bound work.
        backward: For attention.
        all_reduce: Under tensor parallelism the output (`forward`: of a row-split GEMM,
            `backward`: of a column-split one) has to be summed over ranks; "" for no.
        group: The group of the linear behind it, "" for none.
    """

    kind: Literal["gemm", "attention", "memory", "fixed"]
    sizes: tuple[Size, ...] = ()
    family: str = "elementwise"
    backward: bool = False
    all_reduce: str = ""
    group: str = ""


def gemm_sizes(operator: str, shapes: Shapes) -> tuple[int, int, int, int] | None:
    """Rows, columns, inner size and batch of a GEMM; None where the shapes do not tell.

    >>> gemm_sizes("aten::addmm", ((96,), (8, 32), (32, 96)))
    (8, 96, 32, 1)
    >>> gemm_sizes("aten::linear", ((2, 4, 32), (96, 32), (96,)))
    (8, 96, 32, 1)
    >>> gemm_sizes("aten::bmm", ((6, 8, 4), (6, 4, 8)))
    (8, 8, 4, 6)
    """
    # What is added comes first, where the result goes (`out=`) last.
    factors = shapes[1:] if "addmm" in operator or "baddbmm" in operator else shapes
    matrices = [s for s in factors if len(s) >= 2]
    if len(matrices) < 2:
        return None
    a, b = matrices[:2]
    if operator.endswith("linear"):
        rows = math.prod(a[:-1])
        return (rows, math.prod(b[:-1]), a[-1], 1) if a[-1] == b[-1] else None
    if len(a) == 3 and len(b) == 3:
        return (a[1], b[2], a[2], a[0]) if a[2] == b[1] else None
    if len(b) == 2 and a[-1] == b[0]:
        return math.prod(a[:-1]), b[1], a[-1], 1
    return None


def name_linears(gemms: Sequence[tuple[int, int, int]], after: int, hidden: int) -> list[Linear]:
    """What the GEMMs of a layer's forward pass are.

    Args:
        gemms: (rows, columns, inner) of each GEMM with weights, in order.
        after: How many of them come before the attention.
        hidden: The hidden size.
    """
    linears = []
    for place, (_, out, into) in enumerate(gemms):
        if place < after:
            symbol = "qkv" if after == 1 else ("inner" if place == 0 else "kv")
            linears.append(Linear(Size(into, ("hidden",)), Size(out, (symbol,)), "qkv", True))
        elif place == after:
            linears.append(Linear(Size(into, ("inner",)), Size(out, ("hidden",)), "proj", False))
        elif out == hidden and (into != hidden or place == len(gemms) - 1):
            linears.append(Linear(Size(into, ("ffn",)), Size(out, ("hidden",)), "down", False))
        else:
            linears.append(Linear(Size(into, ("hidden",)), Size(out, ("ffn",)), "up", True))
    return linears


class Roles:
    """Gives the GEMMs of a part their roles; each linear has one GEMM of each kind."""

    def __init__(self, linears: Sequence[Linear], tokens: int) -> None:
        self._linears = list(linears)
        self._tokens = tokens
        self._left = [{"forward", "input", "weight"} for _ in linears]

    def growth(self, sizes: tuple[int, int, int, int], is_forward: bool) -> Growth | None:
        """The work of a GEMM of these sizes; None where it is of no linear."""
        kinds = ("forward",) if is_forward else ("input", "weight")
        order = list(range(len(self._linears)))
        places = order if is_forward else order[::-1]
        for again in (False, True):
            # Activations that are recomputed bring a forward GEMM into the backward pass:
            # what has no role left for it takes one a second time.
            for kind in kinds if not again else ("forward", *kinds):
                for place in places:
                    if not again and kind not in self._left[place]:
                        continue
                    found = self._match(kind, self._linears[place], sizes)
                    if found is not None:
                        self._left[place].discard(kind)
                        return found
        return None

    def _match(self, kind: str, linear: Linear, sizes: tuple[int, int, int, int]) -> Growth | None:
        m, n, k, batch = sizes
        into, out, tokens = linear.into, linear.out, Size(self._tokens, ("tokens",))
        one = Size(1)
        if batch != 1:
            return None
        if kind == "weight":
            for one_side, other in ((out, into), (into, out)):
                if (m, n, k) == (one_side.value, other.value, tokens.value):
                    return Growth("gemm", (one_side, other, tokens, one), group=linear.group)
            return None
        # A row-split GEMM is summed over ranks in the forward pass, a column-split one's gradient
        # in the backward pass.
        is_forward = kind == "forward"
        wide, inner = (out, into) if is_forward else (into, out)
        if (m, n, k) != (tokens.value, wide.value, inner.value):
            return None
        summed = "forward" if is_forward else "backward"
        all_reduce = summed if linear.column != is_forward else ""
        sizes_now = (tokens, wide, inner, one)
        return Growth("gemm", sizes_now, all_reduce=all_reduce, group=linear.group)


def growth_of(
    family: str,
    operator: str,
    shapes: Shapes,
    base: Configuration,
    roles: Roles,
    *,
    part: str,
    element_bytes: float,
) -> Growth:
    """What a piece of a part computes, from its operator and the shapes of its tensors."""
    is_forward = part.endswith(".forward")
    if family == "gemm":
        sizes = gemm_sizes(operator, shapes)
        if sizes is not None:
            return roles.growth(sizes, is_forward) or _other_gemm(sizes, base)
    if family == "attention":
        found = attention_sizes(operator, shapes)
        if found is not None:
            names = ("batch", "heads", "seq", "seq", "head_dim")
            sizes_of = tuple(Size(size, (name,)) for size, name in zip(found, names, strict=True))
            return Growth("attention", sizes_of, backward="backward" in operator.lower())
    if family in ("copy", "communication") or not shapes:
        return Growth("fixed")
    return _memory_growth(family, shapes, base, part.split(".")[0], element_bytes)


def attention_sizes(operator: str, shapes: Shapes) -> tuple[int, int, int, int, int] | None:
    """Batch, heads, queries, keys and width of a fused attention.

    >>> attention_sizes("aten::_scaled_dot_product_flash_attention", ((4, 16, 128, 64),) * 3)
    (4, 16, 128, 128, 64)
    """
    four = [s for s in shapes if len(s) == 4]
    if len(four) < 2:
        return None
    q, k = four[:2]
    if not any(word in operator for word in ("scaled_dot_product", "cudnn_attention")):
        q, k = (q[0], q[2], q[1], q[3]), (k[0], k[2], k[1], k[3])
    if "backward" in operator.lower() and len(four) >= 3:
        k = four[2] if k is four[1] else k  # the first is the gradient, then come q, k, v
    return q[0], q[1], q[2], k[2], q[3]


def _other_gemm(sizes: tuple[int, int, int, int], base: Configuration) -> Growth:
    """A GEMM of no known linear: attention without a fused kernel, or something else."""
    m, n, k, batch = sizes

    def name(value: int) -> Size:
        named: tuple[str, ...] = ("tokens", "vocab", "qkv", "ffn", "hidden", "seq", "head_dim")
        if batch > 1:
            named = ("seq", "head_dim", "hidden")
        for symbol in named:
            if value == symbol_value(symbol, base):
                return Size(value, (symbol,))
        return Size(value)

    many = Size(batch, ("batch", "heads")) if batch > 1 else Size(1)
    return Growth("gemm", (name(m), name(n), name(k), many))


def _memory_growth(
    family: str, shapes: Shapes, base: Configuration, where: str, element_bytes: float
) -> Growth:
    # A lookup reads as much as it returns, however large its table is.
    handed = [s for s in shapes if _is_activation(s, base)] if family == "embedding" else []
    if family == "embedding" and not handed and len(shapes[0]) == 2 and len(shapes) > 1:
        handed = [(base.tokens, shapes[0][1])]  # a table, and the places to look up
    largest = max(handed or shapes, key=math.prod)
    elements = math.prod(largest)
    moved = 3 * element_bytes * elements
    return Growth("memory", (Size(moved, _growth(largest, elements, where, base)),), family)


def _growth(
    shape: tuple[int, ...], elements: int, where: str, base: Configuration
) -> tuple[str, ...]:
    """The symbols that the size of a tensor grows with."""
    if _is_activation(shape, base):
        width = elements // base.tokens
        seq, heads = symbol_value("seq", base), symbol_value("heads", base)
        if len(shape) == 4 and shape[-1] == shape[-2] == seq:
            return ("tokens", "heads", "seq")
        candidates = _WIDTHS[where]
        if len(shape) >= 4 and heads in shape:
            candidates = ("qkv", "inner", "kv", *candidates)
        for symbol in candidates:
            if width == symbol_value(symbol, base):
                return ("tokens", symbol)
        if width == 2 * symbol_value("ffn", base):
            return ("tokens", "ffn")
        return ("tokens", "hidden") if width > 1 and width % base.hidden == 0 else ("tokens",)
    if elements == symbol_value("table", base):
        return ("table",)
    if shape == (base.seq, base.hidden):
        return ("seq", "hidden")
    if len(shape) == 2:
        return ("layer",)
    for symbol in ("hidden", "qkv", "ffn", "vocab"):
        if elements == symbol_value(symbol, base):
            return (symbol,)
    return ()


def _is_activation(shape: tuple[int, ...], base: Configuration) -> bool:
    seq = base.seq // base.cp
    if len(shape) >= 3:
        # Batch first, or sequence first; a fused row of queries, keys, values may lead them.
        return {base.batch, seq} <= set(shape) or math.prod(shape) % base.tokens == 0
    return len(shape) == 2 and (shape[0] == base.tokens or shape == (base.batch, seq))
