"""gnomon tour: every system on bundled data."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from gnomon.report import Result

__all__ = ["tour"]


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
        _say(f"\n=== {title}\n")
        result = run()
        if json:
            print(" ".join(report.to_json(result).split("\n")), flush=True)
        else:
            report.print_result(result)
        results.append(result)
        _say(f"\n    took {time.perf_counter() - began:.1f} s")
    report.write_site(results, out)
    _say(f"\nThe report: {out / 'index.html'}")


def _say(line: str) -> None:
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


_STOPS: list[tuple[str, Callable[[], Result]]] = [
    ("training: replay a real H200 trace; where does the step go, and what if?", _training_replay),
    ("training: four pipeline ranks as one job; who waits for whom?", _training_pipeline),
    ("training: which kind of kernel is worth making faster?", _training_sweep),
]
