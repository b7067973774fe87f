"""What a trace shows of a step: by hand, against a slow reading of real ones, as a property."""

from __future__ import annotations

import gzip
import json
import statistics
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.datasets import bundled
from gnomon.estimate import Estimate
from gnomon.ingest.profiler.kineto import read_kineto
from gnomon.model.accelerator.kernel_class import classify_kernel
from gnomon.model.accelerator.operator_family import FRAMEWORK
from gnomon.systems.aibench.verify.profile import PLACEHOLDER, UNNAMED, profile_of
from tests.conftest import ROOT
from tests.sim.trace.traces import call, kernel, launch, mark, op, trace_of, us

H200 = [
    "gpt-b2", "gpt-base", "gpt-cpubound", "gpt-h1024", "gpt-l6", "linear", "overlap", "resnet50",
]  # fmt: skip
GPU = {"deviceProperties": [{"id": 0, "name": "NVIDIA X1"}]}


def lagging_steps(steps=3, lag=250.0):
    """Each step: a product of 60 us and an addition of 20 us, run long after their launch."""
    events = []
    for step in range(steps):
        at, number = 100.0 * step, 10 * step + 1
        events += [
            mark(step, at, 90), op(at + 5, 10), launch(at + 7, 5, number),
            op(at + 30, 10, "aten::add"), launch(at + 32, 5, number + 1),
            kernel(at + lag, 60, number, name="gemm"),
            kernel(at + lag + 65, 20, number + 1, name="vectorized_add"),
        ]  # fmt: skip
    return events


def test_kernels_belong_to_the_step_that_launched_them():
    early = kernel(0, 200, 999, name="flash_fwd")  # launched before the window
    profile = profile_of(trace_of(*lagging_steps(), early, **GPU))
    assert (profile.device, profile.on_gpu, profile.steps) == ("NVIDIA X1", True, 3)
    assert profile.kernel_ms == pytest.approx({"gemm": 0.06, "elementwise": 0.02})
    assert profile.kernel_count == {"gemm": 1, "elementwise": 1}
    assert (profile.kernels, profile.host_ops) == (2, 2)
    assert profile.stream_pct == (100.0,)
    assert profile.step_from == "profiled"
    assert profile.step_ms.mid == pytest.approx(0.1)
    assert (profile.operator_ms, profile.operator_count) == ({}, {})
    assert profile.notes == (
        "1 device events (45 % of device time) were launched outside the marked steps and are "
        "not counted",
    )


def test_the_device_is_busy_in_what_kernels_cover():
    profile = profile_of(trace_of(*lagging_steps()), step_ms=Estimate.exact(0.16))
    assert profile.busy_pct == pytest.approx(80.0)
    assert profile.busy_ms == pytest.approx(0.08)
    assert profile.unprofiled_busy_pct == pytest.approx(50.0)
    assert (profile.step_from, profile.step_ms) == ("measured", Estimate.exact(0.16))
    assert profile_of(trace_of(*lagging_steps())).unprofiled_busy_pct is None
    assert profile_of(trace_of(*lagging_steps())).device == UNNAMED


def test_a_step_whose_kernels_were_cut_off_does_not_count():
    events = lagging_steps()
    assert events[-2]["name"] == "gemm"
    del events[-2]
    profile = profile_of(trace_of(*events))
    assert profile.steps == 2
    assert profile.kernel_ms == pytest.approx({"gemm": 0.06, "elementwise": 0.02})
    assert "2 of 3 steps have all their kernels in the trace" in profile.notes


def test_launches_that_never_show_a_kernel_are_no_loss():
    events = lagging_steps()
    for step in range(3):
        events.append(call("cudaGraphLaunch", 100.0 * step + 50, 5, correlation=70 + step))
        events.append(call("cudaLaunchHostFunc", 100.0 * step + 60, 5, correlation=80 + step))
    profile = profile_of(trace_of(*events))
    assert (profile.steps, profile.kernels, profile.notes) == (3, 2, ())


