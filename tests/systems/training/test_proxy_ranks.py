"""Ranks that were not traced."""

from __future__ import annotations

from gnomon.systems.training.communication import Communication
from gnomon.systems.training.proxy_ranks import proxy_ranks
from gnomon.systems.training.ranks import match


def seen(operation, *, ranks=(), peer=-1):
    return Communication(0, operation, "", ranks, peer, "", "s", 0, 10, peer >= 0)


#: Two pipelines of two stages, (0, 1) and (2, 3), of which the first was traced.
SEEN = {
    0: [seen("send", peer=1), seen("all_reduce", ranks=(0, 2))],
    1: [seen("recv", peer=0), seen("all_reduce", ranks=(1, 3))],
}
GROUPS = {0: [(0, 1, 2, 3), (0, 2), (0, 1)], 1: [(0, 1, 2, 3), (1, 3), (0, 1)]}


def test_a_rank_of_the_same_stage_is_a_proxy_with_its_own_peers():
    found = proxy_ranks([2, 3], SEEN, GROUPS, match(SEEN, GROUPS))
    assert {rank: one.of for rank, one in found.items()} == {2: 0, 3: 1}
    sent, reduced = found[2].communications
    assert (sent.operation, sent.peer) == ("send", 3)
    assert reduced.ranks == (0, 2)
    assert found[2].groups == [(0, 1, 2, 3), (0, 2), (2, 3)]
    assert found[3].communications[0].peer == 2


def test_groups_that_the_collectives_name_do_without_process_groups():
    found = proxy_ranks([2, 3], SEEN, {}, match(SEEN, {}))
    assert {rank: one.of for rank, one in found.items()} == {2: 0, 3: 1}


def test_a_stage_of_which_nobody_was_traced_has_no_proxy():
    only_first = {0: SEEN[0]}
    found = proxy_ranks([1, 2, 3], only_first, {0: GROUPS[0]}, [])
    assert set(found) == {2}


def test_where_no_group_is_named_all_ranks_do_the_same():
    of_rank = {0: [seen("all_reduce")], 1: [seen("all_reduce")]}
    found = proxy_ranks([2, 3, 4], of_rank, {}, match(of_rank, {}))
    # The work is shared out among those that were traced.
    assert {rank: one.of for rank, one in found.items()} == {2: 0, 3: 1, 4: 0}


def test_the_group_seen_at_work_is_taken_before_a_smaller_one():
    of_rank = {rank: [seen("all_reduce", ranks=(0, 1, 2, 3))] for rank in (0, 1)}
    groups = {0: [(0, 2)], 1: [(1, 3)]}
    matches = match(of_rank, groups)
    found = proxy_ranks([2, 3], of_rank, groups, matches)
    assert {rank: one.of for rank, one in found.items()} == {2: 0, 3: 1}
