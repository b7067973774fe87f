"""Ranks tied together: who belongs together, whose clock is right, waiting and transfer."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.training.communication import Communication
from gnomon.systems.training.ranks import (
    Match,
    Member,
    clock_offsets,
    is_eager,
    is_possible,
    known_groups,
    match,
    resolve_peers,
    transfer_ns,
)
from tests.sim.trace.traces import op, trace_of

MS = 1_000_000
_number = itertools.count()


def seen(operation="all_reduce", start=0, end=10, *, channel="", ranks=(), peer=-1, size="",
         step="s"):  # fmt: skip
    return Communication(
        next(_number), operation, channel, ranks, peer, size, step, start, end,
        operation in ("send", "recv"),
    )  # fmt: skip


def send(to, start=0, end=10, step="s"):
    return seen("send", start, end, peer=to, step=step)


def receive(of, start=0, end=10, step="s"):
    return seen("recv", start, end, peer=of, step=step)


def members(matches):
    """Of each communication its ranks, in order."""
    return sorted(tuple(sorted(m.rank for m in one.members)) for one in matches)


def rendezvous(**of_rank):
    """An communication: `r0=(start, end)`."""
    return Match(
        tuple(Member(int(rank[1:]), seen("all_reduce", *span)) for rank, span in of_rank.items())
    )


# -- who belongs together --------------------------------------------------------------------


def test_collectives_match_by_group_and_order_within_a_step():
    of_rank = {
        rank: [
            seen(ranks=(0, 1), channel="g", start=1), seen(ranks=(0, 1), channel="g", start=2),
            seen(ranks=(0, 1), channel="g", start=3, step="t"),
        ]
        for rank in (0, 1)
    }  # fmt: skip
    found = match(of_rank, {})
    assert members(found) == [(0, 1)] * 3
    for one in found:
        assert len({(m.seen.start_ns, m.seen.step) for m in one.members}) == 1


def test_groups_of_the_same_ranks_are_kept_apart_by_name():
    first = [seen(ranks=(0, 1), channel="a", start=1), seen(ranks=(0, 1), channel="b", start=2)]
    second = [seen(ranks=(0, 1), channel="b", start=1), seen(ranks=(0, 1), channel="a", start=2)]
    found = match({0: first, 1: second}, {})
    assert all(len({m.seen.channel for m in one.members}) == 1 for one in found)


def test_a_step_that_one_rank_lacks_matches_nothing_there():
    of_rank = {0: [seen(ranks=(0, 1)), seen(ranks=(0, 1), step="t")], 1: [seen(ranks=(0, 1))]}
    assert len(match(of_rank, {})) == 1


def test_sends_meet_receives_by_peer_and_order():
    of_rank = {
        0: [send(1, start=1), send(1, start=2), receive(1, start=3)],
        1: [receive(0, start=1), receive(0, start=2), send(0, start=3), send(0, start=4)],
    }
    found = match(of_rank, {})
    assert members(found) == [(0, 1)] * 3
    for one in found:
        assert one.is_point_to_point
        assert sorted(m.seen.operation for m in one.members) == ["recv", "send"]
        assert len({m.seen.start_ns for m in one.members}) == 1


def test_unnamed_sequences_belong_to_everybody_where_they_are_the_same():
    of_rank = {rank: [seen("a", channel="0"), seen("b", channel="0")] for rank in range(3)}
    found = match(of_rank, {})
    assert members(found) == [(0, 1, 2)] * 2
    assert all(len({m.seen.operation for m in one.members}) == 1 for one in found)


def test_unnamed_sequences_that_differ_fall_to_the_known_groups():
    of_rank = {rank: [seen(size=str(rank % 2))] for rank in range(4)}
    assert match(of_rank, {}) == []
    groups = {rank: [(rank % 2, rank % 2 + 2), (0, 1, 2, 3)] for rank in range(4)}
    assert members(match(of_rank, groups)) == [(0, 2), (1, 3)]


def test_unnamed_channels_are_matched_one_by_one():
    of_rank = {rank: [seen("a", channel="0"), seen("b", channel="1")] for rank in (0, 1)}
    of_rank[1][1] = seen("c", channel="1")
    found = match(of_rank, {})
    assert members(found) == [(0, 1)]
    assert found[0].members[0].seen.channel == "0"


def test_numbers_that_the_backend_gave_line_up_what_windows_cut():
    def numbered(first, count):
        return [
            msgspec.structs.replace(seen(ranks=(0, 1), step=""), sequence=first + i)
            for i in range(count)
        ]

    found = match({0: numbered(5, 4), 1: numbered(7, 3)}, {})
    assert [[m.seen.sequence for m in one.members] for one in found] == [[7, 7], [8, 8]]


def test_a_window_that_began_later_is_lined_up_by_time():
    def reduced(*starts):
        return [seen(ranks=(0, 1), step="", start=at * MS, end=(at + 2) * MS) for at in starts]

    found = match({0: reduced(0, 10, 20, 30), 1: reduced(11, 21, 31)}, {})
    assert [[m.seen.start_ns // MS for m in one.members] for one in found] == [
        [10, 11], [20, 21], [30, 31],
    ]  # fmt: skip
    # Traces count from their own first event; what the machines showed there is taken in.
    apart = match({0: reduced(0, 10, 20, 30), 1: reduced(0, 10, 20)}, {}, {0: 0, 1: 11 * MS})
    assert [one.members[0].seen.start_ns // MS for one in apart] == [10, 20, 30]


def test_messages_of_another_size_are_other_messages():
    of_rank = {0: [seen("send", peer=1, size="8")], 1: [seen("recv", peer=0, size="9")]}
    assert match(of_rank, {}) == []


def test_a_message_may_be_done_with_before_anybody_asked_for_it():
    def message(sent, got):
        return Match((Member(0, send(1, *sent)), Member(1, receive(0, *got))))

    assert is_eager(message((0, 10), (500, 600)), {0: 0, 1: 0})
    assert not is_eager(message((0, 510), (500, 600)), {0: 0, 1: 0})
    assert not is_eager(message((0, 10), (500, 600)), {0: 1000, 1: 0})
    assert not is_eager(rendezvous(r0=(0, 10), r1=(500, 600)), {0: 0, 1: 0})


def test_a_rank_alone_meets_nobody():
    assert match({0: [seen(), seen(ranks=(0, 1)), send(1)]}, {}) == []


def test_known_groups_hold_more_than_one_rank():
    info = {"rank": 0, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}, {"pg_name": "1", "ranks": [0]},
                                     {"pg_name": "2"}]}  # fmt: skip
    assert known_groups(trace_of(op(0, 1), distributedInfo=info)) == [(0, 1)]


# -- peers given as a place in a group -------------------------------------------------------


def test_a_peer_is_a_place_in_the_group_in_which_both_sides_agree():
    """Two pipelines of two stages, (0, 1) and (2, 3); replicas are (0, 2) and (1, 3)."""
    groups = {
        0: [(0, 2), (0, 1)], 1: [(1, 3), (0, 1)], 2: [(0, 2), (2, 3)], 3: [(1, 3), (2, 3)],
    }  # fmt: skip
    of_rank = {0: [send(1)], 1: [receive(0)], 2: [send(1)], 3: [receive(0)]}
    found = resolve_peers(of_rank, groups)
    assert {rank: one[0].peer for rank, one in found.items()} == {0: 1, 1: 0, 2: 3, 3: 2}
    assert members(match(found, groups)) == [(0, 1), (2, 3)]


def test_a_peer_that_was_not_traced_is_found_in_the_groups():
    groups = {2: [(2, 3)]}
    assert resolve_peers({2: [send(1)]}, groups)[2][0].peer == 3
    # Without groups a place is a rank.
    assert resolve_peers({0: [send(1)], 1: [receive(0)]}, {})[0][0].peer == 1


def test_collectives_are_left_as_they_are():
    one = seen(ranks=(0, 1))
    assert resolve_peers({0: [one]}, {})[0] == [one]


# -- whose clock is right --------------------------------------------------------------------


def reductions(ahead_ns, rng, count=40, jitter_ns=5_000):
    """Collectives of two ranks, of which the second's clock runs ahead."""
    found = []
    for number in range(count):
        end = (number + 1) * 10 * MS
        late = rng.integers(0, 5 * MS, 2)
        noise = rng.integers(-jitter_ns, jitter_ns, 2)
        found.append(
            rendezvous(r0=(end - late[0], end + noise[0]),
                    r1=(end - late[1] + ahead_ns, end + noise[1] + ahead_ns))
        )  # fmt: skip
    return found