def test_the_median_of_the_steps_counts():
    events = lagging_steps()
    slow = next(e for e in events if e["name"] == "gemm")
    slow["dur"] = 64.0
    assert profile_of(trace_of(*events)).kernel_ms["gemm"] == pytest.approx(0.06)


def test_without_marks_the_trace_is_one_step():
    events = [event for event in lagging_steps() if "ProfilerStep" not in event["name"]]
    profile = profile_of(trace_of(*events))
    assert (profile.steps, profile.kernels, profile.host_ops) == (1, 6, 6)
    assert profile.kernel_ms["gemm"] == pytest.approx(0.18)
    assert profile.notes == ("no step marks in the trace: the whole of it counts as one step",)


def test_without_launches_kernels_count_where_they_ran():
    events = [mark(0, 0, 100), op(1, 5), mark(1, 100, 100), op(101, 5)]
    events += [kernel(10, 60, 0), kernel(120, 70, 0)]
    profile = profile_of(trace_of(*events))
    assert profile.kernel_ms == pytest.approx({"gemm": 0.065})
    assert (
        "the trace has no launches: kernels count in the step in which they ran" in profile.notes
    )


def test_streams_and_copies_and_placeholders():
    events = [mark(0, 0, 100)]
    parts = [(7, "gemm", 30.0), (9, "void at::cuda::spin_kernel(long)", 60.0)]
    for number, (stream, name, dur) in enumerate(parts, 1):
        events += [launch(number * 10, 5, number), kernel(50, dur, number, stream, name)]
    events += [
        call("cudaMemcpyAsync", 60, 5, correlation=9),
        us("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 7, 90, 10,
           correlation=9, stream=7, device=0),
    ]  # fmt: skip
    profile = profile_of(trace_of(*events))
    assert profile.kernels == 2
    assert profile.kernel_count == {PLACEHOLDER: 1, "gemm": 1, "copy": 1}
    assert list(profile.kernel_ms) == [PLACEHOLDER, "gemm", "copy"]
    assert profile.stream_pct == pytest.approx((60.0, 40.0))


def test_on_a_cpu_operators_own_time_counts():
    events = [
        mark(0, 0, 100), op(0, 50, "aten::linear"), op(10, 30, "aten::addmm"),
        op(60, 10, "aten::gelu"), op(72, 20, "AddmmBackward0"), op(75, 10, "aten::mm"),
    ]  # fmt: skip
    profile = profile_of(trace_of(*events, **GPU))  # a machine's GPU is named though unused
    assert (profile.device, profile.on_gpu) == ("CPU", False)
    assert profile.operator_ms == pytest.approx(
        {"gemm": 0.06, "elementwise": 0.01, FRAMEWORK: 0.01}
    )
    assert profile.operator_count == {"gemm": 3, "elementwise": 1, FRAMEWORK: 1}
    assert profile.host_ops == 4
    assert (profile.kernels, profile.busy_pct, profile.stream_pct) == (0, None, ())
    assert profile.family_ms is profile.operator_ms
    assert profile.family_count is profile.operator_count


# -- real traces -----------------------------------------------------------------------------


def slowly(path):
    """Time and number of device events per step by family, read event by event."""
    with gzip.open(path, "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    marks = sorted(
        (e["ts"], e["ts"] + e["dur"]) for e in events
        if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation"
    )  # fmt: skip
    asked = {
        e["args"]["correlation"]: e["ts"] for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and e["args"].get("correlation")
    }  # fmt: skip
    spent, count = [Counter() for _ in marks], [Counter() for _ in marks]
    for event in events:
        if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        at = asked.get(event["args"]["correlation"], -1)
        for step, (begin, end) in enumerate(marks):
            if begin <= at < end:
                family = classify_kernel(event["name"])
                spent[step][family] += event["dur"] / 1e3
                count[step][family] += 1
    families = {family for step in spent for family in step}
    return (
        {f: statistics.median(step[f] for step in spent) for f in families},
        {f: statistics.median(step[f] for step in count) for f in families},
    )


