"""The answers of `threads calibrate` and `threads bench`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.report import BarChart, Bars, Figure, Manifest, Result
from gnomon.systems.threads.bench import BenchAdvice, BenchCell, BenchSetting, compare_with_base
from gnomon.systems.threads.calibrate import Machine
from gnomon.systems.threads.study import BASE
from gnomon.table import Table

_US = {"p50_us": "us", "p99_us": "us", "p999_us": "us", "quantum_us": "us", "cost_us": "us",
       "late_p50_us": "us", "late_p99_us": "us", "low_us": "us", "high_us": "us",
       "simulated_us": "us"}  # fmt: skip
_COST = "cost: that a worker loses each time; median, least and greatest"
_NO_PRIORITY = (
    "Threads were not given SCHED_FIFO, so that others delay them: figures are worse than they "
    "would be. Run as root, or with the capability CAP_SYS_NICE."
)


def to_calibration_result(machine: Machine, *, command: str = "") -> Result:
    """What each source costs here, and which one to take."""
    rows = [
        {"source": one.name, "cost_us": one.cost_us, "low_us": one.cost_low_us,
         "high_us": one.cost_high_us, "late_p50_us": one.late_p50_us,
         "late_p99_us": one.late_p99_us, "quantum_us": one.quantum_us, "per_s": one.per_s,
         "polls": "yes" if one.is_polled else "no", "core": "spins" if one.burns_core else "–"}
        for one in machine.sources if not one.why_not and one.name != "none"
    ]  # fmt: skip
    absent = [f"{one.name}: {one.why_not}." for one in machine.sources if one.why_not]
    slow = [
        f"{one.name}: functions that poll every 60 ns run {one.slowdown_pct:.0f} % longer."
        for one in machine.sources if one.slowdown_pct >= 1
    ]  # fmt: skip
    return Result(
        "threads", "calibrate", f"this machine, {machine.cpus} cores",
        "What does a preemption cost here, and how late is it?",
        figures=[
            _source_figure(machine, machine.chosen, "polled", "Functions that poll"),
            _source_figure(machine, machine.chosen_unpolled, "unpolled", "Functions that do not"),
            Figure("switch_ns", "Switch of stacks", machine.switch_ns, "ns",
                   note="without preemption", better="lower"),
        ],
        tables=[Table.from_rows("sources", rows, units=_of(rows), caption=_COST)] if rows else [],
        how=[
            "The same CPU work with and without preemptions, in turn; cost is the difference.",
            "Late: from the end of a slice to the preemption.",
            f"Something else takes the core {machine.interruptions.per_s:,.0f} times a second; "
            f"taking up a request costs {machine.dispatch_ns / 1e3:.2f} us.",
        ],
        notes=[*([] if machine.is_realtime else [_NO_PRIORITY]), *absent, *slow],
        manifest=Manifest.of(command),
    )  # fmt: skip


def _source_figure(machine: Machine, name: str, key: str, title: str) -> Figure:
    if name == "none":
        return Figure(f"source_{key}", title, "none", note="no source was measured")
    one = machine.source(name)
    return Figure(
        f"source_{key}",
        title,
        one.name,
        note=f"{one.what}; {one.cost_us:.2f} us each, {one.late_p50_us:.2f} us late",
    )


def to_bench_result(
    setting: BenchSetting, cells: Sequence[BenchCell], *, command: str = ""
) -> Result:
    """Latencies of every policy on real threads, beside first come, first served."""
    advice = compare_with_base(cells)
    workers = f"{setting.workers} worker{'' if setting.workers == 1 else 's'}"
    return Result(
        "threads", "bench", f"{setting.workload.name} on {workers} of this machine",
        "Which policy and quantum keep the short requests short, on real threads?",
        figures=[_figure(one, i) for i, one in enumerate(advice)] or
                [Figure("p99_us", cells[0].policy, cells[0].overall.p99_us, "us", note="p99")],
        tables=[_cell_table(cells), _class_table(cells)],
        charts=[
            BarChart(
                "p99 of all requests", [f"{one.load:g} {_choice(one)}" for one in cells],
                [Bars("measured", [one.overall.p99_us for one in cells],
                      [one.p99_low_us for one in cells], [one.p99_high_us for one in cells]),
                 Bars("simulated", [one.simulated_p99_us for one in cells])],
                unit="us", stacked=False,
            )
        ],
        how=[
            f"Bursts of {setting.burst_ms:g} ms, policies in turn, with the same requests; "
            "service is CPU work that polls. Figures are medians over bursts.",
            "Latency counts from when a request was due. A burst in which the machine stalled for "
            "over 0.3 ms is dropped and tried again.",
            "Simulated: the same bursts in the simulator, with cost, lateness and interruptions "
            "that were measured here.",
        ],
        notes=_notes(setting, cells),
        manifest=Manifest.of(command, seed=setting.seed),
    )  # fmt: skip


def to_bench_script(setting: BenchSetting, cells: Sequence[BenchCell]) -> dict[str, Any]:
    """What `--json` promises."""
    gains = {id(one.cell): one for one in compare_with_base(cells)}
    flat = []
    for cell in cells:
        plain: dict[str, Any] = msgspec.to_builtins(cell)
        against = gains.get(id(cell))
        flat.append(
            plain.pop("overall") | plain
            | {"gain": None if against is None else against.gain,
               "price": {} if against is None else against.price}
        )  # fmt: skip
    return {"cells": flat, "machine": msgspec.to_builtins(setting.machine)}


def _choice(cell: BenchCell) -> str:
    quantum = "" if cell.quantum_us is None else f", {cell.quantum_us:g} us"
    return f"{cell.policy}{quantum}, {cell.source}"


def _figure(one: BenchAdvice, number: int) -> Figure:
    paid = ", ".join(f"p99 of {name} x {price:.2g}" for name, price in one.price.items())
    factor = f"{max(one.gain, 1 / one.gain):.1f}"
    better = f"{factor} times {'better' if one.gain > 1 else 'worse'} than {BASE}"
    if factor == "1.0":
        better = f"as good as {BASE}"
    return Figure(
        f"p99_us_{number}", f"Load {one.cell.load:g}: {_choice(one.cell)}",
        one.cell.overall.p99_us, "us", note=f"p99, {better}; {paid}", better="lower",
    )  # fmt: skip


def _cell_table(cells: Sequence[BenchCell]) -> Table:
    rows = [
        {"load": one.load, "policy": one.policy, "source": one.source,
         "quantum_us": one.quantum_us, "p50_us": one.overall.p50_us, "p99_us": one.overall.p99_us,
         "low_us": one.p99_low_us, "high_us": one.p99_high_us, "p999_us": one.overall.p999_us,
         "simulated_us": one.simulated_p99_us, "preemptions": one.preemptions,
         "kept": one.bursts_kept, "dropped": one.bursts_dropped}
        for one in cells
    ]  # fmt: skip
    caption = "low, high, simulated: p99; preemptions of a request; kept and dropped bursts"
    return Table.from_rows("policies", rows, units=_of(rows), caption=caption)


def _class_table(cells: Sequence[BenchCell]) -> Table:
    rows = [
        {"load": one.load, "policy": one.policy, "source": one.source,
         "quantum_us": one.quantum_us, "class": name, "p50_us": seen.p50_us,
         "p99_us": seen.p99_us, "p999_us": seen.p999_us,
         "simulated_us": one.simulated_classes.get(name)}
        for one in cells for name, seen in one.classes.items()
    ]  # fmt: skip
    return Table.from_rows("classes", rows, units=_of(rows))


def _of(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {name: unit for name, unit in _US.items() if name in rows[0]}


def _notes(setting: BenchSetting, cells: Sequence[BenchCell]) -> list[str]:
    notes = [] if setting.machine.is_realtime else [_NO_PRIORITY]
    short = [_choice(one) for one in cells if one.bursts_kept < setting.bursts]
    if short:
        notes.append(f"Fewer bursts than wanted were undisturbed: {', '.join(short[:4])}.")
    for one in cells:
        if one.reason:
            choice = "no preemption" if one.quantum_us is None else f"{one.quantum_us:g} us"
            notes.append(f"{one.policy} at load {one.load:g}: {choice} ({one.reason}).")
    return notes
