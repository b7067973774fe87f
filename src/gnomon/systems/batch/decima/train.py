"""Training Decima by policy gradients on rollouts of the same jobs (Mao et al., section 5.3).

Rollouts of one sequence of jobs differ only in what the network drew. `advantage` tells what each
draw was worth; the network is moved towards those that were worth something. The gradient is
PyTorch's or the native one, which are the same: the latter needs nothing to be installed, and a
thousand iterations then take some ten minutes on one core.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs, JobKinds
from gnomon.model.decima.network import PARAMETERS, DecimaWeights
from gnomon.sim.cluster import Executors, run_cluster
from gnomon.systems.batch.decima.advantage import advantages
from gnomon.table import atomic_file

Floats = NDArray[np.float64]

#: Of the executors, with `usual_arrival_s` between two jobs: what 25 s are on 100 for jobs like
#: TPC-H's.
_BUSY = 0.54
#: Episodes whose jobs all come at once.
_AT_ONCE = 0.3
#: Times between arrivals, as shares of `mean_s`: from a crowded cluster to a nearly idle one.
_APART = (0.2, 1.4)
#: Of the learning rate, at the end.
_LAST_RATE = 0.1
_MOST_GRADIENT = 1.0


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """How a network is trained.

    Attributes:
        rollouts: Of the same jobs, in each.
        first_jobs: Jobs of an episode at the begin; they grow to `last_jobs`.
        mean_s: Seconds between arrivals on average. Episodes have a fifth of it up to 1.4 times
            as much; in some all jobs come at once.
        learning_rate: Of Adam, at the begin; it falls to a tenth.
        entropy: Weight of the entropy at the begin; it falls to nothing.
        decisions: Of a rollout that are learned from, drawn by chance.
        memory_s: Costs count e times less for every so many seconds that they come later; some
            arrivals should fit in.
        reach_s: So does what happened after a decision, beside what the state then promises.
    """

    iterations: int = 1000
    rollouts: int = 8
    executors: int = 100
    first_jobs: int = 10
    last_jobs: int = 50
    mean_s: float = 25.0
    learning_rate: float = 3e-3
    entropy: float = 0.01
    decisions: int = 600
    memory_s: float = 100.0
    reach_s: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"iterations": 1, "rollouts": 2, "executors": 1, "first_jobs": 1,
                 "last_jobs": self.first_jobs, "decisions": 1, "seed": 0}  # fmt: skip
        for name, value in least.items():
            if getattr(self, name) < value:
                raise InputError(f"{name}={getattr(self, name)}: at least {value}")
        if not (0 < self.mean_s < 1e9 and 0 < self.learning_rate < 1 and 0 <= self.entropy < 10):
            raise InputError("arrivals, learning rate or entropy are out of range")
        if not (0 < self.memory_s < 1e9 and 0 < self.reach_s < 1e9):
            raise InputError("memory and reach are seconds, more than none")


class TrainingProgress(msgspec.Struct, frozen=True):
    """An iteration that is done.

    Attributes:
        jct_s: Mean time of a job over its rollouts.
        fair_s: The same under fair shares.
        entropy: Of a decision, as a share of that of even chances.
        explained: Share of the difference between rollouts that their states explain.
    """

    iteration: int
    jct_s: float
    fair_s: float
    entropy: float
    explained: float


class _Learner(msgspec.Struct, frozen=True, eq=False):
    """The network on its way, and Adam's moments of its gradient."""

    done: int
    parameters: Floats
    first: Floats
    second: Floats

    @classmethod
    def begin(cls, weights: DecimaWeights) -> _Learner:
        parameters = weights.parameters.astype(np.float64)
        return cls(0, parameters, np.zeros(PARAMETERS), np.zeros(PARAMETERS))

    def stepped(self, gradient: Floats, rate: float) -> _Learner:
        gradient = gradient * min(1.0, _MOST_GRADIENT / (float(np.linalg.norm(gradient)) + 1e-12))
        done = self.done + 1
        first = 0.9 * self.first + 0.1 * gradient
        second = 0.999 * self.second + 0.001 * gradient**2
        scale = np.sqrt(second / (1.0 - 0.999**done)) + 1e-8
        step = rate * first / (1.0 - 0.9**done) / scale
        return _Learner(done, self.parameters - step, first, second)


def usual_arrival_s(sets: Sequence[JobKinds], executors: int) -> float:
    """Seconds between two jobs that keep half of the executors at work, to two digits."""
    work = [np.add.reduceat(k.tasks * k.typical_ns, k.first_stage[:-1]).mean() for k in sets]
    return float(f"{float(np.mean(work)) / 1e9 / executors / _BUSY:.2g}")


