"""A job replayed, and what is said about it."""

from __future__ import annotations

import json

import pytest

from gnomon.graph import WorkGraph
from gnomon.sim import replay
from gnomon.systems.training import replay_trace, to_result
from gnomon.systems.training.pipeline import as_shown, replay_changed
from gnomon.systems.training.replay_result import to_script
from gnomon.systems.training.whatif import DelayRank, IdealNetwork, ScaleNamed
from tests.sim.trace.traces import (
    backend_event,
    graph_of,
    kernel,
    launch,
    mark,
    op,
    post,
    write_job,
    write_trace,
)


@pytest.fixture
def job(tmp_path):
    """Rank 0 is there after 10.01 ms, rank 1 after 20.01 ms; the transfer takes 20 us."""
    return replay_trace(write_job(tmp_path / "job"))


def test_who_waits_at_a_rendezvous_is_shown_from_its_arrival(job):
    graph = job.training.graph
    meets = graph.is_kind("communication")
    assert job.timeline.start_ns[meets].tolist() == [20_010_000, 20_010_000]
    shown = as_shown(job.timeline)
    assert shown.start_ns[meets].tolist() == [10_010_000, 20_010_000]
    assert shown.end_ns.tolist() == job.timeline.end_ns.tolist()
    assert shown.start_ns[~meets].tolist() == job.timeline.start_ns[~meets].tolist()


def test_without_rendezvous_a_timeline_is_shown_as_it_is():
    line = replay(graph_of(op(0, 10)).graph)
    assert as_shown(line) is line
    # The first task of a lane has nobody before it to follow.
    graph = WorkGraph.from_columns(["a", "b", "b"], [5, 20, 5], group=[0, -1, 0])
    assert as_shown(replay(graph)).start_ns.tolist() == [20, 0, 20]


def test_waiting_is_counted_by_rank(job):
    assert job.waiting_ns().tolist() == [10_000_000, 0]
    late = replay_changed(job.training, job.training.graph, [DelayRank(0, 15)])
    assert late.makespan_ns == 25_030_000


def test_waiting_side_by_side_counts_once(tmp_path):
    """A send and a receive that wait together for a late rank are one wait."""
    posts = [post(0, 5, "send", 1), post(5, 5, "recv_", 1), op(10, 10)]
    waits = [backend_event(2, 20_010, "gloo:send", 6), backend_event(7, 20_005, "gloo:recv", 7)]
    early = [mark(0, 0, 20_100), *posts, *waits, op(20_040, 10, "aten::add")]
    late = [
        mark(0, 0, 20_100), op(0, 19_990), post(20_000, 5, "send", 0), post(20_005, 5, "recv_", 0),
        backend_event(20_002, 10, "gloo:send", 6), backend_event(20_007, 5, "gloo:recv", 7),
        op(20_040, 10, "aten::add"),
    ]  # fmt: skip
    for rank, events in enumerate((early, late)):
        write_trace(tmp_path / f"rank{rank}.json", *events)
    run = replay_trace(tmp_path)
    # From 2 us until the receive of the other was there, at 20.007 ms.
    assert run.waiting_ns().tolist() == [20_005_000, 0]
    assert to_script(run)["edges"]["communication"] == 2


def test_a_single_rank_waits_for_nobody(tmp_path):
    path = write_trace(tmp_path / "t.json", launch(0, 5, 1), kernel(10, 5, 1))
    assert replay_trace(path).waiting_ns().tolist() == [0]


