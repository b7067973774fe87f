"""Ranks of one job linked: clocks aligned, communications matched, waiting apart from transfer.

What one rank records of a collective is waiting for the last to arrive, then the transfer. Kept as
one duration, another rank's lateness would be baked into it. So its members become a rendezvous:
they start together when the last is there, and only what each took from then on is charged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from gnomon.graph.column_types import Ints
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.systems.training.communication import Communication

#: Clocks that differ by less are taken as one: ends of a collective differ as much by themselves.
_SAME_CLOCK_NS = 100_000
#: How much earlier than the last arrival a communication may seem to end, by imprecise clocks.
_JITTER_NS = 200_000
#: Where so many communications are possible by the clocks as they are, the clocks are right.
_MOSTLY = 0.9

Group = tuple[int, ...]
Sides = Mapping[int, Sequence[Communication]]


class Member(msgspec.Struct, frozen=True):
    """One rank's side of a communication."""

    rank: int
    seen: Communication


class Match(msgspec.Struct, frozen=True):
    """The sides of one communication that were traced."""

    members: tuple[Member, ...]

    @property
    def is_point_to_point(self) -> bool:
        """Whether it is a send and its receive."""
        return self.members[0].seen.is_point_to_point


# -- who talks to whom -----------------------------------------------------------------------


def resolve_peers(
    seen: Sides, groups: Mapping[int, Sequence[Group]]
) -> dict[int, list[Communication]]:
    """Sends and receives with their peer's number in the job; -1 where it is not known.

    A trace gives the peer's place within a process group, not which group. It is the one in which
    the two sides agree: as many sends to that place as its rank shows receives from ours.
    """
    count = {
        rank: Counter(_direction(one) for one in found if one.is_point_to_point)
        for rank, found in seen.items()
    }
    everybody = tuple(range(max(seen, default=-1) + 1))
    resolved: dict[int, list[Communication]] = {}
    for rank, found in seen.items():
        own = sorted({everybody, *groups.get(rank, ())}, key=lambda group: (len(group), group))
        peer_at = {
            (is_send, place): _peer(rank, is_send, place, own, count)
            for is_send, place in count[rank]
        }
        resolved[rank] = [
            msgspec.structs.replace(one, peer=peer_at[_direction(one)])
            if one.is_point_to_point
            else one
            for one in found
        ]
    return resolved


def _direction(one: Communication) -> tuple[bool, int]:
    return _is_send(one), one.peer


def _is_send(one: Communication) -> bool:
    return "send" in one.operation


def _peer(
    rank: int,
    is_send: bool,
    place: int,
    groups: Sequence[Group],
    count: Mapping[int, Counter[tuple[bool, int]]],
) -> int:
    """The rank at a place of the group in which both sides agree; else of the smallest."""
    wanted = count[rank][is_send, place]
    possible = [g for g in groups if 0 <= place < len(g) and rank in g and g[place] != rank]
    for group in possible:
        other = count.get(group[place])
        if other is not None and other[not is_send, group.index(rank)] == wanted:
            return group[place]
    return next((group[place] for group in possible if group[place] not in count), -1)


# -- who belongs together --------------------------------------------------------------------


def match(
    seen: Sides, groups: Mapping[int, Sequence[Group]], origin_ns: Mapping[int, int] | None = None
) -> list[Match]:
    """Communications whose sides were found on several ranks.

    Sides that belong together form sequences: sends and receives of one pair, group and size;
    collectives of one process group and operation. Sequences are lined up step by step, by the
    numbers that the backend gave, or by time where a window began later than another. Where a
    trace does not name the group of its collectives, it is the largest one whose traced members
    all show the same sequence at the same time.

    Args:
        seen: What each rank communicated, in order.
        groups: The process groups that each rank is known to belong to; may be empty.
        origin_ns: What each rank's machine showed at its time zero; one clock unless given.
    """
    origin = origin_ns or dict.fromkeys(seen, 0)
    sequences: dict[tuple[object, ...], dict[int, list[Communication]]] = defaultdict(dict)
    unnamed: dict[str, dict[int, list[Communication]]] = defaultdict(dict)
    for rank, communications in seen.items():
        for one in communications:
            if one.is_point_to_point:
                if one.peer < 0 or one.peer == rank:
                    continue
                pair = (rank, one.peer) if _is_send(one) else (one.peer, rank)
                key: tuple[object, ...] = (*pair, one.channel, one.size)
            elif one.ranks:
                key = (one.channel, tuple(sorted(one.ranks)), one.operation)
            else:
                unnamed[one.channel].setdefault(rank, []).append(one)
                continue
            sequences[key].setdefault(rank, []).append(one)
    matches = [
        matched
        for sides in sequences.values()
        if len(sides) > 1
        for matched in _line_up(sides, origin)
    ]
    for of_rank in unnamed.values():
        matches += _match_unnamed(of_rank, groups, origin)
    return matches


