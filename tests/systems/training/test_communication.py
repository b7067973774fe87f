"""What a trace shows of a rank's communications."""

from __future__ import annotations

import pytest

from gnomon.sim.trace.events import lay_out
from gnomon.systems.training.communication import Communication, communications
from tests.sim.trace.traces import (
    backend_event,
    collective,
    kernel,
    launch,
    mark,
    post,
    trace_of,
)


def seen(*events):
    trace = trace_of(*events)
    return communications(trace, lay_out(trace))


def test_a_collective_kernel_says_who_takes_part_and_how_much():
    events = [mark(3, 0, 100), launch(5, 2, 1), collective(10, 20, 1, group="dp")]
    (one,) = seen(*events)
    assert one == Communication(
        2, "allreduce", "dp", (0, 1), -1, "Float 1024", "ProfilerStep#3", 10_000, 30_000
    )
    assert not one.is_point_to_point


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        ("[0, 2, 4]", (0, 2, 4)),
        ([0, 2], (0, 2)),
        ("[0, 1, 2, ..., 63]", ()),  # cut short by the profiler: says nothing
        ("", ()),
        ("all", ()),
    ],
)
def test_ranks_of_a_group_are_read_where_they_are_whole(given, ranks):
    (one,) = seen(collective(0, 1, 1, given))
    assert one.ranks == ranks
    assert one.channel == "0"


def test_sends_and_receives_have_a_peer():
    about = {"Src Rank": 2, "Dst Rank": 3}
    sent, got = seen(
        collective(0, 1, 1, operation="send", **about),
        collective(5, 1, 2, operation="recv", **about),
    )
    assert (sent.peer, got.peer) == (3, 2)
    assert sent.is_point_to_point
    # A collective has ranks, not a peer, whatever else is said of it.
    (reduced,) = seen(collective(0, 1, 1, operation="reduce", **about))
    assert reduced.peer == -1


def test_the_larger_side_of_a_gather_is_its_size():
    gathered = collective(0, 1, 1, operation="allgather", elements=8)
    gathered["args"]["Out msg nelems"] = "64"  # numbers may be quoted
    assert seen(gathered)[0].size == "Float 64"


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send"),
        ("ncclDevKernel_AllGather_RING", "all_gather"),
        ("rcclGenericKernel", "communication"),
        ("void deep_ep::intranode::dispatch<4, 768, 8192>", "dispatch"),
    ],
)
def test_older_kernels_tell_by_name_and_stream(name, operation):
    first, second = seen(kernel(0, 1, 1, 20, name), kernel(5, 1, 2, 33, name))
    assert (first.operation, first.channel, first.ranks, first.peer) == (
        operation, "stream 0", (), -1,
    )  # fmt: skip
    assert second.channel == "stream 1"  # streams have other numbers on other ranks


def test_what_is_said_of_a_kernel_may_be_nonsense():
    odd = collective(0, 1, 1)
    odd["args"]["In msg nelems"] = {"x": 1}
    assert seen(odd)[0].operation == "communication"


def test_communications_of_a_cpu_backend():
    events = [
        mark(1, 0, 50), mark(2, 50, 50), post(10, 5, "send", 1), backend_event(12, 60, "gloo:send"),
        post(60, 5, "allreduce_"), backend_event(62, 5, "gloo:all_reduce", size=32),
    ]  # fmt: skip
    sent, reduced = seen(*events)
    assert (sent.operation, sent.peer, sent.step, sent.size) == (
        "send", 1, "ProfilerStep#1", "[[8]]",
    )  # fmt: skip
    assert (reduced.operation, reduced.peer, reduced.step, reduced.size) == (
        "all_reduce", -1, "ProfilerStep#2", "[[32]]",
    )  # fmt: skip


def test_the_step_is_that_of_the_launch_and_none_without_one():
    events = [mark(1, 0, 10), mark(2, 10, 10), launch(5, 2, 1)]
    late, unknown = seen(*events, collective(15, 2, 1), collective(18, 2, 9))
    assert (late.step, unknown.step) == ("ProfilerStep#1", "")


def test_they_come_in_order_of_their_start():
    events = [
        collective(30, 1, 3),
        backend_event(20, 1, "gloo:barrier"),
        kernel(10, 1, 1, 7, "ncclX"),
    ]
    assert [one.start_ns for one in seen(*events)] == [0, 10_000, 20_000]
