import csv
import gzip
import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest import delimited
from gnomon.ingest.metrics.signal_csv import read_signal_csv, write_signal_csv
from gnomon.series import Gap, Signal
from gnomon.units import parse

HOUR_NS = 3600 * 10**9
START_NS = 1704067200 * 10**9  # 2024-01-01T00:00:00Z


@pytest.fixture
def write(tmp_path):
    def write_file(*lines, name="grid.csv"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write_file


def refused(path, **options):
    """The one line a user sees."""
    with pytest.raises(InputError) as caught:
        read_signal_csv(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(os.fspath(path))
    return text


PORTAL = "Datetime (UTC),Country,Zone Id,Carbon Intensity gCO₂eq/kWh (direct)"


def test_a_portal_file_needs_no_options(write):
    path = write(
        PORTAL,
        "2024-01-01 00:00:00,Germany,DE,410.5",
        "2024-01-01 01:00:00,Germany,DE,395.25",
    )
    found = read_signal_csv(path)
    assert found.signal.unit == parse("gCO2e/kWh")
    assert found.signal.time_ns.tolist() == [START_NS, START_NS + HOUR_NS]
    assert found.signal.values.tolist() == [410.5, 395.25]
    assert found.signal.end_ns == START_NS + 2 * HOUR_NS
    assert found.signal.kind == found.value_column == "Carbon Intensity gCO₂eq/kWh (direct)"
    assert (found.time_column, found.step_ns) == ("Datetime (UTC)", HOUR_NS)


@pytest.mark.parametrize(
    "cells",
    [
        ("2024-01-01 00:00:00", "2024-01-01 01:00:00"),
        ("2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z"),
        ("2024-01-01T00:00Z", "2024-01-01T01:00Z"),
        ("01.01.2024 0:00", "1.1.2024 01:00:00"),
        ("2024-01-01T01:00:00+01:00", "2024-01-01T03:00:00+02:00"),
        ("2023-12-31T19:00:00.000-05:00", "2023-12-31T20:00:00.000-05:00"),
        ("1704067200", "1704070800"),
        ("1704067200.0", "1704070800.0"),
        ("1704067200000", "1704070800000"),
        ("1704067200000000", "1704070800000000"),
        ("1704067200000000000", "1704070800000000000"),
    ],
)
def test_ways_to_write_the_same_hours(write, cells):
    path = write("time,power_w", f"{cells[0]},1", f"{cells[1]},2")
    assert read_signal_csv(path).signal.time_ns.tolist() == [START_NS, START_NS + HOUR_NS]


def test_fractions_of_a_second_are_exact(write):
    path = write("t,time,power_w", "9,1704067200.123456789,1", "9,1704067200.223456789,2")
    times = read_signal_csv(path, value_column="power_w").signal.time_ns
    assert times.tolist() == [START_NS + 123_456_789, START_NS + 223_456_789]
    path = write("time,power_w", "2024-01-01T00:00:00.000000001Z,1", "2024-01-01T00:00:01Z,2")
    assert read_signal_csv(path).signal.start_ns == START_NS + 1


def test_the_hour_that_summer_time_skips_and_the_one_it_repeats(write):
    path = write(
        "time,power_w",
        *("2024-10-27T01:00:00+02:00,1", "2024-10-27T02:00:00+02:00,2"),
        *("2024-10-27T02:00:00+01:00,3", "2024-10-27T03:00:00+01:00,4"),
    )
    found = read_signal_csv(path)
    assert (found.merged_count, found.missing_count) == (0, 0)
    assert np.diff(found.signal.time_ns).tolist() == [HOUR_NS] * 3
    local = write("time,power_w", "2024-10-27 02:00:00,2", "2024-10-27 02:00:00,3")
    assert "lines 2 and 3 give 2 and 3 for the same one; local times" in refused(local)


def test_what_was_repaired_is_counted(write):
    path = write(
        "time,power_w",
        *("2024-01-01T02:00Z,3", "2024-01-01T00:00Z,1", "2024-01-01T01:00Z,2"),
        *("2024-01-01T01:00Z,2.0", "", "2024-01-01T03:00Z,", "2024-01-01T04:00Z,n/a"),
        *("2024-01-01T07:00Z,8",),
    )
    found = read_signal_csv(path)
    assert (found.row_count, found.merged_count) == (7, 1)
    assert (found.blank_count, found.missing_count) == (2, 2)
    assert found.signal.gaps() == [Gap(START_NS + 3 * HOUR_NS, START_NS + 7 * HOUR_NS)]
    assert found.signal.integrate(gaps="skip", unit="Wh") == 1 + 2 + 3 + 8


def test_irregular_times_hold_until_the_next(write):
    found = read_signal_csv(write("time,power_w", "0,1", "7,2", "10,3", "31,4"))
    assert found.step_ns is None
    assert not found.signal.gaps()
    found = read_signal_csv(write("time,power_w", "0,1", "7,2", "10,3", "31,4"), step_ns=7 * 10**9)
    assert found.signal.gaps() == [Gap(17 * 10**9, 31 * 10**9)]
    assert found.missing_count == 2


def test_separators_marks_and_quotes(write):
    path = write("\ufefftime;power_w", '"2024-01-01T00:00Z";"1"', "2024-01-01T01:00Z; 2 ")
    assert read_signal_csv(path).signal.values.tolist() == [1, 2]


def test_decimal_commas_where_semicolons_part_cells(write):
    path = write("Datum;Leistung, Mittel (kW)", "01.01.2024 00:00;1,5", "01.01.2024 01:00;-2")
    assert read_signal_csv(path).signal.values.tolist() == [1.5, -2]
    mixed = write("time;power_w", "0;1.5", "60;2,5")
    assert "line 3: '2,5' where numbers above have a decimal point" in refused(mixed)
    assert "line 2: '1.000,5' in column" in refused(write("time;power_w", "0;1.000,5", "60;2"))
    assert "is not a number" in refused(write("time,power_w", '0,"1,5"', "60,2"))
    assert "first line holds values" in refused(write("01.01.2024;1,5", "02.01.2024;2,5"))


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("lca_gco2_kwh", "gCO2e/kWh"),
        ("intensity_g_per_kwh", "gCO2e/kWh"),
        ("energy_avg_kwh", "kWh"),
        ("power_w", "W"),
        ("renewable_pct", "%"),
        ("price [USD/MWh]", "USD/MWh"),
        ("load (req/s)", "req/s"),
        ("p99_ms", "ms"),
    ],
)
def test_units_are_read_from_the_header(write, column, unit):
    path = write(f"time,{column}", "0,1", "60,2")
    assert read_signal_csv(path).signal.unit == parse(unit)


