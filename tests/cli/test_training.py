"""gnomon training on made-up jobs: what is printed, what is refused."""

from __future__ import annotations

import json
import shlex

import pytest
from tests.cli.refusal import answer, refused
from tests.sim.trace.traces import (
    collective,
    kernel,
    launch,
    op,
    rank_events,
    write_job,
    write_trace,
)

from gnomon.cli import main
from gnomon.datasets import bundled

TRACE = str(bundled("h200-gpt-l6") / "kineto.json.gz")


@pytest.fixture
def job(tmp_path):
    return write_job(tmp_path / "job", steps=2)


def step_of(found, label):
    table = found["tables"]["What if"]["columns"]
    return dict(zip(table["what_if"], table["step_ms"]))[label]


def test_replay_gives_scripts_what_it_promises(job, capsys):
    found = answer(capsys, "training", "replay", job)
    first = list(found)[: list(found).index("schema")]
    assert {"ranks", "tasks", "load_s", "replay_s", "peak_mb", "steps", "unprofiled_ms",
            "breakdown_ms", "edges"} <= set(first)  # fmt: skip
    assert found["ranks"] == 2
    assert found["peak_mb"] > 10
    assert [step["step"] for step in found["steps"]] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert all(step["error_pct"] == 0 for step in found["steps"])
    assert found["breakdown_ms"]["waiting_for_ranks"] == pytest.approx(5.0, abs=0.01)


def test_a_pattern_and_a_folder_are_the_same_job(job, capsys):
    by_folder = answer(capsys, "training", "replay", job)
    by_pattern = answer(capsys, "training", "replay", job / "rank*.json")
    assert by_pattern["steps"] == by_folder["steps"]
    assert by_pattern["ranks"] == 2
    assert "no file fits this pattern" in refused(capsys, "training", "replay", job / "x*.json")


def test_every_what_if_is_answered_and_all_of_them_together(job, capsys):
    found = answer(
        capsys, "training", "whatif", job, "--scale", "gemm=0.5", "--remove", "nccl*",
        "--no-host-overhead", "--ideal-network", "--no-overlap", "--full-overlap",
        "--delay-rank", "1=5", "--slow-rank", "0=1.5", "--steps", "0",
    )  # fmt: skip
    labels = found["tables"]["What if"]["columns"]["what_if"]
    assert labels == [
        "baseline", "gemm x 0.5", "without nccl*", "no host overhead (captured as a CUDA graph)",
        "ideal network", "no overlap of communication", "communication wholly overlapped",
        "rank 1 5 ms late", "rank 0 1.5 times as slow", "all of these",
    ]  # fmt: skip
    base = step_of(found, "baseline")
    assert step_of(found, "gemm x 0.5") == pytest.approx(base - 10, abs=0.05)
    assert step_of(found, "rank 1 5 ms late") == pytest.approx(base + 5, abs=0.01)
    assert step_of(found, "rank 0 1.5 times as slow") == pytest.approx(base, abs=0.01)
    assert step_of(found, "without nccl*") == step_of(found, "ideal network") < base
    assert [row["what_if"] for row in found["what_if"]] == labels


def test_what_was_asked_can_be_asked_again(job, capsys, monkeypatch):
    monkeypatch.chdir(job.parent)
    found = answer(
        capsys, "training", "whatif", "job", "--scale", "*gemm*=0.5", "--delay-rank", "1=5",
        "--steps", "1", "--traced-only",
    )  # fmt: skip
    command = found["manifest"]["command"]
    assert command == (
        "gnomon training whatif job --scale '*gemm*=0.5' --delay-rank 1=5 --steps 1 --traced-only"
    )
    again = answer(capsys, *shlex.split(command)[1:])
    assert again["tables"] == found["tables"]


