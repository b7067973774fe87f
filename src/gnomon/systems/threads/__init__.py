"""Threads: which policy and quantum keep the short requests short? (LibPreemptible, HPCA 2024)

cells = sweep(Setting(find_workload("A2")), ["fcfs", "two-queue"], [0.7], [10.0])
advise(cells)[0].gain
"""

from __future__ import annotations

from gnomon.systems.threads.study import SOURCES, Advice, Cell, Setting, advise, sweep
from gnomon.systems.threads.workload import RequestKind, Workload, find_workload

__all__ = [
    "SOURCES", "Advice", "Cell", "RequestKind", "Setting", "Workload", "advise", "find_workload",
    "sweep",
]  # fmt: skip