def test_a_unit_that_is_not_said_has_to_be(write):
    for column in ("carbon_intensity", "power_mw", "watts (approx)"):
        path = write(f"time,{column}", "0,1", "60,2")
        assert "does not say its unit; pass unit=" in refused(path)
        assert read_signal_csv(path, unit="mW").signal.unit == parse("mW")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "the file is empty"),
        (("# only a comment",), "the file is empty"),
        (("time,power_w",), "a header and nothing below it"),
        (("2024-01-01,5", "2024-01-02,6"), "line 1: the first line holds values"),
        (("time,power_w", "0,1", "60,abc", "120,2"), "line 3: 'abc' in column 'power_w' is not a"),
        (("time,power_w", "0,1", "60,inf"), "line 3: 'inf'"),
        (("time,power_w", "0,1", "60,0x10"), "line 3: '0x10'"),
        (("time,power_w", "0,1", "60,1_000"), "line 3: '1_000'"),
        (
            ("time,power_w", "0,1", "60"),
            "line 3: 1 cells where the header has 2; was the file cut",
        ),
        (("time,power_w", "0,1", "60,1,2"), "line 3: 3 cells where the header has 2"),
        (("time,power_w", "0,1", "yesterday,2"), "line 3: 'yesterday' is not written like"),
        (
            ("time,power_w", "01/02/2024,1", "01/03/2024,2"),
            "line 2: '01/02/2024' is no time that is",
        ),
        (("time,power_w", "31.12.2024,1", "12.31.2024,2"), "line 3: '12.31.2024' is not a time"),
        (("time,power_w", "2024-01-01,1", "2024-13-01,2"), "line 3: '2024-13-01' is not a time"),
        (
            ("time,power_w", "2024-01-01T00Z,1", "2024-01-01T01,2"),
            "line 3: some times have an offset",
        ),
        (
            ("time,power_w", "20240101,1", "20240102,2"),
            "line 2: 20240101 may be a date or seconds",
        ),
        (
            ("time,power_w", "2300-01-01,1", "2300-01-02,2"),
            "line 2: the time is more than 146 years",
        ),
        (("time,power_w", "0,1"), "one row does not say how long"),
        (("time,a_w,b_w", "0,1,2", "60,3,4"), "more than one column could be meant"),
        (("time,name", "0,x", "60,y"), "line 2: 'x' in column 'name' is not a number"),
        (("time,name,zone", "0,x,y", "60,y,z"), "no numeric column"),
        (("a,b_w", "x,1", "y,2"), "no column of times; columns are 'a', 'b_w'"),
        (("time,power_w", '0,"1', "60,2"), r"line 3: '1\n60,2' in column"),
        (('# gnomon-signal {"unit":3}', "time,value", "0,1"), "line 1: damaged"),
    ],
)
def test_wrong_files_are_refused_in_one_line(write, lines, message):
    assert message in refused(write(*lines))


