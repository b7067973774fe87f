"""Rows of a grid's intensity, from whatever format, checked and made one `Signal`.

Nothing is repaired unless that was asked for, and what was repaired is listed with its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.ingest.metrics.signal_csv import common_step
from gnomon.ingest.moment import moment_of
from gnomon.series import Fill, Signal
from gnomon.series.intensity import INTENSITY_UNIT, Basis, Scope, intensity_kind
from gnomon.series.zones import resolve_zone
from gnomon.units import DAY_NS, HOUR_NS, format_duration

#: g/kWh of one lb/MWh.
POUNDS_PER_MWH = 0.45359237
#: No plant emits as much: a value above is in another unit.
_MOST_G_KWH = 5000.0
#: A value this many times above or below all others of a day is worth a second look.
_FAR = 3.0
#: So many places are named in a note; the rest is counted.
_NAMED = 4

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


@dataclasses.dataclass
class Rows:
    """What a file says, row by row, in g/kWh.

    Attributes:
        label: How a row is called, such as 'line {}'.
        values: NaN where a row has none.
        numbers: What goes into `label`.
        zones: Of each row, where rows say it.
        basis: As the format or the file says; None where neither does.
        scope: The same.
        step_ns: How long a value speaks, where it says so.
        is_stepped: Whether rows follow a regular step, so that one that is absent is a gap.
        end_ns: Where the last value stops holding, where it says so.
        open_number: Of the file's last row, where its line does not end: it may be cut.
        estimated: Whether each row is an estimate, where rows say it.
    """

    where: str
    format: str
    label: str = "line {}"
    times: list[int] = dataclasses.field(default_factory=list)
    values: list[float] = dataclasses.field(default_factory=list)
    numbers: list[int] = dataclasses.field(default_factory=list)
    zones: list[str] = dataclasses.field(default_factory=list)
    basis: Basis | None = None
    scope: Scope | None = None
    zone: str | None = None
    step_ns: int | None = None
    is_stepped: bool = True
    end_ns: int | None = None
    open_number: int | None = None
    estimated: list[bool] = dataclasses.field(default_factory=list)
    attribution: str = ""
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, number: int, time_ns: int, value: float, zone: str | None = None) -> None:
        self.times.append(time_ns)
        self.values.append(value)
        self.numbers.append(number)
        if zone is not None:
            self.zones.append(zone)

    def error(self, number: int, what: str, hint: str | None = None) -> InputError:
        return InputError(f"{self.label.format(number)}: {what}", where=self.where, hint=hint)


def written(t_ns: int) -> str:
    """A time in UTC, as short as it can be.

    >>> written(0), written(90 * 10**9)
    ('1970-01-01T00:00Z', '1970-01-01T00:01:30Z')
    """
    moment = moment_of(t_ns)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ" if moment.second else "%Y-%m-%dT%H:%MZ")


def choose_zone(rows: Rows, zone: str | None) -> Rows:
    """The rows of one zone; a file of several needs the name of one.

    A name counts as the file's own where both are names of one grid: DE and DE-LU.
    """
    there = list(dict.fromkeys(rows.zones)) or ([rows.zone] if rows.zone else [])
    if not there:
        return dataclasses.replace(rows, zone=zone)
    if zone is None:
        if len(there) > 1:
            raise InputError(
                f"{len(there)} zones are in it", where=rows.where,
                hint=f"say which with zone: {_listed(there)}",
            )  # fmt: skip
        chosen = there[0]
    else:
        same = [name for name in there if _is_same(name, zone)]
        if len(same) != 1:
            what = f"it is of {_listed(there)}, not of {zone!r}"
            raise InputError(what, where=rows.where, hint="name a zone that is in it, or none")
        chosen = same[0]
    if len(there) == 1:
        return dataclasses.replace(rows, zone=chosen)
    kept = [at for at, name in enumerate(rows.zones) if name == chosen]
    return dataclasses.replace(
        rows, zone=chosen, zones=[],
        times=[rows.times[at] for at in kept], values=[rows.values[at] for at in kept],
        numbers=[rows.numbers[at] for at in kept],
        estimated=[rows.estimated[at] for at in kept if rows.estimated],
    )  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(name[:40] for name in names[:12]) + more


def _is_same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold() or _resolved(one) == _resolved(other)


def _resolved(name: str) -> str:
    try:
        return resolve_zone(name)
    except InputError:
        return name.casefold()


def build_signal(
    rows: Rows, *, scope: Scope | None = None, basis: Basis | None = None, fill: Fill | None = None
) -> tuple[Signal, list[str]]:
    """The signal of checked rows, and notes about it.

    Args:
        scope: What it is where the rows do not say, which is noted; life-cycle unless given.
        basis: The same; average unless given.
        fill: Puts values into gaps, and sorts and drops repeated rows; without it they are errors.
    """
    if not rows.times:
        raise InputError("there is no value in it", where=rows.where)
    notes = list(rows.notes)
    if count := sum(rows.estimated):
        notes.append(f"{count:,} of {len(rows.times):,} values are estimates, as it says.")
    kind = intensity_kind(*_identity(rows, scope, basis, notes))
    times = np.array(rows.times, dtype=np.int64)
    values = np.array(rows.values, dtype=np.float64)
    _check_values(rows, values)
    notes += _say_cut(rows, times, values)
    order = _in_order(rows, times, values, fill, notes)
    times, values = times[order], values[order]
    step_ns = rows.step_ns or common_step(times)
    if step_ns is None and times.size == 1:
        step_ns = HOUR_NS
        notes.append("One value, taken to hold for an hour.")
    stepped = step_ns if rows.is_stepped else None
    if stepped is None and rows.is_stepped:
        notes.append("Rows follow no regular step: each value holds until the next.")
    if fill is None:
        _refuse_holes(rows, order, times, values, stepped)
    signal = Signal.from_samples(
        times, values, unit=INTENSITY_UNIT, kind=kind, zone=rows.zone, step_ns=stepped,
        end_ns=rows.end_ns, attribution=rows.attribution,
    )  # fmt: skip
    if fill is not None and (gaps := signal.gaps()):
        filled = signal.fill(fill)
        if left := filled.gaps():
            hint = "cut the file there, or fill the other way"
            what = f"nothing is known on the side that {fill!r} needs of {left[0]}"
            raise InputError(what, where=rows.where, hint=hint)
        notes.append(_say_filled(rows, order, times, gaps, fill, step_ns))
        signal = filled
    return signal, notes


def _identity(
    rows: Rows, scope: Scope | None, basis: Basis | None, notes: list[str]
) -> tuple[Basis, Scope]:
    """What the file is. It knows best; where it says nothing, the caller does."""
    words = {"lifecycle": "life-cycle"}
    meant: list[str] = []
    for own, asked, usual in ((rows.basis, basis, "average"), (rows.scope, scope, "lifecycle")):
        taken = own or asked or usual
        meant.append(taken)
        shown = words.get(taken, taken)
        if own is None:
            notes.append(f"It does not say whether it is {shown} intensity; taken as such.")
        elif asked is not None and own != asked:
            notes.append(f"It is {shown} intensity, not {words.get(asked, asked)}.")
    return meant[0], meant[1]  # type: ignore[return-value]


def _check_values(rows: Rows, values: _Floats) -> None:
    for is_wrong, what, hint in (
        (values < 0, "below zero", "a net export is no negative emission of those who stay"),
        (values > _MOST_G_KWH, f"above {_MOST_G_KWH:g}", f"is it in {INTENSITY_UNIT}?"),
    ):
        if (wrong := np.flatnonzero(is_wrong)).size:
            at = int(wrong[0])
            more = f" (and {wrong.size - 1:,} more)" if wrong.size > 1 else ""
            value = f"{values[at]:g} {INTENSITY_UNIT} is {what}{more}"
            raise rows.error(rows.numbers[at], value, hint)


def _say_cut(rows: Rows, times: _Ints, values: _Floats) -> list[str]:
    """A note where the last line does not end, and its value is like none of the day before it."""
    if rows.numbers[-1] != rows.open_number or np.isnan(last := values[-1]):
        return []
    before = values[:-1][np.abs(times[-1] - times[:-1]) <= DAY_NS]
    before = before[~np.isnan(before)]
    if not before.size or before.min() / _FAR <= last <= before.max() * _FAR:
        return []
    row = rows.label.format(rows.open_number)
    spread = f"{before.min():g} to {before.max():g}"
    return [
        f"The last line may be cut: {row} does not end, and has {last:g} where the day before it "
        f"has {spread}."
    ]


def _in_order(
    rows: Rows, times: _Ints, values: _Floats, fill: Fill | None, notes: list[str]
) -> npt.NDArray[np.intp]:
    if (back := np.flatnonzero(np.diff(times) < 0)).size and fill is None:
        at = int(back[0]) + 1
        what = f"{written(int(times[at]))} is before the row above, {written(int(times[at - 1]))}"
        raise rows.error(rows.numbers[at], what, "sort the rows, or fill, which sorts them")
    if back.size:
        first_row = rows.label.format(rows.numbers[int(back[0]) + 1])
        notes.append(f"Sorted: {back.size:,} rows were out of order, {first_row} first.")
    # Where a time is repeated, rows that have a value come first.
    order = np.lexsort((np.arange(times.size), np.isnan(values), times))
    repeats = np.concatenate([[False], np.diff(times[order]) == 0])
    if not repeats.any():
        return order
    first = np.maximum.accumulate(np.where(repeats, 0, np.arange(order.size)))
    kept, dropped = values[order[first]], values[order]
    differs = repeats & (kept != dropped) & ~(np.isnan(kept) & np.isnan(dropped))
    if differs.any():
        at = int(np.flatnonzero(differs)[0])
        one, other = rows.numbers[int(order[first[at]])], rows.numbers[int(order[at])]
        what = (
            f"{written(int(times[order[at]]))} is there twice: {dropped[at]:g}, and {kept[at]:g} "
            f"in {rows.label.format(one)}"
        )
        if fill is None:
            hint = "local times repeat an hour in autumn: export in UTC"
            raise rows.error(other, what.replace("nan", "no value"), hint)
        notes.append(
            f"Dropped {int(differs.sum()):,} rows that repeat a time with another value, "
            f"{rows.label.format(other)} first; the first value counts."
        )
    if same := int(repeats.sum() - differs.sum()):
        notes.append(f"Merged {same:,} rows that repeat another.")
    kept_rows: npt.NDArray[np.intp] = order[~repeats]
    return kept_rows


def _refuse_holes(
    rows: Rows, order: npt.NDArray[np.intp], times: _Ints, values: _Floats, step_ns: int | None
) -> None:
    hint = "--fill hold or --fill interpolate puts values there"
    if (blank := np.flatnonzero(np.isnan(values))).size:
        at = int(blank[0])
        more = f" (and {blank.size - 1:,} more)" if blank.size > 1 else ""
        what = f"no value for {written(int(times[at]))}{more}"
        raise rows.error(rows.numbers[int(order[at])], what, hint)
    if step_ns is None:
        return
    if (holes := np.flatnonzero(np.diff(times) > step_ns)).size:
        at = int(holes[0]) + 1
        start, end = int(times[at - 1]) + step_ns, int(times[at])
        more = f" (and {holes.size - 1:,} more gaps)" if holes.size > 1 else ""
        what = f"a gap before it, {_span(start, end)}{more}"
        raise rows.error(rows.numbers[int(order[at])], what, hint)


def _span(start_ns: int, end_ns: int) -> str:
    length = format_duration(end_ns - start_ns)
    return f"from {written(start_ns)} to {written(end_ns)} ({length})"


def _say_filled(
    rows: Rows, order: npt.NDArray[np.intp], times: _Ints, gaps: Sequence[tuple[int, int]],
    fill: Fill, step_ns: int | None,
) -> str:  # fmt: skip
    how = {"hold": "holding the last value", "interpolate": "a straight line"}[fill]
    total = sum(end - start for start, end in gaps)
    if step_ns and total % step_ns == 0:
        count = total // step_ns
        unit = "hour" if step_ns == HOUR_NS else f"value of {format_duration(step_ns)}"
        plural = unit if count == 1 else unit.replace("hour", "hours").replace("value", "values")
        amount = f"{count:,} {plural}"
    else:
        amount = format_duration(total)
    places = []
    for start, end in gaps[:_NAMED]:
        after = min(int(np.searchsorted(times, end)), times.size - 1)
        row = rows.label.format(rows.numbers[int(order[after])])
        places.append(f"{written(start)} to {written(end)} (before {row})")
    more = f" and {len(gaps) - _NAMED:,} more gaps" if len(gaps) > _NAMED else ""
    return f"Filled {amount} by {how}: {', '.join(places)}{more}."
