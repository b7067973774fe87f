from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.model.accelerator.collective_time import COLLECTIVE_KINDS, CollectiveTimes
from gnomon.model.accelerator.gpu import Network, find_gpu, gpu_names, network_names

KINDS = st.sampled_from(COLLECTIVE_KINDS)
GPUS = st.sampled_from(gpu_names())
NETWORKS = st.sampled_from(network_names())
GROUPS = st.tuples(st.integers(1, 1024), st.integers(1, 16))


@given(KINDS, GPUS, NETWORKS, GROUPS, st.integers(0, 10**10), st.integers(0, 10**9))
def test_more_bytes_never_take_less(
    kind: str, gpu: str, network: str, group: tuple[int, int], size: int, more: int
) -> None:
    times = CollectiveTimes.of(gpu, network)
    ranks, per_node = group
    small = times.time_us(kind, size, ranks, per_node=per_node)
    large = times.time_us(kind, size + more, ranks, per_node=per_node)
    assert 0.0 <= small <= large * (1 + 1e-12)
    assert np.isfinite(large)


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
def test_alone_there_is_nothing_to_do(kind: str) -> None:
    assert CollectiveTimes.of("H100").time_us(kind, 1e9, 1) == 0.0


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
@pytest.mark.parametrize("gpu", ["A100", "H100", "B200"])
def test_leaving_the_node_costs(kind: str, gpu: str) -> None:
    times = CollectiveTimes.of(gpu, "ib-hdr")
    inside = times.time_us(kind, 1e8, 8)
    across = times.time_us(kind, 1e8, 8, per_node=1)
    assert across > 2.0 * inside
    assert times.spread(kind, crosses_nodes=True) > times.spread(kind)


def test_a_whole_node_shares_what_leaves_it() -> None:
    """Eight GPUs of a node send an eighth each over their own adapters."""
    times = CollectiveTimes.of("H100", "ib-ndr")
    packed = times.time_us("all-reduce", 1e9, 16, per_node=8)
    scattered = times.time_us("all-reduce", 1e9, 16, per_node=1)
    assert packed < 0.4 * scattered


def test_members_fill_nodes_where_nothing_is_said() -> None:
    times = CollectiveTimes.of("A100", "ib-hdr")
    given_ = times.time_us("all-gather", 1e8, 32, per_node=8)
    assert times.time_us("all-gather", 1e8, 32) == given_
    assert times.time_us("all-gather", 1e8, 32, node_gpus=4) > given_


def test_an_all_reduce_moves_about_twice_what_its_halves_do() -> None:
    times = CollectiveTimes.of("A100")
    whole = times.time_us("all-reduce", 1e9, 8)
    halves = times.time_us("reduce-scatter", 1e9, 8) + times.time_us("all-gather", 1e9, 8)
    assert whole == pytest.approx(halves, rel=0.15)


def test_arrays_are_broadcast() -> None:
    times = CollectiveTimes.of("H200")
    table = times.time_us("all-reduce", np.array([1e6, 1e9]), np.array([[2], [4], [8]]))
    assert table.shape == (3, 2)
    assert table[2, 1] == times.time_us("all-reduce", 1e9, 8)


def test_large_messages_reach_what_was_measured() -> None:
    """Half a gigabyte among eight, from public NCCL tables, in milliseconds."""
    size = 268435456 * 2
    for gpu, ms in (("A100", 4.226), ("H100", 2.111), ("H200", 2.040), ("B200", 1.335)):
        assert CollectiveTimes.of(gpu).time_us("all-reduce", size, 8) == pytest.approx(
            ms * 1e3, rel=0.12
        )


def test_a_network_of_ones_own_will_do() -> None:
    wire = Network(name="string", gb_s=0.001, latency_us=1e4, source="two tins")
    times = CollectiveTimes.of(find_gpu("T4"), wire)
    assert times.time_us("send", 1e6, 2, per_node=1) > 1e6


def test_cpu_ranks_need_no_gpu() -> None:
    times = CollectiveTimes.of(None, "gloo")
    assert CollectiveTimes.of() == times
    # Gradients of a 2,048 x 512 matrix between two ranks: 2 ms, as recorded.
    assert times.time_us("all-reduce", 4 * 2048 * 512, 2) == pytest.approx(2040.0, rel=0.2)


def test_measured_collectives_move_starts_and_rates_apart() -> None:
    shipped = CollectiveTimes.of("A100")
    sizes = [1e3, 1e5, 1e7, 1e9]
    slower = []
    for size in sizes:
        latency, transfer = shipped.inside["all-reduce"].parts_us(
            "all-reduce", np.asarray(size), np.asarray(4.0)
        )
        slower.append(("all-reduce", size, 4, float(3.0 * latency + 1.5 * transfer)))
    ours = shipped.calibrated(slower)
    for kind, size, ranks, us in slower:
        assert ours.time_us(kind, size, ranks) == pytest.approx(us, rel=0.02)
    # A kind that was not measured moves along; the network does not.
    assert ours.time_us("all-gather", 1e9, 4) == pytest.approx(
        1.5 * shipped.time_us("all-gather", 1e9, 4), rel=0.05
    )
    assert ours.between == shipped.between


def test_one_sample_moves_what_it_shows() -> None:
    shipped = CollectiveTimes.of("H100", "ib-ndr")
    large = shipped.time_us("all-reduce", 1e9, 4, per_node=1)
    ours = shipped.calibrated([("all-reduce", 1e9, 4, 2.0 * float(large))], crosses_nodes=True)
    assert ours.time_us("all-reduce", 1e9, 4, per_node=1) == pytest.approx(2.0 * large, rel=0.1)
    assert ours.inside == shipped.inside
    assert shipped.calibrated([]) == shipped


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match=r"no collective is called 'gossip'.*all-reduce"):
        CollectiveTimes.of("A100").time_us("gossip", 1.0, 2)
    with pytest.raises(InputError, match="no GPU"):
        CollectiveTimes.of("abacus")


def test_every_class_of_links_is_known() -> None:
    for gpu in gpu_names():
        times = CollectiveTimes.of(gpu)
        for kind in COLLECTIVE_KINDS:
            assert times.time_us(kind, 1e6, 2) > 0.0
            assert 0.0 < times.spread(kind) < 1.0