def test_wrong_columns_are_refused(write):
    path = write("time,power_w,power_w", "0,1,2", "60,3,4")
    assert "no column 'load'; columns are 'time', 'power_w'" in refused(path, value_column="load")
    assert "more than one column 'power_w'" in refused(path, value_column="power_w")


def test_paths_that_lead_nowhere(tmp_path):
    assert "No such file" in refused(tmp_path / "absent.csv")
    assert refused(tmp_path)
    with pytest.raises(InputError):
        write_signal_csv(
            Signal.constant(1, 0, 10, unit="W", kind="power"), tmp_path / "absent" / "x.csv"
        )


def test_not_a_text_file(tmp_path):
    path = tmp_path / "grid.csv"
    path.write_bytes(b"time,power_w\n0,\x00\x01\n")
    assert "line 2: a zero byte" in refused(path)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    assert "not a text file" in refused(path)


def test_gzip_whole_renamed_cut_and_damaged(tmp_path):
    rng = np.random.default_rng(5)
    rows = "".join(f"{3600 * i},{v:.17g}\n" for i, v in enumerate(rng.random(5000)))
    packed = gzip.compress(("time,power_w\n" + rows).encode())
    path = tmp_path / "grid.csv"  # gzip without the name of one
    path.write_bytes(packed)
    assert read_signal_csv(path).row_count == 5000
    path.write_bytes(packed[: len(packed) // 2])
    assert "gzip stream ends early" in refused(path)
    assert "was the file cut short?" in refused(path)
    path.write_bytes(packed[:5])
    assert "gzip stream ends early" in refused(path)
    path.write_bytes(packed[:500] + bytes(200) + packed[700:])
    refused(path)


def test_absurd_sizes(tmp_path, write, monkeypatch):
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"time,power_w\n0," + b"1" * (1 << 22)))
    assert "line 2: more than a million characters" in refused(path)
    path.write_bytes(gzip.compress(b"time,power_w\n0," + b"1" * (1 << 18) + b"\n"))
    assert "line 2" in refused(path)
    path.write_bytes(gzip.compress(b'"' + b"x" * (1 << 18) + b'",time\n'))
    assert "line 1" in refused(path)
    small = write("time,power_w", *(f"{i},1" for i in range(100)))
    monkeypatch.setattr(delimited, "_MAX_CHARS", 50)
    assert "larger than 50 characters" in refused(small)


# --- writing ---------------------------------------------------------------------------------


