"""Bad input to the carbon commands: exit code 2 and one line that names file and row."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.refusal import refused

from gnomon.cli import main

HOURS = [f"2024-03-01T{h:02}:00Z,{200 + h}" for h in range(24)]
FLEET = "pue: 1.2\nfleet:\n  - {machine: server, count: 4, cores: 32, idle_w: 120, peak_w: 450}\n"
JOBS = "id,start,duration,cores\na,2024-03-01T01:00Z,2h,16\nb,2024-03-01T03:00Z,1h,8\n"


def put(name, rows, header="datetime,carbon_gco2_kwh"):
    Path(name).write_text("\n".join([header, *rows]) + "\n")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GNOMON_CARBON", raising=False)
    put("grid.csv", HOURS)
    put("gap.csv", [row for row in HOURS if "T07" not in row])
    put("nan.csv", [row.replace(",207", ",NaN") for row in HOURS])
    put("negative.csv", [row.replace(",207", ",-207") for row in HOURS])
    put("duplicate.csv", [*HOURS[:8], "2024-03-01T07:00Z,999", *HOURS[8:]])
    put("unsorted.csv", [*HOURS[:7], HOURS[8], HOURS[7], *HOURS[9:]])
    put("absurd.csv", [row.replace(",207", ",207000") for row in HOURS])
    Path("cut.json").write_text('{"zone": "DE", "history": [{"carbonIntensity": 30')
    Path("fleet.yaml").write_text(FLEET)
    Path("below.yaml").write_text(FLEET.replace("peak_w: 450", "peak_w: 90"))
    Path("cut.yaml").write_text(FLEET[:-22])
    Path("jobs.csv").write_text(JOBS)
    Path("long.csv").write_text(JOBS + "c,2024-03-01T20:00Z,30h,8\n")
    Path("wrong.csv").write_text(JOBS + "c,2024-03-01T05:00Z,soon,8\n")


SIGNALS = {
    "gap.csv": "gap.csv: line 9: a gap before it, from 2024-03-01T07:00Z to 2024-03-01T08:00Z",
    "nan.csv": "nan.csv: line 9: no value for 2024-03-01T07:00Z",
    "negative.csv": "negative.csv: line 9: -207 gCO2e/kWh is below zero",
    "duplicate.csv": "duplicate.csv: line 10: 2024-03-01T07:00Z is there twice: 999, and 207",
    "unsorted.csv": "unsorted.csv: line 10: 2024-03-01T07:00Z is before the row above",
    "absurd.csv": "absurd.csv: line 9: 207000 gCO2e/kWh is above 5000",
    "cut.json": "cut.json: not JSON: Input data was truncated",
    "none.csv": "none.csv: cannot be read: No such file or directory",
}
COMMANDS = {
    "account": ["account", "jobs.csv", "--machines", "fleet.yaml", "--signal"],
    "place": ["place", "--fleet", "fleet.yaml", "--jobs", "jobs.csv", "--signal"],
    "curves": ["place", "--fleet", "fleet.yaml", "--signal"],
    "signal": ["signal", "--file"],
    "wait": ["wait", "--within", "2h", "--for", "1h", "--plan", "--signal"],
}


@pytest.mark.parametrize("file", SIGNALS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_signal(capsys, command, file):
    assert SIGNALS[file] in refused(capsys, "carbon", *COMMANDS[command], file)


OTHERS = {
    "zone-account": (["account", "jobs.csv", "--machines", "fleet.yaml", "--zone", "DEE"],
                     "no grid zone is called 'DEE'; did you mean DE"),
    "zone-place": (["place", "--fleet", "fleet.yaml", "--jobs", "jobs.csv", "--zone", "DEE"],
                   "no grid zone is called 'DEE'; did you mean DE"),
    "zone-signal": (["signal", "DEE"], "no grid zone is called 'DEE'; did you mean DE"),
    "zone-wait": (["wait", "--within", "2h", "--for", "1h", "--plan", "--zone", "DEE"],
                  "no grid zone is called 'DEE'; did you mean DE"),
    "long-account": (["account", "long.csv", "--machines", "fleet.yaml", "--signal", "grid.csv"],
                     "long.csv line 4: the job runs from 2024-03-01 20:00 to 2024-03-03 02:00"),
    "long-place": (["place", "--fleet", "fleet.yaml", "--jobs", "long.csv", "--signal",
                    "grid.csv"], "long.csv line 4: job c runs beyond the grid's hours"),
    "idle-account": (["account", "jobs.csv", "--machines", "below.yaml", "--zone", "DE"],
                     "below.yaml line 3, $.fleet[0].peak_w: peak_w of 90 W is below"),
    "idle-place": (["place", "--fleet", "below.yaml", "--zone", "DE"], "below.yaml line 3, $.fleet[0].peak_w: peak_w of 90 W is below"),
    "cut-account": (["account", "jobs.csv", "--machines", "cut.yaml", "--zone", "DE"], "cut.yaml line 3: is no YAML"),
    "cut-place": (["place", "--fleet", "cut.yaml", "--zone", "DE"], "cut.yaml line 3: is no YAML"),
    "row-account": (["account", "wrong.csv", "--machines", "fleet.yaml", "--zone", "DE"],
                    "wrong.csv: line 4: duration: 'soon' is no duration"),
    "row-place": (["place", "--fleet", "fleet.yaml", "--jobs", "wrong.csv", "--zone", "DE"],
                  "wrong.csv: line 4: duration: 'soon' is no duration"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_what_else_is_wrong(capsys, case):
    words, said = OTHERS[case]
    assert said in refused(capsys, "carbon", *words)


def test_a_folder_of_real_hours_stands_in_for_the_profile(capsys, monkeypatch, tmp_path):
    account = ["carbon", "account", "jobs.csv", "--machines", "fleet.yaml", "--zone", "DE"]
    (tmp_path / "real").mkdir()
    monkeypatch.setenv("GNOMON_CARBON", str(tmp_path / "real"))
    assert main(account) == 0
    assert "generated by gnomon" in capsys.readouterr().out
    Path("real/DE.csv").write_text(Path("grid.csv").read_text())
    assert main(account) == 0
    assert "hours of DE.csv" in capsys.readouterr().out
    Path("real/DE.csv").write_text(Path("gap.csv").read_text())
    assert "real/DE.csv: line 9: a gap" in refused(capsys, *account)
    assert main([*account, "--fill", "hold"]) == 0
    assert "Filled 1 hour" in capsys.readouterr().out
