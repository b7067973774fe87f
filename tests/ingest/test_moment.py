from __future__ import annotations

from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.moment import (
    epoch_scale,
    find_timezone,
    parse_clock,
    parse_instant,
    parse_length,
)

NEW_YEAR = 1704067200 * 10**9


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-01",
        "2024-01-01T00:00Z",
        "2024-01-01 00:00:00",
        "2024-01-01T01:00:00+01:00",
        "1704067200",
        "1704067200.0",
    ],
)
def test_one_instant_in_many_dialects(text):
    assert parse_instant(text) == NEW_YEAR


def test_fractions_and_scales_are_exact():
    assert parse_instant("2024-01-01T00:00:00.123456789Z") == NEW_YEAR + 123456789
    assert parse_instant("1704067200123", scale=10**6) == NEW_YEAR + 123 * 10**6
    assert parse_instant("1704067200000000001", scale=1) == NEW_YEAR + 1
    assert parse_instant("-1.5") == -1_500_000_000
    assert parse_instant("1.7e9") == 1_700_000_000 * 10**9


def test_local_times():
    berlin = find_timezone("Europe/Berlin")
    assert parse_instant("2024-07-01T02:00:00", zone=berlin) == parse_instant(
        "2024-07-01T00:00:00Z"
    )
    assert parse_instant("2024-07-01T02:00:00Z", zone=berlin) == parse_instant(
        "2024-07-01T02:00:00Z"
    )
    assert find_timezone("utc") is UTC
    assert parse_instant("2024-01-01T05:30", zone=find_timezone("+0530")) == NEW_YEAR
    for wrong in ("Europe/Atlantis", "", "../etc/passwd"):
        with pytest.raises(InputError, match="no time zone"):
            find_timezone(wrong)


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [
        ([0, 60], 10**9),
        ([1704067200], 10**9),
        ([1704067200000], 10**6),
        ([1704067200 * 10**6], 1000),
        ([NEW_YEAR], 1),
        ([], 10**9),
    ],
    ids=["run", "s", "ms", "us", "ns", "none"],
)
def test_what_a_column_counts(numbers, scale):
    assert epoch_scale(numbers) == scale


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("2h", 7200),
        ("1h30m", 5400),
        ("02:00:00", 7200),
        ("1-00:00:01", 86401),
        ("01:30", 90),
        ("00:00.250", 0.25),
    ],
)
def test_lengths(text, seconds):
    assert parse_length(text) == round(seconds * 1e9)


@pytest.mark.parametrize("text", ["", "soon", "-5", "1:2:3:4", "2 parsecs", "nan"])
def test_what_is_no_length(text):
    with pytest.raises(InputError):
        parse_length(text)


@pytest.mark.parametrize("text", ["", "soon", "2024-13-01", "31.01.2024", "9" * 19])
def test_what_is_no_time(text):
    with pytest.raises(InputError):
        parse_instant(text)


@given(st.integers(0, 500), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_prop_clocks_come_back(days, hours, minutes, seconds):
    told = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert parse_clock(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == told * 10**9
