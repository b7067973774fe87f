"""Sizes among the arguments of operators, and what they may be when the batch is another.

Most sizes follow from the tensors that an operator is given. A few do not: how long a new tensor
is, how far one is expanded. For those there are several options, the likeliest first, and what
becomes of the tensor later shows which is right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction

import msgspec

from gnomon.ingest.execution.trace import Node, TensorValue, Value
from gnomon.systems.aibench.builder.operators import Operator
from gnomon.systems.aibench.rescale.layout import (
    Factor,
    Layout,
    NotWhole,
    dense_strides,
    multiply,
    regroup,
)

#: Views that show all elements in their order: where the batch goes follows from the sizes.
IN_ORDER = ("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten", "squeeze",
            "unsqueeze", "view_as", "reshape_as")  # fmt: skip
_END = 2**62


class Change(msgspec.Struct, frozen=True):
    """What is asked for: the recorded batch, and what it is multiplied with.

    `sizes` are those that the batch is known to be in, so far.
    """

    batch: int
    by: Fraction
    sizes: Collection[int] = frozenset()


class Option(msgspec.Struct, frozen=True):
    """Other values for some of the arguments, by place; and where the batch is in the result."""

    values: Mapping[int, Value] = {}
    factors: tuple[Factor | None, ...] | None = None


class Sized(msgspec.Struct, frozen=True):
    """A call with what is known of its arguments."""

    node: Node
    operator: Operator
    layouts: Mapping[int, Layout]

    def place(self, name: str) -> int:
        """The place of an argument, -1 for none."""
        for at, argument in enumerate(self.operator.arguments[: len(self.node.inputs)]):
            if argument is not None and argument.name == name:
                return at
        return -1

    def value(self, name: str) -> Value:
        """A recorded argument; None where there is none."""
        at = self.place(name)
        return self.node.inputs[at] if at >= 0 else None

    @property
    def tensor(self) -> tuple[TensorValue, Layout] | None:
        """The first argument that is a tensor."""
        for at, value in enumerate(self.node.inputs):
            if isinstance(value, TensorValue):
                return value, self.layouts[at]
        return None

    @property
    def result(self) -> tuple[int, ...]:
        """The recorded shape of the first result."""
        for value in self.node.outputs:
            if isinstance(value, TensorValue):
                return value.shape
        return ()


_Rule = Callable[[Sized, Change], list[Option]]
_Shapes = list[tuple[tuple[int, ...], tuple[Factor | None, ...]]]


def base_name(name: str) -> str:
    """The name of an operator without namespace, and without the mark of one that works in place.

    >>> base_name("aten::resize_"), base_name("aten::__and__")
    ('resize', '__and__')
    """
    base = name.rpartition("::")[2]
    return base if base.endswith("__") else base.removesuffix("_")


def options_for(call: Sized, change: Change) -> list[Option]:
    """What the sizes among a call's arguments may be, the likeliest first; none for no way."""
    base = base_name(call.node.name)
    rule = _RULES.get(base)
    if rule is None and base.endswith("_backward"):
        rule = _backward
    try:
        return rule(call, change) if rule is not None else [Option()]
    except NotWhole:
        return []


def shape_options(sizes: Sequence[int], change: Change) -> _Shapes:
    """What a shape may become that nothing is known of, the likeliest first.

    >>> [shape for shape, _ in shape_options((16, 64), Change(16, Fraction(2)))]
    [(32, 64), (16, 64), (16, 128)]
    """
    batch = change.batch
    equal = [dim for dim, size in enumerate(sizes) if size == batch]
    multiple = [dim for dim, size in enumerate(sizes) if size > batch and size % batch == 0]
    known = [dim for dim in multiple if sizes[dim] in change.sizes]
    found = [_grown(sizes, [dim], change) for dim in [*equal, *known]]
    found.append((tuple(sizes), (None,) * len(sizes)))
    found += [_grown(sizes, [dim], change) for dim in multiple if dim not in known]
    if len(equal) > 1:
        found.append(_grown(sizes, equal, change))
    if len(sizes) == 1 and sizes[0] > 1 and (sizes[0] - 1) % batch == 0:
        # Where each of a batch begins, and where the last one ends.
        found.append(((multiply(sizes[0] - 1, change.by) + 1,), (None,)))
    return found


