"""Batch: when should which stage run, given the grid?

PCAPS and CAP (Lechowicz et al., arXiv 2502.09717): schedulers of jobs made of stages that wait for
one another, which defer work to cleaner hours. Every saving is split into less work and cleaner
hours, beside a placebo and a quota that is blind to the grid.

    experiment = Experiment(policies=("fifo", "cap:fifo"), make_jobs=jobs, executors=...)
    answer = run_experiment(experiment, [hours_of_zone("DE")], trials=10)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.lazy import lazy_names

if TYPE_CHECKING:
    from gnomon.systems.batch.grids import GridHours, hours_of_zone
    from gnomon.systems.batch.measure import Power
    from gnomon.systems.batch.pipeline import Answer, run_experiment
    from gnomon.systems.batch.trial import Experiment, parse_policies

__all__ = [
    "Answer", "Experiment", "GridHours", "Power", "hours_of_zone", "parse_policies",
    "run_experiment",
]  # fmt: skip

__getattr__ = lazy_names(
    __name__,
    {
        "pipeline": ["Answer", "run_experiment"],
        "trial": ["Experiment", "parse_policies"],
        "grids": ["GridHours", "hours_of_zone"],
        "measure": ["Power"],
    },
)
