"""Training Decima: policy gradients against rollouts of the same jobs (Mao et al., section 5.3).

Several rollouts of one sequence of jobs differ only in what the network drew. A decision's return
is what its rollout still costs from then on (time that jobs spend in the system), and the baseline
what the others cost from the same time on: what arrives by chance cancels.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs, JobKinds
from gnomon.model.decima import DecimaWeights
from gnomon.model.decima_torch import likelihood, torch_module
from gnomon.sim.cluster import ClusterRun, Executors, run_cluster
from gnomon.table import atomic_file

__all__ = ["Progress", "Training", "train_decima"]

Floats = NDArray[np.float64]
_NS = 10**9


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """How a network is trained.

    Attributes:
        iterations: Steps of the optimiser.
        rollouts: Of the same jobs, in each.
        executors: Of the cluster.
        first_jobs: Jobs of an episode at the begin; they grow to `last_jobs`.
        mean_s: Seconds between arrivals; half of the episodes have all jobs at once.
        learning_rate: Of Adam.
        entropy: Weight of the entropy at the begin; it falls to nothing.
        decisions: Of a rollout that are learned from, drawn by chance.
        seed: Of everything.
    """

    iterations: int = 300
    rollouts: int = 8
    executors: int = 100
    first_jobs: int = 8
    last_jobs: int = 40
    mean_s: float = 25.0
    learning_rate: float = 1e-3
    entropy: float = 0.01
    decisions: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        least = min(self.iterations, self.executors, self.first_jobs, self.decisions)
        if least < 1 or self.rollouts < 2 or self.last_jobs < self.first_jobs:
            raise InputError("training needs iterations, executors, jobs, and two rollouts")
        if not (0 < self.mean_s < 1e9 and 0 < self.learning_rate < 1 and 0 <= self.entropy < 10):
            raise InputError("arrivals, learning rate or entropy are out of range")


class Progress(msgspec.Struct, frozen=True):
    """An iteration that is done.

    Attributes:
        iteration: From 1 on.
        jct_s: Mean time of a job over its rollouts.
        fair_s: The same under fair shares.
        entropy: Of a decision, on average.
    """

    iteration: int
    jct_s: float
    fair_s: float
    entropy: float


def train_decima(
    kinds: JobKinds, out: str | os.PathLike[str], training: Training | None = None, *,
    start: DecimaWeights | None = None, tell: Callable[[Progress], None] | None = None,
) -> DecimaWeights:  # fmt: skip
    """Trains a network and writes it; a run that was stopped goes on where it was.

    Args:
        kinds: Jobs that it learns on.
        out: Where the weights go. Beside them, while it trains, lies a file to go on from.
        training: How.
        start: Weights to begin with; untrained ones unless given.
        tell: Told of every iteration.
    """
    how = training or Training()
    torch = torch_module()
    kept = Path(f"{os.fspath(out)}.training")
    begin = start or DecimaWeights.initial(np.random.default_rng(how.seed))
    parameters = torch.tensor(begin.parameters.copy(), requires_grad=True)
    optimiser = torch.optim.Adam([parameters], lr=how.learning_rate)
    done = _load(kept, how, parameters, optimiser)
    for iteration in range(done, how.iterations):
        progress = _iterate(torch, kinds, how, parameters, optimiser, iteration)
        _keep(kept, how, iteration + 1, parameters, optimiser)
        if tell is not None:
            tell(progress)
    weights = DecimaWeights(
        parameters.detach().numpy().astype(np.float32).copy(),
        f"REINFORCE, {how.iterations} iterations of {how.rollouts} rollouts, seed {how.seed}",
    )
    weights.save(out)
    kept.unlink(missing_ok=True)
    return weights


def _iterate(
    torch: Any, kinds: JobKinds, how: Training, parameters: Any, optimiser: Any, iteration: int
) -> Progress:
    rng = np.random.default_rng([how.seed, iteration])
    share = iteration / max(how.iterations - 1, 1)
    jobs = _episode(
        kinds, how, round(how.first_jobs + share * (how.last_jobs - how.first_jobs)), rng
    )
    many, seed = Executors(count=how.executors), int(rng.integers(2**62))
    flat = parameters.detach().numpy()
    orders = [_core.decima_order(flat, True, True) for _ in range(how.rollouts)]
    runs = [
        run_cluster(jobs, many, order, seed=seed, policy_seed=seed + number)
        for number, order in enumerate(orders)
    ]
    records = [order.record() for order in orders]
    advantages = _advantages(runs, [record["time"] for record in records])
    scale = float(np.sqrt(np.mean(np.concatenate(advantages) ** 2))) + 1e-9
    optimiser.zero_grad()
    entropies = []
    for record, advantage in zip(records, advantages):
        chosen = rng.permutation(len(advantage))[: how.decisions]
        part = select_decisions(record, np.sort(chosen))
        found = likelihood(parameters, part)
        gain = torch.tensor(advantage[np.sort(chosen)] / scale, dtype=torch.float32)
        weight = how.entropy * (1.0 - share)
        loss = -(gain * found.log_chance + weight * found.entropy).mean() / how.rollouts
        loss.backward()
        entropies.append(float(found.entropy.detach().mean()))
    torch.nn.utils.clip_grad_norm_([parameters], 1.0)
    optimiser.step()
    fair = run_cluster(jobs, many, _core.fair_order(0.0), seed=seed)
    return Progress(
        iteration + 1,
        float(np.mean([run.completion_ns.mean() for run in runs])) / 1e9,
        float(fair.completion_ns.mean()) / 1e9,
        float(np.mean(entropies)),
    )


def _episode(kinds: JobKinds, how: Training, count: int, rng: np.random.Generator) -> BatchJobs:
    apart = rng.exponential(how.mean_s, count) * _NS if rng.random() < 0.5 else np.zeros(count)
    arrival = np.cumsum(apart).astype(np.int64)
    return BatchJobs.of(kinds, rng.integers(len(kinds), size=count), arrival - arrival[0])


def _advantages(runs: list[ClusterRun], times: list[NDArray[np.int64]]) -> list[Floats]:
    """Of each decision: what other rollouts still cost at its time, less what its own does."""
    advantages = []
    for own, when in zip(runs, times):
        costs = np.stack([_cost_to_go(run, when) for run in runs])
        advantages.append(costs.mean(axis=0) - _cost_to_go(own, when))
    return advantages


def _cost_to_go(run: ClusterRun, when_ns: NDArray[np.int64]) -> Floats:
    """Seconds that jobs spend in the system from each time on."""
    # Jobs that end after a time, from the later of that time and their arrival.
    finish, arrival = np.sort(run.finish_ns), np.sort(run.arrival_ns)
    ends, comes = (np.append(0.0, np.cumsum(c[::-1])) for c in (finish, arrival))
    later_ends = len(finish) - np.searchsorted(finish, when_ns, side="right")
    later_comes = len(arrival) - np.searchsorted(arrival, when_ns, side="right")
    there = later_ends - later_comes
    return np.asarray((ends[later_ends] - comes[later_comes] - there * when_ns) / 1e9)


def select_decisions(
    record: dict[str, NDArray[Any]], chosen: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Only some decisions of a record."""
    part: dict[str, NDArray[Any]] = {}
    columns = {
        "first_job": ("job_nodes", "job_executors"),
        "first_node": ("work_ms", "tasks", "height"),
        "first_edge": ("edge_parent", "edge_child"),
        "first_ready": ("ready",),
    }
    for offset, names in columns.items():
        first = record[offset]
        many = np.diff(first)[chosen]
        begin = np.concatenate([[0], np.cumsum(many)])
        rows = np.arange(begin[-1]) - np.repeat(begin[:-1] - first[chosen], many)
        part[offset] = begin
        part |= {name: record[name][rows] for name in names}
    single = (
        "source_job",
        "free_executors",
        "chosen",
        "job",
        "limit",
        "lowest",
        "highest",
        "time",
    )
    return part | {name: record[name][chosen] for name in single}


