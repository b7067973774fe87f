"""Sampled ends against replays one by one, and against what the drawn factors must give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import GnomonError, InputError
from gnomon.graph import GraphBuilder, WorkGraph
from gnomon.sim import makespan_with, replay, sample_ends, sample_makespans
from tests.strategies import graphs


def one_by_one(graph, group, spread, samples, seed):
    """The same draws, a replay each."""
    group, spread = np.asarray(group), np.broadcast_to(spread, len(graph))
    groups = int(group.max(initial=-1)) + 1
    deviate = np.random.default_rng(seed).standard_normal((samples, groups))
    spans = []
    for z in deviate:
        own = np.where(group < 0, 0.0, z[group] if groups else 0.0)
        factor = np.exp(own * spread)
        spans.append(makespan_with(graph, graph.duration_ns * factor))
    return spans


def is_playable(graph):
    try:
        replay(graph)
    except GnomonError:
        return False
    return True


@given(graphs(), st.integers(0, 2**32), st.integers(1, 20), st.data())
def test_prop_samples_are_replays_of_their_own(graph, seed, samples, data):
    if not len(graph) or not is_playable(graph):
        return
    group = data.draw(st.lists(st.integers(-1, 3), min_size=len(graph), max_size=len(graph)))
    spread = data.draw(
        st.lists(st.sampled_from([0.0, 0.1, 0.5]), min_size=len(graph), max_size=len(graph))
    )
    try:
        spans = one_by_one(graph, group, spread, samples, seed)
    except GnomonError:  # run-time waits that only get stuck with other durations
        return
    assert sample_makespans(graph, group, spread, samples, seed).tolist() == spans


def test_marks_split_the_ends():
    graph = WorkGraph.from_columns(["a", "a", "b"], [10, 20, 5])
    ends = sample_ends(graph, [-1, -1, -1], 0.0, [0, 1, 1], 4, 0)
    assert ends.tolist() == [[10, 30]] * 4
    mine = sample_ends(graph, [0, 0, 0], 0.3, [0, 1, 1], 50, 0)
    assert np.array_equal(mine.max(axis=1), sample_makespans(graph, [0, 0, 0], 0.3, 50, 0))


def test_groups_are_wrong_together():
    graph = WorkGraph.from_columns(["a"] * 100, [1000] * 100)
    together = sample_makespans(graph, [0] * 100, 0.2, 4000, 3)
    apart = sample_makespans(graph, np.arange(100), 0.2, 4000, 3)
    assert np.log(together).std() == pytest.approx(0.2, rel=0.05)
    assert np.log(apart).std() == pytest.approx(0.02, rel=0.1)
    assert np.median(together) == pytest.approx(100_000, rel=0.02)


def test_noise_is_each_tasks_own():
    graph = WorkGraph.from_columns(["a"] * 100, [10_000] * 100)
    spans = sample_makespans(graph, [-1] * 100, 0.0, 4000, 3, noise=0.2)
    assert np.log(spans).std() == pytest.approx(0.02, rel=0.1)


def test_same_seed_same_samples(monkeypatch):
    graph = WorkGraph.from_columns(["a"] * 30, np.arange(30) * 1000)
    group, spread = np.arange(30) % 5, np.linspace(0, 0.3, 30)
    once = sample_makespans(graph, group, spread, 100, 7, noise=0.1)
    assert np.array_equal(once, sample_makespans(graph, group, spread, 100, 7, noise=0.1))
    assert not np.array_equal(once, sample_makespans(graph, group, spread, 100, 8, noise=0.1))
    # However many are handed over at once.
    monkeypatch.setattr("gnomon.sim.sample._MOST_FACTORS", 90)
    assert np.array_equal(once, sample_makespans(graph, group, spread, 100, 7, noise=0.1))


def test_run_time_waits_are_played():
    build = GraphBuilder()
    launch = build.task("cpu", 10)
    kernel = build.task("gpu", 50)
    build.edge(launch, kernel, "launch")
    build.wait(build.task("cpu", 2), "gpu")
    graph = build.build()
    assert sample_makespans(graph, [-1, -1, -1], 0.0, 9, 0).tolist() == [62] * 9


def test_no_samples_and_no_tasks():
    graph = WorkGraph.from_columns(["a"], [5])
    assert sample_makespans(graph, [0], 0.1, 0, 0).shape == (0,)
    empty = WorkGraph.from_columns([], [])
    assert sample_makespans(empty, [], 0.0, 2, 0).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], 0.1, 5), "one for each of 2 tasks"),
        (([0, -2], 0.1, 5), "group -2"),
        (([0.5, 1.0], 0.1, 5), "whole numbers"),
        (([0, 0], [0.1], 5), "1 spreads for 2 tasks"),
        (([0, 0], -0.1, 5), "spreads have to be finite"),
        (([0, 0], 0.1, -1), "samples=-1"),
        (([0, 0], 50.0, 200), "26 days"),
    ],
)
def test_wrong_input_is_named(arguments, message):
    graph = WorkGraph.from_columns(["a", "a"], [5, 5])
    with pytest.raises(InputError, match=message):
        sample_makespans(graph, *arguments, 0)


def test_wrong_marks_and_noise_are_named():
    graph = WorkGraph.from_columns(["a", "a"], [5, 5])
    with pytest.raises(InputError, match="marks count from 0"):
        sample_ends(graph, [0, 0], 0.1, [0, 2], 5, 0)
    with pytest.raises(InputError, match="marks have to be whole"):
        sample_ends(graph, [0, 0], 0.1, [0], 5, 0)
    with pytest.raises(InputError, match="noise=-1"):
        sample_makespans(graph, [0, 0], 0.1, 5, 0, noise=-1.0)
