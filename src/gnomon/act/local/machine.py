"""CPU time of the whole machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class MachineTimes(NamedTuple):
    """CPU time of all cores since the machine started: used, and taken by the hypervisor."""

    busy_ns: int
    steal_ns: int


def cpu_times_ns(path: Path = Path("/proc/stat")) -> MachineTimes:
    """What /proc/stat says, in its ticks of 10 ms."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, path.read_text().split("\n", 1)[0].split()[1:9]
    )
    return MachineTimes((user + nice + system + irq + softirq) * _TICK_NS, steal * _TICK_NS)
