"""The answer of `import`: what was found, and whether playing it back gives the recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnomon.graph.application import Application, as_work
from gnomon.report import Figure, Manifest, Result
from gnomon.systems.services.imported import PlayedBack
from gnomon.systems.services.measure import missing_parts
from gnomon.table import Table

_SHOWN = 30


def to_result(
    app: Application, played: Sequence[PlayedBack], notes: Sequence[str], *, command: str = "",
    sources: Sequence[str] = (), seed: int = 0, out: str | None = None,
) -> Result:  # fmt: skip
    """Services, classes and the play-back of each; `out` is where the application went."""
    calls = sum(1 for one in app.classes.values() for _ in one.call.walk())
    figures = [
        Figure("services", "Services", len(app.services)),
        Figure("classes", "Request classes", len(app.classes)),
        Figure("calls", "Calls in their trees", calls),
        Figure("rate", "Requests per second", app.rate, "1/s"),
    ]
    if played:
        errors = [abs(error) for one in played for error in one.errors_pct]
        figures.append(Figure("error_pct", "Median error of the play-back",
                              float(np.median(errors)), "%", better="lower"))  # fmt: skip
    tables = [_classes(app, played), _services(app)]
    return Result(
        "services", "import", f"{app.name}: {len(app.services)} services",
        "Which application left these traces?", figures=figures, tables=tables,
        how=["Play-back: the application simulated at its recorded rate, beside the recording."]
        if played else [],
        notes=[*notes, _next_step(app, out)], manifest=Manifest.of(command, sources, seed=seed),
    )  # fmt: skip


def _next_step(app: Application, out: str | None) -> str:
    """What a manager needs before it can be compared."""
    steps = [] if out else ["write the application with `-o app.yaml`"]
    steps += [f"{now} ({what})" for what, now in missing_parts(app).items()]
    steps.append(f"`gnomon services compare {out or 'app.yaml'}`")
    return f"Next: {'; '.join(steps)}."


def _classes(app: Application, played: Sequence[PlayedBack]) -> Table:
    by_name = {one.name: one for one in played}
    rows = []
    for name, share in sorted(app.shares().items(), key=lambda item: -item[1])[:_SHOWN]:
        row: dict[str, Any] = {"class": name, "share_pct": 100 * share}
        row["calls"] = sum(1 for _ in app.classes[name].call.walk())
        one = by_name.get(name)
        if played:
            row["recorded"] = one.recorded if one else 0
            for i, percentile in enumerate((50, 90, 99)):
                row[f"p{percentile}_ms"] = one.recorded_ms[i] if one else float("nan")
                row[f"p{percentile}_simulated_ms"] = one.simulated_ms[i] if one else float("nan")
        rows.append(row)
    units = {name: "ms" for name in rows[0] if name.endswith("_ms")} | {"share_pct": "%"}
    return Table.from_rows("classes", rows, units=units)


def _services(app: Application) -> Table:
    """Most used first: calls per request, own CPU and waiting time of a call."""
    found: dict[str, list[float]] = {name: [0.0, 0.0, 0.0] for name in app.services}
    for name, share in app.shares().items():
        left = [(app.classes[name].call, share)]
        while left:
            call, chance = left.pop()
            sums = found[call.service]
            sums[0] += chance
            sums[1] += chance * as_work(call.cpu_ms).average
            sums[2] += chance * as_work(call.wait_ms).average
            left += [(b, chance * b.probability) for stage in call.then for b in stage]
    rows = [
        {"service": name, "calls": calls, "cpu_ms": cpu / calls if calls else 0.0,
         "wait_ms": wait / calls if calls else 0.0}
        for name, (calls, cpu, wait) in sorted(found.items(), key=lambda one: -one[1][0])[:_SHOWN]
    ]  # fmt: skip
    return Table.from_rows("services", rows, units={"cpu_ms": "ms", "wait_ms": "ms"},
                           caption="calls per request; own time of a call")  # fmt: skip
