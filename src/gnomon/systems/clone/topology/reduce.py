"""Fewer shapes that say less of single requests: rare ones merged, many thinned, all rounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gnomon.graph.request_shape import FAILED, QUEUED, Shape, ShapeCall, children_of, play

#: In fewer requests than this nothing is rare: each is a good part of all.
FEWEST = 100
_MOST_SHAPES, _MOST_CALLS = 5_000, 400_000
#: Binary digits that a time keeps: it is off by 0.4 % at most.
_DIGITS = 8

#: Caller and callee; -1 calls the first operation.
Edge = tuple[int, int]


class _Kind:
    """Requests that make the same calls, whatever the order and the times."""

    def __init__(self, shape: Shape) -> None:
        self.shapes: list[Shape] = []
        self.edges = Counter(edges_of(shape))

    @property
    def weight(self) -> int:
        return sum(shape.weight for shape in self.shapes)


def edges_of(shape: Shape) -> Iterable[Edge]:
    """The calls of a shape by their operations."""
    calls = shape.calls
    return (
        (calls[one.caller].operation if one.caller >= 0 else -1, one.operation) for one in calls
    )


def kinds_of(shapes: Sequence[Shape]) -> list[int]:
    """A number for each shape: the same for those that make the same calls.

    >>> one, two = ShapeCall(-1, 0, rest_us=5), ShapeCall(0, 1)
    >>> kinds_of([Shape(1, (one, two)), Shape(1, (one,)), Shape(1, (one, two))])
    [0, 1, 0]
    """
    numbers: dict[tuple[int, int, tuple[int, ...]], int] = {}
    found: dict[int, int] = {}
    kinds = []
    for shape in shapes:
        number = [0] * len(shape.calls)
        below = children_of(shape)
        for i in range(len(shape.calls) - 1, -1, -1):
            call = shape.calls[i]
            inside = tuple(sorted(number[j] for j in below[i]))
            key = call.operation, call.marks & (FAILED | QUEUED), inside
            number[i] = numbers.setdefault(key, len(numbers))
        kinds.append(found.setdefault(number[0], len(found)))
    return kinds


def reduce_shapes(shapes: Sequence[Shape], *, least: int) -> tuple[tuple[Shape, ...], list[str]]:
    """Shapes to hand over, and what was done.

    Args:
        shapes: Of all recorded requests.
        least: Kinds that were seen fewer times are merged into the nearest; but not one with a
            call that no other has, for then the call graph would be another.
    """
    kinds: dict[int, _Kind] = {}
    for number, shape in zip(kinds_of(shapes), shapes):
        kinds.setdefault(number, _Kind(shape)).shapes.append(shape)
    merged, notes = _merge_rare(list(kinds.values()), len(shapes), least)
    kept, thinned = _thin(merged)
    if thinned:
        notes.append(f"{len(kept):,} shapes stand for {len(shapes):,} requests, by their length.")
    return tuple(_rounded(shape) for shape in kept), notes


def _merge_rare(kinds: list[_Kind], requests: int, least: int) -> tuple[list[_Kind], list[str]]:
    kept = [kind for kind in kinds if kind.weight >= least]
    rare = [kind for kind in kinds if kind.weight < least]
    if requests < FEWEST or not rare:
        few = sum(kind.weight == 1 for kind in kinds)
        note = (f"Every recorded request ({requests}) is a shape: too few to merge rare ones. "
                f"{few} of {len(kinds)} kinds were seen once.")  # fmt: skip
        return kinds, [note] if requests < FEWEST else []
    known = set().union(*(kind.edges for kind in kept))
    moved = alone = 0
    for kind in sorted(rare, key=lambda one: -one.weight):
        same = [one for one in kept if one.shapes[0].calls[0].operation
                == kind.shapes[0].calls[0].operation]  # fmt: skip
        if not kind.edges.keys() <= known or not same:
            kept.append(kind)
            known |= kind.edges.keys()
            alone += kind.weight
            continue
        nearest = min(same, key=lambda one: _distance(one.edges, kind.edges))
        for shape in kind.shapes:
            _add_to(nearest, shape)
            moved += shape.weight
    notes = []
    if moved:
        notes.append(f"{moved:,} requests of kinds seen fewer than {least} times count to the "
                     "nearest kind.")  # fmt: skip
    if alone:
        notes.append(f"{alone:,} requests of such kinds are kept: only they make some call of the "
                     "call graph.")  # fmt: skip
    return kept, notes


def _distance(one: Counter[Edge], other: Counter[Edge]) -> int:
    return ((one - other) + (other - one)).total()


def _add_to(kind: _Kind, shape: Shape) -> None:
    """Has the shape of a kind that takes about as long stand for another one too."""
    wanted_us = play(shape)[0].end_us
    times = [abs(play(one)[0].end_us - wanted_us) for one in kind.shapes]
    at = times.index(min(times))
    weight = kind.shapes[at].weight + shape.weight
    kind.shapes[at] = msgspec.structs.replace(kind.shapes[at], weight=weight)


def _thin(kinds: Sequence[_Kind]) -> tuple[list[Shape], bool]:
    """Of each kind as many shapes as there is room for: medians of groups of like lengths."""
    shapes = [shape for kind in kinds for shape in kind.shapes]
    calls = sum(len(shape.calls) for shape in shapes)
    room = min(1.0, _MOST_SHAPES / len(shapes), _MOST_CALLS / calls)
    if room == 1.0:
        return shapes, False
    found = []
    for kind in kinds:
        ordered = sorted(kind.shapes, key=lambda one: play(one)[0].end_us)
        groups = max(1, round(room * len(ordered)))
        for k in range(groups):
            group = ordered[k * len(ordered) // groups : (k + 1) * len(ordered) // groups]
            weight = sum(one.weight for one in group)
            found.append(msgspec.structs.replace(group[len(group) // 2], weight=weight))
    return found, True


def _rounded(shape: Shape) -> Shape:
    return Shape(shape.weight, tuple(_rounded_call(call) for call in shape.calls))


def _rounded_call(call: ShapeCall) -> ShapeCall:
    return msgspec.structs.replace(
        call, delay_us=_round(call.delay_us), lead_us=_round(call.lead_us),
        rest_us=_round(call.rest_us), tail_us=_round(call.tail_us),
        request_bytes=_round(call.request_bytes), response_bytes=_round(call.response_bytes),
    )  # fmt: skip


def _round(value: int) -> int:
    """To so many binary digits.

    >>> _round(100), _round(12_345), _round(-12_345)
    (100, 12352, -12352)
    """
    size = abs(value)
    shift = max(0, size.bit_length() - _DIGITS)
    size = ((size + (1 << shift >> 1)) >> shift) << shift
    return size if value >= 0 else -size