def train_decima(
    kinds: JobKinds | Sequence[JobKinds], out: str | os.PathLike[str],
    training: Training | None = None, *,
    start: DecimaWeights | None = None,
    on_iteration: Callable[[TrainingProgress], None] | None = None,
) -> DecimaWeights:  # fmt: skip
    """Trains a network and writes it; a run that was stopped goes on where it was.

    Args:
        kinds: Jobs that it learns on; of several sets, an episode takes one.
        out: Where the weights go. Beside them, while it trains, lies a file to go on from.
    """
    how = training or Training()
    sets = [kinds] if isinstance(kinds, JobKinds) else list(kinds)
    if not sets:
        raise InputError("there are no jobs to learn on")
    kept = Path(f"{os.fspath(out)}.training")
    if Path(out).exists() and not kept.exists():
        raise InputError("exists already", where=os.fspath(out), hint="name another file")
    begin = start or DecimaWeights.initial(np.random.default_rng(how.seed))
    settings = _settings(sets, how, begin)
    learner = _load(kept, settings) if kept.exists() else _Learner.begin(begin)
    while learner.done < how.iterations:
        learner, progress = _iterate(learner, sets, how)
        _keep(kept, settings, learner)
        if on_iteration is not None:
            on_iteration(progress)
    about = f"policy gradients, {how.iterations} iterations of {how.rollouts} rollouts"
    weights = DecimaWeights(learner.parameters.astype(np.float32), f"{about}, seed {how.seed}")
    weights.save(out)
    kept.unlink(missing_ok=True)
    return weights


def _iterate(
    learner: _Learner, sets: list[JobKinds], how: Training
) -> tuple[_Learner, TrainingProgress]:
    rng = np.random.default_rng([how.seed, learner.done])
    share = learner.done / max(how.iterations - 1, 1)
    count = round(how.first_jobs + share * (how.last_jobs - how.first_jobs))
    jobs = _episode(sets[rng.integers(len(sets))], how, count, rng)
    executors, seed = Executors(count=how.executors), int(rng.integers(2**62))
    parameters = learner.parameters.astype(np.float32)
    orders = [_core.decima_order(parameters, True, True) for _ in range(how.rollouts)]
    runs = [
        run_cluster(jobs, executors, order, seed=seed, policy_seed=seed + number)
        for number, order in enumerate(orders)
    ]
    records = [order.record() for order in orders]
    worth = advantages(runs, records, memory_s=how.memory_s, reach_s=how.reach_s)
    scale = float(np.sqrt(np.mean(np.concatenate(worth.advantages) ** 2))) + 1e-9
    part = min(1.0, how.decisions * how.rollouts / sum(map(len, worth.advantages)))
    gradient, entropy, used = np.zeros(PARAMETERS), 0.0, 0
    for record, gained in zip(records, worth.advantages):
        some = np.sort(rng.permutation(len(gained))[: max(1, int(part * len(gained)))])
        found, _, of_chances = _core.decima_gradient(
            parameters, record, some, (gained[some] / scale).astype(np.float32),
            how.entropy * (1.0 - share),
        )  # fmt: skip
        gradient, entropy, used = gradient + found, entropy + of_chances, used + len(some)
    rate = how.learning_rate * (1.0 - (1.0 - _LAST_RATE) * share)
    fair = run_cluster(jobs, executors, _core.fair_order(0.0), seed=seed)
    return learner.stepped(gradient / used, rate), TrainingProgress(
        iteration=learner.done + 1,
        jct_s=float(np.mean([run.completion_ns.mean() for run in runs])) / 1e9,
        fair_s=float(fair.completion_ns.mean()) / 1e9,
        entropy=entropy / (2 * used),
        explained=worth.explained,
    )


def _episode(kinds: JobKinds, how: Training, count: int, rng: np.random.Generator) -> BatchJobs:
    apart_s = 0.0 if rng.random() < _AT_ONCE else how.mean_s * rng.uniform(*_APART)
    arrival = np.cumsum(rng.exponential(apart_s, count) * 1e9).astype(np.int64)
    return BatchJobs.of(kinds, rng.integers(len(kinds), size=count), arrival - arrival[0])


def _settings(sets: list[JobKinds], how: Training, begin: DecimaWeights) -> bytes:
    """What a training has to have in common with one that it goes on with."""
    digest = hashlib.sha256(begin.parameters.tobytes())
    for kinds in sets:
        for column in (kinds.first_stage, kinds.tasks, kinds.parents, kinds.sample_ns):
            digest.update(np.ascontiguousarray(column).tobytes())
    return msgspec.json.encode(how) + digest.digest()


def _keep(path: Path, settings: bytes, learner: _Learner) -> None:
    with atomic_file(path) as file:
        np.savez(
            file, settings=np.frombuffer(settings, dtype=np.uint8),
            done=learner.done, parameters=learner.parameters, first=learner.first,
            second=learner.second,
        )  # fmt: skip


def _load(path: Path, settings: bytes) -> _Learner:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            before = file["settings"].tobytes()
            arrays = (file["parameters"], file["first"], file["second"])
            learner = _Learner(int(file["done"]), *(a.astype(np.float64) for a in arrays))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"is no training to go on with ({type(error).__name__})", where=str(path),
            hint="remove it",
        ) from None  # fmt: skip
    if before != settings:
        raise InputError(
            "is of a training with other settings or jobs", where=str(path),
            hint="remove it, or train as before",
        )  # fmt: skip
    return learner
