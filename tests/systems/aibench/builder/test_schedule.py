"""Programs keep their meaning in whatever order their threads run."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.aibench.builder.schedule import number_registers, order
from gnomon.systems.aibench.program import Call, Signal


@st.composite
def steps(draw):
    """Random calls on random threads: each reads some memories and writes one of its own."""
    threads = draw(st.integers(1, 3))
    calls = []
    for at in range(draw(st.integers(1, 25))):
        made = [c.outs for c in calls if c.outs is not None]
        reads = draw(st.lists(st.sampled_from(made), max_size=3)) if made else []
        call = Call(
            "aten.x.default", [["L", *(["r", r] for r in reads)]], {}, at, [0], at,
            draw(st.integers(1, threads)), "operator", "x",
            checks=[], reads=set(reads), writes={at}, frees=[], extra={},
        )  # fmt: skip
        if reads and draw(st.booleans()):
            call.writes.add(draw(st.sampled_from(reads)))  # in place
        call.stream = draw(st.integers(0, 1))
        call.device_ns = 1.0
        calls.append(call)
    return calls


def play_all(rows, choose):
    """Runs threads in any order that their signals allow; gives calls and signals as they ran.

    Each with the thread that ran it.
    """
    places, posted, done = [0] * len(rows), set(), []
    while any(place < len(row) for place, row in zip(places, rows)):
        ready = [
            number for number, row in enumerate(rows)
            if places[number] < len(row)
            and not (
                isinstance(row[places[number]], Signal)
                and row[places[number]].kind == "need"
                and row[places[number]].number not in posted
            )
        ]  # fmt: skip
        assert ready, "threads wait for one another"
        number = choose(ready)
        item = rows[number][places[number]]
        if isinstance(item, Signal) and item.kind == "post":
            posted.add(item.number)
        done.append((number, item))
        places[number] += 1
    return done


def play(rows, choose):
    """Only the calls, as they ran."""
    return [item for _, item in play_all(rows, choose) if isinstance(item, Call)]


def over_before(rows, choose):
    """By call, the calls whose kernels are surely over when its own begin.

    Streams run what they were given in order; an event is recorded on the stream of the call
    before it, and held by that of the call after it.
    """
    over: dict[int, set[int]] = {}
    streams: dict[int, set[int]] = {}
    marked: dict[int, set[int]] = {}
    last: dict[int, int] = {}
    held: dict[int, list[int]] = {}
    for thread, item in play_all(rows, choose):
        if isinstance(item, Call):
            own = streams.setdefault(item.stream, set())
            own |= set().union(*(marked[event] for event in held.pop(thread, [])))
            over[item.at] = set(own)
            own.add(item.at)
            last[thread] = item.stream
        elif item.kind == "mark":
            marked[item.number] = set(streams[last[thread]])
        elif item.kind == "hold":
            held.setdefault(thread, []).append(item.number)
    return over


def conflicts(calls):
    """By call, those before it that wrote what it uses, or used what it writes."""
    return {
        call.at: {c.at for c in calls[: call.at]
                  if c.writes & (call.reads | call.writes) or c.reads & call.writes}
        for call in calls
    }  # fmt: skip


@st.composite
def waiting_steps(draw):
    """Calls, and by node those that it was seen to wait for: any, also such as cannot be."""
    calls = draw(steps())
    nodes = st.sets(st.integers(0, len(calls)), max_size=3)
    return calls, {call.at: draw(nodes) for call in calls}


def times_of(calls, is_timed):
    return {c.at: (100_000 * c.at, 100_000 * c.at + 150_000) for c in calls} if is_timed else {}


@given(waiting_steps(), st.integers(0, 2**32), st.booleans())
def test_who_reads_comes_after_who_wrote(step, seed, timed):
    calls, waits = step
    rows, _, _ = order(calls, times_of(calls, timed), waits)
    before = conflicts(calls)
    seen: set[int] = set()
    for call in play(rows, random.Random(seed).choice):
        assert before[call.at] <= seen
        seen.add(call.at)
    assert len(seen) == len(calls)


@given(steps(), st.integers(0, 2**32))
def test_registers_hold_what_is_read(calls, seed):
    """Played in any allowed order, every read finds what its maker left."""
    meant = [[r for _, r in ((p[0], p[1]) for p in call.args[0][1:])] for call in calls]
    rows, _, _ = order(calls, {})
    number_registers(calls)
    held: dict[int, int] = {}
    for call in play(rows, random.Random(seed).choice):
        found = [held[operand[1]] for operand in call.args[0][1:]]
        assert found == meant[call.at]
        for register in call.frees:
            del held[register]
        if call.outs is not None:
            assert call.outs not in held
            held[call.outs] = call.at
    assert not held


@given(waiting_steps(), st.integers(0, 2**32), st.booleans())
def test_kernels_wait_for_those_they_need(step, seed, timed):
    """On whatever stream they are; and whatever was seen, an event is recorded before it is held."""
    calls, waits = step
    rows, _, _ = order(calls, times_of(calls, timed), waits)
    over = over_before(rows, random.Random(seed).choice)
    for at, needed in conflicts(calls).items():
        assert needed <= over[at]


@given(waiting_steps())
def test_streams_wait_once(step):
    """Every event that is recorded is waited for, once."""
    calls, waits = step
    rows, _, events = order(calls, {}, waits)
    flat = play(rows, min)
    marks = [i.number for row in rows for i in row if isinstance(i, Signal) and i.kind == "mark"]
    holds = [i.number for row in rows for i in row if isinstance(i, Signal) and i.kind == "hold"]
    assert sorted(marks) == sorted(holds) == list(range(events))
    assert len(flat) == len(calls)


def written(at, stream, thread, reads=()):
    """A call that writes memory of its own number."""
    call = Call(
        "aten.x.default", [["L", *(["r", r] for r in reads)]], {}, at, [0], at, thread, "operator",
        "x", checks=[], reads=set(reads), writes={at}, frees=[], extra={},
    )  # fmt: skip
    call.stream, call.device_ns = stream, 1.0
    return call


def marked_after(rows):
    """By event, the node of the call after which it is recorded."""
    marks, before = {}, None
    for row in rows:
        for item in row:
            if isinstance(item, Call):
                before = item.at
            elif item.kind == "mark":
                marks[item.number] = before
    return marks


def test_a_stream_waits_for_the_later_call_that_it_was_seen_to_wait_for():
    calls = [written(0, 1, 1), written(1, 1, 1), written(2, 1, 1), written(3, 0, 1, reads=[0])]
    times = times_of(calls, is_timed=True)
    assert marked_after(order(calls, times)[0]) == {0: 0}
    assert marked_after(order(calls, times, {3: {1}})[0]) == {0: 1}
    assert marked_after(order(calls, times, {3: {0, 1, 2}})[0]) == {0: 2}


def test_without_data_nothing_that_was_seen_makes_a_stream_wait():
    calls = [written(0, 1, 1), written(1, 0, 1)]
    assert marked_after(order(calls, times_of(calls, is_timed=True), {1: {0}})[0]) == {}


@pytest.mark.parametrize(
    ("node", "why"),
    [(2, "on its own stream"), (4, "itself"), (5, "after it"), (77, "no call at all")],
)
def test_what_was_seen_and_cannot_be_is_not_waited_for(node, why):
    calls = [written(0, 1, 1), written(1, 1, 1), written(2, 0, 1), written(3, 0, 1),
             written(4, 0, 1, reads=[0]), written(5, 1, 1)]  # fmt: skip
    rows, _, _ = order(calls, times_of(calls, is_timed=True), {4: {node}})
    assert marked_after(rows) == {0: 0}, why


def test_a_later_call_of_another_thread_counts_only_once_it_is_known():
    """Else the event could be waited for before it is recorded."""
    calls = [written(0, 1, 1), written(1, 1, 2), written(2, 0, 1, reads=[0])]
    times = {0: (0, 10), 1: (10, 20), 2: (30, 40)}  # nobody is silent, so nobody had waited
    assert marked_after(order(calls, times, {2: {1}})[0]) == {0: 0}
    # The same with a host that waits for the other thread, because it reads what that one made.
    calls[0] = written(0, 1, 2)
    calls[2] = written(2, 0, 1, reads=[0, 1])
    assert marked_after(order(calls, times, {2: {1}})[0]) == {0: 1}


def test_a_later_call_of_another_thread_stands_for_an_earlier_one_only_where_it_follows_it():
    calls = [written(0, 1, 1), written(1, 1, 2), written(2, 0, 3, reads=[0, 1])]
    times = {0: (0, 15), 1: (10, 20), 2: (30, 40)}  # the second did not wait for the first
    assert order(calls, times, {2: {1}})[2] == 2
    calls[1] = written(1, 1, 2, reads=[0])
    assert order(calls, times, {2: {1}})[2] == 1


def test_a_wait_of_one_thread_is_not_that_of_another():
    """Two threads give to one stream: which of them comes first, nobody knows."""
    calls = [written(0, 0, 1), written(1, 1, 1, reads=[0]), written(2, 1, 2, reads=[0]),
             written(3, 0, 1, reads=[0])]  # fmt: skip
    times = {0: (0, 10), 1: (10, 20), 2: (15, 25), 3: (25, 35)}
    rows, _, events = order(calls, times)
    assert events == 2
    assert marked_after(rows) == {0: 0, 1: 0}
    # It is, once the other thread knows of it.
    calls[2] = written(2, 1, 2, reads=[0, 1])
    assert order(calls, times)[2] == 1
