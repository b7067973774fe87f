"""gnomon carbon place and buy, as they are called."""

from __future__ import annotations

import pytest
from tests.cli.refusal import answer, refused

JOBS = """id,arrival,duration,cores,deadline
a,2024-01-01T00:00Z,2h,4,2024-01-01T12:00Z
b,2024-01-01T01:00Z,30min,8,
c,2024-01-01T02:00Z,3h,2,2024-01-02T00:00Z
"""
FLEET = """
name: two kinds
pue: [1.1, 1.2, 1.4]
fleet:
  - {name: old, count: 2, bought: 2012, cores: 8, threads: 8, idle_w: 20, peak_w: [90, 100, 120],
     embodied_kg: 10, score: 800}
  - {name: new, count: 1, bought: 2023, cores: 8, threads: 8, idle_w: 20, peak_w: 60,
     embodied_kg: [400, 500, 900], score: 1600}
"""


@pytest.fixture
def jobs(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return str(path)


@pytest.fixture
def fleet(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return str(path)


def test_jobs_by_metric(capsys, jobs, fleet, tmp_path):
    page = tmp_path / "place.html"
    told = answer(
        capsys, "carbon", "place", "--fleet", fleet, "--jobs", jobs, "--zone", "SE",
        "--metric", "sci,tsci,osci", "--html", str(page),
    )  # fmt: skip
    assert set(told["metrics"]) == {"sci", "tsci", "osci"}
    sci, osci = told["metrics"]["sci"], told["metrics"]["osci"]
    assert [row["machine"] for row in sci["assignments"]] == ["old", "old", "old"]
    assert [row["machine"] for row in osci["assignments"]] == ["new", "old", "new"]
    assert [row["job"] for row in osci["assignments"]] == ["a", "b", "c"]
    assert sci["embodied_kg"] == osci["embodied_kg"]
    assert sci["added_operational_pct"] > 1.0
    assert 0 < sci["added_total_pct"] < sci["added_operational_pct"]
    assert osci["added_total_pct"] == pytest.approx(0.0, abs=1e-9)
    assert sci["operational_kg_low"] < sci["operational_kg"] < sci["operational_kg_high"]
    assert told["bound_kg"] <= osci["operational_kg"]
    assert "You sort by SCI" in told["advice"][0]
    assert "average, life-cycle" in told["intensity"]
    assert "Carbon by what servers are sorted by" in page.read_text()


def test_clean_hours_and_sleep(capsys, jobs, fleet):
    words = ["carbon", "place", "--fleet", fleet, "--jobs", jobs, "--zone", "CAISO"]
    plain = answer(capsys, *words)["metrics"]["osci"]
    shifted = answer(capsys, *words, "--shift", "--sleep", "--price", "0.3")["metrics"]["osci"]
    assert shifted["operational_kg"] < plain["operational_kg"]
    assert shifted["late"] == 0
    assert [row["start_s"] for row in shifted["assignments"]] >= [
        row["start_s"] for row in plain["assignments"]
    ]


def test_without_jobs_there_are_curves(capsys):
    told = answer(
        capsys, "carbon", "place", "--fleet", "bundled:mit-740", "--zone", "10", "--year", "2024",
        "--utilisation", "58.5", "--metric", "sci,osci",
    )  # fmt: skip
    sci = told["metrics"]["sci"]
    assert sci["added_operational_pct"] == pytest.approx(24.4, abs=0.1)
    assert sci["worst_total_pct"] == pytest.approx(10.9, abs=0.05)
    assert sci["order"].index("Gold-6326") == 6
    assert set(told["curves"]) >= {"utilisation", "share", "life", "grid", "idle"}
    assert "sort by oSCI" in told["advice"][0]


def test_buy_replaces_or_keeps(capsys, fleet):
    words = ["carbon", "buy", "--fleet", fleet, "--candidate", fleet]
    assert answer(capsys, *words, "--zone", "10", code=3)["answer"] == "keep"
    told = answer(
        capsys, "carbon", "buy", "--fleet", "bundled:mit-740", "--candidate", "EPYC 9334",
        "--zone", "DE", "--price", "0.2", "--grid-change", "-5",
    )  # fmt: skip
    assert told["answer"] == "replace"
    assert told["best"]["pays"] is True
    assert 0 < told["best"]["breakeven_years"] < 5
    assert told["best"]["years_best"] < told["best"]["years"] < told["best"]["years_worst"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["place", "--fleet", "bundled:mit-740"], "--zone: which grid?"),
        (["place", "--fleet", "bundled:mit-740", "--zone", "DE", "--metric", "x"], "no metric"),
        (["place", "--fleet", "nowhere.yaml", "--zone", "DE"], "nowhere.yaml"),
        (["place", "--fleet", "bundled:mit-740", "--zone", "Atlantis"], "no grid zone"),
        (
            ["place", "--fleet", "bundled:mit-740", "--zone", "DE", "--utilisation", "101"],
            "between 0 and 100",
        ),
        (["place", "--fleet", "bundled:mit-740", "--zone", "DE", "--shift"], "give --jobs"),
        (
            ["buy", "--fleet", "bundled:mit-740", "--candidate", "Abacus", "--zone", "DE"],
            "Abacus",
        ),
        (
            ["buy", "--fleet", "bundled:mit-740", "--candidate", "H100", "--zone", "DE"],
            "hosts and accelerators cannot be compared",
        ),
    ],
    ids=["no-grid", "metric", "no-file", "zone", "utilisation", "shift", "machine", "score"],
)
def test_wrong_usage_is_one_line(capsys, words, what):
    assert what in refused(capsys, "carbon", *words)
