"""Names of collectives: operators of PyTorch, kernels of backends."""

from __future__ import annotations

import pytest

from gnomon.model.accelerator.collective_names import MODEL_KINDS, collective_kind
from gnomon.model.accelerator.collective_time import COLLECTIVE_KINDS


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("c10d::allreduce_", "all_reduce"), ("c10d::allreduce_coalesced_", "all_reduce"),
        ("_c10d_functional::all_reduce", "all_reduce"), ("c10d::_allgather_base_", "all_gather"),
        ("_c10d_functional::all_gather_into_tensor_out", "all_gather"),
        ("c10d::_reduce_scatter_base_", "reduce_scatter"), ("c10d::reduce_", "reduce"),
        ("_reduce_oop", "reduce"), ("_broadcast_oop", "broadcast"), ("c10d::gather_", "gather"),
        ("c10d::scatter_", "scatter"), ("all_to_allv", "all_to_all"),
        ("c10d::recv_any_source_", "recv"), ("_c10d_functional::isend", "send"),
        ("_c10d_functional::batch_p2p_ops", "send"), ("c10d::monitored_barrier_", "barrier"),
        ("ncclDevKernel_AllGather_RING_LL", "all_gather"), ("ncclKernel_SendRecv", "send"),
        ("_c10d_functional::wait_tensor", "wait"), ("c10d::check_for_nan", None), ("init", None),
    ],
)  # fmt: skip
def test_kinds_follow_from_names(name, kind):
    assert collective_kind(name) == kind


def test_what_is_modelled_has_a_name():
    assert set(MODEL_KINDS.values()) == set(COLLECTIVE_KINDS)