def _match_unnamed(
    of_rank: Sides, groups: Mapping[int, Sequence[Group]], origin: Mapping[int, int]
) -> list[Match]:
    """Sequences without a named group, of one channel.

    Groups whose sides meet by the clocks as they are come first; what is then left may be on
    other clocks, and the same sequence has to do.
    """
    everybody = tuple(sorted(of_rank))
    known = {tuple(sorted(g)) for rank in of_rank for g in groups.get(rank, ())} - {everybody}
    candidates = sorted(known, key=lambda g: (-len(g), g))
    candidates.insert(0, everybody)
    left = set(of_rank)
    matches: list[Match] = []
    for needs_clocks in (True, False):
        for group in candidates:
            members = [rank for rank in group if rank in left]
            if len(members) < 2:
                continue
            found = _same_sequence({rank: of_rank[rank] for rank in members}, origin)
            if found and (not needs_clocks or _share_possible(found, origin) >= 0.5):
                matches += found
                left -= set(members)
    return matches


def _same_sequence(sides: Sides, origin: Mapping[int, int]) -> list[Match]:
    """The communications of ranks that all show the same sequence; none when they do not."""
    found = _line_up(sides, origin)
    for matched in found:
        first = matched.members[0].seen
        for member in matched.members:
            if (member.seen.operation, member.seen.size) != (first.operation, first.size):
                return []
    return [matched for matched in found if len(matched.members) == len(sides)]


def _line_up(sides: Sides, origin: Mapping[int, int]) -> list[Match]:
    """Members of equal place in sequences that may begin and end at different places."""
    if not any(one.step for side in sides.values() for one in side):
        return _line_up_window(sides, origin)
    # What was asked for outside all steps may be cut off at any place: it stays alone.
    steps: dict[str, dict[int, list[Communication]]] = {}
    for rank, side in sides.items():
        for one in filter(lambda one: one.step, side):
            steps.setdefault(one.step, {}).setdefault(rank, []).append(one)
    return [found for step in steps.values() for found in _line_up_window(step, origin)]


def _line_up_window(sides: Sides, origin: Mapping[int, int]) -> list[Match]:
    """Lines up what ranks did in one step, or in a trace without steps."""
    if len(sides) < 2:
        return []
    longest = max(sides, key=lambda rank: len(sides[rank]))
    by_place: dict[int, list[Member]] = defaultdict(list)
    for rank, side in sides.items():
        shift = _shift(sides[longest], side, origin[rank] - origin[longest])
        for place, one in enumerate(side):
            by_place[place + shift].append(Member(rank, one))
    return [Match(tuple(members)) for members in by_place.values() if len(members) > 1]


