"""Runs of the bandit at a ladder of loads: one Parquet file a run, one row a window."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gnomon.decide.services import Allocation, ServiceState, SimTarget, Target
from gnomon.decide.services.policy import bounds
from gnomon.decide.services.sinan_model import History, Subject
from gnomon.errors import InputError, MissingExtra
from gnomon.graph.application import Application
from gnomon.parallel import Progress
from gnomon.sim.mesh import poisson_requests
from gnomon.systems.services.rates import Rate, find_rate
from gnomon.systems.services.sinan.bandit import Bandit
from gnomon.table.atomic import atomic_file, make_folder

#: A run ends after an SLA was violated for so long.
GIVE_UP_S = 30.0
#: Loads, as factors on the rate that an application is made for.
LADDER = tuple(round(0.3 + 0.1 * i, 1) for i in range(13))
#: Shapes that runs take in turn: steady ones for the border, others so that rates change.
_SHAPES = ("constant", "noisy", "constant", "bursty")
#: Windows from action to action, in turn.
_EVERY = (1, 3, 1, 5, 2)


class Plan(msgspec.Struct, frozen=True, eq=False):
    """One run: its load and how the bandit acts in it; the name is that of its file."""

    name: str
    rate: Rate
    load: float
    seed: int
    every: int
    starts_at_cap: bool


class RunHead(msgspec.Struct, frozen=True):
    """What a data file says of its run."""

    application: str
    subject: Subject
    load: float
    seed: int
    interval_s: float = 1.0
    source: str = "simulator"


def plan_runs(
    app: Application, *, hours: float, seed: int = 0, run_s: float = 300.0,
    loads: Sequence[float] = LADDER,
) -> list[Plan]:  # fmt: skip
    """Runs that fill the hours: passes over the ladder, each run with its own seed.

    Names hold a digest of the application, so that one that has changed is collected anew.

    Raises:
        InputError: No class has an SLA, or the hours do not fill one run.
    """
    if all(one.sla is None for one in app.classes.values()):
        raise InputError(f"{app.name}: no class has an SLA to look for the border of")
    if not 0 < hours <= 10_000:
        raise InputError(f"{hours:g} hours of data", hint="over 0, at most 10,000")
    if not 30 <= run_s <= 86_400 or not loads:
        raise InputError("data is collected in runs of 30 s to a day")
    digest = hashlib.sha256(msgspec.json.encode(app)).hexdigest()[:8]
    plans = []
    for i in range(max(1, round(hours * 3600 / run_s))):
        load, run_seed = loads[i % len(loads)], seed * 100_000 + i
        lap = i + i // len(loads)  # so that a load does not always meet the same shape
        rate = find_rate(_SHAPES[lap % len(_SHAPES)], app.rate * load, duration_s=run_s,
                         seed=run_seed)  # fmt: skip
        name = f"{i:04d}-{rate.name}-{load:g}-{digest}-seed{seed}"
        plans.append(Plan(name, rate, load, run_seed, _EVERY[lap % len(_EVERY)], lap % 6 == 5))
    return plans


Opener = Callable[[Plan], contextlib.AbstractContextManager[Target]]


def collect(
    app: Application, plans: Sequence[Plan], folder: str | os.PathLike[str], *,
    open_target: Opener | None = None, source: str = "simulator", progress: Progress | None = None,
) -> list[Path]:  # fmt: skip
    """Runs the bandit; a run whose file is there is skipped.

    Args:
        open_target: What a run acts on; the simulator unless given.
        source: What it is, for the files.
    """
    place = make_folder(folder)
    opener = open_target or (lambda plan: _simulated(app, plan))
    files = []
    _check_same(app, place)
    for done, plan in enumerate(plans):
        if progress is not None:
            progress.update(done, len(plans))
        path = place / f"{plan.name}.parquet"
        if not _is_whole(path):
            with opener(plan) as target:
                history = explore(target, plan)
            write_run(path, RunHead(app.name, Subject.of(app), plan.load, plan.seed, 1.0, source),
                      history)  # fmt: skip
        files.append(path)
    if progress is not None:
        progress.update(len(plans), len(plans))
    return files


def _check_same(app: Application, folder: Path) -> None:
    """Refuses a folder with runs of another application; damaged ones do not matter here."""
    from gnomon.systems.services.sinan.dataset import read_run

    for path in sorted(folder.glob("*.parquet")):
        with contextlib.suppress(InputError):
            subject = read_run(path)[0].subject
            if subject != Subject.of(app):
                break
    else:
        return
    raise InputError("holds runs of another application, or of other SLAs", where=str(folder),
                     hint="give another -o")  # fmt: skip


def _is_whole(path: Path) -> bool:
    """Whether a run is there and can be read: one that was cut short is made again."""
    from gnomon.systems.services.sinan.dataset import read_run

    if not path.exists():
        return False
    try:
        read_run(path)
    except InputError:
        return False
    return True


@contextlib.contextmanager
def _simulated(app: Application, plan: Plan) -> Iterator[Target]:
    yield SimTarget(app, poisson_requests(app, plan.rate.per_s, seed=plan.seed), seed=plan.seed)


def explore(target: Target, plan: Plan) -> History:
    """One run: every window that was seen."""
    app, rng = target.app, np.random.default_rng([plan.seed, 0xBA4D17])
    bandit, memory, rows = Bandit(every=plan.every), None, []
    if plan.starts_at_cap:
        most = bounds(app)[1]
        target.apply(Allocation(most, np.full(len(most), -1, np.int64)))
    for _ in range(len(plan.rate.per_s)):
        window = target.observe(1.0)
        rows.append(History.of(app, window))
        answer = bandit.decide(ServiceState(app, window, memory), rng)
        memory = answer.memory
        if memory.violated_s >= GIVE_UP_S:
            break
        target.apply(answer)
    return History.join(rows)


def write_run(path: Path, head: RunHead, history: History) -> None:
    """A Parquet file: a row a window, a list column for each measurement."""
    arrow, parquet = load_pyarrow()
    columns = {}
    for name in History.__struct_fields__:
        values = np.ascontiguousarray(getattr(history, name), float)
        width = int(np.prod(values.shape[1:]))
        columns[name] = arrow.FixedSizeListArray.from_arrays(arrow.array(values.ravel()), width)
    table = arrow.table(columns).replace_schema_metadata({"gnomon": msgspec.json.encode(head)})
    with atomic_file(path) as file:
        parquet.write_table(table, file)


def load_pyarrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet part."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "learn", "data files of Sinan") from None
    return pyarrow, pyarrow.parquet