def test_clocks_of_two_machines_three_seconds_apart_are_aligned():
    matches = reductions(3_000 * MS, np.random.default_rng(1))
    offset = clock_offsets(matches, {0: 0, 1: 0})
    assert offset[0] - offset[1] == pytest.approx(3_000 * MS, abs=10_000)
    assert min(offset.values()) == 0
    for one in matches:
        ends = [m.seen.end_ns + offset[m.rank] for m in one.members]
        assert abs(ends[0] - ends[1]) < 30_000


def test_what_the_machines_show_at_time_zero_is_taken_in():
    """Traces that begin at different moments of one clock are moved, and by no more than that."""
    matches = reductions(-7 * MS, np.random.default_rng(2))
    assert clock_offsets(matches, {0: 100 * MS, 1: 107 * MS}) == {0: 0, 1: 7 * MS}


def test_clocks_within_their_noise_are_left_alone():
    matches = reductions(60_000, np.random.default_rng(3), jitter_ns=20_000)
    assert clock_offsets(matches, {0: 0, 1: 0}) == {0: 0, 1: 0}
    noisy = reductions(900_000, np.random.default_rng(4), jitter_ns=1_500_000)
    assert clock_offsets(noisy, {0: 0, 1: 0}) == {0: 0, 1: 0}
    assert clock_offsets([], {0: 5, 1: 9}) == {0: 0, 1: 4}


