"""The answer of `threads simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.ingest.samples.samples import Samples
from gnomon.report import Chart, Figure, Line, LineChart, Manifest, Result
from gnomon.systems.threads.measured import best_for_short, caveats_of
from gnomon.systems.threads.study import BASE, Advice, Cell, Setting
from gnomon.table import Table
from gnomon.units import format_duration

_US = {"p50_us": "us", "p99_us": "us", "p999_us": "us", "quantum_us": "us", "lost_pct": "%"}
#: Of loads at which preemption is worth it, the answer is about the one next to this.
_USUAL_LOAD = 0.7
_TOO_MUCH = "more work than the workers can do, whatever the policy"


def to_result(
    setting: Setting, source: str, cells: Sequence[Cell], advice: Sequence[Advice], *,
    command: str = "", sources: Sequence[str] = (), samples: Samples | None = None,
) -> Result:  # fmt: skip
    """Latencies of every policy, and what to choose at each load.

    Args:
        samples: What the workload is made of, where it was measured.
    """
    workload, how = setting.workload, setting.mechanism
    late_us = sum(how.late_ns) / max(len(how.late_ns), 1) / 1e3
    return Result(
        "threads", "simulate", f"{workload.name} on {_count(setting.workers, 'worker')}",
        "Which policy and quantum keep the short requests short?" if samples is None else
        "Would preemption help this service, and what would it cost the long requests?",
        figures=[*([] if samples is None else [_answer(cells, advice)]),
                 *(_figure(one) for one in advice)],
        tables=[_cell_table(cells), _class_table(cells)],
        charts=_charts(workload.kinds, cells),
        how=[
            f"{setting.requests:,} requests a cell, Poisson arrivals, the same for every policy; "
            "the first tenth is not counted.",
            f"A preemption ({source}) costs a worker {how.cost_ns / 1e3:g} us and is "
            f"{late_us:g} us late.",
            "Not worth it: no policy has a p99 of all requests that is better by a fifth.",
            *([] if samples is None else
              [f"Service times are drawn from {len(samples):,} samples, one by one."]),
        ],
        notes=[*_notes(cells, advice), *measured_notes(samples)],
        manifest=Manifest.of(command, sources, seed=setting.seed),
    )  # fmt: skip


def measured_notes(samples: Samples | None) -> list[str]:
    """What was read, and what it does not support."""
    return [] if samples is None else [*samples.notes, *caveats_of(samples)]


def to_script(
    cells: Sequence[Cell], advice: Sequence[Advice], source: str, samples: Samples | None = None
) -> dict[str, Any]:
    """What `--json` promises."""
    measured = {} if samples is None else {
        "samples": {"count": len(samples), "classes": list(samples.kinds),
                    "is_latency": samples.is_latency, "notes": measured_notes(samples)},
    }  # fmt: skip
    return measured | {
        "cells": [_flat(one) | {"source": source} for one in cells],
        "advice": [
            {"load": one.load, "policy": one.best.policy, "quantum_us": one.best.quantum_us,
             "is_worth_it": one.is_worth_it, "is_overloaded": one.is_overloaded,
             "gain": one.gain, "price": one.price}
            for one in advice
        ],
    }  # fmt: skip


def _flat(cell: Cell) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(cell)
    overall: dict[str, Any] = plain.pop("overall")
    return overall | plain


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _choice(cell: Cell) -> str:
    return cell.policy if cell.quantum_us is None else f"{cell.policy}, {cell.quantum_us:g} us"


def _answer(cells: Sequence[Cell], advice: Sequence[Advice]) -> Figure:
    """Whether to preempt this service, in one sentence."""
    possible = [one for one in advice if not one.is_overloaded]
    if not possible:
        return Figure("answer", "Preempt?", "overloaded", note=_TOO_MUCH)
    worth = [one for one in advice if one.is_worth_it]
    one = min(worth or possible, key=lambda one: abs(one.load - _USUAL_LOAD))
    kinds = list(one.base.classes)  # shortest first
    if worth:
        note = _change(one.base, one.best, ["", *kinds[-1:]] if len(kinds) > 1 else [""])
        if len(worth) < len(advice):
            note += f"; worth it at load {', '.join(f'{one.load:g}' for one in worth)}"
        return Figure("answer", "Preempt?", "yes", note=note)
    note = "no policy and quantum tried makes the p99 of all requests better by a fifth"
    # Where more than one in a hundred is long, that p99 is theirs.
    best = best_for_short(cells, one.base) if len(kinds) > 1 else None
    if best is None:
        return Figure("answer", "Preempt?", "no", note=note)
    note += f"; but {_change(one.base, best, [kinds[0], kinds[-1]])}"
    return Figure("answer", "Preempt?", f"for {kinds[0]} alone", note=note)


def _change(base: Cell, best: Cell, kinds: Sequence[str]) -> str:
    """What becomes of the p99 of all requests (of no name) or of a class."""
    quantum = f" with a quantum of {_time(best.quantum_us)}" if best.quantum_us else ""
    changes = []
    for kind in kinds:
        before, after = (one.classes[kind] if kind else one.overall for one in (base, best))
        changes.append(f"the p99 of {kind or 'all requests'} from {_time(before.p99_us)} to "
                       f"{_time(after.p99_us)}")  # fmt: skip
    return f"at load {best.load:g}, {best.policy}{quantum} takes {' and '.join(changes)}"


def _time(time_us: float) -> str:
    return format_duration(1e3 * time_us)


def _name(one: Advice) -> str:
    return f"p99_us_at_{100 * one.load:.0f}_pct"


def _figure(one: Advice) -> Figure:
    if not one.is_worth_it:
        p99 = f"p99 {one.base.overall.p99_us:,.0f} us"
        note = (f"{_TOO_MUCH}: {p99} under {BASE}, longer the longer it lasts"
                if one.is_overloaded else f"preemption is not worth it: {p99}")  # fmt: skip
        return Figure(_name(one), f"Load {one.load:g}", one.base.overall.p99_us, "us",
                      note=note, better="lower")  # fmt: skip
    paid = ", ".join(f"p99 of {name} x {price:.2g}" for name, price in one.price.items())
    return Figure(
        _name(one), f"Load {one.load:g}: {_choice(one.best)}", one.best.overall.p99_us,
        "us", note=f"p99, {one.gain:.1f} times better than fcfs; {paid}", better="lower",
    )  # fmt: skip


def _cell_table(cells: Sequence[Cell]) -> Table:
    rows = [
        {"load": one.load, "policy": one.policy, "quantum_us": one.quantum_us,
         "p50_us": one.overall.p50_us, "p99_us": one.overall.p99_us,
         "p999_us": one.overall.p999_us, "preemptions": one.preemptions,
         "lost_pct": one.lost_pct, "stable": "yes" if one.is_stable else "no"}
        for one in cells
    ]  # fmt: skip
    caption = "preemptions of a request; lost: of the workers' time"
    return Table.from_rows("policies", rows, units=_US, caption=caption)


def _class_table(cells: Sequence[Cell]) -> Table:
    rows = [
        {"load": one.load, "policy": one.policy, "quantum_us": one.quantum_us, "class": name,
         "requests": seen.requests, "p50_us": seen.p50_us, "p99_us": seen.p99_us,
         "p999_us": seen.p999_us}
        for one in cells for name, seen in one.classes.items()
    ]  # fmt: skip
    units = {name: unit for name, unit in _US.items() if name in rows[0]}
    return Table.from_rows("classes", rows, units=units)


def _charts(kinds: Sequence[str], cells: Sequence[Cell]) -> list[Chart]:
    """p99 over load of each class: a line a policy, at its best quantum."""
    loads = list(dict.fromkeys(one.load for one in cells))
    if len(loads) < 2:
        return []
    charts: list[Chart] = []
    for kind in kinds:
        lines = []
        for policy in dict.fromkeys(one.policy for one in cells):
            mine = [[one for one in cells if (one.policy, one.load) == (policy, load)]
                    for load in loads]  # fmt: skip
            best = [min(some, key=lambda one: one.overall.p99_us) for some in mine]
            p99 = [one.classes[kind].p99_us if kind in one.classes else float("nan")
                   for one in best]  # fmt: skip
            lines.append(Line(policy, loads, p99))
        charts.append(
            LineChart(
                f"p99 of {kind}", lines, x_label="load", y_label="p99", y_unit="us",
                caption="Each policy with the quantum that has the least p99.",
            )
        )  # fmt: skip
    return charts


def _notes(cells: Sequence[Cell], advice: Sequence[Advice]) -> list[str]:
    notes = []
    over = [one.load for one in advice if one.is_overloaded]
    if over:
        at = ", ".join(f"{one:g}" for one in over)
        notes.append(f"At load {at} there is {_TOO_MUCH}: where a p99 is short, others pile up.")
    lost = sorted({_choice(one) for one in cells if not one.is_stable and one.load not in over})
    if lost:
        notes.append(f"Preempting costs more than there is at some load: {', '.join(lost[:4])}.")
    dear = {name: one for a in advice for name, one in a.price.items() if one > 1.5}
    if dear:
        name = max(dear, key=lambda name: dear[name])
        notes.append(f"{name} pays: its p99 is up to {dear[name]:.1f} times that under fcfs.")
    return notes
