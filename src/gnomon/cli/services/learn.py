"""gnomon services collect, train and tune: the models of the manager `sinan`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gnomon.cli.output import Output, check_output, show
from gnomon.cli.services.options import Flag, load_application
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.decide.services import Target
    from gnomon.systems.services.sinan.collect import Plan

Out = Annotated[Path, Parameter(name=["--out", "-o"])]


def collect(
    application: str,
    *,
    out: Out,
    hours: float = 8.0,
    lab: Flag = False,
    seed: int = 0,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Collect data near the border of the SLA, for `train`.

    `gnomon services collect bundled:social-network -o data`. In the simulator eight hours take
    some two minutes; with --lab they take eight hours. Runs whose file is there are skipped, so an
    interrupted command goes on where it stopped.

    Args:
        application: app.yaml, or bundled:NAME.
        out: The folder of data files, one a run.
        hours: Of time in the application.
        lab: Run real processes.
        seed: Of arrivals, work and what is tried.
        output: Where the answer goes.
    """
    from gnomon.parallel import RichProgress
    from gnomon.systems.services.sinan.collect import collect as run
    from gnomon.systems.services.sinan.collect import plan_runs
    from gnomon.systems.services.sinan.dataset import read_dataset
    from gnomon.systems.services.sinan.result import collected_to_result
    from gnomon.systems.services.trial import check_seed

    app = load_application(application, "services collect")
    check_output(output)
    check_seed(seed)

    @contextmanager
    def in_lab(plan: Plan) -> Iterator[Target]:
        from gnomon.sim.mesh import poisson_requests
        from gnomon.systems.services.lab import LabRun

        arrivals = poisson_requests(app, plan.rate.per_s, seed=plan.seed)
        with LabRun(app, arrivals, seed=plan.seed) as running:
            yield running.target

    progress = RichProgress("runs")
    try:
        files = run(
            app, plan_runs(app, hours=hours, seed=seed), out, progress=progress,
            open_target=in_lab if lab else None, source="lab" if lab else "simulator",
        )  # fmt: skip
    finally:
        progress.close()
    print(f"wrote {out}", file=sys.stderr)
    result = collected_to_result(read_dataset(files), files, command=typed_command(), seed=seed)
    show(result, output)


def train(
    data: Path,
    *,
    out: Out,
    epochs: int = 6,
    compare: Flag = False,
    seed: int = 0,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Train a network and trees on collected data: a model for the manager `sinan`.

    `gnomon services train data -o model`, then
    `gnomon services simulate bundled:social-network --manager 'sinan?model=model'`.

    Args:
        data: The folder that `collect` wrote.
        out: The model folder.
        epochs: Passes over the data.
        compare: Also train the split at random, a perceptron and an LSTM, for their figures.
        seed: Of weights, order and split.
        output: Where the answer goes.
    """
    from gnomon.model.latency_net import FitOptions
    from gnomon.systems.services.sinan.dataset import read_dataset
    from gnomon.systems.services.sinan.result import model_to_result
    from gnomon.systems.services.sinan.train import TrainOptions
    from gnomon.systems.services.sinan.train import train as fit
    from gnomon.systems.services.trial import check_seed

    check_output(output)
    check_seed(seed)
    if not 1 <= epochs <= 10_000:
        raise InputError(f"--epochs {epochs}", hint="1 to 10,000")
    options = TrainOptions(net=FitOptions(epochs=epochs), compares=compare, seed=seed)
    model = fit(read_dataset(data), options=options, report=_say if sys.stderr.isatty() else None)
    model.save(out)
    _say(f"wrote {out}")
    show(
        model_to_result(model.card, out, verb="train", command=typed_command(), seed=seed), output
    )


def tune(
    model: Path,
    data: Path,
    *,
    out: Out,
    samples: int | None = None,
    seed: int = 0,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Adapt a model to new data of the same services: another machine, mix or version.

    `gnomon services tune model new-data -o model2`.

    Args:
        model: The model folder to start from.
        data: The folder that `collect` wrote.
        out: The new model folder.
        samples: Use only so many of the new ones.
        seed: Of the order of samples.
        output: Where the answer goes.
    """
    from gnomon.decide.services.sinan_model import load_model
    from gnomon.systems.services.sinan.dataset import read_dataset
    from gnomon.systems.services.sinan.result import model_to_result
    from gnomon.systems.services.sinan.train import fine_tune
    from gnomon.systems.services.trial import check_seed

    check_output(output)
    check_seed(seed)
    tuned = fine_tune(load_model(model), read_dataset(data), samples, seed=seed)
    tuned.save(out)
    _say(f"wrote {out}")
    show(model_to_result(tuned.card, out, verb="tune", command=typed_command(), seed=seed), output)


def _say(line: str) -> None:
    print(line, file=sys.stderr)
