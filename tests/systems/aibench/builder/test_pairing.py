"""Pairing against the textbook's longest common subsequence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.aibench.builder.pairing import pair_up

NAMES = st.lists(st.sampled_from("abcd"), max_size=30)


def longest(left: list[str], right: list[str]) -> int:
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


@given(NAMES, NAMES)
def test_as_many_pairs_as_there_can_be(left, right):
    pairs = list(pair_up(left, right))
    assert len(pairs) == longest(left, right)
    assert all(left[i] == right[j] for i, j in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in zip(pairs, pairs[1:]))


def test_long_records_that_differ_little_are_quick():
    left = [f"op{i % 97}" for i in range(60_000)]
    right = left[:20_000] + ["extra"] * 300 + left[20_000:]
    assert len(list(pair_up(left, right))) == len(left)
