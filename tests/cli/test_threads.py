"""gnomon threads: promises to scripts, wrong input."""

from __future__ import annotations

import json
import os

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


@pytest.fixture
def times(tmp_path):
    path = tmp_path / "times.csv"
    rows = ["GET,0.005"] * 1990 + ["SCAN,0.5"] * 10
    path.write_text("op,service_ms\n" + "\n".join(rows) + "\n")
    return path


def test_samples_answer_whether_preemption_would_help(capsys, times):
    got = answer(capsys, "threads", "simulate", "--samples", times, *QUICK)
    assert got["figures"]["answer"] == "yes"
    assert {one["load"] for one in got["cells"]} == {0.5, 0.7, 0.9}
    assert {one["quantum_us"] for one in got["cells"]} == {None, 6.5, 16, 40, 100, 250}
    assert set(got["cells"][0]["classes"]) == {"GET", "SCAN"}
    assert got["samples"]["count"] == 2000
    assert got["samples"]["classes"] == ["GET", "SCAN"]
    assert got["samples"]["is_latency"] is False
    assert any("p99.9" in note for note in got["samples"]["notes"])
    assert got["advice"][1]["price"]["SCAN"] > got["advice"][1]["price"]["GET"]


def test_the_sentence_of_the_answer(capsys, monkeypatch, times):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["threads", "simulate", "--samples", str(times), "--load", "0.7", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "Would preemption help this service" in out
    line = next(line for line in out.splitlines() if line.startswith("Preempt?"))
    assert "yes" in line
    assert "takes the p99 of all requests from" in line
    assert "and the p99 of SCAN from" in line


def test_what_is_given_goes_before_what_is_derived(capsys, times):
    got = answer(capsys, "threads", "simulate", "--samples", times, "--unit", "us", "--load", "0.6",
                 "--quantum", "1,2", *QUICK)  # fmt: skip
    assert {one["load"] for one in got["cells"]} == {0.6}
    assert {one["quantum_us"] for one in got["cells"]} == {None, 1, 2}
    assert got["cells"][0]["classes"]["SCAN"]["p50_us"] < 10  # half a microsecond now


def test_samples_and_their_options(capsys, times, tmp_path):
    assert "two workloads" in refused(
        capsys, "threads", "simulate", "--samples", times, "--workload", "A2"
    )
    assert "--unit us without --samples" in refused(capsys, "threads", "simulate", "--unit", "us")
    assert "--service web without" in refused(capsys, "threads", "simulate", "--service", "web")
    assert "check the path" in refused(capsys, "threads", "simulate", "--samples", tmp_path / "no")
    assert "no --service" in refused(
        capsys, "threads", "simulate", "--samples", times, "--service", "web"
    )
    (tmp_path / "bare").write_text("5\n6\n")
    assert "--unit ns, us, ms or s" in refused(
        capsys, "threads", "simulate", "--samples", tmp_path / "bare"
    )
    (tmp_path / "slow.csv").write_text("service_s\n50000\n60000\n")
    assert "--requests 10000" in refused(
        capsys, "threads", "simulate", "--samples", tmp_path / "slow.csv", "--on", "serial"
    )


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
        (["--workers", "1.5"], "1.5 is no whole number"),
        (["--policy", ""], "--policy '' names nothing"),
    ],
)  # fmt: skip
def test_what_is_wrong_gets_a_line(capsys, args, says):
    assert says in refused(capsys, "threads", "simulate", *args)


def test_bench_needs_a_core_for_each_thread(capsys):
    most = len(os.sched_getaffinity(0)) - 1
    for workers in (most + 1, 100):
        assert f"{workers + 1} cores" in refused(capsys, "threads", "bench", "--workers", workers)
    assert "whole" in refused(capsys, "threads", "bench", "--workers", "1.5")
    assert "names nothing" in refused(capsys, "threads", "calibrate", "--source", "")


def test_more_work_than_the_workers_can_do_is_said(capsys, times):
    args = ["--policy", "fcfs,two-queue", *QUICK]
    assert main(["threads", "simulate", "--load", "1.5", *args]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "more work than the workers can do, whatever the policy: p99" in out
    assert "At load 1.5 there is more work than the workers can do" in out
    assert "not worth it:" not in out.partition("policies:")[0]
    assert "Preempting costs more" not in out
    got = answer(capsys, "threads", "simulate", "--samples", times, "--load", "1.5", *args)
    assert got["figures"]["answer"] == "overloaded"
    assert got["advice"][0]["is_overloaded"] is True
    got = answer(capsys, "threads", "simulate", "--samples", times, "--load", "0.5,1.5", *args)
    assert got["figures"]["answer"] == "yes"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("sources", 0, "cost_us"), 1e300), (("sources", 0, "cost_us"), 1e15),
        (("sources", 0, "cost_us"), -5.0), (("sources", 0, "late_ns"), [10**18]),
        (("dispatch_ns",), 1e300), (("interruptions", "per_s"), 1e12),
        (("interruptions", "length_ns"), [-1]),
    ],
)  # fmt: skip
def test_a_machine_out_of_range_is_refused(capsys, tmp_path, path, value):
    clock = {"name": "clock", "what": "", "is_polled": True, "burns_core": False, "cost_us": 0.1}
    machine = {
        "sources": [clock], "switch_ns": 50.0, "dispatch_ns": 100.0, "chosen": "clock",
        "interruptions": {"per_s": 100.0, "length_ns": [2000]}, "chosen_unpolled": "none",
        "is_realtime": False, "cpus": 2,
    }  # fmt: skip
    file = tmp_path / "machine.json"
    command = ["threads", "simulate", "--machine", file, "--source", "clock", "--load", "0.5"]
    file.write_text(json.dumps({"machine": machine}))
    assert main([*map(str, command), *QUICK]) == 0
    capsys.readouterr()
    inner = machine
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file.write_text(json.dumps({"machine": machine}))
    assert path[-1] in refused(capsys, *command)
