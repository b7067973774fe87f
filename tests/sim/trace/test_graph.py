"""From trace to graph: by hand on small traces, and exactly on every real one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.graph import scale
from gnomon.ingest.profiler.kineto import read_kineto
from gnomon.sim import replay
from gnomon.sim.trace import build_graph
from gnomon.systems.training import WhatIf, replay_trace, to_result
from tests.sim.trace.traces import (
    call,
    edges_of,
    graph_of,
    kernel,
    launch,
    mark,
    op,
    task_named,
    us,
)


def built(tmp_path, *events):
    return graph_of(*events)


def test_a_launch_bound_kernel_follows_its_launch(tmp_path):
    training = built(
        tmp_path, launch(100, 10, 1), kernel(120, 50, 1), launch(300, 10, 2), kernel(320, 50, 2)
    )
    faster = scale(training.graph, training.graph.is_kind("gap"), 0.5)
    # The second kernel starts 10 us after its launch, whenever that is.
    line = replay(faster)
    kernels = np.flatnonzero(training.graph.is_kind("gemm"))
    launches = np.flatnonzero(training.graph.is_kind("launch"))
    assert ((line.start_ns[kernels] - line.end_ns[launches]) // 1000).tolist() == [10, 10]


def test_a_gpu_bound_kernel_follows_the_one_before(tmp_path):
    training = built(
        tmp_path, launch(0, 10, 1), launch(10, 10, 2), kernel(20, 500, 1), kernel(522, 100, 2)
    )
    twice = replay(scale(training.graph, training.graph.is_kind("gemm"), 2.0))
    kernels = np.flatnonzero(training.graph.is_kind("gemm"))
    # The gap of 2 us between the two stays.
    assert (twice.start_ns[kernels] // 1000).tolist() == [20, 20 + 1000 + 2]


def test_a_kernel_may_start_before_its_launch_returns(tmp_path):
    training = built(tmp_path, launch(0, 100, 1), kernel(30, 20, 1))
    line = replay(training.graph)
    assert line.makespan_ns == 100_000
    assert line.start_ns[np.flatnonzero(training.graph.is_kind("gemm"))].tolist() == [30_000]


def test_synchronise_waits_for_what_is_queued(tmp_path):
    sync = us("cudaDeviceSynchronize", "cuda_runtime", 1, 20, 290)
    after = us("aten::add", "cpu_op", 1, 310, 10)
    training = built(tmp_path, launch(0, 10, 1), kernel(20, 280, 1), sync, after)
    assert training.graph.wait_task is not None
    slower = replay(scale(training.graph, training.graph.is_kind("gemm"), 2.0))
    assert slower.makespan_ns == 320_000 + 280_000
    faster = replay(scale(training.graph, training.graph.is_kind("gemm"), 0.0))
    # 10 us of the call came after the kernel had ended and remain.
    assert faster.makespan_ns == 320_000 - 280_000


def test_backward_on_another_thread_is_waited_for(tmp_path):
    forward = us("aten::mm", "cpu_op", 1, 0, 100)
    backward = us("MmBackward0", "cpu_op", 2, 150, 800)
    optimizer = us("AdamW", "cpu_op", 1, 1000, 50)
    training = built(tmp_path, forward, backward, optimizer)
    assert edges_of(training, "thread") == [("aten::mm", "host gap"), ("MmBackward0", "host gap")]
    slower = training.graph.duration_ns.copy()
    slower[[training.graph.names[n] == "MmBackward0" for n in training.graph.name]] *= 2
    line = replay(training.graph.with_durations(slower))
    assert line.makespan_ns == 1_050_000 + 800_000


def test_a_full_queue_blocks_the_host_until_a_kernel_ends(tmp_path):
    events = [launch(10 * i, 10, i + 1) for i in range(20)]
    events += [kernel(50 + 100 * i, 100, i + 1) for i in range(20)]
    # The last launch blocks until the kernel that ends at 1050 makes room.
    blocked = launch(200, 860, 21)
    training = built(tmp_path, *events, blocked, kernel(2050, 100, 21))
    assert len(edges_of(training, "queue")) == 1
    faster = replay(scale(training.graph, training.graph.is_kind("gemm"), 0.1))
    assert faster.makespan_ns < 700_000


def test_streams_are_tied_where_the_host_used_events(tmp_path):
    wait = us("cudaStreamWaitEvent", "cuda_runtime", 1, 20, 1)
    events = [launch(0, 5, 1), launch(30, 5, 2), kernel(10, 500, 1, 7), kernel(511.5, 50, 2, 9)]
    linked = built(tmp_path, *events, wait)
    assert edges_of(linked, "stream") == [("gemm", "device gap")]
    assert [w.confidence for w in linked.inferred] == [0.98]
    slower = scale(linked.graph, linked.graph.is_kind("gemm"), 2.0)
    assert replay(slower).makespan_ns == 10_000 + 1_000_000 + 1_500 + 100_000
    assert edges_of(built(tmp_path, *events), "stream") == []  # nobody asked a stream to wait
    # A start closer than any event could travel was waiting for room, not for the other kernel.
    crowded = [*events[:3], kernel(510.4, 50, 2, 9)]
    assert edges_of(built(tmp_path, *crowded, wait), "stream") == []


def truth_of(folder):
    """Kernels of a trace by task of the known graph, and which tasks must precede which."""
    tasks = json.loads((folder / "truth.json").read_text())["tasks"]
    training = build_graph(read_kineto(folder / "plain.json.gz"))
    graph = training.graph
    # GEMMs in the order of their launches are the tasks, step after step.
    source, target, kind = graph.edge_list()
    launches = sorted(
        (int(u), int(v) + 1) for u, v, k in zip(source, target, kind)
        if graph.edge_kinds[k] == "launch" and graph.kinds[graph.kind[v + 1]] == "gemm"
    )  # fmt: skip
    kernels = [k for _, k in launches]
    before: list[set[int]] = []
    last: dict[int, int] = {}
    for number, task in enumerate(kernels):
        step, i = divmod(number, len(tasks))
        direct = [step * len(tasks) + d for d in tasks[i]["deps"]]
        lane = int(graph.lane[task])
        direct += [last[lane]] if lane in last else []
        last[lane] = number
        before.append(set(direct).union(*(before[d] for d in direct)))
    return training, tasks, kernels, before, launches


@pytest.mark.data
def test_inferred_waits_against_the_known_graph(public_data):
    training, tasks, kernels, before, launches = truth_of(public_data / "h200-pairs" / "streams-a")
    place = {task: number for number, task in enumerate(kernels)}
    end, line = training.recorded.end_ns, training.recorded
    binding = set()
    for number, (launch_task, kernel_task) in enumerate(launches):
        step, i = divmod(number, len(tasks))
        deps = [kernels[step * len(tasks) + d] for d in tasks[i]["deps"]]
        same = [
            k
            for k in kernels
            if training.graph.lane[k] == training.graph.lane[kernel_task] and k < kernel_task
        ]
        floor = max(
            [int(end[k]) for k in same[-1:]] + [int(line.start_ns[launch_task])], default=0
        )
        for dep in deps:
            others = max([floor] + [int(end[d]) for d in deps if d != dep])
            other_stream = training.graph.lane[dep] != training.graph.lane[kernel_task]
            if other_stream and end[dep] - others >= 5_000:
                binding.add((dep, kernel_task))
    # A wait that held back the memset before a GEMM held back the GEMM.
    lane = training.graph.lane

    def gemm_at(task):
        return next(k for k in sorted(kernels) if k >= task and lane[k] == lane[task])

    inferred = {(w.source, gemm_at(w.target)) for w in training.inferred}
    assert binding
    assert len(inferred & binding) >= 0.9 * len(binding)
    between = [(place[s], place[t]) for s, t in inferred if s in place and t in place]
    right = sum(s in before[t] for s, t in between)
    assert right >= 0.9 * len(between)


def test_kernels_launched_before_the_window_keep_their_place(tmp_path):
    training = built(
        tmp_path, kernel(0, 100, 1), kernel(105, 100, 2), launch(10, 5, 3), kernel(205, 10, 3)
    )
    assert training.notes == ("2 kernels were launched before the window; they keep their place",)
    assert replay(training.graph).makespan_ns == 215_000


def test_calls_without_length_cannot_wait_for_one_another(tmp_path):
    events = []
    for tid in (1, 2):
        events += [us("op", "cpu_op", tid, 0, 10), us("cudaGetDevice", "cuda_runtime", tid, 500, 0),
                   us("op", "cpu_op", tid, 500, 10)]  # fmt: skip
    training = built(tmp_path, *events)
    assert replay(training.graph).makespan_ns == 510_000


def test_two_processes_may_share_a_thread_id(tmp_path):
    other = us("aten::mm", "cpu_op", 1, 0, 100) | {"pid": 2}
    training = built(tmp_path, us("aten::mm", "cpu_op", 1, 0, 100), other)
    assert training.graph.lanes == ("process 1 thread 1", "process 2 thread 1")
    assert replay(training.graph).makespan_ns == 100_000


def test_a_launch_without_length_still_launches(tmp_path):
    training = built(
        tmp_path, us("aten::mm", "cpu_op", 1, 0, 10), launch(5, 0, 1), kernel(20, 5, 1)
    )
    assert edges_of(training, "launch") == [("cudaLaunchKernel", "device gap")]
    assert training.notes == ()


def test_a_call_with_another_inside_acts_once(tmp_path):
    inner = us("cudaFuncGetAttributes", "cuda_runtime", 1, 10, 10)
    training = built(tmp_path, launch(0, 100, 1), inner, kernel(50, 20, 1))
    assert training.notes == ()
    assert len(edges_of(training, "launch")) == 1
    sync = us("cudaDeviceSynchronize", "cuda_runtime", 1, 200, 100)
    nested = us("cudaFuncGetAttributes", "cuda_runtime", 1, 250, 1)
    assert len(built(tmp_path, kernel(0, 240, 1), sync, nested).graph.wait_task) == 1


PAGEABLE = "Memcpy DtoH (Device -> Pageable)"


@pytest.mark.parametrize(
    ("call_name", "copy_name"),
    [("cudaMemcpy", "Memcpy DtoD"), ("hipMemcpyWithStream", "CopyDeviceToHost"),
     ("cudaMemcpyAsync", PAGEABLE)],
)  # fmt: skip
def test_a_call_that_waits_for_its_copy(call_name, copy_name):
    """A slower copy holds the host up; what the call did after the copy stays."""
    short = [event for i in range(3) for event in (launch(i, 1, i + 1), kernel(10 + i, 1, i + 1))]
    copy = [call(call_name, 20, 100, correlation=9), kernel(40, 60, 9, name=copy_name)]
    training = graph_of(*short, *copy, op(120, 10, "aten::add"))
    assert (copy_name, call_name) in edges_of(training, "event")
    assert replay(training.graph).end_ns.tolist() == training.recorded.end_ns.tolist()
    slower = training.graph.duration_ns.copy()
    slower[task_named(training, copy_name)] += 60_000
    line = replay(training.graph.with_durations(slower))
    assert line.start_ns[task_named(training, "aten::add")] == 180_000


@pytest.mark.parametrize("copy_name", ["Memcpy DtoH (Device -> Pinned)", "gemm"])
def test_a_call_that_does_not_wait_for_what_it_launched(copy_name):
    short = [event for i in range(3) for event in (launch(i, 1, i + 1), kernel(10 + i, 1, i + 1))]
    copy = [call("cudaMemcpyAsync", 20, 90, correlation=9), kernel(40, 60, 9, name=copy_name)]
    assert edges_of(graph_of(*short, *copy), "event") == []


def test_a_kernel_a_little_before_its_launch_was_launched_as_the_call_began():
    """Clocks of host and device disagree by microseconds."""
    training = graph_of(op(0, 105), launch(105, 10, 1), kernel(100, 50, 1))
    assert edges_of(training, "launch") == [("cudaLaunchKernel", "device gap")]
    assert training.notes == ("1 kernels seem to start before their launch; clocks disagree",)
    line = replay(training.graph)
    assert line.end_ns.tolist() == training.recorded.end_ns.tolist()
    assert line.end_ns[task_named(training, "gemm")] == 150_000
    # By more than that nobody knows who launched it.
    assert edges_of(graph_of(op(0, 125), launch(125, 10, 1), kernel(100, 50, 1)), "launch") == []
    assert edges_of(graph_of(op(0, 105), launch(105, 10, 1), kernel(100, 2, 1)), "launch") == []


def test_a_marked_step_splits_the_silence_around_it():
    training = graph_of(op(0, 10), mark(0, 30, 100), op(60, 10, "aten::add"))
    gaps = np.flatnonzero(training.graph.is_kind("gap"))
    line = training.recorded
    spans = [(int(line.start_ns[g]) // 1000, int(line.end_ns[g]) // 1000) for g in gaps]
    assert spans == [(10, 30), (30, 60), (70, 130)]
    assert training.step[gaps].tolist() == [-1, 0, 0]


def test_a_thread_waits_for_streams_it_launched_onto():
    """Thread 2 waits for its own stream, though another ended later within its call."""
    events = [
        launch(0, 5, 1, tid=1), kernel(10, 290, 1, 7), launch(0, 5, 2, tid=2),
        kernel(10, 90, 2, 9), call("cudaStreamSynchronize", 20, 300, tid=2),
    ]  # fmt: skip
    training = graph_of(*events)
    (lane,) = training.graph.wait_lane.tolist()
    assert training.graph.lanes[lane] == "gpu 0 stream 9"
    events[-1] = call("cudaDeviceSynchronize", 20, 300, tid=2)
    assert len(graph_of(*events).graph.wait_lane) == 2


def test_many_threads_cost_no_more_than_their_events(tmp_path):
    """Counted, not timed: ties look at each gap once."""
    events = [us("op", "cpu_op", tid, 1000 * i + tid, 10) for tid in range(200) for i in range(20)]
    training = built(tmp_path, *events)
    assert len(edges_of(training, "thread")) <= 200 * 20
    assert replay(training.graph).makespan_ns == training.recorded.makespan_ns


def test_a_trace_of_no_length_has_no_step(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [kernel(0, 0, 1)]}))
    assert to_result(replay_trace(tmp_path / "t.json")).figure("step_ms").number == 0.0


def test_one_marked_step_counts_for_itself_and_strange_events_are_counted(tmp_path):
    events = [us("early", "cpu_op", 1, 0, 10), us("ProfilerStep#1", "user_annotation", 1, 1000, 200),
              us("op", "cpu_op", 1, 1000, 150), us("x", "mtia_ccp_events", 1, 0, 1)]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    result = to_result(replay_trace(tmp_path / "t.json", []))
    assert result.figure("step_ms").number == pytest.approx(0.15)
    assert "1 events of category 'mtia_ccp_events' are not part of the graph" in result.notes
    assert "gpu_busy" not in [figure.name for figure in result.figures]


def test_changes_are_made_together_and_shown_apart():
    halves = [WhatIf("p", ("gemm",), 0.5), WhatIf("a", ("attention",), 0.5)]
    run = replay_trace(bundled("h200-gpt-l6"), changes=halves)
    table = to_result(run).table("What if")
    assert table["what_if"] == ["baseline", "p", "a", "all of these"]
    base, first, second, both = table["step_ms"].tolist()
    assert base - both == pytest.approx((base - first) + (base - second), rel=0.01)
    # The figure is the changed replay of what was recorded; the table has the profiler taken out
    # and is scaled to the measured step. The GPU sets the pace, so the two are close.
    assert to_result(run).figure("step_ms").number == pytest.approx(both, rel=0.02)
    assert base == pytest.approx(run.unprofiled.measured_ms, abs=1e-3)


def test_steps_are_measured_from_end_to_end(tmp_path):
    events = []
    for i in range(3):
        events += [us(f"ProfilerStep#{i}", "user_annotation", 1, 100 * i, 90), launch(100 * i, 10, i + 1),
                   kernel(50 + 200 * i, 190, i + 1)]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    run = replay_trace(tmp_path / "t.json", [])
    result = to_result(run)
    # The host is done after 300 us, the GPU needs 200 us a step.
    assert result.figure("step_ms").number == pytest.approx(0.2)


def test_the_bundled_trace_replays_exactly():
    run = replay_trace(bundled("h200-gpt-l6"))
    assert run.timeline.makespan_ns == run.training.recorded.makespan_ns
    # A launch that blocked on a full queue is charged to the kernel that made room, not to itself.
    same = ~run.training.graph.is_kind("blocked")
    assert np.array_equal(run.timeline.end_ns[same], run.training.recorded.end_ns[same])
    result = to_result(run)
    # Measured without the profiler on the same GPU: 45.8 ms.
    assert result.figure("step_ms").number == pytest.approx(run.unprofiled.measured_ms, rel=0.03)
    halved = {row.label: row.step_ms for row in run.what_ifs}["all kernels twice as fast"]
    assert halved == pytest.approx(result.figure("step_ms").number / 2, rel=0.05)


def test_what_ifs_name_what_is_missing():
    with pytest.raises(InputError, match=r"no 'communication' tasks; there are .*gemm"):
        replay_trace(bundled("h200-gpt-l6"), [WhatIf("faster network", ("communication",), 0.5)])


def test_a_folder_without_a_trace_and_a_broken_meta_are_told(tmp_path):
    with pytest.raises(InputError, match="no profiler trace in this folder"):
        replay_trace(tmp_path)
    (tmp_path / "kineto.json").write_text(
        json.dumps({"traceEvents": [launch(0, 1, 1), kernel(2, 1, 1)]})
    )
    (tmp_path / "meta.json").write_text('{"step_ms_median": "fast"}')
    with pytest.raises(InputError, match=r"meta\.json"):
        replay_trace(tmp_path)
