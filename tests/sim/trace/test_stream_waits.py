"""Waits between streams that the profiler wrote down in full."""

from __future__ import annotations

import pytest

from gnomon.sim import replay
from gnomon.sim.trace.events import lay_out
from gnomon.sim.trace.stream_waits import recorded_waits
from tests.sim.trace.traces import (
    call,
    edges_of,
    graph_of,
    kernel,
    launch,
    trace_of,
    us,
)


def wait(correlation, stream, on, record):
    return us(
        "Stream Wait Event", "cuda_sync", stream, 20, 1, stream=stream, device=0,
        correlation=correlation, wait_on_stream=on, wait_on_cuda_event_record_corr_id=record,
        wait_on_cuda_event_id=-1,
    )  # fmt: skip


def two_streams(third_at=515):
    """Stream 9 waits for the first kernel of stream 7, not for the second."""
    return [
        launch(0, 5, 1), kernel(10, 500, 1, 7),
        call("cudaEventRecord", 6, 1, correlation=2),
        launch(12, 2, 3), kernel(511, 100, 3, 7),
        call("cudaStreamWaitEvent", 20, 1, correlation=4), wait(4, 9, 7, 2),
        launch(30, 5, 5), kernel(third_at, 50, 5, 9),
    ]  # fmt: skip


def pairs(trace):
    """Recorded waits by the correlation of their kernels."""
    source, target = recorded_waits(trace, lay_out(trace))
    return [
        (int(trace.correlation[a]), int(trace.correlation[b]))
        for a, b in zip(source.tolist(), target.tolist())
    ]


def test_a_wait_ties_what_was_launched_before_the_record_to_what_came_after_the_wait():
    assert pairs(trace_of(*two_streams())) == [(1, 5)]
    training = graph_of(*two_streams())
    assert edges_of(training, "stream") == [("gemm", "device gap")]
    assert training.inferred == ()
    assert "1 waits between streams were recorded by the profiler" in training.notes
    line = replay(training.graph)
    assert line.end_ns.tolist() == training.recorded.end_ns.tolist()
    # Of its own accord the third kernel comes 5 us after the first has ended.
    slower = training.graph.duration_ns.copy()
    first = training.recorded.start_ns.tolist().index(10_000)
    slower[first] += 300_000
    third = training.recorded.start_ns.tolist().index(515_000)
    assert replay(training.graph.with_durations(slower)).start_ns[third] == 815_000


def test_a_wait_that_the_times_contradict_is_left_out():
    training = graph_of(*two_streams(third_at=400))
    assert edges_of(training, "stream") == []
    said = "1 recorded waits between streams contradict the times and were left out"
    assert said in training.notes
    assert replay(training.graph).makespan_ns == training.recorded.makespan_ns


@pytest.mark.parametrize(
    "odd",
    [
        wait(99, 9, 7, 2),  # whose call is not in the trace
        wait(4, 9, 9, 2),  # for the stream itself
        wait(4, 33, 7, 2),  # on a stream that ran nothing
        us("Stream Wait Event", "cuda_sync", 9, 20, 1, correlation=4, wait_on_stream="x"),
        us("Stream Sync", "cuda_sync", 9, 20, 1, correlation=4, wait_on_stream=7),
    ],
)
def test_waits_that_say_too_little_tie_nothing(odd):
    events = [event for event in two_streams() if event["cat"] != "cuda_sync"]
    assert pairs(trace_of(*events, odd)) == []


def test_traces_without_sync_events_have_no_recorded_waits():
    events = [event for event in two_streams() if event["cat"] != "cuda_sync"]
    assert pairs(trace_of(*events)) == []
