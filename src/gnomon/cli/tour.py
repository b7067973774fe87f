"""gnomon tour: every system on bundled data."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gnomon.errors import MissingExtra

if TYPE_CHECKING:
    from gnomon.report import Result


def tour(
    out: Path = Path("report"), *, json: Annotated[bool, Parameter(negative=())] = False
) -> None:
    """Run every system on bundled data and leave one page a system.

    Args:
        out: The folder of the report; `index.html` is where to begin.
        json: Print the results as JSON, one a line, instead of tables.
    """
    from gnomon import report

    results = []
    for title, run in _STOPS:
        began = time.perf_counter()
        _log(f"\n=== {title}\n")
        try:
            result = run()
        except MissingExtra as error:
            _log(f"    left out: {error}")
            continue
        if json:
            print(" ".join(report.to_json(result).split("\n")), flush=True)
        else:
            report.print_result(result)
        results.append(result)
        _log(f"\n    took {time.perf_counter() - began:.1f} s")
    report.write_site(results, out)
    _log(f"\nThe report: {out / 'index.html'}")


def _log(line: str) -> None:
    """Progress goes to stderr: stdout is for answers."""
    sys.stdout.flush()
    print(line, file=sys.stderr, flush=True)


def _training_replay() -> Result:
    from gnomon.datasets import bundled
    from gnomon.systems.training import replay_trace, to_result

    return to_result(
        replay_trace(bundled("h200-gpt-l6")), "gnomon training replay bundled:h200-gpt-l6"
    )


def _training_pipeline() -> Result:
    from gnomon.datasets import bundled
    from gnomon.systems.training import replay_trace, to_result

    return to_result(
        replay_trace(bundled("cpu-gpt-pp4")), "gnomon training replay bundled:cpu-gpt-pp4"
    )


def _training_sweep() -> Result:
    from gnomon.datasets import bundled
    from gnomon.systems.training.sweep import sweep_trace

    return sweep_trace(bundled("h200-gpt-l6"), command="gnomon training sweep bundled:h200-gpt-l6")


def _training_predict() -> Result:
    from gnomon.datasets import bundled
    from gnomon.systems.training.prediction.predict import predict
    from gnomon.systems.training.prediction.predict_result import to_result
    from gnomon.systems.training.prediction.source import read_recorded

    source, files = read_recorded(bundled("h200-gpt-l6"))
    predicted = predict(source, {"layers": 24, "tp": 2, "dp": 8})
    command = "gnomon training predict bundled:h200-gpt-l6 --set layers=24,tp=2,dp=8"
    return to_result(predicted, command, sources=files)


def _training_search() -> Result:
    from gnomon.datasets import bundled
    from gnomon.systems.training.prediction.search_result import find_layouts, to_result
    from gnomon.systems.training.prediction.source import read_recorded

    source, files = read_recorded(bundled("h200-gpt-l6"))
    found = find_layouts(source, {"layers": 48, "hidden": 6144}, 64, memory_gib=80.0, on="serial")
    command = "gnomon training search bundled:h200-gpt-l6 --gpus 64 --memory 80 --set "
    return to_result(found, command + "layers=48,hidden=6144", sources=files)


def _aibench_build() -> Result:
    import tempfile

    from gnomon.datasets import bundled
    from gnomon.systems.aibench.benchmark import build, to_result

    with tempfile.TemporaryDirectory() as scratch:
        made = build(bundled("cpu-gpt-mini"), Path(scratch) / "bench")
    return to_result(made, "gnomon aibench build bundled:cpu-gpt-mini -o bench")


def _carbon_place() -> Result:
    import numpy as np

    from gnomon.model.machines.machine_file import read_fleet
    from gnomon.systems.carbon.curves_result import curves_of, to_result
    from gnomon.systems.carbon.metric import parse_metrics

    curves = curves_of(
        read_fleet("bundled:mit-740"), 10.0, parse_metrics("sci,tsci,osci"), year=2024,
        amortise="age", utilisation=0.58, rng=np.random.default_rng(0),
    )  # fmt: skip
    command = "gnomon carbon place --fleet bundled:mit-740 --zone 10 --year 2024 --utilisation 58"
    return to_result(curves, command)


def _carbon_buy() -> Result:
    from gnomon.model.machines.machine import find_machine
    from gnomon.model.machines.machine_file import read_fleet
    from gnomon.series.zones import zone_intensity
    from gnomon.systems.carbon.buy import weigh_purchase
    from gnomon.systems.carbon.buy_result import to_result

    purchase = weigh_purchase(
        read_fleet("bundled:mit-740"), find_machine("EPYC 9334"), zone_intensity("SE")
    )
    command = "gnomon carbon buy --fleet bundled:mit-740 --candidate 'EPYC 9334' --zone SE"
    return to_result(purchase, command)


def _batch_run() -> Result:
    from gnomon.cli.batch.grid import find_jobs
    from gnomon.sim.cluster import Executors
    from gnomon.systems.batch import Experiment, hours_of_zone, parse_policies, run_experiment
    from gnomon.systems.batch.run_result import to_result

    policies = "fifo,fair,decima,cap:fifo,pcaps:decima,pcaps+:fair"
    maker, notes = find_jobs("tpch", 50, mean_s=30.0, sizes_gb=None, seed=0)
    experiment = Experiment(
        policies=parse_policies(policies), make_jobs=maker, executors=Executors(count=100)
    )
    answer = run_experiment(experiment, [hours_of_zone("DE")], trials=3, on="serial")
    command = f"gnomon batch run --grid DE --policy {policies} --trials 3"
    return to_result(answer, command, notes=notes)


def _batch_whatif() -> Result:
    from gnomon.datasets import bundled
    from gnomon.ingest.spark.event_log import read_spark_logs
    from gnomon.ingest.spark.jobs import spark_jobs
    from gnomon.sim.cluster import Executors
    from gnomon.systems.batch import Experiment, hours_of_zone, run_experiment
    from gnomon.systems.batch.logs import SameJobs, replay_recorded
    from gnomon.systems.batch.run_result import to_result

    log = bundled("spark-diamonds")
    trace = spark_jobs(read_spark_logs(log))
    experiment = Experiment(
        policies=("fifo", "cap:fifo"), make_jobs=SameJobs(trace.jobs), hour_ns=10 * 10**9,
        executors=Executors(count=trace.executors),
    )  # fmt: skip
    answer = run_experiment(experiment, [hours_of_zone("CAISO")], trials=3, on="serial")
    command = "gnomon batch whatif bundled:spark-diamonds --grid CAISO --policy fifo,cap:fifo"
    return to_result(
        answer, command + " --hour 10s --trials 3", verb="whatif", sources=[str(log)],
        replayed=replay_recorded(trace),
    )  # fmt: skip


_STOPS: list[tuple[str, Callable[[], Result]]] = [
    ("training: replay a real H200 trace; where does the step go, and what if?", _training_replay),
    ("training: four pipeline ranks as one job; who waits for whom?", _training_pipeline),
    ("training: which kind of kernel is worth making faster?", _training_sweep),
    (
        "training: four times the layers on sixteen GPUs; how long, and does it fit?",
        _training_predict,
    ),
    ("training: how should a 22B model be spread over 64 GPUs?", _training_search),
    ("aibench: a training step as a benchmark, without the model", _aibench_build),
    ("batch: 50 queries on 100 executors; when should which stage run?", _batch_run),
    ("batch: a Spark event log replayed, and under a quota that follows the grid", _batch_whatif),
    ("carbon: 740 servers; what does sorting them by SCI cost?", _carbon_place),
    ("carbon: keep the servers, or replace them?", _carbon_buy),
]
