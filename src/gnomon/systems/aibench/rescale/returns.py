"""Where the batch is in what a call returns, inferred from its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from gnomon.ingest.execution.trace import TensorValue
from gnomon.systems.aibench.builder.flow import strides_of
from gnomon.systems.aibench.rescale.layout import (
    Factor,
    Layout,
    NotWhole,
    dense_strides,
    multiply,
    rounded,
)
from gnomon.systems.aibench.rescale.sizes import Change, base_name
from gnomon.systems.aibench.rescale.steps import PARAMETERS, Step, argument_names

#: Results as long as there are elements that fit.
_COUNTED = (
    "nonzero", "nonzero_numpy", "masked_select", "argwhere", "repeat_interleave", "where", "index",
)  # fmt: skip
_STACKS = ("cat", "concat", "concatenate")


def with_factors(
    step: Step, tensor: TensorValue, layout: Layout, layouts: Sequence[Layout], change: Change
) -> Layout:
    """A result, with where the batch is: where it was in arguments of the same size."""
    base = base_name(step.node.name)
    factors: list[Factor | None] = []
    for dim, (old, new) in enumerate(zip(tensor.shape, layout.shape)):
        factor = None
        if old != new:
            factor = _alike(step, layouts, dim, old)
            if factor is None and base in _STACKS:
                factor = _stacked(step, layouts, dim, old)
            if factor is None and (old == change.batch or base in _COUNTED):
                factor = Factor()
        factors.append(factor)
    return msgspec.structs.replace(layout, factors=tuple(factors))


def _alike(step: Step, layouts: Sequence[Layout], dim: int, size: int) -> Factor | None:
    """Where the batch is in a dimension of that size, of those in the same place first."""
    found: list[Factor] = []
    for (tensor, _), layout in zip(step.ins, layouts):
        for at, (old, new) in enumerate(zip(tensor.shape, layout.shape)):
            factor = layout.factors[at]
            if old == size and new != old and factor is not None:
                if at == dim:
                    return factor
                found.append(factor)
    return found[0] if len(set(found)) == 1 else None


def _stacked(step: Step, layouts: Sequence[Layout], dim: int, size: int) -> Factor | None:
    """Several tensors one behind the other: as many blocks as there are tensors."""
    parts = {
        (tensor.shape[dim], layout.factors[dim])
        for (tensor, _), layout in zip(step.ins, layouts)
        if dim < len(tensor.shape)
    }
    length, factor = parts.pop() if len(parts) == 1 else (0, None)
    if factor is None or factor.outer != 1 or length * len(step.ins) != size:
        return None
    return Factor(len(step.ins), factor.inner)


def layout_like(
    step: Step, tensor: TensorValue, layouts: Sequence[Layout], change: Change
) -> Layout:
    """How a result looks that torch cannot infer: sizes in common with arguments grow with them.

    Raises:
        NotWhole: A size may be the batch's or not.
    """
    counted = _counted_dim(step)
    sizes = list(tensor.shape)
    for dim, size in enumerate(tensor.shape):
        if dim == counted:
            sizes[dim] = rounded(size, change.by)
        elif size > 1:
            sizes[dim] = _size_like(step, layouts, dim, size)
    if step.chosen.role != "operator" and tuple(sizes) == tensor.shape and sizes:
        sizes[0] = _size_in(step, layouts, sizes[0])
    strides = dense_strides(sizes, strides_of(tensor))
    return Layout(tuple(sizes), strides, tensor.offset, (None,) * len(sizes))


def _size_like(step: Step, layouts: Sequence[Layout], dim: int, size: int) -> int:
    """What a size is now, by arguments that have it too, of those in the same place first."""
    news: set[int] = set()
    aligned: set[int] = set()
    ends: set[int] = set()
    is_backward = base_name(step.node.name).endswith("_backward")
    for (source, _), layout, name in zip(step.ins, layouts, argument_names(step)):
        if name in PARAMETERS and not is_backward:
            continue  # only gradients are as large as parameters
        for at, (old, new) in enumerate(zip(source.shape, layout.shape)):
            if old == size:
                news.add(new)
                if at == dim:
                    aligned.add(new)
            elif old == size - 1 and new != old:  # where each begins, and the last one ends
                ends.add(new + 1)
    found = (aligned if len(news) > 1 else news) or ends
    if len(found) > 1:
        raise NotWhole(f"a size of {size} may be the batch's or not")
    return found.pop() if found else size


def _size_in(step: Step, layouts: Sequence[Layout], size: int) -> int:
    """What a first size is now that is a divisor of one that has grown."""
    for (source, _), layout in zip(step.ins, layouts):
        for old, new in zip(source.shape, layout.shape):
            for end in (0, 1):
                whole, now = old - end, new - end
                if old != new and size > 1 and whole and whole % size == 0:
                    return multiply(size, Fraction(now, whole))
    return size


def _counted_dim(step: Step) -> int | None:
    """The dimension of a result that is as long as there are elements that fit."""
    base = base_name(step.node.name)
    if base not in _COUNTED:
        return None
    if base == "where":
        return 0 if len(step.ins) == 1 else None
    if base != "index":
        return 0
    lists = [value for value in step.node.inputs if isinstance(value, tuple)]
    for place, index in enumerate(lists[0] if lists else ()):
        if isinstance(index, TensorValue):
            return place if index.dtype in ("bool", "uint8") else None
    return None


def uneven_bags(step: Step, layouts: Sequence[Layout]) -> bool:
    """Whether the bags of an embedding would have another size: more bags need more indices."""
    if "embedding_bag" not in step.node.name:
        return False
    sizes = {
        name: (tensor.elements, layout.shape)
        for name, (tensor, _), layout in zip(argument_names(step), step.ins, layouts)
    }
    if "indices" not in sizes or "offsets" not in sizes:
        return False
    (many, now), (bags, then) = sizes["indices"], sizes["offsets"]
    # Offsets are as many as bags, or one more.
    ratios = [Fraction(then[0] - end, bags - end) for end in (0, 1) if bags > end]
    return not any(now[0] == rounded(many, ratio) for ratio in ratios)
