"""Simulators: typed fronts of the native ones.

`replay` plays a work graph; `queueing` plays jobs through servers. All draw randomness from named
streams of one seed, so the same seed gives the same bytes.
"""

from __future__ import annotations

from gnomon.sim.replay import Limit, SlowDown, makespan_with, replay
from gnomon.sim.sample import sample_ends, sample_makespans

__all__ = ["Limit", "SlowDown", "makespan_with", "replay", "sample_ends", "sample_makespans"]
