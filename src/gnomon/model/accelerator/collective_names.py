"""What PyTorch and communication backends call collectives, sends and receives."""

from __future__ import annotations

import re

#: How the names of PyTorch's own collectives begin.
TORCH_COLLECTIVES = ("c10d::", "_c10d_functional::", "_c10d_functional_autograd::")
#: How annotations of backends that communicate on the host begin.
CPU_BACKENDS = ("gloo:", "mpi:", "ucc:")
#: Parts of names in small letters without underscores, the specific ones first.
_KINDS = (
    ("allreduce", "all_reduce"), ("reducescatter", "reduce_scatter"), ("allgather", "all_gather"),
    ("alltoall", "all_to_all"), ("broadcast", "broadcast"), ("barrier", "barrier"),
    ("wraptensor", "alias"), ("wait", "wait"), ("reduce", "reduce"), ("gather", "gather"),
    ("scatter", "scatter"), ("send", "send"), ("recv", "recv"), ("p2p", "send"),
)  # fmt: skip
#: Kinds of which `collective_time` has a model, and what it calls them.
MODEL_KINDS = {
    "all_reduce": "all-reduce", "reduce_scatter": "reduce-scatter", "all_gather": "all-gather",
    "all_to_all": "all-to-all", "broadcast": "broadcast", "send": "send", "recv": "send",
}  # fmt: skip


def collective_kind(name: str) -> str | None:
    """The kind of a collective by the name of its operator or kernel; None for no collective.

    >>> collective_kind("c10d::_allgather_base_"), collective_kind("all_to_allv")
    ('all_gather', 'all_to_all')
    >>> collective_kind("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    'all_reduce'
    >>> collective_kind("c10d::check_for_nan")
    """
    letters = re.sub("[^a-z0-9]", "", name.lower())
    return next((kind for part, kind in _KINDS if part in letters), None)
