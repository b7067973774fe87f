"""Programs keep their meaning in whatever order their threads run."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.aibench.program import Call, Signal
from gnomon.systems.aibench.schedule import number_registers, order


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


def play(rows, choose):
    """Runs threads in any order that their signals allow; gives the calls as they ran."""
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
        if isinstance(item, Signal):
            if item.kind == "post":
                posted.add(item.number)
        else:
            done.append(item)
        places[number] += 1
    return done


@given(steps(), st.integers(0, 2**32), st.booleans())
def test_who_reads_comes_after_who_wrote(calls, seed, timed):
    times = {c.at: (100_000 * c.at, 100_000 * c.at + 150_000) for c in calls} if timed else {}
    rows, _, _ = order(calls, times)
    before = {
        call.at: [c.at for c in calls[: call.at]
                  if c.writes & (call.reads | call.writes) or c.reads & call.writes]
        for call in calls
    }  # fmt: skip
    seen: set[int] = set()
    for call in play(rows, random.Random(seed).choice):
        assert set(before[call.at]) <= seen
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


@given(steps())
def test_streams_wait_once(calls):
    """An event is recorded before it is waited for, and every cross-stream read is covered."""
    rows, _, events = order(calls, {})
    flat = play(rows, min)
    marks = [i.number for row in rows for i in row if isinstance(i, Signal) and i.kind == "mark"]
    holds = [i.number for row in rows for i in row if isinstance(i, Signal) and i.kind == "hold"]
    assert sorted(marks) == sorted(holds) == list(range(events))
    assert len(flat) == len(calls)
