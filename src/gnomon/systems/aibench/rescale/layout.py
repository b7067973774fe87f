"""How a tensor lies in memory when the batch is another: sizes, strides, and where the batch is.

A dimension that carries the batch is a product: so many outer blocks, each of the batch, each of
so many inner elements. Knowing where in the product the batch stands is what lets a dimension of
16 x 512 be split again into the 16 that grow and the 512 that do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import msgspec

from gnomon.systems.aibench.builder.flow import natural_strides

_MOST_OPTIONS = 8


class NotWhole(ValueError):
    """A size that cannot be multiplied; the message names it."""


class Factor(msgspec.Struct, frozen=True):
    """Where in a dimension the batch stands: `outer` x batch x `inner`."""

    outer: int = 1
    inner: int = 1


class Layout(msgspec.Struct, frozen=True):
    """A tensor after the change.

    Attributes:
        shape: Its sizes.
        strides: Its strides.
        offset: Where it begins in its memory.
        factors: Where the batch is in each dimension; None where it is not, or is not known.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    factors: tuple[Factor | None, ...]


class Region(msgspec.Struct, frozen=True):
    """Where the batch is in some memory: elements `inner` apart, `count` of them, then again.

    `now` is how many of them there are after the change.
    """

    count: int
    now: int
    inner: int

    @property
    def by(self) -> Fraction:
        """What the batch is multiplied with here."""
        return Fraction(self.now, self.count)


def multiply(size: int, by: Fraction) -> int:
    """A size times a factor.

    >>> multiply(24, Fraction(1, 2))
    12
    """
    product = size * by
    if product.denominator != 1:
        raise NotWhole(f"{size} times {by} is no whole number")
    return int(product)


def rounded(size: int, by: Fraction) -> int:
    """A size that depends on data times a factor; at least one.

    >>> rounded(25, Fraction(1, 2))
    13
    """
    return max(math.floor(size * by + Fraction(1, 2)), 1)


def dense_strides(shape: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps, in the order in which other strides lie.

    >>> dense_strides((4, 3, 5), (15, 1, 3)), dense_strides((8, 3, 5), (15, 1, 3))
    ((15, 1, 3), (15, 1, 3))
    """
    strides, step = [0] * len(shape), 1
    # Of equal strides (there is a dimension of one element) the later one is the inner one.
    for dim in sorted(range(len(shape)), key=lambda d: (like[d], -d)):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor has no gaps, in whichever order its dimensions lie."""
    wanted = dense_strides(shape, strides)
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, wanted))


def regroup(
    recorded: Sequence[int], now: Sequence[int], factors: Sequence[Factor | None],
    target: Sequence[int],
) -> list[tuple[tuple[int, ...], tuple[Factor | None, ...]]]:  # fmt: skip
    """The shapes that a view of another shape may have, the likeliest first.

    Args:
        recorded: The shape that is viewed, as recorded.
        now: The same after the change.
        factors: Where the batch is in each of its dimensions.
        target: The shape of the view, as recorded.

    >>> regroup((16, 512, 8), (32, 512, 8), (Factor(), None, None), (8192, 8))
    [((16384, 8), (Factor(outer=1, inner=512), None))]
    """
    if 0 in recorded:
        return [(tuple(target), (None,) * len(target))]
    choices = []
    for ins, outs in _groups(recorded, target):
        options = _split(
            [(recorded[i], now[i], factors[i]) for i in ins], [target[j] for j in outs]
        )
        if not options:
            return []
        choices.append(options)
    found = []
    for picked in itertools.islice(itertools.product(*choices), _MOST_OPTIONS):
        sizes = tuple(size for group in picked for size, _ in group)
        found.append((sizes, tuple(factor for group in picked for _, factor in group)))
    return found


def _groups(left: Sequence[int], right: Sequence[int]) -> list[tuple[range, range]]:
    """Stretches of two shapes of as many elements that have as many elements each."""
    groups = []
    i = j = 0
    while i < len(left) or j < len(right):
        i0, j0 = i, j
        a = b = 1
        while a != b or (i == i0 and i < len(left)) or (j == j0 and j < len(right)):
            if i < len(left) and (a < b or i == i0 or j == len(right)):
                a, i = a * left[i], i + 1
            elif j < len(right):
                b, j = b * right[j], j + 1
            else:
                break
        groups.append((range(i0, i), range(j0, j)))
    return groups


_Dims = list[tuple[int, Factor | None]]


