"""Decima in PyTorch: the same chances as in native code, and gradients of them."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon import _core
from gnomon.datasets.batch_jobs import sample_jobs, tpch_like
from gnomon.model.decima.network import DecimaWeights
from gnomon.sim.cluster import Executors, run_cluster
from tests.model.decima.torch_network import gradient, likelihood, select_decisions

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def recorded():
    rng = np.random.default_rng(0)
    weights = DecimaWeights.initial(rng).parameters
    jobs = sample_jobs(tpch_like(rng, queries=4, sizes_gb=(2,)), 6, mean_s=10.0, rng=rng)
    order = _core.decima_order(weights, True, True)
    run_cluster(jobs, Executors(count=12), order, seed=1)
    return weights, order.record()


def native_chances(weights, record, decision):
    """Of what was drawn, from the network in native code."""
    one = select_decisions(record, np.array([decision]))
    nodes = len(one["tasks"])
    order = np.argsort(one["edge_parent"], kind="stable")
    child_first = np.searchsorted(one["edge_parent"][order], np.arange(nodes + 1))
    job_first = np.concatenate([[0], np.cumsum(one["job_nodes"])])
    view = _core.DecimaView(
        job_first=job_first.astype(np.int32), job_executors=one["job_executors"],
        source_job=int(one["source_job"][0]), free_executors=float(one["free_executors"][0]),
        work_ms=one["work_ms"], tasks=one["tasks"], child_first=child_first.astype(np.int32),
        child=one["edge_child"][order], height=one["height"], ready=one["ready"],
    )  # fmt: skip
    stage, limit = _core.decima_probabilities(
        weights, view, job=int(one["job"][0]), lowest=int(one["lowest"][0]),
        highest=int(one["highest"][0]),
    )  # fmt: skip
    return stage[one["chosen"][0]] * limit[one["limit"][0] - one["lowest"][0]]


def test_chances_are_those_of_the_native_network(recorded):
    weights, record = recorded
    found = likelihood(torch.tensor(weights), record).log_chance.numpy()
    assert len(found) == len(record["time"]) > 20
    for decision in range(0, len(found), 7):
        own = native_chances(weights, record, decision)
        assert np.exp(found[decision]) == pytest.approx(own, rel=1e-4)


def test_a_part_of_the_decisions_is_like_the_whole(recorded):
    weights, record = recorded
    chosen = np.array([0, 3, 4, 11])
    whole = likelihood(torch.tensor(weights), record)
    part = likelihood(torch.tensor(weights), select_decisions(record, chosen))
    np.testing.assert_allclose(part.log_chance, whole.log_chance[chosen], atol=1e-5)
    np.testing.assert_allclose(part.entropy, whole.entropy[chosen], atol=1e-5)


@pytest.mark.parametrize("entropy_weight", [0.0, 0.3])
def test_gradients_are_those_of_the_native_ones(recorded, entropy_weight):
    weights, record = recorded
    rng = np.random.default_rng(2)
    some = np.sort(rng.permutation(len(record["time"]))[:15])
    advantage = rng.normal(size=len(some)).astype(np.float32)
    own = gradient(weights, record, some, advantage, entropy_weight)
    native = _core.decima_gradient(weights, record, some, advantage, entropy_weight)
    assert np.linalg.norm(own[0] - native[0]) < 1e-3 * np.linalg.norm(native[0])
    assert own[1:] == pytest.approx(native[1:], rel=1e-4)
