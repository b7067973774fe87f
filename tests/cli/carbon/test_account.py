"""gnomon carbon account, as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.refusal import answer, refused

from gnomon.cli import main
from gnomon.datasets import bundled
from gnomon.estimate import Estimate
from gnomon.model.carbon import account_timeline
from gnomon.model.machines.machine import find_machine
from gnomon.systems.training import replay_trace

FLEET = """\
pue: [1.1, 1.3, 1.5]
fleet:
  - {machine: Silver-4216, count: 4, bought: 2020}
  - {machine: server, count: 2, cores: 32, threads: 64, idle_w: 120, peak_w: [400, 450, 520]}
  - {machine: A100, count: 8}
"""
JOBS = """\
id,start,duration,cores,gpus,machine,utilisation
a,2024-03-01T00:00Z,2h,16,0,server,0.8
b,2024-03-01T01:00Z,5400,32,0,,
c,2024-03-01T05:00Z,10h,8,4,,0.5
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fleet.yaml").write_text(FLEET)
    Path("jobs.csv").write_text(JOBS)
    hours = [f"2024-03-01T{h:02}:00Z,{200 + h}" for h in range(24)]
    Path("grid.csv").write_text("\n".join(["datetime,carbon_gco2_kwh", *hours]) + "\n")
    return tmp_path


def test_every_number_has_a_range(files, capsys):
    told = answer(
        capsys, "carbon", "account", "jobs.csv", "--zone", "DE", "--machines", "fleet.yaml"
    )
    for name in ("energy_kwh", "operational_kg", "embodied_kg", "total_kg"):
        total = told["totals"][name]
        assert total["low"] < total["mid"] < total["high"]
        assert told["figures"][name] == pytest.approx(total["mid"])
    assert [job["id"] for job in told["jobs"]] == ["a", "b", "c"]
    for name in ("sci", "osci", "tsci", "cci", "cdp", "rsci"):
        assert all(
            job[name]["low"] <= job[name]["mid"] <= job[name]["high"] for job in told["jobs"]
        )
    total = sum(job["operational_g"]["mid"] for job in told["jobs"]) / 1000
    assert told["totals"]["operational_kg"]["mid"] == pytest.approx(total)


def test_a_page_and_real_hours(files, capsys):
    words = [
        "carbon",
        "account",
        "jobs.csv",
        "--signal",
        "grid.csv",
        "--machines",
        "fleet.yaml",
        "--price",
        "0.25",
    ]
    assert main([*words, "--html", "a.html", "--metric", "sci,osci", "--amortise", "age"]) == 0
    shown = capsys.readouterr().out
    assert "hours of grid.csv" in shown
    assert "\ntSCI" not in shown
    assert "\noSCI" in shown
    assert "Electricity" in shown
    assert "Largest jobs" in Path("a.html").read_text()


def test_sacct_and_prometheus(files, capsys):
    Path("slurm.txt").write_text(
        "JobID|Start|End|NCPUS\n1|2024-03-01T10:00:00|2024-03-01T12:00:00|16\n"
    )
    told = answer(
        capsys,
        "carbon",
        "account",
        "slurm.txt",
        "--zone",
        "100",
        "--machines",
        "fleet.yaml",
        "--timezone",
        "Europe/Berlin",
    )
    assert told["jobs"][0]["start_ns"] == 1709283600 * 10**9
    values = [[1709251200 + 60 * i, str(100 * i * 60)] for i in range(5)]
    result = [
        {
            "metric": {"__name__": "kepler_node_platform_joules_total", "instance": "n1"},
            "values": values,
        }
    ]
    Path("p.json").write_text(
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})
    )
    told = answer(capsys, "carbon", "account", "p.json", "--zone", "400")
    assert told["totals"]["energy_kwh"]["mid"] == pytest.approx(100 * 240 / 3.6e6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jobs.csv", "--machines", "fleet.yaml"], "--zone: which grid?"),
        (["jobs.csv", "--zone", "DEE", "--machines", "fleet.yaml"], "no grid zone is called 'DEE'"),
        (["jobs.csv", "--zone", "DE"], "jobs.csv line 2: the job has no measured energy"),
        (["jobs.csv", "--zone", "DE", "--machines", "none.yaml"], "none.yaml: cannot be read"),
        (["none.csv", "--zone", "DE", "--machines", "fleet.yaml"], "none.csv: cannot be read"),
        (["late.csv", "--signal", "grid.csv", "--machines", "fleet.yaml"], "late.csv line 4: the job runs from 2024-03-01 20:00"),
        (["jobs.csv", "--signal", "gap.csv", "--machines", "fleet.yaml"], "gap.csv: line 9: a gap before it"),
        (["jobs.csv", "--zone", "DE", "--machines", "bad.yaml"], "bad.yaml line 4, $.fleet[1].peak_w: peak_w of 50 W is below"),
        (["jobs.csv", "--zone", "DE", "--machines", "fleet.yaml", "--metric", "foo"], "no metric is called 'foo'"),
        (["jobs.csv", "--zone", "DE", "--machines", "fleet.yaml", "--utilisation", "120"], "between 0 and 100"),
        (["jobs.csv", "--zone", "DE", "--machines", "fleet.yaml", "--timezone", "Mars"], "no time zone"),
        (["below.csv", "--zone", "DE", "--machines", "fleet.yaml"], "below.csv line 2: its measured power of 1 W is below"),
    ],
    ids=["zone", "unknown", "machines", "fleet", "jobs", "late", "gap", "peak", "metric", "busy", "clock", "idle"],
)  # fmt: skip
def test_bad_input_is_one_line(files, capsys, words, said):
    Path("late.csv").write_text(JOBS.replace("2024-03-01T05", "2024-03-01T20"))
    Path("bad.yaml").write_text(FLEET.replace("[400, 450, 520]", "50"))
    Path("below.csv").write_text(
        "start,duration,cores,machine,energy_kwh\n2024-03-01,1h,64,server,0.001\n"
    )
    rows = Path("grid.csv").read_text().splitlines()
    Path("gap.csv").write_text("\n".join(row for row in rows if "T07" not in row) + "\n")
    assert said in refused(capsys, "carbon", "account", *words)


