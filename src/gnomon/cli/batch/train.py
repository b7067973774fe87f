"""gnomon batch train-decima: the scheduling network, trained on one's own kind of jobs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gnomon.cli.batch.grid import read_kinds
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.graph.jobs import JobKinds
    from gnomon.systems.batch.decima.train import TrainingProgress


def train_decima(
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    jobs: str = "tpch",
    executors: int = 100,
    iterations: int = 1000,
    rollouts: int = 8,
    arrival: float | None = None,
    start: Path | None = None,
    seed: int = 0,
) -> None:
    """Train Decima on a kind of jobs: `decima?model=FILE` then uses it.

    `gnomon batch train-decima -o mine.npz --jobs /var/spark-events --executors 40`. What was
    interrupted goes on with the same command. At the end it is set beside fair shares and FIFO on
    jobs that are drawn anew.

    Args:
        out: Where the weights go.
        jobs: tpch or alibaba (made up), event logs of Spark, or a file of kinds.
        executors: Of the cluster.
        iterations: Steps; a thousand take some minutes, and more is better.
        rollouts: Of the same jobs in a step.
        arrival: Seconds between two jobs on average, more and less of it being tried too; so that
            half of the executors have work, unless given.
        start: Weights to begin with.
        seed: Of everything.
    """
    from gnomon.datasets.batch_jobs import tpch_like_sets
    from gnomon.model.decima.network import DecimaWeights
    from gnomon.systems.batch.decima.train import Training, usual_arrival_s
    from gnomon.systems.batch.decima.train import train_decima as train

    if seed < 0:
        raise InputError(f"--seed {seed}: zero or more")
    if executors < 1:
        raise InputError(f"--executors {executors}: at least one")
    kinds, remark = read_kinds(jobs, seed)
    sets = [kinds]
    if jobs == "tpch":
        sets = tpch_like_sets(seed)
        remark = f"Jobs: {len(sets)} sets made up, like TPC-H on Spark at 2 to 100 GB."
    mean_s = usual_arrival_s(sets, executors) if arrival is None else arrival
    intro = [f"gnomon: {remark} One comes every {mean_s:g} s on average."]
    # What is decided now matters for some jobs to come: 100 s and 10 s where 25 lie between two.
    training = Training(
        iterations=iterations, rollouts=rollouts, executors=executors, mean_s=mean_s,
        memory_s=4.0 * mean_s, reach_s=0.4 * mean_s, seed=seed,
    )  # fmt: skip
    began = time.monotonic()

    def on_iteration(progress: TrainingProgress) -> None:
        while intro:  # not before it is known that there is something to do
            print(intro.pop(), file=sys.stderr, flush=True)
        if progress.iteration % 10 == 0 or progress.iteration == iterations:
            print(
                f"gnomon: {progress.iteration} of {iterations}, {time.monotonic() - began:.0f} s: "
                f"{progress.jct_s:.1f} s a job, fair {progress.fair_s:.1f}; entropy "
                f"{progress.entropy:.2f}", file=sys.stderr, flush=True,
            )  # fmt: skip

    try:
        train(
            sets,
            out,
            training,
            start=DecimaWeights.load(start) if start else None,
            on_iteration=on_iteration,
        )
    except KeyboardInterrupt:
        print("gnomon: what was learned is kept: the same command goes on", file=sys.stderr)
        raise
    print(f"wrote {out}")
    print(_compared(out, kinds, executors, mean_s, seed))


def _compared(out: Path, kinds: JobKinds, executors: int, arrival: float, seed: int) -> str:
    """Beside the usual orders, on jobs drawn anew; made-up ones are of a set it has not seen."""
    import numpy as np

    from gnomon.datasets.batch_jobs import sample_jobs
    from gnomon.decide.cluster import cluster_policies, simulate
    from gnomon.decide.cluster.policies.decima import Decima

    orders = {name: cluster_policies.create(name) for name in ("fifo", "fair", "weighted-fair")}
    means: dict[str, list[float]] = {}
    for number in range(4):
        rng = np.random.default_rng([seed, 1, number])
        drawn = sample_jobs(kinds, 40, mean_s=arrival, rng=rng)
        for name, order in (orders | {"decima": Decima(str(out))}).items():
            run = simulate(order, drawn, executors, seed=number)
            means.setdefault(name, []).append(run.completion_ns.mean() / 1e9)
    means_text = ", ".join(f"{name} {np.mean(values):.1f}" for name, values in means.items())
    return f"seconds a job, 40 jobs drawn anew, four times: {means_text}"
