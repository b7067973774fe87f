"""Batch as a composition: trials of policies on grids, compared, explained and written up."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

import msgspec

from gnomon.decide.cluster import cluster_policies
from gnomon.errors import InputError
from gnomon.parallel import Progress, pmap
from gnomon.systems.batch.compare import PolicyComparison, compare
from gnomon.systems.batch.explain import HeldRow, explain_holds
from gnomon.systems.batch.grids import GridHours
from gnomon.systems.batch.trial import (
    Experiment,
    Trial,
    TrialOutcome,
    TrialRunner,
    run_trial,
)


class Answer(msgspec.Struct, frozen=True, eq=False):
    """What an experiment found; `held` are stages that policies held in the first trial."""

    experiment: Experiment
    seed: int
    outcomes: list[TrialOutcome]
    by_grid: dict[str, list[PolicyComparison]]
    overall: list[PolicyComparison]
    held: list[HeldRow]


def run_experiment(
    experiment: Experiment, grids: Sequence[GridHours], *, trials: int, seed: int = 0,
    on: str | None = None, resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None, explain: bool = True,
) -> Answer:  # fmt: skip
    """Every policy on every grid, `trials` times; jobs of one number are the same on all."""
    if trials < 1:
        raise InputError(f"{trials} trials", hint="at least one")
    if not grids:
        raise InputError("which grid?", hint="name a zone such as DE")
    items = [Trial(hours, number, seed) for hours in grids for number in range(trials)]
    work: Callable[[Trial], TrialOutcome] = functools.partial(run_trial, experiment)
    where = on or ("serial" if len(items) == 1 else "local")
    outcomes = list(pmap(work, items, on=where, resume=resume, progress=progress))
    by_grid = {
        hours.name: compare(
            [outcome for outcome in outcomes if outcome.grid == hours.name], hours.name, seed=seed
        )
        for hours in grids
    }
    overall = compare(outcomes, "all", seed=seed) if len(grids) > 1 else by_grid[grids[0].name]
    held = _explain(experiment, items[0]) if explain else []
    return Answer(experiment, seed, outcomes, by_grid, overall, held)


def _explain(experiment: Experiment, trial: Trial) -> list[HeldRow]:
    runner = TrialRunner(experiment, trial)
    return [
        row
        for spec in experiment.policies
        if cluster_policies.create(spec).is_carbon_aware
        for row in explain_holds(runner, spec)
    ]
