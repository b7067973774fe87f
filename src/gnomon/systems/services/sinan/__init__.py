"""Sinan: learn where the SLA breaks, then stay on the cheap side of it (ASPLOS 2021).

    prepared = prepare(app, "model", seed=1)
    outcome = simulate(Setup(app), f"sinan?model={prepared.folder}", rate)

A bandit for each tier collects data near the border, a network and boosted trees learn it, and the
manager `sinan` asks them about some 230 allocations a second. `explain.explain` says what a
prediction hangs on, `train.fine_tune` adapts a model to a changed deployment.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gnomon.lazy import lazy_names

if TYPE_CHECKING:
    from gnomon.decide.services.sinan_model import Metrics
    from gnomon.graph.application import Application
    from gnomon.parallel import Progress
    from gnomon.systems.services.sinan.dataset import Dataset, read_dataset
    from gnomon.systems.services.sinan.train import fine_tune, learning_curve

__all__ = ["Dataset", "Prepared", "fine_tune", "learning_curve", "prepare", "read_dataset"]

__getattr__ = lazy_names(
    __name__, {"dataset": ["Dataset", "read_dataset"], "train": ["fine_tune", "learning_curve"]}
)


class Prepared(msgspec.Struct, frozen=True):
    """A model that is ready to manage.

    Attributes:
        folder: What `sinan?model=` takes.
        hours: Of simulated time.
        collect_s: CPU time; so `train_s`.
        metrics: On runs that were held back.
    """

    folder: Path
    samples: int
    hours: float
    collect_s: float
    train_s: float
    metrics: Metrics


def prepare(
    app: Application, folder: str | os.PathLike[str], *, seed: int = 0, hours: float = 8.0,
    epochs: int = 6, progress: Progress | None = None,
) -> Prepared:  # fmt: skip
    """Collects in the simulator and trains: a model folder for an application.

    Some five minutes on one core for 28 tiers. Data is kept in `data` within the folder, and a
    second call goes on from there.
    """
    from gnomon.model.latency_net import FitOptions
    from gnomon.systems.services.sinan.collect import collect, plan_runs
    from gnomon.systems.services.sinan.dataset import read_dataset
    from gnomon.systems.services.sinan.train import TrainOptions, train

    plans = plan_runs(app, hours=hours, seed=seed)
    began_s = time.process_time()
    files = collect(app, plans, Path(folder) / "data", progress=progress)
    collected_s = time.process_time()
    data = read_dataset(files)
    model = train(data, options=TrainOptions(net=FitOptions(epochs=epochs), seed=seed))
    place = model.save(folder)
    return Prepared(
        place, len(data), len(data) / 3600, collected_s - began_s,
        time.process_time() - collected_s, model.card.metrics["run"],
    )  # fmt: skip
