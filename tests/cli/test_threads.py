"""gnomon threads: promises to scripts, wrong input."""

from __future__ import annotations

import pytest
from tests.cli.refusal import answer, refused

from gnomon.cli import main

QUICK = ["--requests", "20000", "--on", "serial"]


def test_simulate_answers_what_it_promises(capsys):
    got = answer(capsys, "threads", "simulate", "--load", "0.5:0.7", "--policy", "rr,two-queue",
                 "--quantum", "10,20", *QUICK)  # fmt: skip
    cells = got["cells"]
    assert len(cells) == 3 * 5
    assert {one["load"] for one in cells} == {0.5, 0.6, 0.7}
    assert set(cells[0]) >= {"policy", "source", "quantum_us", "load", "p50_us", "p99_us", "p999_us", "classes",
                             "preemptions"}  # fmt: skip
    assert cells[0]["policy"] == "fcfs"
    assert cells[0]["quantum_us"] is None
    assert got["advice"][0]["is_worth_it"] is True


def test_a_page_has_a_chart_for_each_class(tmp_path, capsys):
    page = tmp_path / "t.html"
    assert main(["threads", "simulate", "--load", "0.5,0.7", "--html", str(page), *QUICK]) == 0
    text = page.read_text()
    assert "p99 of short" in text
    assert "p99 of long" in text


def test_policies_are_listed(capsys):
    assert main(["threads", "policies"]) == 0
    assert "two-queue" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--workload", "Z"], "A1, A2, B, C"),
        (["--load", "x"], "no list of numbers"),
        (["--load", "0.9:0.3"], "ends before it begins"),
        (["--load", "0"], "0.01 to 10"),
        (["--load", "nan"], "0.01 to 10"),
        (["--quantum", "-5"], "0.001"),
        (["--policy", "fifo"], "no scheduling policy"),
        (["--policy", "rr?quantum_us=0"], "microseconds"),
        (["--policy", "reserved?workers=4", "--workers", "2"], "left for other requests"),
        (["--source", "uintr"], "safepoint"),
        (["--cost", "-1"], "microseconds"),
        (["--requests", "5"], "a thousand"),
        (["--workers", "0"], "--workers"),
        (["--seed", "-1"], "--seed"),
    ],
)  # fmt: skip
def test_what_is_wrong_gets_a_line(capsys, args, says):
    assert says in refused(capsys, "threads", "simulate", *args)
