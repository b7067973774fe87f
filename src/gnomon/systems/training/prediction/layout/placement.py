"""Placement: which ranks of a layout share a node.

GPUs are numbered as Megatron does by default: tensor parallelism innermost, then context, then
data, then pipeline. Nodes are filled in that order.
"""

from __future__ import annotations

import numpy as np

from gnomon.errors import InputError
from gnomon.systems.training.prediction.configuration import Configuration


def members_per_node(configuration: Configuration, axis: str, node_gpus: int) -> int:
    """How many members of one group of an axis share a node.

    Args:
        axis: "tp", "cp", "dp", "ep", or "gradients", the ranks that hold the same parameters
            (data and context parallel).

    >>> layout = Configuration(layers=8, hidden=64, heads=8, seq=8, batch=1, tp=4, dp=4)
    >>> members_per_node(layout, "tp", 8), members_per_node(layout, "dp", 8)
    (4, 2)
    """
    c = configuration
    axes = {
        "tp": (1, c.tp),
        "cp": (c.tp, c.cp),
        "dp": (c.tp * c.cp, c.dp),
        "gradients": (c.tp, c.cp * c.dp),
        "ep": (c.tp, c.ep),
    }
    if axis not in axes:
        raise InputError(f"no axis {axis!r}; there are {', '.join(axes)}")
    stride, members = axes[axis]
    return min(members, max(1, node_gpus // stride))


def stages_share_node(configuration: Configuration, stage: int, node_gpus: int) -> bool:
    """Whether each GPU of a pipeline stage has its partner in the next stage on its own node.

    The last stage's next is the first: chunks of an interleaved pipeline go round.
    """
    c = configuration
    stride = c.tp * c.cp * c.dp
    if c.world <= node_gpus or stride >= node_gpus:
        return c.world <= node_gpus
    own = stage * stride + np.arange(stride)
    partner = (stage + 1) % c.pp * stride + np.arange(stride)
    return bool(np.all(own // node_gpus == partner // node_gpus))
