"""Hours of the calendar, in UTC: what a profile or a forecast wants to know of each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnomon.series._segment import Floats, Ints

# 1 January 1970 was a Thursday, the fourth day of a week that begins on Monday.
_FIRST_WEEKDAY = 3


class CalendarHours(NamedTuple):
    """One entry an hour.

    Attributes:
        hour: Of the day, 0 to 23.
        weekday: 0 is Monday.
        month: 0 is January.
        season: Where in the year, in months: a whole number in the middle of each.
    """

    hour: Ints
    weekday: Ints
    month: Ints
    season: Floats


def hours_of(index: Ints) -> CalendarHours:
    """The calendar of hours, given as their number since 1970."""
    days = index // 24
    month, length, start = months_of(days)
    season = month + ((index - 24 * start) + 0.5) / (24.0 * length) - 0.5
    return CalendarHours(index % 24, (days + _FIRST_WEEKDAY) % 7, month, season.astype(np.float64))


def months_of(days: Ints) -> tuple[Ints, Ints, Ints]:
    """Month, its length in days and its first day, of days since 1970."""
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    start = months.astype("datetime64[D]").astype(np.int64)
    end = (months + 1).astype("datetime64[D]").astype(np.int64)
    return months.astype(np.int64) % 12, end - start, start
