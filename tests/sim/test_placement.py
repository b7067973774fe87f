"""Placement against a slow, obvious one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.series import Signal
from gnomon.sim.placement import Candidate, Groups, Tasks, cleanest_starts, place


def slow_place(groups, order, tasks, *, sleep):
    """Looks at every server for every job, and at every job at every end."""
    free = [[int(slots)] * int(servers) for servers, slots in zip(groups.servers, groups.slots)]
    awake = [[not sleep] * len(row) for row in free]
    jobs = list(zip(tasks.release_ns.tolist(), tasks.slots.tolist(), tasks.work_ns.tolist()))
    placed, running, line, stretches, since = {}, [], [], [], {}

    def begin(job, now):
        _, slots, work = jobs[job]
        for group, part in order:
            room = [
                (not awake[group][s], free[group][s], s)
                for s in range(len(free[group]))
                if free[group][s] >= slots
                and (part == "any" or awake[group][s] == (part == "awake"))
            ]
            if room:
                _, _, server = min(room)
                if not awake[group][server]:
                    awake[group][server], since[group, server] = True, now
                free[group][server] -= slots
                end = now + round(work / groups.speed[group])
                placed[job] = (now, end, group, server)
                running.append((end, job))
                return True
        return False

    def end_until(time):
        while running and min(running)[0] <= time:
            now = min(running)[0]
            for end, job in sorted(running):
                if end == now:
                    running.remove((end, job))
                    group, server = placed[job][2:]
                    free[group][server] += jobs[job][1]
                    if sleep and free[group][server] == groups.slots[group]:
                        awake[group][server] = False
                        stretches.append((group, since[group, server], now))
            while line and begin(line[0], now):
                line.pop(0)

    for job, (release, _, _) in enumerate(jobs):
        end_until(release)
        if line or not begin(job, release):
            line.append(job)
    end_until(2**62)
    return [placed[job] for job in range(len(jobs))], sorted(stretches)


@st.composite
def cases(draw):
    count = draw(st.integers(1, 4))
    numbers = lambda low, high: draw(  # noqa: E731
        st.lists(st.integers(low, high), min_size=count, max_size=count)
    )
    groups = Groups.of(numbers(1, 70), numbers(1, 9), [draw(st.sampled_from([0.5, 1, 3]))] * count)
    most = int(groups.slots.max())
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(1, most), st.integers(0, 40)), max_size=60
        )
    )
    rows.sort(key=lambda row: row[0])
    sleep = draw(st.booleans())
    parts = ["any"] if not sleep else draw(st.sampled_from([["any"], ["awake", "asleep"]]))
    order = draw(st.permutations([Candidate(g, part) for g in range(count) for part in parts]))
    columns = list(zip(*rows)) or [[], [], []]
    return groups, order, Tasks.of(*columns), sleep


@given(cases())
def test_prop_equals_the_slow_one(case):
    groups, order, tasks, sleep = case
    rows, stretches = slow_place(groups, order, tasks, sleep=sleep)
    placed = place(groups, order, tasks, empty_servers_sleep=sleep)
    mine = zip(placed.start_ns, placed.end_ns, placed.group, placed.server)
    assert [tuple(map(int, row)) for row in mine] == rows
    awake = zip(placed.awake_group, placed.awake_from_ns, placed.awake_until_ns)
    assert sorted(tuple(map(int, row)) for row in awake) == stretches


def test_many_servers_of_one_group():
    """More servers than one word of a summary can tell apart."""
    groups = Groups.of([9000], [2])
    tasks = Tasks.of(np.zeros(18001), np.ones(18001), np.full(18001, 10))
    placed = place(groups, [Candidate(0)], tasks)
    assert placed.server[:4].tolist() == [0, 0, 1, 1]
    assert placed.server[17999] == 8999
    assert placed.start_ns[18000] == 10


@pytest.mark.parametrize(
    ("order", "slots", "what"),
    [
        ([Candidate(0)], 3, "more slots than any server"),
        ([Candidate(1)], 1, "groups that exist"),
        ([Candidate(0, "asleep")], 1, "both parts"),
        ([], 1, "more slots"),
    ],
    ids=["too-large", "no-such-group", "half", "nothing"],
)
def test_wrong_input(order, slots, what):
    with pytest.raises(InputError, match=what):
        place(Groups.of([2], [2]), order, Tasks.of([0], [slots], [1]), empty_servers_sleep=True)


def test_unsorted_jobs_are_refused():
    with pytest.raises(InputError, match="order of release"):
        place(Groups.of([2], [2]), [Candidate(0)], Tasks.of([1, 0], [1, 1], [1, 1]))


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=12),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_prop_no_start_is_cleaner(values, earliest, slack, length):
    grid = Signal.regular(0, 10, values, unit="gCO2e/kWh", kind="carbon-intensity")
    length = min(length, grid.end_ns)
    earliest = min(earliest, grid.end_ns - length)
    latest = min(earliest + slack, grid.end_ns - length)
    found = int(cleanest_starts(grid, [earliest], [latest], [length])[0])
    area = {s: grid.integrate(s, s + length) for s in range(earliest, latest + 1)}
    assert earliest <= found <= latest
    assert area[found] <= min(area.values()) + 1e-15
    assert all(area[s] > area[found] - 1e-15 for s in range(earliest, found))


def test_jobs_outside_of_the_signal_are_refused():
    grid = Signal.regular(0, 10, [1, 2], unit="gCO2e/kWh", kind="carbon-intensity")
    with pytest.raises(InputError, match="within the times"):
        cleanest_starts(grid, [0], [15], [10])


def test_short_jobs_stay_where_hours_are_equal():
    """Beside a long running sum, a second of the same hour is the same."""
    grid = Signal.regular(0, 3600 * 10**9, [321.0987] * 9000, unit="gCO2e/kWh", kind="x")
    early = np.arange(1000, dtype=np.int64) * 31 * 10**12
    found = cleanest_starts(grid, early, early + 10**15, np.full(1000, 10**9))
    assert (found == early).all()


def test_times_without_end_are_refused():
    with pytest.raises(InputError, match="146 years"):
        place(Groups.of([1], [1], [1e-5]), [Candidate(0)], Tasks.of([0], [1], [2**59]))
    with pytest.raises(InputError, match="146 years"):
        place(Groups.of([1], [1]), [Candidate(0)], Tasks.of([2**62 + 1], [1], [1]))
