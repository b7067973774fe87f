"""The step without the profiler: on jobs whose truth is known, and against measured ones."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.ingest.profiler.kineto import read_kineto
from gnomon.model.accelerator.profiler_cost import ProfilerCost, default_profiler_cost
from gnomon.sim import replay
from gnomon.sim.trace.graph import HOST_KINDS, build_graph
from gnomon.sim.trace.profiler_time import _event_costs, _repeats, take_profiler_out
from gnomon.sim.trace.unprofiled import unprofiled_step, without_profiler

#: The profiler of the made-up job below, in its own terms.
COST = ProfilerCost(
    operator=1.0, launch=0.5, call=1.0, frame=2.0, kernel_ns=0.0, lone=1.0, unsteady_ns=20_000.0,
    enter_ns=700.0, exit_ns=300.0, launch_ns=8000.0, host_spread=0.1, device_spread=0.02,
)  # fmt: skip
FREE = msgspec.structs.replace(COST, operator=0.0, launch=0.0, call=0.0, frame=0.0)


class Job:
    """A step of operators, each with a child that launches a kernel; profiled or not.

    Profiling adds 0.7 us before an operator's start and 0.3 us behind its end, 2.4 us to a launch
    and 1.6 us behind it; a frame costs 0.3 us at either end.
    """

    def __init__(self, ops=80, steps=3, work=10.0, kernel=2.0, frames=False, pause=0.0):
        self.ops, self.steps, self.work, self.kernel = ops, steps, work, kernel
        self.frames, self.pause = frames, pause
        self.late: dict[tuple[int, int], float] = {}

    def step_us(self):
        """The truth: host or GPU, whichever is slower."""
        return max(self.ops * (2.0 + self.work + 5.6 + 3.0), self.ops * (self.kernel + 1.5))

    def write(self, path):
        events, at, free = [], 0.0, 0.0

        def add(name, cat, start, end, tid=1, **args):
            events.append(
                {"ph": "X", "name": name, "cat": cat, "pid": 1, "tid": tid, "ts": round(start, 3),
                 "dur": round(end - start, 3), "args": args}
            )  # fmt: skip

        for step in range(self.steps):
            begin = at
            for number in range(self.ops):
                at += 2.0
                framed = at
                at += 0.3 if self.frames else 0.0
                outer = at + 0.7
                inner = outer + 0.7
                launch = inner + self.work + self.late.get((step, number), 0.0)
                done = launch + 8.0
                end = done + 1.6 + 3.0
                correlation = 1 + step * self.ops + number
                add("aten::linear", "cpu_op", outer, end + 0.3)
                add("aten::mm", "cpu_op", inner, end)
                add("cudaLaunchKernel", "cuda_runtime", launch, done, correlation=correlation)
                start = max(free + 1.5, done + 4.0)
                free = start + self.kernel
                add("gemm", "kernel", start, free, tid=7, device=0, stream=7,
                    correlation=correlation)  # fmt: skip
                at = end + 0.3 + 0.3
                if self.frames:
                    add("f", "python_function", framed + 0.3, at)
                    at += 0.3
            add(f"ProfilerStep#{step}", "user_annotation", begin, at)
            at += self.pause
        path.write_text(json.dumps({"traceEvents": events}))
        trace = read_kineto(path, cache=False)
        return trace, build_graph(trace)


@pytest.mark.parametrize("work", [5.0, 20.0, 60.0])
def test_a_host_bound_step_gets_its_time_back(tmp_path, work):
    job = Job(work=work)
    step = unprofiled_step(*job.write(tmp_path / "t.json"), COST)
    assert step.bound_by == "host"
    assert step.estimate.mid == pytest.approx(job.step_us() / 1e3, rel=0.02)
    # Two operators and a launch a kernel: 2 us and 4 us.
    assert step.profiled_ms - step.estimate.mid == pytest.approx(80 * 6e-3, rel=0.1)


def test_a_gpu_bound_step_stays_as_it_is(tmp_path):
    job = Job(kernel=100.0)
    step = unprofiled_step(*job.write(tmp_path / "t.json"), COST)
    assert step.bound_by == "gpu"
    assert step.estimate.mid == pytest.approx(step.profiled_ms, rel=0.001)
    assert step.estimate.mid == pytest.approx(job.step_us() / 1e3, rel=0.001)


def test_the_gpu_takes_over_where_only_the_profiler_held_it_back(tmp_path):
    # 26.6 us a kernel with the profiler, 20.6 without: 24 us of kernel lie between.
    job = Job(kernel=22.5)
    step = unprofiled_step(*job.write(tmp_path / "t.json"), COST)
    assert step.bound_by == "gpu"
    assert step.estimate.mid == pytest.approx(80 * 24e-3, rel=0.01)
    assert step.profiled_ms == pytest.approx(80 * 26.6e-3, rel=0.02)


def test_frames_cost_at_both_ends(tmp_path):
    job = Job(frames=True)
    step = unprofiled_step(*job.write(tmp_path / "t.json"), COST)
    assert step.removed_ms["frames"] == pytest.approx(80 * 0.6e-3, rel=0.02)
    assert step.estimate.mid == pytest.approx(job.step_us() / 1e3, rel=0.02)


def test_time_between_step_marks_is_the_profilers(tmp_path):
    job = Job(pause=50.0)
    step = unprofiled_step(*job.write(tmp_path / "t.json"), COST)
    # Two pauses in three steps; of the gap around each a part is always kept.
    assert step.removed_ms["steps"] == pytest.approx(2 / 3 * 0.05, rel=0.15)
    assert step.estimate.mid == pytest.approx(job.step_us() / 1e3, rel=0.02)


def test_a_call_that_was_slow_once_is_taken_at_its_best(tmp_path):
    job = Job()
    job.late = {(step, number): 15.0 for step in range(3) for number in range(step, 80, 3)}
    step = unprofiled_step(*job.write(tmp_path / "t.json"), COST)
    assert step.removed_ms["unsteadiness"] == pytest.approx(80 / 3 * 15e-3, rel=0.05)
    assert step.estimate.mid == pytest.approx(job.step_us() / 1e3, rel=0.02)


def test_a_call_that_varies_by_more_than_a_profiler_could_is_left_alone(tmp_path):
    job = Job()
    # As if an operator's own work differed: 1 ms, 2 ms, 3 ms. Of the middle 20 us are taken.
    job.late = {(step, 7): 1000.0 * (step + 1) for step in range(3)}
    trace, training = job.write(tmp_path / "t.json")
    durations = without_profiler(trace, training, FREE).duration_ns
    slow = np.flatnonzero(training.graph.duration_ns > 900_000)
    slow = slow[training.graph.is_kind("host")[slow]]
    assert durations[slow].tolist() == [1_010_000, 1_990_000, 1_990_000]


@pytest.mark.parametrize("steps", [1, 2])
def test_fewer_steps_do(tmp_path, steps):
    job = Job(steps=steps)
    step = unprofiled_step(*job.write(tmp_path / "t.json"), COST)
    assert step.estimate.mid == pytest.approx(job.step_us() / 1e3, rel=0.03)


def test_one_step_of_a_lagging_gpu_is_as_long_as_its_kernels(tmp_path):
    job = Job(steps=1, kernel=100.0)
    step = unprofiled_step(*job.write(tmp_path / "t.json"), COST)
    assert step.estimate.mid == pytest.approx(80 * 101.5e-3 - 1.5e-3, rel=0.005)


def test_a_trace_without_marks_is_one_step(tmp_path):
    trace, training = Job().write(tmp_path / "t.json")
    unmarked = msgspec.structs.replace(
        training, step=np.full(len(training.graph), -1, np.int32), step_names=()
    )
    whole = unprofiled_step(trace, unmarked, COST)
    assert whole.estimate.mid == pytest.approx(3 * Job().step_us() / 1e3, rel=0.02)


def test_gaps_behind_late_launches_are_those_of_a_queue(tmp_path):
    trace, training = Job(kernel=2.0).write(tmp_path / "t.json")
    gap = training.graph.is_kind("latency")
    assert training.graph.duration_ns[gap].min() == 4000
    # Nothing queues here, so the usual gap is taken; the kernels themselves stay.
    edited = without_profiler(trace, training, COST)
    assert set(edited.duration_ns[gap].tolist()) == {1300}
    gemm = training.graph.is_kind("gemm")
    assert np.array_equal(edited.duration_ns[gemm], training.graph.duration_ns[gemm])


# -- the answer ------------------------------------------------------------------------------


def test_a_free_profiler_leaves_the_host_as_it_is(tmp_path):
    trace, training = Job().write(tmp_path / "t.json")
    edited = without_profiler(trace, training, FREE)
    host = training.graph.is_kind(*HOST_KINDS)
    assert np.array_equal(edited.duration_ns[host], training.graph.duration_ns[host])
    assert edited.edge_target is training.graph.edge_target


def test_the_range_is_the_hosts_where_the_host_sets_the_pace(tmp_path):
    step = unprofiled_step(*Job().write(tmp_path / "t.json"), COST)
    above = step.estimate.high / step.estimate.mid - 1.0
    assert above == pytest.approx(np.hypot(0.1, 0.02), rel=0.1)
    gpu = unprofiled_step(*Job(kernel=100.0).write(tmp_path / "u.json"), COST)
    assert gpu.estimate.high / gpu.estimate.mid - 1.0 == pytest.approx(0.02, rel=0.01)
    assert gpu.estimate.low / gpu.estimate.mid - 1.0 == pytest.approx(-0.02, rel=0.01)


def test_a_measured_step_is_the_answer(tmp_path):
    trace, training = Job().write(tmp_path / "t.json")
    guess = unprofiled_step(trace, training, COST)
    step = unprofiled_step(trace, training, COST, measured_ms=2.0)
    assert step.measured_ms is not None
    assert step.estimate.is_exact
    assert step.estimate.mid == 2.0
    assert step.factor == pytest.approx(2.0 / guess.estimate.mid)
    assert (guess.measured_ms, guess.factor) == (None, 1.0)


@pytest.mark.parametrize("measured", [0.0, -1.0, float("nan")])
def test_a_measured_step_has_to_be_one(tmp_path, measured):
    trace, training = Job(ops=3).write(tmp_path / "t.json")
    with pytest.raises(InputError, match="above zero"):
        unprofiled_step(trace, training, COST, measured_ms=measured)


def test_the_estimate_is_that_of_the_graph_without_the_profiler(tmp_path):
    trace, training = Job().write(tmp_path / "t.json")
    line = replay(without_profiler(trace, training, COST))
    ends = [int(line.end_ns[(training.step == n) & ~training.graph.is_kind("gap")].max())
            for n in range(3)]  # fmt: skip
    step = unprofiled_step(trace, training, COST)
    assert step.estimate.mid == pytest.approx(np.median(np.diff(ends)) / 1e6)


def test_a_host_alone_has_a_step_too(tmp_path):
    op = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    events = [{**op, "name": "aten::mm", "ts": 100 * i, "dur": 60} for i in range(5)]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    trace = read_kineto(tmp_path / "t.json", cache=False)
    step = unprofiled_step(trace, build_graph(trace))
    assert step.bound_by == "host"
    assert 0.0 < step.estimate.mid <= step.profiled_ms == pytest.approx(0.46)


@settings(max_examples=40)
@given(
    ops=st.integers(1, 30), steps=st.integers(1, 4), work=st.floats(0.0, 50.0),
    kernel=st.floats(0.1, 80.0), frames=st.booleans(), operator=st.floats(0.0, 20.0),
    launch=st.floats(0.0, 20.0),
)  # fmt: skip
def test_prop_between_computing_and_recorded(
    tmp_path_factory, ops, steps, work, kernel, frames, operator, launch
):
    job = Job(ops, steps, work, kernel, frames)
    trace, training = job.write(tmp_path_factory.mktemp("job") / "t.json")
    cost = msgspec.structs.replace(COST, operator=operator, launch=launch)
    step = unprofiled_step(trace, training, cost)
    assert 0.0 <= step.estimate.low <= step.estimate.mid <= step.profiled_ms
    assert step.estimate.mid >= min(ops * kernel / 1e3, step.profiled_ms) * 0.999
    edited = without_profiler(trace, training, cost)
    assert (edited.duration_ns >= 0).all()
    assert (edited.duration_ns <= training.graph.duration_ns).all()


# -- slow and obvious versions ---------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    trace = read_kineto(bundled("h200-gpt-l6") / "kineto.json.gz", cache=False)
    return trace, build_graph(trace)


def test_repeats_are_the_same_turn_of_the_same_thing(real):
    _, training = real
    graph = training.graph
    tasks = np.flatnonzero(graph.is_kind(*HOST_KINDS) & (training.step >= 0))
    turns, expected = {}, {}
    for i, task in enumerate(tasks.tolist()):
        lane = graph.lane[task]
        before = tasks[i - 1] if i and graph.lane[tasks[i - 1]] == lane else None
        after = tasks[i + 1] if i + 1 < len(tasks) and graph.lane[tasks[i + 1]] == lane else None
        like = (
            int(lane), int(graph.kind[task]), int(graph.name[task]),
            None if before is None else int(graph.name[before]),
            None if after is None else int(graph.name[after]),
        )  # fmt: skip
        step = int(training.step[task])
        turns[like, step] = turns.get((like, step), -1) + 1
        expected.setdefault((like, turns[like, step]), []).append(i)
    number = _repeats(training, tasks)
    assert len(np.unique(number)) == len(expected)
    assert all(len(set(number[same].tolist())) == 1 for same in expected.values())
    assert number.max() == len(expected) - 1


def test_operator_costs_lie_where_operators_begin_and_end(real):
    trace, training = real
    cost = default_profiler_cost()
    is_host = training.graph.is_kind(*HOST_KINDS)
    found = np.zeros(len(is_host))
    for tasks, costs in _event_costs(trace, training, is_host, cost):
        found[tasks] = costs["operators"]
    lane = training.graph.lanes.index(next(n for n in training.graph.lanes if "thread" in n))
    tid = training.graph.lanes[lane].split()[-1]
    thread = next(i for i, (_, t) in enumerate(trace.threads) if str(t) == tid)
    own = np.flatnonzero(trace.is_category("cpu_op") & (trace.thread == thread))
    tasks = np.flatnonzero(is_host & (training.graph.lane == lane))[:400]
    start, end = training.recorded.start_ns[tasks], training.recorded.end_ns[tasks]
    begun = [
        int(((trace.start_ns[own] > a) & (trace.start_ns[own] <= b)).sum())
        for a, b in zip(start, end)
    ]
    ended = [
        int(((trace.end_ns[own] >= a) & (trace.end_ns[own] < b)).sum()) for a, b in zip(start, end)
    ]
    known = {(1, 0): set(), (0, 1): set(), (1, 1): set()}
    for task, counts in zip(tasks.tolist(), zip(begun, ended)):
        if counts == (0, 0):
            assert found[task] == 0.0
        elif counts in known:
            known[counts].add(round(float(found[task]), 6))
    # One price for a beginning, one for an end, and their sum for both.
    (enter,), (leave,), (both,) = known[1, 0], known[0, 1], known[1, 1]
    assert both == pytest.approx(enter + leave)


def test_no_task_loses_all_of_its_time(real):
    trace, training = real
    dear = msgspec.structs.replace(default_profiler_cost(), operator=1e6, launch=1e6, call=1e6)
    cut = take_profiler_out(trace, training, dear)
    host = cut.is_host & (training.graph.duration_ns > 0)
    assert (cut.duration_ns[host] >= 0.0).all()


# -- against measured steps ------------------------------------------------------------------


def test_the_bundled_trace_is_told_right(real):
    trace, training = real
    measured = json.loads((bundled("h200-gpt-l6") / "meta.json").read_text())["step_ms_median"]
    step = unprofiled_step(trace, training)
    assert step.estimate.mid == pytest.approx(measured, rel=0.03)
    assert step.estimate.contains(measured)
    assert step.bound_by == "gpu"


@pytest.mark.data
def test_measured_steps_of_one_gpu(public_data):
    errors = []
    for path in sorted(public_data.glob("h200/*/kineto.json.gz")):
        trace = read_kineto(path)
        measured = json.loads(path.with_name("meta.json").read_text())["step_ms_median"]
        step = unprofiled_step(trace, build_graph(trace))
        errors.append(abs(step.estimate.mid / measured - 1.0))
    assert len(errors) >= 8
    assert np.mean(errors) <= 0.05
    assert max(errors) <= 0.10


@pytest.mark.data
def test_other_real_traces_get_sane_answers(public_data):
    answered = 0
    paths = sorted(public_data.glob("ranks/*/rank0.json.gz"))
    paths += sorted((public_data / "public" / "hta").rglob("*.json.gz"))
    for path in paths:
        try:
            trace = read_kineto(path)
            training = build_graph(trace)
        except InputError:
            continue
        step = unprofiled_step(trace, training)
        assert 0.0 <= step.estimate.low <= step.estimate.mid <= step.profiled_ms, path
        answered += 1
    assert answered >= 10
