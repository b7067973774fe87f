"""gnomon.parallel on a Ray cluster of three node processes, one of which is killed."""

import os
import sys

import numpy as np
import parallel_work as work
import pytest
from tests.waiting import until

from gnomon.parallel import as_completed

pytestmark = [pytest.mark.ray]

_ITEMS = 24


@pytest.fixture
def three_nodes(monkeypatch):
    """A head and two workers, each a raylet of its own with one core."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    victim = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster, victim
    cluster.shutdown()


def test_a_node_that_is_killed_loses_nothing(three_nodes, tmp_path):
    cluster, victim = three_nodes
    items = [(str(tmp_path), number) for number in range(_ITEMS)]
    results, is_killed = {}, False
    with as_completed(work.on_which_node, items, on="ray", workers=6, retries=3) as completed:
        for index, block in completed:
            results[index] = block
            if not is_killed:
                # Every node has work under way, and some of it is never to end there.
                until(lambda: len(work.nodes_seen(tmp_path)) == 3, "work on all three nodes")
                cluster.remove_node(victim, allow_graceful=False)
                (tmp_path / "go").touch()
                is_killed = True
    assert sorted(results) == list(range(_ITEMS))
    assert all(np.array_equal(block, np.full(200_000, n)) for n, block in results.items())
    alive = work.nodes_seen(tmp_path) - {victim.node_id}
    assert len(alive) == 2
