"""What a timeline page shows: spans on lanes, thinned for a page without losing any."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError


class TimelineView(msgspec.Struct, frozen=True, eq=False):
    """Spans as columns: `lane`, `kind` and `name` are positions in the lists of the same meaning.

    `count` and `busy_ns` are there where spans were joined (`thin`): how many a block stands for
    and how long those ran.

    >>> view = TimelineView(
    ...     "step", lanes=["gpu 0"], kinds=["compute"], names=["gemm", "copy"],
    ...     lane=[0, 0, 0], kind=[0, 0, 0], name=[0, 1, 0],
    ...     start_ns=[0, 10, 500], end_ns=[8, 14, 900])
    >>> len(view), view.first_ns, view.last_ns
    (3, 0, 900)
    >>> thin = view.thin(2)
    >>> thin.start_ns.tolist(), thin.end_ns.tolist(), thin.span_count.tolist(), thin.merged
    ([0, 500], [14, 900], [2, 1], 1)
    """

    title: str
    lanes: list[str]
    kinds: list[str]
    names: list[str]
    lane: NDArray[np.int32]
    kind: NDArray[np.int32]
    name: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    critical: NDArray[np.bool_] | None = None
    count: NDArray[np.int32] | None = None
    busy_ns: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for field, dtype in _TYPES.items():
            value = getattr(self, field)
            if value is not None:
                msgspec.structs.force_setattr(self, field, self._as_array(field, value, dtype))
        for field, known in (("lane", self.lanes), ("kind", self.kinds), ("name", self.names)):
            codes = getattr(self, field)
            if len(codes) and not (codes.min() >= 0 and codes.max() < len(known)):
                raise self._wrong(f"a {field} lies outside the list of {len(known)} {field}s")
        if bool(np.any(self.end_ns < self.start_ns)):
            row = int(np.argmax(self.end_ns < self.start_ns))
            raise self._wrong(f"span {row} ends before it starts")
        if self.count is not None and bool(np.any(self.count < 1)):
            raise self._wrong("a block stands for less than one span")

    def _as_array(self, field: str, value: Any, dtype: type[Any]) -> NDArray[Any]:
        array = np.asarray(value)
        if array.ndim != 1 or len(array) != len(self.start_ns):
            raise self._wrong(f"{field!r} does not have one entry per span")
        if array.dtype.kind not in "biu" and len(array):
            raise self._wrong(f"{field!r} is of type {array.dtype}, whole numbers were expected")
        return array.astype(dtype, copy=False)

    def _wrong(self, what: str) -> InputError:
        return InputError(what, where=f"timeline {self.title!r}")

    def __len__(self) -> int:
        return len(self.start_ns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimelineView):
            return NotImplemented
        lists = ("title", "lanes", "kinds", "names")
        return all(getattr(self, f) == getattr(other, f) for f in lists) and all(
            _same(getattr(self, field), getattr(other, field)) for field in _TYPES
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def first_ns(self) -> int:
        return int(self.start_ns.min()) if len(self) else 0

    @property
    def last_ns(self) -> int:
        return int(self.end_ns.max()) if len(self) else 0

    @property
    def span_count(self) -> NDArray[np.int32]:
        """How many recorded spans each drawn one stands for."""
        return np.ones(len(self), np.int32) if self.count is None else self.count

    @property
    def span_busy_ns(self) -> NDArray[np.int64]:
        """How long the spans ran that each drawn one stands for."""
        return self.end_ns - self.start_ns if self.busy_ns is None else self.busy_ns

    @property
    def merged(self) -> int:
        """How many spans are drawn as part of another one."""
        return int(self.span_count.sum()) - len(self)

    def thin(self, most: int) -> TimelineView:
        """At most `most` spans: short ones that lie close become counted blocks.

        Time is cut into slots, as narrow as `most` allows; what is shorter than a slot is joined
        with the others of its slot, lane, kind and criticality. So every block keeps its meaning,
        none grows over quiet time, and nothing vanishes: a block knows how many spans it stands
        for and how long they ran, and bears the name of the longest. A lane always keeps one
        block of each of its kinds, even where that is more than `most`.
        """
        if len(self) <= most:
            return self
        critical = np.zeros(len(self), np.bool_) if self.critical is None else self.critical
        order = np.lexsort((self.end_ns, self.start_ns, critical, self.kind, self.lane))
        start, end = self.start_ns[order] - self.first_ns, self.end_ns[order] - self.first_ns
        keys = (self.lane[order], self.kind[order], critical[order])
        fresh = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])

        def heads(slot: int) -> NDArray[np.bool_]:
            """Where a block begins when time is cut into slots of that length."""
            long = end - start >= slot
            place = start // slot
            apart: NDArray[np.bool_] = fresh | (place[1:] != place[:-1]) | long[1:] | long[:-1]
            return np.concatenate([[True], apart])

        slot = _least_slot(int(end.max()) + 1, lambda slot: int(heads(slot).sum()) <= most)
        return self._blocks(order, np.flatnonzero(heads(slot)))

    def _blocks(self, order: NDArray[np.int64], heads: NDArray[np.int64]) -> TimelineView:
        dur = (self.end_ns - self.start_ns)[order]
        block = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(order))))
        # Last of each block when ordered by block, then duration: its longest span.
        by_length = np.lexsort((dur, block))
        longest = order[by_length[np.append(heads[1:], len(order)) - 1]]
        first = order[heads]
        start, end = self.start_ns[first], np.maximum.reduceat(self.end_ns[order], heads)
        busy = np.add.reduceat(self.span_busy_ns[order], heads)
        shown = np.lexsort((self.lane[first], start))  # in time, as a page reads it
        used, names = np.unique(self.name[longest[shown]], return_inverse=True)
        return TimelineView(
            self.title,
            self.lanes,
            self.kinds,
            [self.names[code] for code in used.tolist()],
            self.lane[first][shown],
            self.kind[first][shown],
            names.astype(np.int32),
            start[shown],
            end[shown],
            None if self.critical is None else self.critical[first][shown],
            np.add.reduceat(self.span_count[order], heads)[shown].astype(np.int32),
            busy[shown],
        )


def _least_slot(longest: int, is_enough: Callable[[int], bool]) -> int:
    """A slot that is enough, within a tenth of the least; `longest` always is."""
    low, high = 0, max(longest, 1)
    while high - low > max(1, low // 10):
        # Slots range over ten decades: halve the exponent first, the number last.
        mid = math.isqrt(max(low, 1) * high) if high > 4 * max(low, 1) else (low + high) // 2
        if is_enough(mid):
            high = mid
        else:
            low = mid
    return high


_TYPES: dict[str, type[Any]] = {
    "lane": np.int32,
    "kind": np.int32,
    "name": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "critical": np.bool_,
    "count": np.int32,
    "busy_ns": np.int64,
}


def _same(a: Sequence[Any] | None, b: Sequence[Any] | None) -> bool:
    if a is None or b is None:
        return a is b
    return bool(np.array_equal(a, b))