def _split(dims: list[tuple[int, int, Factor | None]], target: list[int]) -> list[_Dims]:
    """What the dimensions of one stretch may become."""
    grown = [at for at, (before, after, _) in enumerate(dims) if before != after]
    if not grown:
        return [[(size, None) for size in target]]
    at = grown[0]
    before, after, factor = dims[at]
    wide = [j for j, size in enumerate(target) if size > 1]
    if len(wide) == 1:
        # Whatever grew, there is one dimension that it can be in.
        whole = math.prod(now for _, now, _ in dims)
        if factor is not None and len(grown) == 1:
            left = math.prod(size for size, _, _ in dims[:at])
            right = math.prod(size for size, _, _ in dims[at + 1 :])
            factor = Factor(left * factor.outer, right * factor.inner)
        else:
            factor = None
        return [
            [(whole, factor) if j == wide[0] else (size, None) for j, size in enumerate(target)]
        ]
    if len(grown) > 1 or factor is None:
        return []
    batch = before // (factor.outer * factor.inner)
    left = math.prod(size for size, _, _ in dims[:at]) * factor.outer
    return _place(target, left, batch, Fraction(after, before))


def _place(target: list[int], left: int, batch: int, by: Fraction) -> list[_Dims]:
    """Dimensions one of which has the batch in it, `left` elements of other ones before it."""
    before = 1
    found: list[_Dims] = []
    for j, size in enumerate(target):
        after = before * size
        if left % before == 0 and after % (left * batch) == 0:
            factor = Factor(left // before, after // (left * batch))
            grown = (multiply(size, by), factor)
            return [[grown if k == j else (other, None) for k, other in enumerate(target)]]
        # The batch itself is split: its outer part grows, or else its inner part.
        starts, ends = max(before, left), min(after, left * batch)
        is_part = size > 1 and starts < ends and starts % before == 0 and after % ends == 0
        if is_part and (size * by).denominator == 1:
            grown = (multiply(size, by), Factor(starts // before, after // ends))
            found.append([grown if k == j else (other, None) for k, other in enumerate(target)])
        before = after
    return found


def region_of(
    shape: Sequence[int], now: Sequence[int], strides: Sequence[int], dim: int, factor: Factor
) -> Region:
    """Where the batch is in the memory of a tensor that has it in a dimension."""
    blocks = factor.outer * factor.inner
    return Region(shape[dim] // blocks, now[dim] // blocks, strides[dim] * factor.inner)


def restride(
    shape: Sequence[int], strides: Sequence[int] | None, offset: int, region: Region
) -> Layout:
    """A view of memory in which the batch is, after the change.

    Raises:
        NotWhole: The view cuts through the batch in a way that has no counterpart.

    >>> restride((8, 16), (1, 8), 0, Region(16, 32, 8)).shape
    (8, 32)
    """
    steps = tuple(strides) if strides is not None else natural_strides(tuple(shape))
    block = region.count * region.inner
    dims = [_dim(size, step, region) for size, step in zip(shape, steps)]
    whole, rest = divmod(offset, block)
    item, within = divmod(rest, region.inner)
    if item and not any(new != old for (new, _, _), old in zip(dims, shape)):
        raise NotWhole(f"it shows element {item} of a batch of {region.count}")
    begin = multiply(whole * block, region.by) + multiply(item, region.by) * region.inner + within
    return Layout(
        tuple(size for size, _, _ in dims), tuple(step for _, step, _ in dims), begin,
        tuple(factor for _, _, factor in dims),
    )  # fmt: skip


def _dim(size: int, step: int, region: Region) -> tuple[int, int, Factor | None]:
    """One dimension of a view: size, stride, and where the batch is in it."""
    block, reach, by = region.count * region.inner, size * step, region.by
    if size <= 1 or step == 0:
        return size, multiply(step, by) if step >= block and step % block == 0 else step, None
    if step >= block:
        if step % block:
            raise NotWhole(f"a stride of {step} does not fit a batch of {region.count}")
        return size, multiply(step, by), None
    if reach <= region.inner:
        return size, step, None
    if max(step, region.inner) % min(step, region.inner):
        raise NotWhole(f"a stride of {step} does not fit a batch of {region.count}")
    if reach > block and reach % block:
        raise NotWhole(f"{size} elements do not fit a batch of {region.count}")
    if step <= region.inner and reach % region.inner:
        raise NotWhole(f"{size} elements do not fit a batch of {region.count}")
    factor = Factor(max(reach // block, 1), max(region.inner // step, 1))
    return multiply(size, by), step, factor