def _keep(path: Path, how: Training, done: int, parameters: Any, optimiser: Any) -> None:
    moments = optimiser.state[parameters]
    with atomic_file(path) as file:
        np.savez(
            file, training=np.frombuffer(msgspec.json.encode(how), dtype=np.uint8), done=done,
            parameters=parameters.detach().numpy(), first=moments["exp_avg"].numpy(),
            second=moments["exp_avg_sq"].numpy(),
        )  # fmt: skip


def _load(path: Path, how: Training, parameters: Any, optimiser: Any) -> int:
    """Takes up what was kept; the number of iterations that are done."""
    if not path.exists():
        return 0
    torch = torch_module()
    try:
        with np.load(path, allow_pickle=False) as file:
            kept = {name: np.array(file[name]) for name in file.files}
        before = kept["training"].tobytes()
        done = int(kept["done"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot be gone on from ({error})", where=str(path)) from None
    if before != msgspec.json.encode(how):
        raise InputError(
            "is of a training with other settings", where=str(path),
            hint="remove it, or train as before",
        )  # fmt: skip
    with torch.no_grad():
        parameters.copy_(torch.tensor(kept["parameters"]))
    optimiser.state[parameters] = {
        "step": torch.tensor(float(done)),
        "exp_avg": torch.tensor(kept["first"]),
        "exp_avg_sq": torch.tensor(kept["second"]),
    }
    return done
