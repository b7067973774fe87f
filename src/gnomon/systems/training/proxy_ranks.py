"""Proxy ranks: a traced rank is used for one of the same stage that was not traced.

Ranks that take part in the same collectives do the same work on other data. A rank that was not
traced therefore does what a traced one of its group does, with other peers: where the traced rank
talks to one of the next stage, the missing one talks to that one's counterpart in its own group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gnomon.systems.training.communication import Communication
from gnomon.systems.training.ranks import Match

Group = tuple[int, ...]


class ProxyRank(msgspec.Struct, frozen=True):
    """A traced rank in place of one that was not.

    Attributes:
        of: The traced rank.
        communications: What the missing rank communicates, with its own peers.
        groups: The process groups it belongs to.
    """

    of: int
    communications: list[Communication]
    groups: list[Group]


def proxy_ranks(
    absent: Sequence[int],
    seen: Mapping[int, Sequence[Communication]],
    groups: Mapping[int, Sequence[Group]],
    matches: Sequence[Match],
) -> dict[int, ProxyRank]:
    """The proxy of each absent rank; one without a traced one of its stage gets none."""
    replicas = _replicas([*seen, *absent], seen, groups, matches)
    group_of = {rank: group for group in replicas for rank in group}
    channel_of = {
        tuple(sorted(one.ranks)): one.channel
        for communications in seen.values()
        for one in communications
        if one.ranks
    }
    load: Counter[int] = Counter()
    found: dict[int, ProxyRank] = {}
    for rank in absent:
        group = group_of.get(rank, ())
        candidates = [other for other in group if other in seen]
        if not candidates:
            continue
        of = min(candidates, key=lambda other: (load[other], other))
        load[of] += 1
        place = group.index(rank)

        def counterpart(peer: int, place: int = place, size: int = len(group)) -> int:
            own = group_of.get(peer, ())
            return own[place] if len(own) == size else peer

        found[rank] = _proxy_of(of, rank, seen[of], groups.get(of, ()), counterpart, channel_of)
    return found


def _proxy_of(
    of: int,
    rank: int,
    communications: Sequence[Communication],
    groups: Sequence[Group],
    counterpart: Callable[[int], int],
    channel_of: Mapping[Group, str],
) -> ProxyRank:
    def move(group: Group) -> Group:
        # Its own replicas are the missing rank's too; other groups have their counterparts.
        if rank in group:
            return group
        return tuple(sorted(rank if other == of else counterpart(other) for other in group))

    moved = []
    for one in communications:
        ranks = move(one.ranks) if one.ranks else ()
        # Groups have names of their own: that of the ranks it moved to, where one is traced.
        channel = channel_of.get(tuple(sorted(ranks)), one.channel) if ranks else one.channel
        peer = counterpart(one.peer) if one.is_point_to_point and one.peer >= 0 else -1
        moved.append(
            msgspec.structs.replace(one, ranks=ranks, peer=peer if peer != rank else -1,
                                    channel=channel)
        )  # fmt: skip
    return ProxyRank(of, moved, [move(group) for group in groups])


def _replicas(
    ranks: Sequence[int],
    seen: Mapping[int, Sequence[Communication]],
    groups: Mapping[int, Sequence[Group]],
    matches: Sequence[Match],
) -> list[Group]:
    """Groups of ranks that do the same work: those that share the most collectives.

    Groups that only pass messages along (pipelines) are none, nor is the group of all where a
    smaller one was used.
    """
    point_to_point = {
        frozenset((rank, one.peer))
        for rank, communications in seen.items()
        for one in communications
        if one.is_point_to_point
    }
    met = {
        frozenset(member.rank for member in matched.members)
        for matched in matches
        if not matched.is_point_to_point
    }
    named = {group for rank in seen for group in groups.get(rank, ()) if len(group) > 1}
    named |= {one.ranks for found in seen.values() for one in found if len(one.ranks) > 1}
    usable = [g for g in named if not any(pair <= set(g) for pair in point_to_point)]
    used = [group for group in usable if any(members <= set(group) for members in met)]
    if not named:
        # Who passes messages along has a stage of its own, and nothing says which.
        return [] if point_to_point else [tuple(sorted(ranks))]
    chosen: list[Group] = []
    # Those that were seen at work first; then the small before the large.
    for group in sorted(usable, key=lambda g: (g not in used, len(g), g)):
        if not any(set(group) & set(other) for other in chosen):
            chosen.append(group)
    return chosen