def test_the_bundled_trace_as_a_slow_reader_sees_it():
    path = bundled("h200-gpt-l6") / "kineto.json.gz"
    profile = profile_of(read_kineto(path, cache=False))
    spent, count = slowly(path)
    assert profile.kernel_ms == pytest.approx(spent)
    assert profile.kernel_count == count


def test_golden_families_of_the_bundled_trace():
    profile = profile_of(read_kineto(bundled("h200-gpt-l6") / "kineto.json.gz", cache=False))
    assert profile.kernel_ms == pytest.approx(
        {
            "gemm": 25.897, "elementwise": 6.351, "normalisation": 4.206, "attention": 3.474,
            "optimizer": 3.035, "other": 1.132, "reduction": 0.899, "embedding": 0.293,
            "copy": 0.118,
        },
        abs=1e-3,
    )  # fmt: skip
    assert profile.kernel_count == {
        "gemm": 75, "elementwise": 58, "normalisation": 28, "attention": 12, "optimizer": 25,
        "other": 32, "reduction": 28, "embedding": 16, "copy": 115,
    }  # fmt: skip
    assert (profile.device, profile.steps, profile.kernels) == ("NVIDIA H200", 3, 274)
    assert profile.busy_pct == pytest.approx(98.69, abs=0.01)


def test_a_step_captured_as_a_graph_has_the_kernels_of_the_eager_one():
    folder = ROOT / "tests" / "data" / "h200"
    graph, eager = (
        profile_of(read_kineto(folder / name / "shapes.json.gz", cache=False))
        for name in ("cg-small", "cg-small-eager")
    )
    assert graph.kernels == eager.kernels > 100
    assert graph.kernel_count == eager.kernel_count
    assert sum(graph.kernel_ms.values()) == pytest.approx(sum(eager.kernel_ms.values()), rel=0.1)
    assert graph.host_ops < eager.host_ops / 10


def test_the_bundled_cpu_job():
    profile = profile_of(read_kineto(bundled("cpu-gpt-pp4") / "rank2.json.gz", cache=False))
    assert (profile.device, profile.steps, profile.kernel_ms) == ("CPU", 2, {})
    assert list(profile.operator_ms)[:3] == ["communication", "gemm", "elementwise"]
    assert profile.operator_ms["gemm"] == pytest.approx(694.6, abs=0.1)
    assert profile.operator_count["attention"] == 48
    assert profile.host_ops > 5000


@pytest.mark.data
@pytest.mark.parametrize("workload", H200)
def test_real_traces_as_a_slow_reader_sees_them(public_data, workload):
    path = public_data / "h200" / workload / "kineto.json.gz"
    profile = profile_of(read_kineto(path))
    spent, count = slowly(path)
    assert profile.steps == 3
    assert profile.kernel_ms == pytest.approx(spent)
    assert profile.kernel_count == count
    assert 0 < profile.busy_pct <= 100


# -- whatever the trace ----------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["gemm", "flash", "softmax", "nccl", "mystery"]),
            st.integers(1, 500),
            st.integers(7, 9),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 4),
    st.integers(0, 3000),
)
def test_prop_equal_steps_are_each_the_profile(work, steps, lag):
    """However late they run, and on which streams: one step's work is the profile."""
    events, number = [], 0
    for step in range(steps):
        at = 10_000.0 * step
        events.append(mark(step, at, 9_000))
        for place, (name, dur, stream) in enumerate(work):
            number += 1
            events.append(launch(at + 20 * place + 1, 5, number))
            events.append(kernel(at + lag + 600 * place + 10, dur, number, stream, name))
    profile = profile_of(trace_of(*events))
    expected: Counter[str] = Counter()
    for name, dur, _ in work:
        expected[classify_kernel(name)] += dur / 1e3
    assert profile.kernel_ms == pytest.approx(expected)
    assert profile.kernels == sum(profile.kernel_count.values()) == len(work)
    assert len(profile.stream_pct) == len({stream for _, _, stream in work})
    assert sum(profile.stream_pct) == pytest.approx(100.0)
    assert np.all(np.diff(profile.stream_pct) <= 0)
    assert profile.busy_pct is None or 0 < profile.busy_pct <= 100
