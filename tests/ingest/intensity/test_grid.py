from __future__ import annotations

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.ingest.intensity.grid import grid_signal, mean_intensity, read_grid_file

HOUR_NS = 3600 * 10**9
DAY = "2024-03-01T{:02}:00Z"


def write(tmp_path, rows, header="datetime_utc,direct_gco2_kwh,lca_gco2_kwh"):
    file = tmp_path / "grid.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def hours(values, skip=()):
    return [f"{DAY.format(h)},{v},{v + 10}" for h, v in enumerate(values) if h not in skip]


def test_a_zone_a_number_and_whole_hours():
    signal, notes = grid_signal("DE", HOUR_NS // 2, 5 * HOUR_NS + 1)
    assert (signal.start_ns, signal.end_ns) == (0, 6 * HOUR_NS)
    assert "average, life-cycle" in notes[0]
    assert "seed 0" in notes[0]
    assert signal != grid_signal("DE", 0, 6 * HOUR_NS, seed=1)[0]
    flat, told = grid_signal("120", 10, 20)
    assert flat.at(15) == 120
    assert told == ["Grid: 120 gCO2e/kWh at all times, as given."]


def test_a_file_by_scope(tmp_path):
    file = write(tmp_path, hours([100, 200, 300]))
    start = 1709251200 * 10**9
    life, notes = grid_signal("DE", start, start + 3 * HOUR_NS, file=file)
    direct, _ = grid_signal("DE", start, start + HOUR_NS, file=file, scope="direct")
    assert life.values.tolist() == [110, 210, 310]
    assert direct.values.tolist() == [100, 200, 300]
    assert direct.kind == "carbon-intensity/average/direct"
    assert "hours of grid.csv" in notes[0]
    assert mean_intensity(None, year=2024, file=file)[0] == pytest.approx(210)
    assert mean_intensity("120", year=2024)[0] == pytest.approx(120)


def test_gaps_are_refused_until_told_and_then_said(tmp_path):
    file = write(tmp_path, hours([100, 200, 300, 400], skip=(1,)))
    with pytest.raises(InputError, match=r"grid.csv: line 3: a gap before it"):
        read_grid_file(file)
    held, notes = read_grid_file(file, fill="hold")
    assert held.values.tolist() == [110, 110, 310, 410]
    assert notes[-1] == (
        "grid.csv: Filled 1 hour by holding the last value: 2024-03-01T01:00Z to "
        "2024-03-01T02:00Z (before line 3)."
    )


def test_a_folder_of_real_hours(tmp_path):
    write(tmp_path, hours([100, 200, 300])).rename(tmp_path / "de.csv")
    start = 1709251200 * 10**9
    real, notes = grid_signal("Germany", start, start + HOUR_NS, folder=tmp_path)
    assert real.values.tolist() == [110, 210, 310]
    assert "hours of de.csv" in notes[0]
    later, notes = grid_signal("DE", start, start + 9 * HOUR_NS, folder=tmp_path)
    assert later.duration_ns == 9 * HOUR_NS
    assert "does not cover" in notes[0]
    assert "seed 0" in notes[1]
    assert "seed 0" in grid_signal("SE", start, start + HOUR_NS, folder=tmp_path)[1][0]
    (tmp_path / "DE-LU.json").write_text("{}")
    with pytest.raises(InputError, match=r"more than one file of DE: DE-LU.json, de.csv"):
        grid_signal("DE", start, start + HOUR_NS, folder=tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        grid_signal("DE", start, start + HOUR_NS, folder=tmp_path / "none")


@pytest.mark.parametrize(
    ("first", "last", "far"),
    [("1900", "1901", "1900 is"), ("2015", "2016", "2015 is"), ("2016", "2030", ""),
     ("2030", "2031", "2030 is"), ("1990", "2040", "1990 and 2039 are")],
)  # fmt: skip
def test_years_far_from_those_of_a_profile_are_said(first, last, far):
    start, end = (int(np.datetime64(year, "ns").astype(np.int64)) for year in (first, last))
    _, notes = grid_signal("DE", start, end)
    told = [note for note in notes if "as if nothing had changed" in note]
    of = "The profile of DE-LU is of 2021-2024;"
    assert told == ([f"{of} {far} generated as if nothing had changed."] if far else [])


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda f: grid_signal(None, 0, HOUR_NS), "which grid"),
        (lambda f: grid_signal("DEE", 0, HOUR_NS), "did you mean"),
        (lambda f: grid_signal("-5", 0, HOUR_NS), "zero or more"),
        (lambda f: grid_signal("DE", 0, HOUR_NS, fill="hold"), "nothing to fill"),
        (
            lambda f: grid_signal("DE", 0, HOUR_NS, file=f),
            "grid.csv: what is asked for runs from 1970",
        ),
        (lambda f: read_grid_file(f.with_name("bad.csv")), "bad.csv: .*below zero"),
        (
            lambda f: read_grid_file(f, zone="400"),
            "grid.csv: 400 is no zone of a file: a number is",
        ),
        (lambda f: grid_signal("4e2", 0, HOUR_NS, file=f), "grid.csv: 4e2 is no zone of a file"),
    ],
    ids=["none", "zone", "negative", "fill", "outside", "below", "number", "grid-number"],
)
def test_what_is_wrong_is_one_line(tmp_path, ask, words):
    file = write(tmp_path, hours([100, 200]))
    (tmp_path / "bad.csv").write_text(file.read_text().replace("110", "-110"))
    with pytest.raises(InputError, match=words) as caught:
        ask(file)
    assert "\n" not in str(caught.value)


@pytest.mark.data
def test_public_files(public_data):
    folder = public_data / "carbon"
    real, _ = read_grid_file(
        folder / "electricitymaps-hourly-2021-2024" / "DE-LU.csv.gz", zone="DE"
    )
    cast, _ = read_grid_file(
        folder / "carboncast-hourly-2020-2021" / "DE_lifecycle_emissions.csv.gz"
    )
    assert len(real) == 35064
    assert 300 < real.mean() < 500
    assert len(cast) == 17544
    assert str(cast.unit) == "gCO2e/kWh"
