"""What decisions were worth: costs add up, and what the state explains is not blamed on them."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon import _core
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.model.decima.network import DecimaWeights
from gnomon.sim.cluster import Executors, run_cluster
from gnomon.systems.batch.decima.advantage import (
    _against_the_others,
    advantages,
    cost_to_go,
    state_features,
)

S = 10**9
KINDS = JobKinds.build(
    {
        "long": [
            Stage(30, {4: Waves(first=[9 * S, 11 * S])}),
            Stage(5, {4: Waves(first=[S])}, parents=(0,)),
        ],
        "short": [Stage(2, {4: Waves(first=[S])})],
    }
)
WEIGHTS = DecimaWeights.initial(np.random.default_rng(0)).parameters


def rollouts(count, seed=0):
    rng = np.random.default_rng(seed)
    jobs = BatchJobs.of(KINDS, rng.integers(2, size=8), np.sort(rng.integers(0, 60, 8)) * S)
    orders = [_core.decima_order(WEIGHTS, True, True) for _ in range(count)]
    runs = [
        run_cluster(jobs, Executors(count=4), order, seed=1, policy_seed=number)
        for number, order in enumerate(orders)
    ]
    return runs, [order.record() for order in orders]


@pytest.fixture(scope="module")
def one():
    runs, records = rollouts(1)
    return runs[0], records[0]


def test_costs_to_go_are_times_in_the_system(one):
    run, record = one
    when = np.concatenate([record["time"], [int(run.finish_ns.max()) + 1]])
    jobs = list(zip(run.finish_ns.tolist(), run.arrival_ns.tolist(), strict=True))
    by_hand = [sum(max(0, f - max(a, t)) for f, a in jobs) / 1e9 for t in when.tolist()]
    np.testing.assert_allclose(cost_to_go(run, when), by_hand)
    np.testing.assert_allclose(cost_to_go(run, when, 1e8), by_hand, rtol=1e-4)


def test_later_costs_count_less(one):
    run, record = one
    when = record["time"][[0, len(record["time"]) // 2]]
    for start, found in zip(when.tolist(), cost_to_go(run, when, 20.0), strict=True):
        t = np.linspace(start, int(run.finish_ns.max()), 200_001)
        there = (run.arrival_ns[:, None] <= t) & (t < run.finish_ns[:, None])
        fades = np.exp(-(t - start) / 20e9)
        assert found == pytest.approx(np.trapezoid(there.sum(axis=0) * fades, t) / 1e9, rel=1e-3)


def test_features_are_sums_over_the_jobs_of_a_decision(one):
    _, record = one
    features = state_features(record)
    for d in (0, len(features) // 2, len(features) - 1):
        job = slice(record["first_job"][d], record["first_job"][d + 1])
        node = slice(record["first_node"][d], record["first_node"][d + 1])
        assert features[d, 0] == len(record["job_nodes"][job])
        assert features[d, 1] == pytest.approx(record["work_ms"][node].sum() / 1e5, rel=1e-5)
        ends = np.cumsum(record["job_nodes"][job])
        parts = np.split(record["work_ms"][node].astype(float) / 1e5, ends[:-1])
        shortest_first = np.cumsum(sorted(part.sum() for part in parts))
        assert features[d, 3] == pytest.approx(shortest_first.sum(), rel=1e-5)
        assert features[d, 2] == pytest.approx(sum(part.sum() ** 0.5 for part in parts), rel=1e-5)
        assert features[d, 4] == pytest.approx(record["tasks"][node].sum() / 200, rel=1e-5)
        assert features[d, 5] == record["job_nodes"][job].sum()
        heights = np.split(record["height"][node], ends[:-1])
        assert features[d, 6] == sum(part.max() for part in heights)
        held = record["job_executors"][job] / 20
        assert features[d, 7:10] == pytest.approx(
            [held.sum(), (held == 0).sum(), np.minimum(held, 1).sum()], rel=1e-5
        )
        assert features[d, 10] == record["free_executors"][d]


def test_a_rollout_that_has_ended_has_nothing_left():
    """Of two, one ends at 10: after that the mean is half of the other's."""
    early, late = np.array([[4.0], [2.0]]), np.array([[6.0], [8.0]])
    found = _against_the_others([early, late], [np.array([0, 10]), np.array([5, 20])])
    # At 0 and 10 the other one is as it was first seen; at 5 the early one is as at 0.
    np.testing.assert_allclose(found[0][:, 0], [4 - (4 + 6) / 2, 2 - (2 + 6) / 2])
    np.testing.assert_allclose(found[1][:, 0], [6 - (4 + 6) / 2, 8 - 8 / 2])


@pytest.mark.parametrize("memory_s", [15.0, 1e12])
def test_with_endless_reach_a_decision_answers_for_all_that_follows(memory_s):
    """The paper's advantage, but for what the state promised at the decision itself."""
    runs, records = rollouts(4)
    worth = advantages(runs, records, memory_s=memory_s, reach_s=1e12)
    states = _against_the_others(
        [state_features(record) for record in records], [record["time"] for record in records]
    )
    promised = []
    for own, record, found in zip(runs, records, worth.advantages, strict=True):
        costs = [cost_to_go(run, record["time"], memory_s) for run in runs]
        mine = cost_to_go(own, record["time"], memory_s)
        promised.append(found - (np.mean(costs, axis=0) - mine))
    x, y = np.concatenate(states), np.concatenate(promised)
    fit = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(x @ fit, y, atol=1e-6 * np.abs(y).max())
    assert 0.0 < worth.explained <= 1.0


def test_surprises_add_up_to_what_was_not_promised():
    """Decisions of one moment share what follows it; moments share nothing without reach."""
    runs, records = rollouts(5, seed=3)
    single = advantages(runs, records, memory_s=1e12, reach_s=1e-12).advantages
    whole = advantages(runs, records, memory_s=1e12, reach_s=1e12).advantages
    for record, one_by_one, together in zip(records, single, whole, strict=True):
        _, first = np.unique(record["time"], return_index=True)
        assert 1 < len(first) < len(record["time"])
        assert float(one_by_one[first].sum()) == pytest.approx(float(together[0]), abs=1e-6)


def test_rollouts_that_are_the_same_gain_nothing():
    runs, records = rollouts(1)
    worth = advantages(runs * 3, records * 3, memory_s=100.0, reach_s=10.0)
    for found in worth.advantages:
        np.testing.assert_allclose(found, 0.0, atol=1e-6)
    assert worth.explained == 0.0