def test_without_options_the_usual_questions_are_asked(job, capsys):
    labels = answer(capsys, "training", "whatif", job)["tables"]["What if"]["columns"]["what_if"]
    assert {"baseline", "ideal network", "all kernels twice as fast"} <= set(labels)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scale", "gem=0.5"], "no task is called 'gem'"),
        (["--scale", "gemm"], "is not PATTERN=FACTOR"),
        (["--scale", "gemm=fast"], "is not PATTERN=FACTOR"),
        (["--scale", "gemm=-1"], "cannot scale by -1"),
        (["--scale", "gemm=nan"], "cannot scale by nan"),
        (["--scale", "gemm=inf"], "cannot scale by inf"),
        (["--remove", "[nothing"], "no task is called '[nothing'"),
        (["--remove", ""], "no task is called ''"),
        (["--delay-rank", "1"], "is not RANK=NUMBER"),
        (["--delay-rank", "7=5"], "there is no rank 7: there are 0 to 1"),
        (["--delay-rank", "1=-5"], "a delay of -5 ms"),
        (["--delay-rank", "1=nan"], "a delay of nan ms"),
        (["--slow-rank", "x=2"], "is not RANK=NUMBER"),
        (["--slow-rank", "0=-2"], "rank 0 cannot be -2 times as slow"),
        (["--steps", "9"], "no step '9'; there are 0, 1"),
        (["--steps", "1-0"], "end before they begin"),
        (["--steps", "first"], "no step 'first'"),
        (["--profiler-cost", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_what_cannot_be_asked_is_one_line(job, capsys, words, message):
    assert message in refused(capsys, "training", "whatif", job, *words)


def test_one_rank_has_no_others_and_no_network(tmp_path, capsys):
    assert "one trace was read" in refused(
        capsys, "training", "whatif", TRACE, "--delay-rank", "3=1"
    )
    said = refused(capsys, "training", "whatif", TRACE, "--ideal-network")
    assert "no communication" in said


def test_a_folder_with_one_bad_rank_names_it(job, capsys):
    content = (job / "rank1.json").read_bytes()
    (job / "rank1.json").write_bytes(content[: len(content) // 2])
    said = refused(capsys, "training", "replay", job)
    assert "rank 1 of 2 cannot be used: the JSON ends early" in said
    assert "rank1.json" in said


def test_two_traces_of_one_rank_are_refused(tmp_path, capsys):
    for name in ("a", "b"):
        events = [launch(0, 1, 1), kernel(2, 1, 1), collective(4, 2, 2)]
        write_trace(tmp_path / f"{name}.json", *events, distributedInfo={"rank": 4})
    assert "two traces are of rank 4" in refused(capsys, "training", "replay", tmp_path / "?.json")


def test_ranks_that_were_not_traced_have_proxies_unless_told(tmp_path, capsys):
    for rank in (0, 1):
        write_trace(
            tmp_path / f"rank{rank}.json", *rank_events(1000, 1030, ranks="[0, 1, 2]"),
            distributedInfo={"rank": rank, "world_size": 3},
        )  # fmt: skip
    found = answer(capsys, "training", "replay", tmp_path)
    assert found["ranks"] == 3
    assert "traced ranks are proxies for 1 that were not traced" in found["notes"]
    assert answer(capsys, "training", "replay", tmp_path, "--traced-only")["ranks"] == 2


def test_timelines_of_jobs_are_written(job, tmp_path, capsys):
    target = tmp_path / "t.json"
    assert main(["training", "replay", str(job), "--perfetto", str(target)]) == 0
    found = json.loads(target.read_text())
    assert any(event.get("name") == "gemm" for event in found["traceEvents"])


def test_steps_are_counted_as_asked(job, capsys):
    found = answer(capsys, "training", "replay", job, "--steps", "1")
    assert [step["step"] for step in found["steps"]] == ["ProfilerStep#1"]
    assert found["manifest"]["command"].endswith("--steps 1")


def test_a_trace_of_operators_alone(tmp_path, capsys):
    path = write_trace(tmp_path / "cpu.json", op(0, 100), op(150, 50))
    found = answer(capsys, "training", "replay", path)
    assert found["breakdown_ms"]["exposed_compute"] == pytest.approx(0.15)
    assert found["breakdown_ms"]["idle"] == pytest.approx(0.05)


def test_a_file_of_profiler_costs_is_recorded(tmp_path, capsys):
    costs = tmp_path / "costs.toml"
    costs.write_text("operator = 2.0\n")
    words = ["training", "replay", "bundled:h200-gpt-l6", "--profiler-cost", str(costs), "--json"]
    assert main(words) == 0
    manifest = json.loads(capsys.readouterr().out)["manifest"]
    assert manifest["command"].endswith("--profiler-cost costs.toml")
    assert [file["name"] for file in manifest["inputs"]] == ["kineto.json.gz", "costs.toml"]
