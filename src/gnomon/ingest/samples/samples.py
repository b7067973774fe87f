"""Measured times of requests, whatever they were read from: values, how often, of which class."""

from __future__ import annotations

from array import array
from collections import Counter

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.units import DAY_NS, format_duration

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
UNIT_HINT = "say it: --unit ns, us, ms or s"
#: Of more classes, those that took least time in all are put together.
_MOST_CLASSES = 8
_OTHERS, _NAMELESS = "(others)", "(no name)"
#: Of the name of a class.
_MOST_CHARS = 60
#: More different values than this are rounded to four digits.
_MOST_VALUES = 100_000
_MOST_COUNT = 10**15


class Samples(msgspec.Struct, frozen=True, eq=False):
    """How long requests took.

    Attributes:
        time_ns: Values that occur.
        counts: How often each does.
        kind: Of each: an index of `kinds`.
        kinds: Names of the classes; one alone where the file has none.
        is_latency: Measured where the wait in a queue counts too, so more than service times.
        notes: What was taken, assumed and left out.

    >>> rows = SampleRows("times.csv")
    >>> for kind, time_ns in (("GET", 5_000), ("GET", 5_000), ("SCAN", 0)):
    ...     rows.add(kind, time_ns)
    >>> samples = rows.build(is_latency=False)
    >>> len(samples), samples.time_ns.tolist(), samples.counts.tolist(), samples.kinds
    (3, [5000, 2500], [2, 1], ('GET', 'SCAN'))
    """

    time_ns: Ints
    counts: Ints
    kind: Ints
    kinds: tuple[str, ...]
    is_latency: bool
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.counts.sum())

    @property
    def labels(self) -> NDArray[np.str_] | None:
        """The class of each value; None where there is but one."""
        return np.array(self.kinds)[self.kind] if len(self.kinds) > 1 else None


class SampleRows:
    """Times as they are read, by class, and what is left out on the way."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.notes: list[str] = []
        self.left_out: Counter[str] = Counter()
        self._rows: dict[str, tuple[array[float], array[int]]] = {}

    def add(self, kind: str, time_ns: float, count: int = 1) -> None:
        """A time, not negative, that was measured so often."""
        name = kind.strip()[:_MOST_CHARS]
        if name not in self._rows:
            self._rows[name] = array("d"), array("q")
        times, counts = self._rows[name]
        times.append(time_ns)
        counts.append(count)

    def build(self, *, is_latency: bool) -> Samples:
        """All of them in columns."""
        skipped = "; ".join(f"{count:,} {what}" for what, count in self.left_out.items())
        if not self._rows:
            raise InputError("there is no time in it", where=self.where, hint=skipped or None)
        notes = [*self.notes, *([f"Left out: {skipped}."] if skipped else [])]
        found = {
            name: (np.array(times), np.array(counts, np.int64))
            for name, (times, counts) in self._rows.items()
        }
        if len(found) > _MOST_CLASSES:
            notes.append(f"{len(found)} classes: the {_MOST_CLASSES - 1} that took most time are "
                         f"kept, the {_OTHERS} put together.")  # fmt: skip
            found = _gather(found)
        time_ns = np.concatenate([times for times, _ in found.values()])
        count = np.concatenate([counts for _, counts in found.values()])
        kind = np.repeat(np.arange(len(found)), [len(times) for times, _ in found.values()])
        self._check(time_ns, count)
        if (zeros := int(count[time_ns == 0].sum())) > 0:
            least = float(time_ns[time_ns > 0].min())
            notes.append(f"{zeros:,} times of zero count as {format_duration(least / 2)}, half "
                         "of the least that was measured.")  # fmt: skip
            time_ns = np.where(time_ns == 0, least / 2, time_ns)
        columns = _merge(np.maximum(np.round(time_ns), 1).astype(np.int64), count, kind)
        names = tuple(name or _NAMELESS for name in found) if len(found) > 1 else tuple(found)
        return Samples(*columns, names, is_latency, tuple(notes))

    def _check(self, time_ns: Floats, count: Ints) -> None:
        if not time_ns.max() > 0:
            raise InputError("all times are zero", where=self.where)
        if not time_ns.max() <= DAY_NS:
            what = f"a request of {time_ns.max() / 1e9:.3g} s takes more than a day"
            raise InputError(what, where=self.where, hint=f"is the unit right? {UNIT_HINT}")
        if count.astype(np.float64).sum() > _MOST_COUNT:
            raise InputError(f"more than {_MOST_COUNT:,} requests", where=self.where)


def _gather(found: dict[str, tuple[Floats, Ints]]) -> dict[str, tuple[Floats, Ints]]:
    spent = {name: float(times @ counts) for name, (times, counts) in found.items()}
    order = sorted(spent, key=lambda name: -spent[name])
    kept = {name: found[name] for name in order[: _MOST_CLASSES - 1]}
    times, counts = zip(*(found[name] for name in order[_MOST_CLASSES - 1 :]))
    return kept | {_OTHERS: (np.concatenate(times), np.concatenate(counts))}


def _merge(time_ns: Ints, count: Ints, kind: Ints) -> tuple[Ints, Ints, Ints]:
    """Each value of a class once."""
    if len(np.unique(time_ns)) > _MOST_VALUES:
        step = 10 ** np.maximum(np.floor(np.log10(time_ns)).astype(np.int64) - 3, 0)
        time_ns = (time_ns + step // 2) // step * step
    order = np.lexsort((time_ns, kind))
    time_ns, count, kind = time_ns[order], count[order], kind[order]
    is_first = np.append(True, (np.diff(time_ns) != 0) | (np.diff(kind) != 0))
    return time_ns[is_first], np.add.reduceat(count, np.flatnonzero(is_first)), kind[is_first]
