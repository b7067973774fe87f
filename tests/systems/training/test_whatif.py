"""Every change against what a hand computes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gnomon.errors import GnomonError, InputError
from gnomon.sim import replay
from gnomon.sim.trace.steps import step_estimate
from gnomon.systems.training.whatif import (
    DelayRank,
    FullOverlap,
    IdealNetwork,
    NoHostOverhead,
    NoOverlap,
    ScaleNamed,
    SlowRank,
    WhatIf,
    heaviest_kinds,
    parse_rank,
    parse_scale,
    play,
    usual_questions,
)
from tests.sim.trace.traces import (
    call,
    collective,
    graph_of,
    kernel,
    launch,
    mark,
    names_of,
    op,
    us,
)

#: Two GEMMs, one after the other, beside a reduction on another stream; 230 us in all.
BESIDE = [
    launch(0, 10, 1), kernel(20, 100, 1, name="gemm_a"),
    launch(10, 10, 2), collective(30, 200, 2),
    launch(20, 10, 3), kernel(120, 100, 3, name="gemm_b"),
]  # fmt: skip
#: A third GEMM waits for the reduction, as the profiler recorded.
WAITING = [
    *BESIDE,
    call("cudaEventRecord", 31, 1, correlation=4),
    call("cudaStreamWaitEvent", 33, 1, correlation=5),
    us("Stream Wait Event", "cuda_sync", 7, 33, 1, stream=7, device=0, correlation=5,
       wait_on_stream=20, wait_on_cuda_event_record_corr_id=4),
    launch(40, 10, 6), kernel(235, 50, 6, name="gemm_c"),
]  # fmt: skip


def ends_us(training, *changes):
    """When each kernel ends."""
    graph = training.graph
    for change in changes:
        graph = change.apply(training, graph)
    line = replay(graph)
    on_device = np.flatnonzero(graph.is_kind("gemm", "communication"))
    names = names_of(training)
    return {names[task]: float(line.end_ns[task]) / 1e3 for task in on_device.tolist()}


NCCL = "ncclDevKernel_Generic"
AS_IT_IS = {"gemm_a": 120.0, "gemm_b": 220.0, NCCL: 230.0}


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        (WhatIf("x", ("gemm",), 0.5), {"gemm_a": 70.0, "gemm_b": 120.0}),
        (WhatIf("x", ("gemm", "communication"), 2.0),
         {"gemm_a": 220.0, "gemm_b": 420.0, NCCL: 430.0}),
        (ScaleNamed("gemm_a", 0.5), {"gemm_a": 70.0, "gemm_b": 170.0}),
        (ScaleNamed("GEMM*", 0.5), {"gemm_a": 70.0, "gemm_b": 120.0}),
        (ScaleNamed("gemm", 2), {"gemm_a": 220.0, "gemm_b": 420.0}),
        (ScaleNamed("nccl*", 0.0), {NCCL: 30.0}),
        (ScaleNamed("*_b", 0.0), {"gemm_b": 120.0}),
        # Launches by 5, 10 and 15 us, each 10 us ahead of what it launches.
        (ScaleNamed("cudaLaunch*", 0.5), {"gemm_a": 115.0, NCCL: 220.0, "gemm_b": 215.0}),
        (IdealNetwork(), {NCCL: 30.0}),
        # The reduction comes 10 us after the first GEMM, the second GEMM at once after it.
        (NoOverlap(), {NCCL: 330.0, "gemm_b": 430.0}),
        # Half a microsecond before each kernel that is not right behind another.
        (NoHostOverhead(), {"gemm_a": 100.5, NCCL: 200.5, "gemm_b": 200.5}),
        (DelayRank(0, 5), {"gemm_a": 5120.0, NCCL: 5230.0, "gemm_b": 5220.0}),
        # Launches of 20 us, a device gap of 20 us, GEMMs of 200 us; the reduction as it was.
        (SlowRank(0, 2), {"gemm_a": 240.0, NCCL: 260.0, "gemm_b": 440.0}),
        (FullOverlap(), {}),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_a_change_by_hand(change, ends):
    training = graph_of(*BESIDE)
    assert ends_us(training) == AS_IT_IS
    assert ends_us(training, change) == pytest.approx(AS_IT_IS | ends)


def test_full_overlap_lets_computation_pass_communication():
    training = graph_of(*WAITING)
    assert ends_us(training)["gemm_c"] == 285.0
    # It still comes 5 us after what was before it on its own stream.
    assert ends_us(training, FullOverlap())["gemm_c"] == 275.0
    assert ends_us(training, ScaleNamed("nccl*", 2.0))["gemm_c"] == 485.0
    assert ends_us(training, FullOverlap(), ScaleNamed("nccl*", 2.0))["gemm_c"] == 275.0


def test_changes_add_up_in_any_order():
    training = graph_of(*WAITING)
    changes = [ScaleNamed("gemm_*", 0.5), ScaleNamed("nccl*", 0.25), NoOverlap()]
    expected = ends_us(training, *changes)
    assert ends_us(training, *reversed(changes)) == expected


def test_every_step_is_delayed_once():
    events = []
    for i in range(3):
        events += [mark(i, 100 * i, 100), op(100 * i, 90)]
    training = graph_of(*events)
    late = DelayRank(0, 1).apply(training, training.graph)
    added = (late.duration_ns - training.graph.duration_ns).tolist()
    assert sorted(added)[-3:] == [1_000_000] * 3
    assert sum(added) == 3_000_000
    assert step_estimate(training, replay(late)).mid == pytest.approx(1.1)


@pytest.mark.parametrize("change", [IdealNetwork(), NoOverlap(), FullOverlap()])
def test_without_communication_there_is_nothing_to_change(change):
    training = graph_of(launch(0, 10, 1), kernel(20, 100, 1))
    with pytest.raises(InputError, match="no communication"):
        change.apply(training, training.graph)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (ScaleNamed("gem", 0.5), r"no task is called 'gem'; patterns match whole names.*gemm"),
        (WhatIf("x", ("attention",), 0.5), "no 'attention' tasks; there are .*gemm"),
        (DelayRank(3, 5), "there is no rank 3: one trace was read"),
        (SlowRank(1, 2), "there is no rank 1: one trace was read"),
        (ScaleNamed("gemm*", -1), "cannot scale by -1"),
        (ScaleNamed("gemm*", math.nan), "cannot scale by nan"),
        (DelayRank(0, -5), "a delay of -5 ms"),
        (DelayRank(0, math.nan), "a delay of nan ms"),
        (DelayRank(0, 1e300), "between 0 and an hour"),
    ],
)
def test_what_cannot_be_asked_is_told(change, message):
    training = graph_of(*BESIDE)
    with pytest.raises(GnomonError, match=message):
        change.apply(training, training.graph)


def test_labels_say_what_was_asked():
    assert ScaleNamed("nccl*", 0.5).label == "nccl* x 0.5"
    assert ScaleNamed("nccl*", 0).label == "without nccl*"
    assert DelayRank(3, 5).label == "rank 3 5 ms late"
    assert SlowRank(3, 1.2).label == "rank 3 1.2 times as slow"


def test_questions_are_answered_one_by_one():
    training = graph_of(*BESIDE)
    base = replay(training.graph)
    rows = play(training, [IdealNetwork(), NoOverlap()], training.graph, base)
    assert [row.label for row in rows] == ["ideal network", "no overlap of communication"]
    assert [row.step_ms for row in rows] == pytest.approx([0.22, 0.43])
    assert rows[1].change == pytest.approx(430 / 230 - 1)


def test_the_usual_questions_fit_the_trace():
    def labels(*events):
        return [question.label for question in usual_questions(graph_of(*events))]

    assert labels(*BESIDE) == [
        "gemm kernels twice as fast", "all kernels twice as fast",
        "host twice as fast, gaps too", "no host overhead (captured as a CUDA graph)",
        "ideal network", "no overlap of communication",
    ]  # fmt: skip
    assert labels(op(0, 10)) == ["host twice as fast, gaps too"]
    assert labels(kernel(0, 10, 1)) == [
        "gemm kernels twice as fast", "all kernels twice as fast",
    ]  # fmt: skip
    assert heaviest_kinds(graph_of(*WAITING).graph) == ["gemm", "communication"]


@pytest.mark.parametrize("text", ["gemm", "=2", "gemm=", "gemm=x", ""])
def test_scales_that_are_none(text):
    with pytest.raises(InputError, match="is not PATTERN=FACTOR"):
        parse_scale(text)


@pytest.mark.parametrize("text", ["3", "=5", "x=5", "3=", "3=x", ""])
def test_ranks_that_are_none(text):
    with pytest.raises(InputError, match="is not RANK=NUMBER"):
        parse_rank(text)


def test_scales_and_ranks():
    assert parse_scale("a=b=0.5") == ScaleNamed("a=b", 0.5)
    assert parse_rank("12=0.5") == (12, 0.5)