@st.composite
def any_signal(draw):
    count = draw(st.integers(1, 8))
    steps = draw(st.lists(st.integers(1, 10**14), min_size=count, max_size=count))
    start = draw(st.integers(-(2**60), 2**60))
    number = st.floats(-1e300, 1e300) | st.just(math.nan)
    values = [draw(number) for _ in steps]
    has_range = draw(st.booleans())
    text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
    return Signal(
        start + np.cumsum([0, *steps[:-1]]),
        values,
        end_ns=start + sum(steps),
        unit=draw(st.sampled_from(["W", "gCO2e/kWh", "1/7 J/s", "%"])),
        kind="k" + draw(text),
        zone=draw(st.none() | text),
        shape=draw(st.sampled_from(["step", "linear"])),
        low=[v - 1 for v in values] if has_range else None,
        high=[v + 1 for v in values] if has_range else None,
        attribution=draw(text),
    )


@settings(max_examples=60)
@given(any_signal(), st.sampled_from([".csv", ".csv.gz"]))
def test_prop_reading_what_we_wrote_gives_it_back(tmp_path_factory, signal, suffix):
    path = tmp_path_factory.getbasetemp() / f"round-trip{suffix}"
    write_signal_csv(signal, path)
    assert read_signal_csv(path).signal == signal


def test_written_files_are_plain_and_repeatable(tmp_path):
    signal = Signal.regular(START_NS, HOUR_NS, [1.5, math.nan], unit="W", kind="power", zone="DE")
    for name in ("a.csv", "a.csv.gz", "b.csv.gz"):
        write_signal_csv(signal, tmp_path / name)
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0].startswith('# gnomon-signal {"unit":"W","kind":"power","zone":"DE"')
    assert lines[1:] == ["datetime_utc,value", "2024-01-01T00:00:00Z,1.5", "2024-01-01T01:00:00Z,"]
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    # Bytes 4 to 8 of gzip hold the time of writing: zero, or tomorrow's file would differ.
    assert (tmp_path / "a.csv.gz").read_bytes()[4:8] == bytes(4)
    assert (
        gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == (tmp_path / "a.csv").read_bytes()
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.csv.gz", "b.csv.gz"]


# --- real data -------------------------------------------------------------------------------


@pytest.fixture
def hourly(public_data):
    return public_data / "carbon" / "electricitymaps-hourly-2021-2024"


@pytest.mark.data
class TestElectricityMaps:
    @pytest.mark.parametrize(
        ("zone", "mean_g_per_kwh"),
        [("DE-LU", 403.2015283481634), ("CA-ON", None), ("US-CAL-CISO", None)],
    )
    def test_four_years_of_hours(self, hourly, zone, mean_g_per_kwh):
        path = hourly / f"{zone}.csv.gz"
        found = read_signal_csv(path, value_column="lca_gco2_kwh", zone=zone)
        signal = found.signal
        assert (found.row_count, found.missing_count, found.merged_count) == (35_064, 0, 0)
        assert (found.step_ns, signal.unit) == (HOUR_NS, parse("gCO2e/kWh"))
        assert signal.duration_ns == (365 * 4 + 1) * 24 * HOUR_NS
        assert not signal.gaps()
        # The same figures by a second way: the csv module, hour by hour.
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            hours = [float(row["lca_gco2_kwh"]) for row in csv.DictReader(stream)]
        assert signal.mean() == pytest.approx(math.fsum(hours) / len(hours), rel=1e-13)
        if mean_g_per_kwh is not None:
            assert signal.mean() == pytest.approx(mean_g_per_kwh, rel=1e-12)
        server = Signal.constant(0.5, signal.start_ns, signal.end_ns, unit="kW", kind="power")
        grams = (server * signal).integrate()
        assert grams == pytest.approx(0.5 * math.fsum(hours), rel=1e-13)
        days = signal.resample(24 * HOUR_NS)
        assert len(days) == 1461
        assert days.values[1000] == pytest.approx(math.fsum(hours[24_000:24_024]) / 24, rel=1e-13)

    def test_a_file_cut_in_half_is_refused(self, hourly, tmp_path):
        whole = (hourly / "DE-LU.csv.gz").read_bytes()
        path = tmp_path / "cut.csv.gz"
        path.write_bytes(whole[: len(whole) // 2])
        assert "was the file cut short?" in refused(path, value_column="lca_gco2_kwh")
