"""What each event is to the graph: lanes, and the communications of CPU backends."""

from __future__ import annotations

import pytest

from gnomon.graph import scale
from gnomon.sim import replay
from gnomon.sim.trace.events import EventClass, EventFlag, lay_out, peer_of
from tests.sim.trace.traces import (
    backend_event,
    call,
    edges_of,
    graph_of,
    kernel,
    kinds_of,
    launch,
    op,
    post,
    task_named,
    trace_of,
    us,
)


def test_lanes_are_threads_then_streams_in_order_of_appearance():
    events = [
        op(10, 5, tid=3), op(0, 5, tid=8), kernel(4, 1, 0, 20), kernel(2, 1, 0, 7),
        kernel(3, 1, 0, 7) | {"args": {"device": 1, "stream": 7}},
    ]  # fmt: skip
    laid = lay_out(trace_of(*events))
    assert laid.lanes == (
        "thread 8", "thread 3", "gpu 0 stream 7", "gpu 1 stream 7", "gpu 0 stream 20",
    )  # fmt: skip
    assert laid.host_lanes == 2
    assert laid.lane.tolist() == [0, 2, 3, 4, 1]


@pytest.mark.parametrize("stream", [-1, 0, 2**40])
def test_streams_of_any_number_keep_it(stream):
    assert lay_out(trace_of(kernel(0, 1, 1, stream))).lanes == (f"gpu 0 stream {stream}",)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("cudaLaunchKernel", 0),
        ("cudaMemcpyAsync", 0),
        ("cudaMemcpy", EventFlag.COPIES),
        ("cudaStreamSynchronize", EventFlag.SYNCHRONISES),
        ("hipDeviceSynchronize", EventFlag.SYNCHRONISES | EventFlag.OF_DEVICE),
        ("cuCtxSynchronize", EventFlag.SYNCHRONISES | EventFlag.OF_DEVICE),
        ("cudaEventSynchronize", EventFlag.SYNCHRONISES | EventFlag.OF_EVENT),
        ("cudaStreamWaitEvent", EventFlag.STREAM_WAIT),
        ("cudaEventRecordWithFlags", EventFlag.EVENT_RECORD),
    ],
)
def test_calls_are_told_apart_by_name(name, flags):
    laid = lay_out(trace_of(call(name, 0, 1)))
    assert laid.event_class.tolist() == [EventClass.CALL]
    assert laid.flags.tolist() == [flags]


def test_frames_marks_and_unknown_events_are_no_tasks():
    events = [us("f", cat, 1, 0, 1) for cat in ("python_function", "overhead", "cuda_sync", "x")]
    assert set(lay_out(trace_of(*events)).event_class.tolist()) == {EventClass.IGNORED}


# -- CPU backends ----------------------------------------------------------------------------

#: A send and a reduction beside the computation; the thread then waits for the reduction.
BESIDE = [
    post(0, 10, "send", 1), backend_event(5, 400, "gloo:send", 6),
    post(20, 10, "allreduce_"), backend_event(25, 165, "gloo:all_reduce", 5),
    op(30, 50, "aten::mm"), op(200, 50, "aten::add"),
]  # fmt: skip


def test_communications_lie_on_lanes_of_their_own():
    trace = trace_of(*BESIDE)
    laid = lay_out(trace)
    assert laid.lanes == ("thread 1", "gloo send to 1", "gloo all_reduce thread 5")
    named = [(trace.name_of(one), trace.name_of(asked)) for one, asked in laid.communications]
    assert named == [("gloo:send", "c10d::send"), ("gloo:all_reduce", "c10d::allreduce_")]
    for one, asked in laid.communications:
        assert laid.event_class[one] == EventClass.DEVICE
        assert laid.event_class[asked] == EventClass.CALL
        assert laid.flags[one] == EventFlag.HOST_WAITS
        assert laid.correlation[one] == laid.correlation[asked] > 0


def test_communications_are_launched_by_their_call_and_awaited_by_a_silent_thread():
    training = graph_of(*BESIDE)
    assert sorted(edges_of(training, "launch")) == [
        ("c10d::allreduce_", "device gap"), ("c10d::send", "device gap"),
    ]  # fmt: skip
    # The send ended long after the silence: only the reduction was waited for.
    assert edges_of(training, "thread") == [("gloo:all_reduce", "host gap")]
    reduction = task_named(training, "gloo:all_reduce")
    assert kinds_of(training)[reduction] == "communication"
    line = replay(training.graph)
    assert line.end_ns.tolist() == training.recorded.end_ns.tolist()
    slower = training.graph.duration_ns.copy()
    slower[reduction] += 100_000
    line = replay(training.graph.with_durations(slower))
    # 10 us of the silence came after the reduction and stay.
    assert line.end_ns[task_named(training, "aten::add")] == 350_000


def test_a_thread_may_wait_for_a_send_and_a_receive_together():
    events = [
        post(0, 10, "send", 1), post(10, 10, "recv_", 1), backend_event(5, 190, "gloo:send", 6),
        backend_event(15, 183, "gloo:recv", 7), op(20, 10), op(200, 10, "aten::add"),
    ]  # fmt: skip
    training = graph_of(*events)
    assert lay_out(trace_of(*events)).lanes[1:] == ("gloo send to 1", "gloo recv from 1")
    assert sorted(edges_of(training, "thread")) == [
        ("gloo:recv", "host gap"), ("gloo:send", "host gap"),
    ]  # fmt: skip
    add = task_named(training, "aten::add")
    for late in ("gloo:send", "gloo:recv"):
        chosen = training.graph.is_kind("communication")
        chosen &= [training.graph.names[code] == late for code in training.graph.name]
        line = replay(scale(training.graph, chosen, 2.0))
        assert line.start_ns[add] == line.end_ns[task_named(training, late)] + 2_000


def test_a_communication_asked_for_before_the_window_keeps_its_place():
    events = [backend_event(0, 50, "gloo:all_reduce"), post(60, 5, "allreduce_"), op(70, 5)]
    laid = lay_out(trace_of(*events))
    assert laid.communications == ((0, -1),)
    training = graph_of(*events)
    assert edges_of(training, "launch") == []
    assert replay(training.graph).makespan_ns == 75_000


def test_calls_are_taken_in_order_each_once():
    events = [post(0, 1, "allreduce_"), post(10, 1, "allreduce_"), post(20, 1, "broadcast_")]
    events += [backend_event(2, 30, "gloo:all_reduce"), backend_event(12, 5, "gloo:all_reduce", 6)]
    trace = trace_of(*events)
    asked = [int(trace.start_ns[call]) for _, call in lay_out(trace).communications]
    assert asked == [0, 10_000]


def test_peers_are_read_from_the_values_of_sends_and_receives():
    trace = trace_of(
        post(0, 1, "send", 3), post(1, 1, "recv_", 0), post(2, 1, "allreduce_"),
        op(3, 1, "c10d::send", **{"Input Dims": [[1]], "Concrete Inputs": 7}),
        op(4, 1, "c10d::send"),
    )  # fmt: skip
    assert [peer_of(trace, event) for event in range(5)] == [3, 0, None, None, None]
    assert peer_of(trace, -1) is None


def test_a_kernel_is_no_communication_of_a_backend():
    trace = trace_of(launch(0, 1, 1), kernel(2, 1, 1, name="gloo:all_reduce"))
    assert lay_out(trace).communications == ()
