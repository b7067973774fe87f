"""Times and durations as tables write them: ISO 8601, epochs of any scale, `2h`, `1-02:03:04`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from gnomon.errors import InputError
from gnomon.units import SECOND_NS, parse_duration

_DOTTED_DATE = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?:,?[ T]+(\d{1,2})(:.*))?")
_SLASHED_DATE = re.compile(r"\d{1,2}/\d{1,2}/\d{2,4}(?!\d)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"[+-]?(\d{1,19}(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?")
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2}(?:\.\d{1,9})?)")
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d{1,9})\d*")
#: Where seconds since 1970 would be past the year 5138, a number counts something smaller.
_SECONDS_END = 1e11
_FARTHEST_NS = 2**62


def moment_of(t_ns: int) -> datetime:
    """The instant in UTC, to the microsecond."""
    return _EPOCH + timedelta(microseconds=t_ns // 1000)


def ns_of(moment: datetime) -> int:
    """Nanoseconds since 1970 of an instant with an offset, without its fraction of a second."""
    return (moment - _EPOCH) // timedelta(seconds=1) * SECOND_NS


def refuse_compact_day(cell: str) -> None:
    """Refuse 20240331, which may be a date or seconds.

    >>> refuse_compact_day("17040672"), refuse_compact_day("2024-03-31")
    (None, None)
    """
    if len(cell) != 8 or not cell.isdecimal():
        return
    try:
        day = date.fromisoformat(cell)
    except ValueError:
        return
    if 1900 <= day.year <= 2100:
        raise InputError(f"{cell} may be a date or seconds", hint=f"write {day}")


def with_year_first(cell: str) -> str:
    """A date with dots, which is day first everywhere, as ISO 8601 has it; others as they are.

    >>> with_year_first("01.03.2024 8:00"), with_year_first("2024-03-01")
    ('2024-03-01T08:00', '2024-03-01')
    """
    match = _DOTTED_DATE.fullmatch(cell)
    if match is None:
        return cell
    try:
        day = date(*(int(match[part]) for part in (3, 2, 1)))
    except ValueError:
        return cell
    return f"{day}T{match[4]:0>2}{match[5]}" if match[4] else f"{day}"


def is_slashed(cell: str) -> bool:
    """Whether a cell begins with 01/02/2024."""
    return _SLASHED_DATE.match(cell) is not None


def is_time(cell: str) -> bool:
    """Whether a cell is a written date or time; a bare number is not taken for one.

    >>> is_time("2024-03-01 08:00"), is_time("01.03.2024"), is_time("1709280000")
    (True, True, False)
    """
    plain = cell.strip()
    try:
        datetime.fromisoformat(_FRACTION.sub("", with_year_first(plain)))
    except ValueError:
        return False
    return not plain.isdecimal()


def refuse_slashes(cell: str) -> None:
    """Refuse 01/02/2024: half of the world reads January, the other half February."""
    if is_slashed(cell):
        what = f"{cell[:40]!r} is no time that is clear: which is the month?"
        raise InputError(what, hint="write 2024-03-31T01:00Z, or 31.03.2024 01:00")


def epoch_scale(numbers: Sequence[float]) -> int:
    """Nanoseconds of what a column of times counts: seconds, milli-, micro- or nanoseconds.

    Inferred from the largest, for the whole column: numbers that are no dates (0, 60, 120 ...)
    are seconds from some start.

    >>> epoch_scale([1704067200]), epoch_scale([1704067200123])
    (1000000000, 1000000)
    """
    largest = max((abs(number) for number in numbers), default=0.0)
    scale = 10**9
    for end in (_SECONDS_END, _SECONDS_END * 1e3, _SECONDS_END * 1e6):
        if largest < end:
            return scale
        scale //= 1000
    return 1


def parse_instant(text: str, *, scale: int = 10**9, zone: tzinfo = UTC) -> int:
    """Nanoseconds since 1970 of a written time; one without an offset is in `zone`.

    >>> parse_instant("2024-01-01T00:00:00Z") == parse_instant("1704067200")
    True
    """
    plain = text.strip()
    if _NUMBER.fullmatch(plain):
        whole, _, part = plain.partition(".")
        if not re.fullmatch(r"[+-]?\d+", whole) or "e" in plain.lower():
            t_ns = round(float(plain) * scale)
        else:  # as integers: a float cannot hold today's nanoseconds
            below = round(float(f"0.{part or 0}") * scale)
            t_ns = int(whole) * scale + (-below if whole.startswith("-") else below)
    else:
        t_ns = _parse_iso(plain, zone)
    if abs(t_ns) > _FARTHEST_NS:
        raise InputError(f"{text!r} is more than 146 years from 1970")
    return t_ns


def _parse_iso(plain: str, zone: tzinfo) -> int:
    fraction = _FRACTION.search(plain)
    try:
        moment = datetime.fromisoformat(_FRACTION.sub("", plain))
    except ValueError:
        hint = "write 2024-01-31T12:00Z or seconds since 1970"
        raise InputError(f"{plain[:40]!r} is no time", hint=hint) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    below = int(fraction[1].ljust(9, "0")) if fraction else 0
    return ns_of(moment) + below


def parse_length(text: str, *, scale: int = 10**9) -> int:
    """Nanoseconds of a written duration: `2h`, `1h30m`, `01:30:00`, `1-02:03:04`, or a number.

    Args:
        scale: Nanoseconds of one, where it is a bare number; seconds unless given.

    >>> parse_length("90"), parse_length("1-00:00:01"), parse_length("2h")
    (90000000000, 86401000000000, 7200000000000)
    """
    plain = text.strip()
    if _NUMBER.fullmatch(plain):
        dur_ns = round(float(plain) * scale)
    elif ":" in plain:
        dur_ns = parse_clock(plain)
    else:
        dur_ns = parse_duration(plain)
    if not 0 <= dur_ns <= _FARTHEST_NS:
        raise InputError(f"a duration of {text!r}; it has to be zero or more")
    return dur_ns


def parse_clock(text: str) -> int:
    """Nanoseconds of `[days-][hours:]minutes:seconds[.fraction]`, as Slurm writes them.

    >>> parse_clock("02:03.500"), parse_clock("1-00:00:00")
    (123500000000, 86400000000000)
    """
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"{text[:40]!r} is no duration", hint="expected [days-]hours:minutes:seconds"
        )
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    seconds = float(match[4])
    return ((days * 24 + hours) * 60 + minutes) * 60 * 10**9 + math.floor(seconds * 1e9 + 0.5)


def find_timezone(name: str) -> tzinfo:
    """A time zone by its IANA name, or an offset such as +02:00.

    >>> str(find_timezone("+02:00"))
    'UTC+02:00'
    """
    if re.fullmatch(r"[+-]\d\d:?\d\d", name):
        found = datetime.strptime(name, "%z").tzinfo
        assert found is not None
        return found
    try:
        return UTC if name.upper() in ("UTC", "Z") else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = "write UTC, +02:00 or a name such as Europe/Berlin"
        raise InputError(f"no time zone is called {name!r}", hint=hint) from None