def test_scripts_get_plain_values_by_name(job):
    answer = to_script(job)
    assert set(answer) >= {
        "ranks", "tasks", "load_s", "replay_s", "steps", "unprofiled_ms", "breakdown_ms", "edges",
        "rank_steps", "what_if", "unprofiled_low_ms", "unprofiled_high_ms",
        "unprofiled_is_measured",
    }  # fmt: skip
    assert answer["ranks"] == 2
    assert answer["tasks"] == len(job.training.graph)
    assert answer["steps"] == [
        {"step": "ProfilerStep#0", "recorded_ms": 20.03, "replayed_ms": 20.03, "error_pct": 0.0}
    ]
    assert [row["rank"] for row in answer["rank_steps"]] == [0, 1]
    # Means of the two: of 20.03 ms, rank 0 computes 10 and waits 10, rank 1 computes 20.
    assert answer["breakdown_ms"] == pytest.approx(
        {"exposed_compute": 15.0, "exposed_communication": 5.02, "overlapped": 0.0, "idle": 0.01,
         "waiting_for_ranks": 5.0}
    )  # fmt: skip
    assert answer["edges"] == {"launch": 4, "communication": 1}
    assert answer["unprofiled_is_measured"] is False
    assert json.loads(json.dumps(answer)) == answer


def test_parts_of_the_step_add_up_to_it(job):
    parts = to_script(job)["breakdown_ms"]
    whole = sum(parts.values()) - parts["waiting_for_ranks"]
    assert whole == pytest.approx(20.03)


def test_the_answer_of_a_job_names_ranks_and_traces(job):
    result = to_result(job, "gnomon training replay job")
    assert result.title == "Training step on 2 ranks, a GPU"
    assert result.notes[0] == "read 2 traces, rank0.json to rank1.json"
    assert [i.name for i in result.manifest.inputs] == ["rank0.json", "rank1.json"]
    table = result.table("Step breakdown by rank")
    assert list(table["rank"]) == ["mean", "0", "1"]
    assert table["waiting_for_ranks_ms"].tolist() == pytest.approx([5.0, 10.0, 0.0])
    assert result.figure("waiting_ms").number == pytest.approx(5.0)
    links = result.table("Dependencies between lanes")
    assert dict(zip(links["dependency"], links["count"].tolist())) == {
        "launch": 4,
        "communication": 1,
    }


def test_changes_and_questions(tmp_path):
    folder = write_job(tmp_path / "job")
    run = replay_trace(folder, changes=[IdealNetwork(), ScaleNamed("gemm", 0.5)])
    # Changes are made to the job without the profiler, which took some of the launches.
    assert run.timeline.makespan_ns == pytest.approx(10_010_000, abs=10_000)
    assert run.as_recorded.makespan_ns == 20_030_000
    assert [row.label for row in run.what_ifs] == ["ideal network", "gemm x 0.5"]
    asked = replay_trace(folder, [DelayRank(1, 1)], [IdealNetwork()])
    assert [row.label for row in asked.what_ifs] == ["rank 1 1 ms late"]
    assert [row.label for row in replay_trace(folder, []).what_ifs] == []


def test_measured_steps_are_proxies_for_the_model(tmp_path):
    folder = write_job(tmp_path / "job")
    (folder / "meta.json").write_text('{"step_ms_median": 10.0}')
    run = replay_trace(folder)
    assert run.unprofiled.estimate.mid == run.unprofiled.measured_ms == 10.0
    assert run.unprofiled.factor == pytest.approx(10.0 / run.unprofiled.modelled.mid)
    table = to_result(run).table("What if")
    assert table["step_ms"][0] == pytest.approx(10.0)
    assert to_script(run)["unprofiled_is_measured"] is True


def test_only_chosen_steps_are_answered_for(tmp_path):
    folder = write_job(tmp_path / "job", steps=3)
    run = replay_trace(folder, steps="1")
    assert [row["step"] for row in to_script(run)["steps"]] == ["ProfilerStep#1"]
    assert run.window()[1] == 1
    assert replay_trace(folder).window()[1] == 2


def test_how_long_reading_took_is_told_by_the_clock_that_is_given(tmp_path):
    ticks = iter([10.0, 12.5, 13.0])
    path = write_trace(tmp_path / "t.json", op(0, 1))
    run = replay_trace(path, clock=lambda: next(ticks))
    assert (run.load_s, run.replay_s) == (2.5, 0.5)