OLD = "fleet: [{machine: server, count: 1, cores: 2, idle_w: 9, peak_w: 90, embodied_kg: 900, bought: 2000}]"


@pytest.mark.parametrize(
    ("start", "options", "how"),
    [
        ("0", [], "age"),
        ("0", ["--amortise", "sunk"], "sunk"),
        ("0", ["--amortise", "life"], "new"),
        ("0", ["--year", "2001"], "new"),
        ("2001-03-01", ["--amortise", "sunk"], "new"),
        ("2024-03-01", ["--amortise", "sunk"], "sunk"),
    ],
    ids=["age", "sunk", "life", "year", "young", "dated"],
)
def test_times_of_a_run_say_no_year_and_it_is_todays(files, capsys, start, options, how):
    Path("old.yaml").write_text(OLD)
    Path("run.csv").write_text(f"arrival,duration_h,cores\n{start},1,2\n")
    told = answer(
        capsys, "carbon", "account", "run.csv", "--zone", "100", "--machines", "old.yaml", *options
    )
    kg = told["totals"]["embodied_kg"]["mid"]
    new = answer(
        capsys, "carbon", "account", "run.csv", "--zone", "100", "--machines", "old.yaml",
        "--year", "2000",
    )["totals"]["embodied_kg"]["mid"]  # fmt: skip
    if how == "age":
        assert 0 < kg < new / 2
    else:
        assert kg == pytest.approx({"sunk": 0, "new": new}[how])
    assert told["amortise"] == (options[1] if "--amortise" in options else "age")


def test_a_grid_without_carbon_leaves_rsci_out(files, capsys):
    words = ["carbon", "account", "jobs.csv", "--zone", "0", "--machines", "fleet.yaml"]
    assert "rsci" not in answer(capsys, *words)["jobs"][0]
    assert main(words) == 0
    assert "rSCI is left out" in capsys.readouterr().out
    assert "rSCI needs operational carbon" in refused(capsys, *words, "--metric", "rsci")


def test_a_series_that_is_no_power_is_one_line(files, capsys):
    Path("p.prom").write_text("foo_bytes 5 1\nfoo_bytes 6 2\nx_watts 1 1\nx_watts 1 2\n")
    said = refused(capsys, "carbon", "account", "p.prom", "--zone", "100", "--series", "foo_bytes")
    assert "'foo_bytes' does not say whether it is watts or joules" in said


def test_a_filled_gap_is_said(files, capsys):
    rows = Path("grid.csv").read_text().splitlines()
    Path("gap.csv").write_text("\n".join(row for row in rows if "T07" not in row) + "\n")
    assert (
        main(
            [
                "carbon",
                "account",
                "jobs.csv",
                "--signal",
                "gap.csv",
                "--fill",
                "hold",
                "--machines",
                "fleet.yaml",
            ]
        )
        == 0
    )
    assert "Filled 1 hour by holding the last value" in capsys.readouterr().out


def test_what_a_timeline_shows_is_accounted(tmp_path, capsys):
    """A GPU of a trace, held all along and as busy as it was: the same as by hand."""
    fleet = tmp_path / "gpu.yaml"
    fleet.write_text("fleet:\n  - {machine: H200, count: 1, bought: 2024}\n")
    told = answer(
        capsys, "carbon", "account", "bundled:h200-gpt-l6", "--zone", "100", "--machines", fleet,
        "--start", "2024-06-01T12:00Z",
    )  # fmt: skip
    line = replay_trace(bundled("h200-gpt-l6")).timeline
    own = account_timeline(
        line, find_machine("H200"), Estimate.exact(100.0),
        device_of=lambda lane: "gpu" if lane.startswith("gpu") else None,
    )["gpu"]  # fmt: skip
    (job,) = told["jobs"]
    assert job["id"] == "gpu 0"
    assert job["energy_kwh"]["mid"] == pytest.approx(own.energy_kwh.mid)
    assert job["operational_g"]["mid"] == pytest.approx(own.operational_g.mid)


def test_ranks_without_gpus_hold_threads(tmp_path, capsys):
    fleet = tmp_path / "cpu.yaml"
    fleet.write_text("fleet:\n  - {machine: Silver-4216, count: 4, bought: 2020}\n")
    told = answer(
        capsys, "carbon", "account", "bundled:cpu-gpt-pp4", "--zone", "100", "--machines", fleet,
    )  # fmt: skip
    assert {job["id"] for job in told["jobs"]} == {"rank 0", "rank 1", "rank 2", "rank 3"}
    assert any("as if it had run from" in note for note in told["notes"])
