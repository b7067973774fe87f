"""Answers of `lab`: a managed run, or limits swept and predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from gnomon.report import Figure, Line, LineChart, Manifest, Result
from gnomon.systems.services.lab import FOREIGN_CORES, LabOutcome
from gnomon.systems.services.run_result import to_result as run_result
from gnomon.systems.services.sweep import QUIET_CORES, Row, Sweep
from gnomon.systems.services.trial import Setup
from gnomon.table import Table

#: A client that is later than this at its p99 measures itself.
_LATE_MS = 5.0


def run_to_result(
    setup: Setup, run: LabOutcome, *, command: str = "", sources: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Result:  # fmt: skip
    """A managed run."""
    remarks = [*notes]
    if run.note:
        remarks.append(run.note)
    if run.noisy_pct > 0:
        remarks.append(
            f"Others used over {FOREIGN_CORES:g} cores in {run.noisy_pct:.0f} % of the "
            "windows: latency there is partly theirs."
        )
    if run.client_late_ms > _LATE_MS:
        remarks.append(
            f"The client sent requests {run.client_late_ms:.1f} ms late at the p99: the machine "
            "was too busy for this load."
        )
    return run_result(
        setup, [run.outcome], verb="lab", command=command, sources=sources, notes=remarks
    )


def sweep_to_result(
    sweep: Sweep, *, command: str = "", sources: Sequence[str] = (), seed: int = 0
) -> Result:
    """Limits measured and predicted, in one table."""
    errors, gaps = sweep.errors(), sweep.throttled_gaps()
    figures = []
    if errors.size:
        figures = [
            Figure("latency_error_pct", "Median error of p50 and p99",
                   100 * float(np.median(errors)), "%", better="lower",
                   note="at the limits that were not calibrated at"),
            Figure("throttled_gap_points", "Largest gap of throttled shares", float(gaps.max()),
                   "points", better="lower"),
        ]  # fmt: skip
    rows = [_row(m, p) for m, p in zip(sweep.measured, sweep.predicted)]
    units = {name: name.rsplit("_", 1)[-1].replace("pct", "%") for name in rows[0]
             if name.endswith(("_ms", "_pct", "_s"))}  # fmt: skip
    notes = [sweep.note] if sweep.note else []
    noisy = [row for row in sweep.measured if row.foreign_cores > QUIET_CORES]
    if noisy:
        notes.append(f"{len(noisy)} rows stayed noisy after all attempts: others used "
                     f"{max(row.foreign_cores for row in noisy):.1f} cores.")  # fmt: skip
    overheads = ", ".join(
        f"{name} {one.overhead_ms} ms" for name, one in sweep.app.services.items()
    )
    return Result(
        "services", "lab", f"{sweep.app.name}: limits on {sweep.service}",
        "What does a CPU limit do to latency, and does the simulator know?", figures=figures,
        tables=[Table.from_rows("limits", rows, units=units,
                                caption=f"limit of {sweep.service}; the simulator knows the first "
                                "row only")],
        charts=[_chart(sweep)],
        how=["Lab: real processes in control groups, an open-loop client; latency from due times.",
             "Simulator: the same requests; only the first row's costs are known to it. "
             f"Overhead of a call: {overheads}; network {sweep.app.network_ms} ms."],
        notes=notes, manifest=Manifest.of(command, sources, seed=seed),
    )  # fmt: skip


def _row(measured: Row, predicted: Row) -> dict[str, Any]:
    return {
        "limit": "none" if measured.limit is None else f"{measured.limit:g}",
        "use_pct": measured.use_pct, "throttled_pct": measured.throttled_pct,
        "throttled_simulated_pct": predicted.throttled_pct, "throttled_s": measured.throttled_s,
        "p50_ms": measured.p50_ms, "p50_simulated_ms": predicted.p50_ms,
        "p99_ms": measured.p99_ms, "p99_simulated_ms": predicted.p99_ms,
        "pool_p99_ms": measured.pool_p99_ms, "foreign_cores": measured.foreign_cores,
        "attempts": measured.attempts,
    }  # fmt: skip


def _chart(sweep: Sweep) -> LineChart:
    order = sorted(
        (i for i, row in enumerate(sweep.measured) if row.limit is not None),
        key=lambda i: sweep.measured[i].limit or 0.0,
    )

    def line(name: str, rows: Sequence[Row], field: str, *, dashed: bool) -> Line:
        return Line(name, [rows[i].limit for i in order], [getattr(rows[i], field) for i in order],
                    dashed=dashed)  # fmt: skip

    return LineChart(
        f"Latency by limit of {sweep.service}",
        [line("p50, lab", sweep.measured, "p50_ms", dashed=False),
         line("p50, simulator", sweep.predicted, "p50_ms", dashed=True),
         line("p99, lab", sweep.measured, "p99_ms", dashed=False),
         line("p99, simulator", sweep.predicted, "p99_ms", dashed=True)],
        x_label="limit", x_unit="cores", y_label="latency", y_unit="ms",
    )  # fmt: skip


def sweep_to_script(sweep: Sweep) -> dict[str, Any]:
    """What `--json` promises of a sweep."""

    def plain(row: Row) -> dict[str, Any]:
        fields = msgspec.structs.asdict(row)
        return {
            k: None if isinstance(v, float) and math.isnan(v) else v for k, v in fields.items()
        }

    return {
        "measured": [plain(row) for row in sweep.measured],
        "predicted": [plain(row) for row in sweep.predicted],
    }
