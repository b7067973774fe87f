"""Jobs of several ranks: one waits for the other, and it shows who for whom."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.errors import InputError, SimulationError
from gnomon.sim import replay
from gnomon.sim.trace.steps import count_only, step_rows
from gnomon.systems.training import job as job_module
from gnomon.systems.training.job import build_job, rank_in_name
from gnomon.systems.training.whatif import DelayRank, IdealNetwork, SlowRank
from tests.sim.trace.traces import backend_event, op, post, rank_trace, trace_of

#: Rank 0 is there after 10.01 ms, rank 1 after 30 ms; the transfer takes 20 us.
EARLY, LATE, END = 10_000, 29_990, 30_020


def two_ranks(**more):
    return build_job([rank_trace(0, EARLY, END, **more), rank_trace(1, LATE, END, **more)])


def ends_ms(job, line):
    """When each rank was through."""
    rank = job.training.graph.rank
    return [float(line.end_ns[rank == number].max()) / 1e6 for number in job.ranks]


def communication_ns(job):
    graph = job.training.graph
    return graph.duration_ns[graph.is_kind("communication")].tolist()


def test_waiting_is_told_from_transfer():
    job = two_ranks()
    assert job.ranks == (0, 1)
    assert communication_ns(job) == [20_000, 20_000]
    line = replay(job.training.graph)
    assert ends_ms(job, line) == [30.02, 30.02]
    met = line.start_ns[job.training.graph.is_kind("communication")]
    assert met.tolist() == [30_000_000, 30_000_000]
    assert job.training.notes == ()


def test_delays_move_who_waits_and_nobody_else():
    job = two_ranks()

    def after(change):
        return ends_ms(job, replay(change.apply(job.training, job.training.graph)))

    # The late rank sets the pace.
    assert after(DelayRank(1, 5)) == [35.02, 35.02]
    # The early one has 19.99 ms to spare.
    assert after(DelayRank(0, 5)) == [30.02, 30.02]
    assert after(DelayRank(0, 25)) == pytest.approx([35.03, 35.03])
    assert after(SlowRank(0, 2)) == [30.02, 30.02]
    # Launch and device gap grow four times too: 40 us, then 40 ms of GEMM, 20 us of transfer.
    assert after(SlowRank(0, 4)) == pytest.approx([40.06, 40.06])
    assert after(IdealNetwork()) == [30.0, 30.0]


def test_every_step_is_delayed():
    job = two_ranks(steps=3)
    line = replay(DelayRank(1, 5).apply(job.training, job.training.graph))
    rows = step_rows(job.training, line)
    assert [(row.rank, row.step[-1]) for row in rows] == [
        (rank, step) for rank in (None, 0, 1) for step in "012"
    ]
    for row in rows:
        assert row.replayed_ms == pytest.approx(row.recorded_ms + 5, abs=0.02)


def test_clocks_three_seconds_apart_change_nothing():
    apart = build_job([rank_trace(0, EARLY, END), rank_trace(1, LATE, END, at=3_000_000)])
    # Times count from a trace's first event; the files themselves tell how far they lie apart.
    assert communication_ns(apart) == [20_000, 20_000]
    shown = [rank_trace(0, EARLY, END), rank_trace(1, LATE, END)]
    moved = build_job([shown[0], replace(shown[1], origin_ns=7_000_000_000)])
    assert communication_ns(moved) == [20_000, 20_000]
    assert ends_ms(moved, replay(moved.training.graph))[1] == 30.02


def replace(trace, **fields):
    import msgspec

    return msgspec.structs.replace(trace, **fields)


def test_a_communication_that_the_clocks_contradict_stays_as_recorded():
    """Rank 1 shows one more reduction, long before rank 0 was there; both have three."""
    early, late = rank_trace(0, EARLY, END, steps=2), rank_trace(1, LATE, END, steps=2)
    kernels = np.flatnonzero(late.is_category("kernel") & (late.stream == 7))
    last = kernels[-1]
    start = late.start_ns.copy()
    start[last] += 200_000_000
    order = np.argsort(start, kind="stable")
    assert order.tolist() == list(range(len(start)))
    job = build_job([early, replace(late, start_ns=start)])
    assert "1 communications contradict the clocks and were left as recorded" in job.training.notes
    assert "2 of 4 communications found no partner in the traces" in job.training.notes
    assert len(set(job.rendezvous.group.tolist())) == 1


def test_a_message_sent_early_is_waited_for_by_its_receiver_alone():
    """The send was done with after 12 us; the receive was asked for after 5 ms."""
    sender = trace_of(
        post(0, 5, "send", 1), backend_event(2, 10, "gloo:send"), op(5, 20),
        distributedInfo={"rank": 0},
    )  # fmt: skip
    receiver = trace_of(
        op(0, 5000), post(5000, 5, "recv_", 0), backend_event(5002, 10, "gloo:recv"),
        distributedInfo={"rank": 1},
    )  # fmt: skip
    job = build_job([sender, receiver])
    assert (len(job.rendezvous.task), len(job.rendezvous.sent)) == (0, 1)
    line = replay(job.training.graph)
    assert line.end_ns.tolist() == job.training.recorded.end_ns.tolist()

    def ends_us(rank, delay_ms):
        late = replay(DelayRank(rank, delay_ms).apply(job.training, job.training.graph))
        graph = job.training.graph
        talks = graph.is_kind("communication")
        return [int(late.end_ns[talks & (graph.rank == other)][0]) / 1e3 for other in (0, 1)]

    assert ends_us(1, 1) == [12, 6012]
    assert ends_us(0, 1) == [1012, 5012]
    # Nothing is received before it was sent: 10 us after, as it took.
    assert ends_us(0, 10) == [10_012, 10_022]


def test_communications_without_a_partner_are_counted():
    alone = trace_of(op(0, 5), distributedInfo={"rank": 1, "world_size": 2})
    job = build_job([rank_trace(0, EARLY, END), alone])
    assert "1 of 1 communications found no partner in the traces" in job.training.notes
    assert replay(job.training.graph).makespan_ns == END * 1000


def test_a_single_trace_is_a_job_of_its_own():
    job = build_job([rank_trace(1, EARLY, END)])
    assert job.ranks == (1,)
    assert job.rendezvous is None
    assert job.training.graph.rank is None


def test_two_traces_of_one_rank_are_refused():
    with pytest.raises(InputError, match=r"two traces are of rank 1: .*t\.json and .*t\.json"):
        build_job([rank_trace(1, EARLY, END), rank_trace(1, LATE, END)])


def test_ranks_of_different_jobs_are_refused():
    with pytest.raises(InputError, match="of jobs of 2 and 4 ranks"):
        build_job([rank_trace(0, EARLY, END), rank_trace(1, LATE, END, world=4)])


def test_one_rank_of_several_keeps_its_waits_and_says_so():
    job = build_job([rank_trace(0, EARLY, END, world=8)])
    assert any(note.startswith("one of 8 ranks was traced") for note in job.training.notes)
    assert communication_ns(job) == [(END - EARLY - 10) * 1000]


def test_ranks_come_from_the_trace_or_else_from_the_file_name():
    bare = [replace(trace_of(op(0, 5)), source=name) for name in ("rank5.json", "x.json")]
    assert build_job([rank_trace(3, EARLY, END), bare[0]]).ranks == (3, 5)
    with pytest.raises(InputError, match="neither the trace nor its name says which rank"):
        build_job(bare)
    assert rank_in_name("run/rank-03/trace.json") is None
    assert rank_in_name("run/host_rank-3.json") == 3


def test_steps_are_those_of_all_ranks_in_order():
    first = rank_trace(0, EARLY, END, steps=3)
    second = rank_trace(1, EARLY, END, steps=2)
    job = build_job([first, second])
    assert job.training.step_names == ("ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2")
    rank, step = job.training.graph.rank, job.training.step
    assert sorted(set(step[rank == 1].tolist()) - {-1}) == [0, 1]


def test_a_rank_without_the_first_step_is_counted_in_the_right_ones():
    first = rank_trace(0, EARLY, END, steps=3)
    second = rank_trace(1, EARLY, END, steps=2)
    renamed = tuple(
        name.replace("#1", "#2").replace("#0", "#1") if name.startswith("Prof") else name
        for name in second.names
    )
    job = build_job([first, replace(second, names=renamed)])
    counted = count_only(job.training, "1-2")
    rows = step_rows(counted, counted.recorded)
    assert [(row.rank, row.step[-1]) for row in rows] == [
        (rank, step) for rank in (None, 0, 1) for step in "12"
    ]


# -- ranks that were not traced --------------------------------------------------------------

GROUPS = [{"pg_name": "0", "ranks": [0, 1, 2, 3]}]


def test_traced_ranks_are_proxies_for_the_others():
    more = {"world": 4, "groups": GROUPS, "ranks": "[0, 1, 2, 3]"}
    traces = [rank_trace(0, EARLY, END, **more), rank_trace(1, LATE, END, **more)]
    job = build_job(traces)
    assert job.ranks == (0, 1, 2, 3)
    assert [part.proxy_of for part in job.parts] == [None, None, 0, 1]
    assert "traced ranks are proxies for 2 that were not traced" in job.training.notes
    # One reduction of four, not two of two.
    assert job.rendezvous.group.tolist() == [0, 0, 0, 0]
    line = replay(DelayRank(3, 5).apply(job.training, job.training.graph))
    assert ends_ms(job, line) == pytest.approx([35.02] * 4)
    assert ends_ms(job, replay(DelayRank(2, 5).apply(job.training, job.training.graph))) == (
        pytest.approx([30.02] * 4)
    )
    assert build_job(traces, complete=False).ranks == (0, 1)


def test_what_has_no_proxy_is_left_out_and_said():
    more = {"world": 4, "groups": [{"pg_name": "0", "ranks": [0, 1]}]}
    job = build_job([rank_trace(0, EARLY, END, **more), rank_trace(1, LATE, END, **more)])
    assert job.ranks == (0, 1)
    said = "2 ranks were not traced, nor any of their stage; they are left out"
    assert said in job.training.notes


@pytest.mark.parametrize("knows_who", [True, False])
def test_communications_that_go_round_in_a_circle_are_left_as_recorded(monkeypatch, knows_who):
    """Whatever the matching did wrong, a job that ran must replay, and building it must end."""
    calls = []

    def stuck(graph, **options):
        calls.append(graph)
        members = np.flatnonzero(graph.group >= 0) if graph.group is not None else []
        if len(members) or not knows_who:
            blocked = members[:1].tolist() if knows_who else []
            raise SimulationError("stuck", blocked=blocked)

    monkeypatch.setattr(job_module, "replay", stuck)
    job = build_job([rank_trace(0, EARLY, END), rank_trace(1, LATE, END)])
    assert len(job.rendezvous.task) == 0
    assert any("would wait for one another" in note for note in job.training.notes)
    assert len(calls) <= 3
    line = replay(job.training.graph)
    assert line.end_ns.tolist() == job.training.recorded.end_ns.tolist()