def _shift(longer: Sequence[Communication], other: Sequence[Communication], apart_ns: int) -> int:
    """At which place of the longer sequence the other begins."""
    if longer is other or not other:
        return 0
    if all(one.sequence >= 0 for one in (*longer, *other)):
        return other[0].sequence - longer[0].sequence
    begin, end = _times(longer)
    own_begin, own_end = (times + apart_ns for times in _times(other))
    tried = {0, len(longer) - len(other)}
    for probe in {0, len(other) // 2, len(other) - 1}:
        at = int(np.searchsorted(end, own_begin[probe]))
        tried |= {at - probe + extra for extra in (-1, 0, 1)}
    best = max(
        sorted(tried, key=abs),
        key=lambda shift: _overlapping(begin, end, own_begin, own_end, shift),
    )
    if _overlapping(begin, end, own_begin, own_end, best) == 0:
        return 0  # the clocks say nothing
    is_as_long = len(longer) == len(other)
    zero = _overlapping(begin, end, own_begin, own_end, 0)
    return 0 if is_as_long and zero >= _MOSTLY * len(other) else best


def _times(side: Sequence[Communication]) -> tuple[Ints, Ints]:
    return (
        np.asarray([one.start_ns for one in side], np.int64),
        np.maximum.accumulate(np.asarray([one.end_ns for one in side], np.int64)),
    )


def _overlapping(begin: Ints, end: Ints, own_begin: Ints, own_end: Ints, shift: int) -> int:
    """How many of the other sequence overlap in time with what they would be matched with."""
    first, last = max(shift, 0), min(len(begin), shift + len(own_begin))
    if last <= first:
        return 0
    here, there = slice(first, last), slice(first - shift, last - shift)
    return int(np.count_nonzero((begin[here] <= own_end[there]) & (own_begin[there] <= end[here])))


# -- whose clock is right --------------------------------------------------------------------


def clock_offsets(matches: Sequence[Match], origin_ns: Mapping[int, int]) -> dict[int, int]:
    """What to add to each rank's own times so that all of them show the time of one clock.

    Clocks by which most communications are possible are right. Otherwise they are compared: a
    collective ends on all ranks at nearly the same moment; a message arrives after it was sent, in
    both directions. Differences within their own noise are left alone.

    Args:
        matches: Matched communications, in each rank's own time.
        origin_ns: What each rank's machine showed at its time zero.
    """
    earliest = min(origin_ns.values(), default=0)
    offset = {rank: origin_ns[rank] - earliest for rank in sorted(origin_ns)}
    if _share_possible(matches, offset) >= _MOSTLY:
        return offset
    ahead: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for (one, other), (difference, noise) in _clock_differences(matches, offset).items():
        ahead[one].append((other, difference, noise))
    moved: dict[int, int] = {}
    for root in offset:
        if root in moved:
            continue
        moved[root] = 0
        waiting = [root]
        while waiting:
            near = waiting.pop()
            for other, difference, noise in ahead[near]:
                if other not in moved:
                    is_real = abs(difference) > max(_SAME_CLOCK_NS, 3 * noise)
                    moved[other] = moved[near] - (difference if is_real else 0)
                    waiting.append(other)
    aligned = {rank: offset[rank] + moved[rank] for rank in offset}
    first = min(aligned.values(), default=0)
    return {rank: value - first for rank, value in aligned.items()}


def _share_possible(matches: Sequence[Match], offset: Mapping[int, int]) -> float:
    if not matches:
        return 1.0
    possible = [is_possible(one, offset) or is_eager(one, offset) for one in matches]
    return sum(possible) / len(possible)


def _clock_differences(
    matches: Sequence[Match], offset: Mapping[int, int]
) -> dict[tuple[int, int], tuple[int, int]]:
    """How far the second rank's clock runs ahead of the first's, and the noise of that."""
    ends: dict[tuple[int, int], list[int]] = defaultdict(list)
    flights: dict[tuple[int, int], list[int]] = defaultdict(list)
    for matched in matches:
        if matched.is_point_to_point:
            sender, receiver = _ends_of(matched)
            took = (receiver.seen.end_ns + offset[receiver.rank]) - (
                sender.seen.start_ns + offset[sender.rank]
            )
            flights[sender.rank, receiver.rank].append(took)
            continue
        for one, other in pairwise(matched.members):
            ends[one.rank, other.rank].append(
                other.seen.end_ns + offset[other.rank] - one.seen.end_ns - offset[one.rank]
            )
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for (sent_by, got_by), there in flights.items():
        if back := flights.get((got_by, sent_by)):
            # Half the difference of the quickest flights; what both took is the noise of it.
            quickest = min(there), min(back)
            found[sent_by, got_by] = (
                (quickest[0] - quickest[1]) // 2,
                abs(quickest[0] + quickest[1]) // 2,
            )
    for pair, samples in ends.items():
        middle = int(np.median(samples))
        noise = int(np.median(np.abs(np.asarray(samples) - middle)))
        found[pair] = middle, noise
    return found | {(b, a): (-difference, noise) for (a, b), (difference, noise) in found.items()}


def _ends_of(matched: Match) -> tuple[Member, Member]:
    """The sender and the receiver of a message."""
    one, other = matched.members
    return (one, other) if _is_send(one.seen) else (other, one)


# -- waiting and transfer --------------------------------------------------------------------


def transfer_ns(matched: Match, offset: Mapping[int, int]) -> Ints:
    """What each member took once the last had arrived.

    A send is recorded as ended when somebody asked for it, which may be much later: it takes as
    long as its receive.
    """
    arrived = max(m.seen.start_ns + offset[m.rank] for m in matched.members)
    took = np.asarray(
        [m.seen.end_ns + offset[m.rank] - arrived for m in matched.members], np.int64
    )
    took = np.maximum(took, 0)
    if matched.is_point_to_point:
        took[:] = took.min()
    return took


def is_possible(matched: Match, offset: Mapping[int, int]) -> bool:
    """Whether all members were there before the first was through, but for jitter."""
    arrived = max(m.seen.start_ns + offset[m.rank] for m in matched.members)
    through = min(m.seen.end_ns + offset[m.rank] for m in matched.members)
    return through >= arrived - _JITTER_NS


def is_eager(matched: Match, offset: Mapping[int, int]) -> bool:
    """Whether a message was sent and done with before anybody asked to receive it."""
    if not matched.is_point_to_point:
        return False
    sender, receiver = _ends_of(matched)
    return (
        sender.seen.end_ns + offset[sender.rank] < receiver.seen.start_ns + offset[receiver.rank]
    )


def known_groups(trace: KinetoTrace) -> list[Group]:
    """The process groups a trace names that hold more than one rank."""
    return [group.ranks for group in trace.groups if len(group.ranks) > 1]
