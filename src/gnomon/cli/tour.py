"""gnomon tour: every system on bundled data."""

from __future__ import annotations

import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gnomon.errors import MissingExtra

if TYPE_CHECKING:
    from gnomon.report import Result


def tour(
    out: Path = Path("report"), *, json: Annotated[bool, Parameter(negative=())] = False
) -> None:
    """Run every system on bundled data and leave one page per system.

    Args:
        out: The folder of the report; `index.html` is where to begin.
        json: Print the results as JSON, one per line, instead of tables.
    """
    from gnomon import report

    results = []
    for title, command in _STOPS.items():
        began = time.perf_counter()
        _log(f"\n=== {title}\n")
        try:
            result = _answer(command)
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


def _answer(command: str) -> Result:
    """What a command would show."""
    from gnomon.cli.app import app
    from gnomon.cli.output import COLLECTED
    from gnomon.cli.typed import TYPED

    with tempfile.TemporaryDirectory() as scratch:
        words = shlex.split(command.format(scratch=scratch))
        answers: list[Result] = []
        collected, typed = COLLECTED.set(answers), TYPED.set(words)
        try:
            app(words, exit_on_error=False, print_error=False, result_action="return_value")
        finally:
            COLLECTED.reset(collected)
            TYPED.reset(typed)
    return answers[0]


_STOPS = {
    "training: replay a real H200 trace; where does the step go, and what if?":
        "training replay bundled:h200-gpt-l6",
    "training: four pipeline ranks as one job; who waits for whom?":
        "training replay bundled:cpu-gpt-pp4",
    "training: which kind of kernel is worth making faster?":
        "training sweep bundled:h200-gpt-l6 --on serial",
    "training: four times the layers on sixteen GPUs; how long, and does it fit?":
        "training predict bundled:h200-gpt-l6 --set layers=24,tp=2,dp=8",
    "training: how should a 22B model be spread over 64 GPUs?":
        "training search bundled:h200-gpt-l6 --gpus 64 --memory 80 --set layers=48,hidden=6144 "
        "--on serial",
    "aibench: a training step as a benchmark, without the model":
        "aibench build bundled:cpu-gpt-mini -o {scratch}/bench",
    "services: 28 tiers through a day; how little CPU meets the SLA?":
        "services compare bundled:social-network "
        "--managers static,hpa,autoscale-cons,autothrottle --rates diurnal --duration 4m "
        "--zone DE --on serial",
    "batch: 50 queries on 100 executors; when should which stage run?":
        "batch run --grid DE --policy fifo,fair,decima,cap:fifo,pcaps:decima,pcaps+:fair "
        "--trials 3 --on serial",
    "batch: a Spark event log replayed, and under a quota that follows the grid":
        "batch whatif bundled:spark-diamonds --grid CAISO --policy fifo,cap:fifo --hour 10s "
        "--trials 3 --on serial",
    "carbon: 740 servers; what does sorting them by SCI cost?":
        "carbon place --fleet bundled:mit-740 --zone 10 --year 2024 --utilisation 58",
    "carbon: keep the servers, or replace them?":
        "carbon buy --fleet bundled:mit-740 --candidate 'EPYC 9334' --zone SE",
}  # fmt: skip