def _grown(
    sizes: Sequence[int], dims: Sequence[int], change: Change
) -> tuple[tuple[int, ...], tuple[Factor | None, ...]]:
    return (
        tuple(multiply(s, change.by) if at in dims else s for at, s in enumerate(sizes)),
        tuple(
            Factor(1, size // change.batch) if at in dims else None
            for at, size in enumerate(sizes)
        ),
    )


def _numbers(value: Value) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return tuple(part for part in value if isinstance(part, int))
    return (value,) if isinstance(value, int) else ()


def _written(recorded: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Sizes in the place of others; what was left open stays open."""
    return tuple(old if old == -1 else new for old, new in zip(recorded, sizes))


# -- views ---------------------------------------------------------------------------------------


def _in_order(call: Sized, change: Change) -> list[Option]:
    if call.tensor is None:
        return [Option()]
    tensor, layout = call.tensor
    shapes = regroup(tensor.shape, layout.shape, layout.factors, call.result)
    at = max(call.place(name) for name in ("size", "shape", "sizes"))
    given = _numbers(call.node.inputs[at]) if at >= 0 else ()
    dim = call.value("dim") if call.place("sizes") >= 0 else 0
    first = dim % len(tensor.shape) if isinstance(dim, int) and tensor.shape else 0
    found = []
    for shape, factors in shapes:
        values: dict[int, Value] = {}
        if at >= 0:
            values[at] = _written(given, shape[first : first + len(given)])
        if (steps := call.place("stride")) >= 0:
            values[steps] = dense_strides(shape, _numbers(call.node.inputs[steps]))
        found.append(Option(values, factors))
    return found


def _expand(call: Sized, change: Change) -> list[Option]:
    at = max(call.place("size"), call.place("sizes"))
    if call.tensor is None or at < 0:
        return [Option()]
    given, (tensor, layout) = _numbers(call.node.inputs[at]), call.tensor
    lead = len(given) - len(tensor.shape)
    before = (*(1,) * lead, *tensor.shape)
    after = (*(1,) * lead, *layout.shape)
    known = (*(None,) * lead, *layout.factors)
    # Where it is expanded, the size is free; elsewhere it is that of the tensor.
    is_free = [old == 1 and size != 1 for old, size in zip(before, call.result)]
    found = []
    for shape, factors in shape_options(
        [size if free else 1 for free, size in zip(is_free, call.result)], change
    ):
        sizes = [new if free else old for free, new, old in zip(is_free, shape, after)]
        both = [new if free else old for free, new, old in zip(is_free, factors, known)]
        found.append(Option({at: _written(given, sizes)}, tuple(both)))
    return found


def _repeat(call: Sized, change: Change) -> list[Option]:
    at = max(call.place("repeats"), call.place("dims"))
    if call.tensor is None or at < 0 or not isinstance(call.node.inputs[at], tuple):
        return [Option()]
    given, (tensor, layout) = _numbers(call.node.inputs[at]), call.tensor
    lead = len(given) - len(tensor.shape)
    if lead < 0:
        return [Option()]
    grown = (*(False,) * lead, *(a != b for a, b in zip(tensor.shape, layout.shape)))
    known = (*(None,) * lead, *layout.factors)
    found = []
    for times, factors in shape_options(
        [1 if own else number for own, number in zip(grown, given)], change
    ):
        values = [old if own else new for own, old, new in zip(grown, given, times)]
        both = [
            Factor(number * old.outer, old.inner) if own and old is not None
            else new if not own and new is not None and size == 1 else None
            for own, number, old, new, size in zip(
                grown, given, known, factors, (*(1,) * lead, *tensor.shape))
        ]  # fmt: skip
        found.append(Option({at: tuple(values)}, tuple(both)))
    return found


# -- parts ---------------------------------------------------------------------------------------


def _cut_dim(call: Sized) -> tuple[int, int, int] | None:
    """Along which dimension a tensor is cut, and its size before and after the change."""
    dim = call.value("dim")
    if call.tensor is None or not isinstance(dim, int):
        return None
    tensor, layout = call.tensor
    dim %= max(len(tensor.shape), 1)
    is_same = layout.shape[dim] == tensor.shape[dim]
    return None if is_same else (dim, tensor.shape[dim], layout.shape[dim])


def _slice(call: Sized, change: Change) -> list[Option]:
    cut = _cut_dim(call)
    if cut is None:
        return [Option()]
    _, size, _ = cut
    start, end = call.value("start") or 0, call.value("end")
    if not isinstance(start, int) or not isinstance(end, int | None):
        return [Option()]
    until = size if end is None or end >= size else end + size if end < 0 else end
    begin = start + size if start < 0 else start
    if begin == 0 and until == size:
        return [Option(_if_given(call, end=end if end is None or end > _END else cut[2]))]
    in_step = Option(_if_given(
        call, start=multiply(start, change.by),
        end=end if end is None or end > _END else multiply(end, change.by)))  # fmt: skip
    as_it_is = Option()
    # One element of a batch is one element of a larger batch.
    return [as_it_is, in_step] if until - begin == 1 else [in_step, as_it_is]


def _narrow(call: Sized, change: Change) -> list[Option]:
    given = {name: call.value(name) for name in ("start", "length")}
    if _cut_dim(call) is None or not all(isinstance(value, int) for value in given.values()):
        return [Option()]
    grown = {n: multiply(v, change.by) for n, v in given.items() if isinstance(v, int)}
    in_step = Option(_if_given(call, **grown))
    return [Option(), in_step] if given["length"] == 1 else [in_step, Option()]


def _if_given(call: Sized, **values: Value) -> dict[int, Value]:
    return {at: value for name, value in values.items() if (at := call.place(name)) >= 0}


def _select(call: Sized, change: Change) -> list[Option]:
    cut = _cut_dim(call)
    # Who goes through a batch one by one would go on for longer.
    is_end = cut is None or call.value("index") in (0, -1, cut[1] - 1)
    return [Option()] if is_end else []


def _pieces(call: Sized, change: Change) -> list[Option]:
    """Split into as many parts as before."""
    cut = _cut_dim(call)
    if cut is None:
        return [Option()]
    by = Fraction(cut[2], cut[1])
    values: dict[int, Value] = {}
    for name in ("split_size", "split_sizes", "indices"):
        at = call.place(name)
        given = call.node.inputs[at] if at >= 0 else None
        if isinstance(given, tuple):
            values[at] = _shared(_numbers(given), by, ends=name == "indices")
        elif isinstance(given, int):
            values[at] = multiply(given, by)
    return [Option(values)]


def _shared(sizes: Sequence[int], by: Fraction, *, ends: bool) -> tuple[int, ...]:
    """Sizes of parts, or where they end, times a factor; what is not whole is rounded in between.

    >>> _shared((3, 4, 5), Fraction(1, 2), ends=False)
    (2, 2, 2)
    """
    until = sizes if ends else itertools.accumulate(sizes)
    grown = [math.floor(end * by + Fraction(1, 2)) for end in until]
    return tuple(grown if ends else (end - begin for begin, end in zip([0, *grown], grown)))


# -- new tensors ---------------------------------------------------------------------------------


def _factory(call: Sized, change: Change) -> list[Option]:
    at = call.place("size")
    if at < 0:
        return [Option()]
    sizes = _numbers(call.node.inputs[at])
    shapes = shape_options(sizes, change)
    if call.tensor is not None:
        # Made beside another tensor, it grows with it where they have sizes in common.
        tensor, layout = call.tensor
        dims = [
            dim for dim, (old, new, size) in enumerate(zip(tensor.shape, layout.shape, sizes))
            if old == size and old != new
        ]  # fmt: skip
        shape = tuple(layout.shape[d] if d in dims else size for d, size in enumerate(sizes))
        factors = tuple(layout.factors[d] if d in dims else None for d in range(len(sizes)))
        shapes = [(shape, factors), *shapes] if dims else shapes
    found: dict[tuple[int, ...], Option] = {}
    for shape, factors in shapes:
        values: dict[int, Value] = {at: shape}
        if (steps := call.place("stride")) >= 0:
            values[steps] = dense_strides(shape, _numbers(call.node.inputs[steps]))
        found.setdefault(shape, Option(values, factors))
    return list(found.values())


def _range(call: Sized, change: Change) -> list[Option]:
    """Numbers one after the other: as many as the result is long."""
    if len(call.result) != 1:
        return [Option()]
    start, step = call.value("start") or 0, call.value("step") or 1
    names = [name for name in ("end", "steps", "n") if call.place(name) >= 0]
    if not names or not isinstance(start, int | float) or not isinstance(step, int | float):
        return [Option()]
    found = []
    for shape, factors in shape_options(call.result, change):
        if shape == call.result:
            found.append(Option({}, factors))
            continue
        end = start + step * shape[0] if names[0] == "end" else shape[0]
        # An offset's stride may be the batch's too; which of the two grows takes the same time.
        found.append(Option({call.place(names[0]): end}, factors))
    return found


# -- the rest ------------------------------------------------------------------------------------


def _backward(call: Sized, change: Change) -> list[Option]:
    """Sizes of what a gradient belongs to, beside the gradient."""
    names = ("input_sizes", "self_sizes", "sizes", "input_size")
    at = max(call.place(name) for name in names)
    if at < 0 or call.tensor is None or not isinstance(call.node.inputs[at], tuple):
        return _groups_of(call, change)
    sizes, (tensor, layout) = _numbers(call.node.inputs[at]), call.tensor
    dim = call.value("dim")
    before, after, known = list(tensor.shape), list(layout.shape), list(layout.factors)
    if len(before) == len(sizes) - 1 and isinstance(dim, int):
        place = dim % len(sizes)
        before.insert(place, -1)
        after.insert(place, -1)
        known.insert(place, None)
    before += [-1] * (len(sizes) - len(before))
    free = [size if old != size else 1 for old, size in zip(before, sizes)]
    found = []
    for shape, factors in shape_options(free, change):
        new, both = list(sizes), list(factors)
        for place, (old, size) in enumerate(zip(before, sizes)):
            if old == size:
                new[place], both[place] = after[place], known[place]
            elif old > 1 and after[place] != old:  # the gradient of a part of the batch
                new[place] = multiply(size, change.by)
                both[place] = Factor(1, size // change.batch) if size % change.batch == 0 else None
            else:
                new[place] = shape[place]
        found.append(Option({at: tuple(new)}, tuple(both)))
    return list({tuple(option.values.items()): option for option in found}.values())


def _groups_of(call: Sized, change: Change) -> list[Option]:
    """Normalisation by groups takes the size of the batch."""
    at, source = call.place("N"), call.place("input")
    if at < 0 or source not in call.layouts:
        return [Option()]
    return [Option({at: call.layouts[source].shape[0]})]


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(IN_ORDER, _in_order),
    **dict.fromkeys(("expand", "broadcast_to", "expand_copy"), _expand),
    **dict.fromkeys(("repeat", "tile"), _repeat),
    "slice": _slice,
    "narrow": _narrow,
    "select": _select,
    "unbind": lambda call, change: [Option()] if _cut_dim(call) is None else [],
    **dict.fromkeys(
        ("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "tensor_split"),
        _pieces,
    ),
    **dict.fromkeys(
        ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "normal", "empty_strided",
         "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "resize"),
        _factory,
    ),
    **dict.fromkeys(("arange", "linspace", "randperm"), _range),
    "native_group_norm": _groups_of,
}  # fmt: skip
