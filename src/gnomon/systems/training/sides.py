"""Sides: what of a step is compute, and what is communication."""

from __future__ import annotations

from gnomon.graph import Breakdown, Timeline
from gnomon.sim.trace.graph import HOST_KINDS
from gnomon.systems.training.operations import COLLECTIVES, FENCE, GAP, RENDEZVOUS, TRANSFERS
from gnomon.systems.training.whatif import on_gpu

IDLE_KINDS = ("gap", "sync", "blocked", "latency", FENCE, GAP, RENDEZVOUS)
TALK_KINDS = ("communication", *TRANSFERS, *COLLECTIVES)


def compute_and_communication(window: Timeline) -> Breakdown:
    """Compute against communication. Where there is no GPU, compute is what the host does."""
    kinds = set(window.graph.kinds)
    talk = [kind for kind in TALK_KINDS if kind in kinds]
    idle = {*IDLE_KINDS, *talk}
    if on_gpu(window.graph):
        idle |= set(HOST_KINDS)
    compute = sorted(kinds - idle)
    classes = {"compute": compute, "communication": talk}
    return window.breakdown({name: kinds for name, kinds in classes.items() if kinds})