def flights(ahead_ns, took_ns):
    """Messages both ways between rank 0 and rank 1, whose clock runs ahead."""
    found = []
    for number in range(10):
        at = number * 10 * MS
        there = Match(
            (
                Member(0, send(1, at, at + took_ns)),
                Member(1, receive(0, at + ahead_ns, at + took_ns + ahead_ns)),
            )
        )
        back = at + 5 * MS
        found += [
            there,
            Match(
                (
                    Member(1, send(0, back + ahead_ns, back + took_ns + ahead_ns)),
                    Member(0, receive(1, back, back + took_ns)),
                )
            ),
        ]
    return found


def test_messages_both_ways_align_clocks_too():
    offset = clock_offsets(flights(3_000 * MS, 50_000), {0: 0, 1: 0})
    assert offset == {0: 3_000 * MS, 1: 0}
    # Half a flight of doubt: what is less than that tells nothing.
    assert clock_offsets(flights(1 * MS, 2 * MS), {0: 0, 1: 0}) == {0: 0, 1: 0}


def test_messages_one_way_say_nothing_about_clocks():
    one_way = flights(3_000 * MS, 50_000)[::2]
    assert clock_offsets(one_way, {0: 0, 1: 0}) == {0: 0, 1: 0}


def test_a_third_rank_is_aligned_through_the_second():
    """Rank 0 meets rank 1, rank 1 meets rank 2; ranks 1 and 2 share a clock."""
    ahead = 2_000 * MS
    matches = reductions(ahead, np.random.default_rng(5))
    for one in reductions(ahead, np.random.default_rng(6)):
        start, end = one.members[1].seen.start_ns, one.members[1].seen.end_ns
        matches.append(rendezvous(r1=(start, end), r2=(start - MS, end + 1000)))
    offset = clock_offsets(matches, {0: 0, 1: 0, 2: 0})
    assert offset[0] == pytest.approx(ahead, abs=10_000)
    assert offset[1] == offset[2] == 0


# -- waiting and transfer --------------------------------------------------------------------


def test_only_what_came_after_the_last_arrival_is_transfer():
    one = rendezvous(r0=(0, 110), r1=(100, 112))
    assert transfer_ns(one, {0: 0, 1: 0}).tolist() == [10, 12]
    # On one clock, 50 apart: rank 1 arrived at 50.
    assert transfer_ns(one, {0: 0, 1: -50}).tolist() == [60, 12]
    assert transfer_ns(rendezvous(r0=(0, 90), r1=(100, 112)), {0: 0, 1: 0}).tolist() == [0, 12]


def test_a_send_takes_as_long_as_its_receive():
    """A send is recorded as ended when somebody asked, which may be much later."""
    one = Match((Member(0, send(1, 0, 5000)), Member(1, receive(0, 100, 130))))
    assert transfer_ns(one, {0: 0, 1: 0}).tolist() == [30, 30]


def test_who_was_through_before_another_came_did_not_meet_it():
    assert is_possible(rendezvous(r0=(0, 110), r1=(100, 112)), {0: 0, 1: 0})
    assert is_possible(rendezvous(r0=(0, MS), r1=(MS + 100_000, 2 * MS)), {0: 0, 1: 0})
    assert not is_possible(rendezvous(r0=(0, MS), r1=(5 * MS, 6 * MS)), {0: 0, 1: 0})
    assert is_possible(rendezvous(r0=(0, MS), r1=(5 * MS, 6 * MS)), {0: 4 * MS, 1: 0})


spans = st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda s: (s[0], s[0] + s[1]))


@given(st.lists(spans, min_size=2, max_size=5), st.integers(-500, 500))
def test_prop_transfer_is_never_longer_than_what_was_recorded(found, moved):
    one = rendezvous(**{f"r{rank}": span for rank, span in enumerate(found)})
    offset = {rank: moved * rank for rank in range(len(found))}
    took = transfer_ns(one, offset)
    arrived = max(start + offset[rank] for rank, (start, _) in enumerate(found))
    for rank, (start, end) in enumerate(found):
        assert 0 <= took[rank] <= end - start
        assert took[rank] == max(0, end + offset[rank] - arrived)
