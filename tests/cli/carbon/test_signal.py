import json

import numpy as np
import pytest
from tests.cli.refusal import refused

from gnomon.cli.carbon.signal import signal
from gnomon.cli.output import Output
from gnomon.errors import InputError
from gnomon.ingest.metrics.signal_csv import write_signal_csv
from gnomon.series import Signal
from gnomon.series.intensity import intensity_kind

HOUR_NS = 3600 * 10**9
START_NS = 1704067200 * 10**9


def told(capsys, *words, **options):
    signal(*words, **options, output=Output(json=True))
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def grid_file(tmp_path):
    values = 300 + 100 * np.cos(2 * np.pi * np.arange(24 * 80) / 24)
    path = tmp_path / "grid.csv"
    write_signal_csv(
        Signal.regular(
            START_NS, HOUR_NS, values, unit="gCO2e/kWh", kind=intensity_kind("marginal", "direct")
        ),
        path,
    )
    return path


def test_a_bundled_zone_over_a_span_with_a_forecast(capsys):
    asked = {"from_": "2024-01-01", "to": "2024-01-08", "forecast": "48h"}
    answer = told(capsys, "caiso", **asked)
    assert (answer["zone"], answer["basis"], answer["scope"]) == (
        "US-CAL-CISO",
        "average",
        "lifecycle",
    )
    assert answer["generated"] is True
    assert answer["span"]["start"] == "2024-01-01T00:00Z"
    assert (len(answer["span"]["values"]), len(answer["forecast"]["values"])) == (168, 48)
    assert answer == told(capsys, "caiso", **asked)
    assert answer["span"]["values"] != told(capsys, "caiso", **asked, seed=1)["span"]["values"]
    year = told(capsys, "caiso", from_="2024-01-01", to="2025-01-01")["span"]["values"]
    np.testing.assert_allclose(year[:168], answer["span"]["values"], atol=0.011)


@pytest.mark.parametrize(
    ("options", "start", "hours"),
    [({}, "2024-01-01T00:00Z", 8784), ({"to": "2024-03-01"}, "2023-03-01T00:00Z", 8784),
     ({"from_": "2024-02-29"}, "2024-02-29T00:00Z", 8784), ({"from_": "2030-01-01"}, "2030-01-01T00:00Z", 8760)],
    ids=["newest", "before", "leap", "beyond"],
)  # fmt: skip
def test_a_year_is_shown_unless_told_otherwise(capsys, options, start, hours):
    answer = told(capsys, "DE", **options)
    assert answer["span"]["start"] == start
    assert abs(len(answer["span"]["values"]) - hours) <= 24


def test_years_far_from_those_of_the_profile_are_said(capsys):
    far = "The profile of DE-LU is of 2021-2024; 1900 is generated as if nothing had changed."
    assert far in told(capsys, "DE", from_="1900-01-01", to="1900-01-08")["notes"]
    near = told(capsys, "DE", from_="2020-01-01", to="2020-01-08")["notes"]
    assert not any("as if nothing had changed" in note for note in near)


def test_a_number_is_no_zone_of_a_file(grid_file):
    with pytest.raises(InputError, match=r"grid\.csv: 400 is no zone of a file"):
        signal("400", file=grid_file)


def test_what_a_file_does_not_say_is_said(capsys, tmp_path):
    path = tmp_path / "bare.csv"
    path.write_text("time,carbon_gco2_kwh\n2024-01-01T00:00Z,3\n2024-01-01T01:00Z,4\n")
    notes = " ".join(told(capsys, file=path)["notes"])
    assert "whether it is average" in notes
    assert "whether it is life-cycle" in notes


def test_scope_and_identity_are_printed(capsys):
    signal("PJM", scope="direct", from_="2024-01-01", to="2024-01-03")
    shown = " ".join(capsys.readouterr().out.split())
    assert "average, direct, gCO2e/kWh, US-MIDA-PJM" in shown
    assert "Electricity Maps" in shown
    assert "generated from a profile" in shown


def test_a_file_is_shown_with_its_own_identity(capsys, grid_file, tmp_path):
    page = tmp_path / "page.html"
    signal("XX", file=grid_file, forecast="1d", output=Output(html=page))
    shown = " ".join(capsys.readouterr().out.split())
    assert "marginal, direct, gCO2e/kWh, XX" in shown
    assert "generated" not in shown
    assert "What comes next" in page.read_text()
    answer = told(capsys, file=grid_file, to="2024-03-01", forecast="2d")
    assert answer["figures"]["forecast_error_pct"] < 2


def test_a_gap_is_refused_or_filled_and_said(capsys, tmp_path):
    rows = [f"2024-01-01T{h:02}:00:00Z,{200 + h}" for h in range(24) if h not in (5, 6)]
    path = tmp_path / "gap.csv"
    path.write_text("\n".join(["time,intensity_gco2e_kwh", *rows]) + "\n")
    with pytest.raises(InputError, match=r"gap\.csv: line 7: .*2024-01-01T05:00.*--fill"):
        signal(file=path)
    answer = told(capsys, file=path, fill="interpolate")
    assert answer["span"]["values"][4:8] == [204, 205.5, 205.5, 207]
    assert any("fill" in note.lower() for note in answer["notes"])


@pytest.mark.parametrize(
    ("words", "options", "line"),
    [
        ((), {}, "which grid"),
        (("caisso",), {}, "did you mean CAISO"),
        (("DE",), {"from_": "yesterday"}, "--from: 'yesterday' is no time"),
        (("DE",), {"from_": "2024-01-02", "to": "2024-01-01"}, "--to 2024-01-01 is not after"),
        (("DE",), {"forecast": "90d"}, "a forecast reaches"),
        (("DE",), {"forecast": "soon"}, "is no duration"),
        (("DE",), {"fill": "hold"}, "nothing to fill"),
        (("DE",), {"seed": -1}, "zero or more"),
        (("DE",), {"from_": "2024-01-01T00:10Z", "to": "2024-01-01T00:20Z"}, "shorter than an hour"),
        (("400",), {}, "400: a number is the same at all hours; give a zone"),
        (("DE",), {"forecast": "-3h"}, "--forecast -3h has to be more than nothing"),
        (("DE",), {"forecast": "0h"}, "--forecast 0h has to be more than nothing"),
    ],
    ids=["none", "unknown", "time", "order", "far", "duration", "fill", "seed", "short", "number",
         "back", "nothing"],
)  # fmt: skip
def test_wrong_words_are_one_clear_line(words, options, line):
    with pytest.raises(InputError) as caught:
        signal(*words, **options)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_length_below_nothing_is_an_argument_and_refused(capsys):
    for words in (["--forecast", "-3h"], ["--forecast=-3h"]):
        line = refused(capsys, "carbon", "signal", "DE", *words)
        assert "--forecast -3h has to be more than nothing" in line
    assert "is no duration" in refused(capsys, "carbon", "signal", "DE", "--forecast", "--json")


def test_a_span_outside_of_the_file_is_refused(grid_file):
    with pytest.raises(InputError, match=r"grid\.csv: what is asked for runs from 2025-01-01"):
        signal(file=grid_file, from_="2025-01-01")
