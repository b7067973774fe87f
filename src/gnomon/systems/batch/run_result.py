"""The answer as a result: a table by grid and policy, charts, and what scripts read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnomon.estimate import Estimate
from gnomon.report import (
    BarChart,
    Bars,
    Chart,
    Figure,
    Manifest,
    Result,
    ScatterChart,
)
from gnomon.systems.batch.compare import FIELDS, PolicyComparison
from gnomon.systems.batch.explain import HELD_UNITS
from gnomon.systems.batch.logs import Replayed
from gnomon.systems.batch.pipeline import Answer
from gnomon.table import Table

#: Columns of the table people read, in this order.
_COLUMNS = (
    "carbon_pct", "work_pct", "intensity_pct", "oracle_pct", "placebo_pct", "quota_pct",
    "cpu_carbon_pct", "jct_mean_s", "jct_p95_s", "ect_s", "jct_pct", "ect_pct", "carbon_kg",
)  # fmt: skip

#: A replay with a larger error than this gets a note.
_TRUSTED_PCT = 10.0


def to_result(
    answer: Answer, command: str = "", *, verb: str = "run", title: str = "",
    sources: Sequence[str] = (), notes: Sequence[str] = (), replayed: Replayed | None = None,
) -> Result:  # fmt: skip
    """Everything that people look at."""
    experiment = answer.experiment
    grids = list(answer.by_grid)
    figures = _figures(answer, replayed)
    return Result(
        "batch", verb,
        title or f"{len(experiment.policies)} policies on {', '.join(grids)}",
        "When should which stage run, given the grid?",
        figures=figures,
        tables=[_policies(answer), *_intervals(answer), *_held(answer)],
        charts=_charts(answer),
        how=_how(answer),
        notes=list(notes) + _distrust(replayed) + _warnings(answer),
        manifest=Manifest.of(
            command, sources, seed=answer.seed, policies=list(experiment.policies), grids=grids
        ),
    )  # fmt: skip


def to_script(answer: Answer, replayed: Replayed | None = None) -> dict[str, Any]:
    """What `--json` promises: every policy's figures with `mid`, `low` and `high`."""
    script: dict[str, Any] = {
        "policies": {own.policy: _spoken(own) for own in answer.overall},
        "grids": {
            grid: {own.policy: _spoken(own) for own in comparisons}
            for grid, comparisons in answer.by_grid.items()
        },
        "bound": {grid: _bound(answer, grid) for grid in answer.by_grid},
    }
    if replayed is not None:
        script["replay"] = {
            "makespan_s": _range(replayed.makespan_s),
            "recorded_s": replayed.recorded_s,
            "error_pct": replayed.error_pct,
        }
    return script


def _spoken(own: PolicyComparison) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: _range(own.figures[name]) if name in own.figures else None for name in FIELDS
    }
    return fields | {"trials": own.trials, "quota_share": own.quota_share}


def _range(value: Estimate) -> dict[str, float]:
    return {"mid": value.mid, "low": value.low, "high": value.high}


def _bound(answer: Answer, grid: str) -> dict[str, float]:
    """What no schedule of the first policy's work can do better than, in per cent."""
    spec = answer.experiment.policies[0]
    own = [outcome for outcome in answer.outcomes if outcome.grid == grid]
    first = [outcome.policies[spec].measured for outcome in own]
    work = np.array([m.energy_kwh for m in first])
    base = sum(m.carbon_g for m in first)
    return {
        name: 100.0 * (float(np.array([o.bound[name] for o in own]) @ work) / base - 1.0)
        for name in ("same_end", "end_10pct_later")
    }


def _policies(answer: Answer) -> Table:
    rows = []
    for grid, comparisons in answer.by_grid.items():
        for own in comparisons:
            row: dict[str, object] = {"grid": grid, "policy": own.policy}
            for name in _COLUMNS:
                row[name] = own.figures[name].mid if name in own.figures else float("nan")
            rows.append(row)
    units = {name: name.rsplit("_", 1)[1].replace("pct", "%") for name in _COLUMNS}
    first = answer.experiment.policies[0]
    return Table.from_rows(
        "policies", rows, units=units,
        caption=f"changes against {first}; carbon: work times intensity; jct: a job from arrival "
        "to its end, ect: until all are done",
    )  # fmt: skip


def _intervals(answer: Answer) -> list[Table]:
    """The ranges, apart: a table of mids stays readable."""
    shown = ("carbon_pct", "intensity_pct", "placebo_pct", "jct_pct", "ect_pct")
    rows = [
        {"grid": grid, "policy": own.policy}
        | {
            f"{name.removesuffix('_pct')}_{end}_pct": getattr(own.figures.get(name), end, np.nan)
            for name in shown
            for end in ("low", "high")
        }
        for grid, comparisons in answer.by_grid.items()
        for own in comparisons[1:]
    ]
    if not rows or len(answer.outcomes) == len(answer.by_grid):
        return []
    caption = "ranges that hold 95 % of resampled sets of start hours"
    units = {name: "%" for name in rows[0] if name.endswith("_pct")}
    return [Table.from_rows("ranges", rows, units=units, caption=caption)]


def _held(answer: Answer) -> list[Table]:
    if not answer.held:
        return []
    return [
        Table.from_rows(
            "held", answer.held, units=HELD_UNITS,
            caption="stages that were held in the first trial, those that saved most first",
        )
    ]  # fmt: skip


def _figures(answer: Answer, replayed: Replayed | None) -> list[Figure]:
    figures = []
    if replayed is not None:
        figures.append(
            Figure("makespan_s", "Replay as recorded", replayed.makespan_s, "s", better="lower")
        )
        if replayed.error_pct is not None and replayed.recorded_s is not None:
            figures.append(Figure("recorded_s", "Recorded", replayed.recorded_s, "s"))
            figures.append(Figure("replay_error_pct", "Replay error", replayed.error_pct, "%"))
    best = min(answer.overall, key=lambda own: own.figures["carbon_pct"].mid)
    cleaner = min(answer.overall, key=lambda own: own.figures["intensity_pct"].mid)
    figures += [
        Figure("least_carbon", "Least carbon", best.policy,
               note=f"{best.figures['work_pct'].mid:+.0f} % work, "
               f"{best.figures['intensity_pct'].mid:+.0f} % per unit of it, time of a job "
               f"{best.figures['jct_pct'].mid:+.0f} %"),
        Figure("least_carbon_pct", "Change against the first policy",
               best.figures["carbon_pct"], "%", better="lower"),
        Figure("cleanest", "Cleanest hours", cleaner.policy),
        Figure("cleanest_pct", "Carbon per unit of energy", cleaner.figures["intensity_pct"], "%",
               better="lower"),
        Figure("trials", "Trials", len(answer.outcomes)),
    ]  # fmt: skip
    for grid in answer.by_grid:
        bound = _bound(answer, grid)
        name = "".join(c if c.isalnum() else "_" for c in grid.lower())
        figures.append(
            Figure(f"bound_{name}_pct", f"Bound by time shifting, {grid}",
                   bound["end_10pct_later"], "%",
                   note="at best: the first policy's work, nothing waiting for anything else, "
                   "done a tenth later. What saves more than that ended later still, or caused "
                   "less work")
        )  # fmt: skip
    return figures


def _charts(answer: Answer) -> list[Chart]:
    own = answer.overall
    if len(own) < 2:
        return []
    specs = [one.policy for one in own]

    def bars(label: str, name: str) -> Bars:
        values = [one.figures.get(name) for one in own]
        return Bars(
            label, [v.mid if v else None for v in values], [v.low if v else None for v in values],
            [v.high if v else None for v in values],
        )  # fmt: skip

    return [
        BarChart(
            "Change of carbon and its parts", specs,
            [bars("carbon", "carbon_pct"), bars("by less work", "work_pct"),
             bars("by cleaner hours", "intensity_pct"), bars("placebo", "placebo_pct")],
            value_label="change", unit="%", stacked=False,
        ),
        ScatterChart(
            "Cleaner hours against job times",
            [one.figures["jct_pct"].mid for one in own],
            [one.figures["intensity_pct"].mid for one in own],
            specs, x_label="mean job time", x_unit="%", y_label="carbon per unit of energy",
            y_unit="%", better_x="lower", better_y="lower",
        ),
    ]  # fmt: skip


def _how(answer: Answer) -> list[str]:
    experiment = answer.experiment
    hours = np.mean([outcome.hours for outcome in answer.outcomes])
    return [
        f"Each trial runs the same jobs from the same hour on under every policy; the first took "
        f"{hours:.0f} hours of the grid on average.",
        f"{experiment.executors.count} executors; an hour of the grid takes "
        f"{experiment.hour_ns / 1e9:g} s; of the hours to come policies know: "
        f"{experiment.forecast}.",
        "Carbon is energy by executor time times the grid's intensity; by CPU time, waiting "
        "inside a task costs nothing.",
        "The oracle's hours: the least intensity at which the same work could have been done by "
        "the same time, all arrivals and hours known and nothing waiting for anything else.",
        "The placebo decides on the hours of the run in an order of chance, each with what was "
        "known at it: what it saves is not saved by knowing the time. The fixed quota is blind to "
        "the grid; it allows as many executors on average as the policy did, or costs as much "
        "executor time.",
        "A change is the geometric mean of each trial's, so that dirty trials count no more.",
    ]


def _distrust(replayed: Replayed | None) -> list[str]:
    """A model that is off on what it was made of says little of what it was not."""
    off = replayed.error_pct if replayed is not None else None
    if off is None or abs(off) <= _TRUSTED_PCT:
        return []
    return [
        f"The replay of the logs as recorded is off by {off:+.0f} %: something that they do not "
        "show held the jobs back, or lines are missing. Other figures may be as far off."
    ]


def _warnings(answer: Answer) -> list[str]:
    """Which savings are not due to cleaner hours, and what else a reader should know."""
    remarks = []
    for own in answer.overall:
        carbon, hours = own.figures["carbon_pct"], own.figures["intensity_pct"]
        placebo = own.figures.get("placebo_intensity_pct")
        if placebo is None or carbon.mid >= -1.0 or placebo.mid - hours.mid >= 1.0:
            continue
        remarks.append(
            f"{own.policy}: {-carbon.mid:.1f} % less carbon, but its hours are no cleaner than "
            f"its placebo's: it causes less work."
        )
    if len(answer.outcomes) == len(answer.by_grid):
        remarks.append(
            "One trial per grid: there are no ranges, and another hour may say otherwise."
        )
    starts = {(outcome.grid, outcome.start) for outcome in answer.outcomes}
    if len(starts) < len(answer.outcomes):
        remarks.append(
            f"Only {len(starts)} different start hours for {len(answer.outcomes)} trials: the "
            "signal is short, and ranges are too narrow."
        )
    longest = max(outcome.hours for outcome in answer.outcomes)
    if longest < 2.0:
        remarks.append(
            f"The jobs took {longest:.2g} hours of the grid: there is next to nothing to shift. A "
            "shorter hour (--hour) or more jobs would show more."
        )
    return remarks + _late(answer)


def _late(answer: Answer) -> list[str]:
    within = answer.experiment.finish_within
    if within is None:
        return []
    first = answer.experiment.policies[0]
    worst: dict[str, float] = {}
    for outcome in answer.outcomes:
        for spec, own in outcome.policies.items():
            times = own.measured.ect_s / outcome.policies[first].measured.ect_s
            worst[spec] = max(worst.get(spec, 0.0), times)
    return [
        f"{spec} took up to {times:.2f} times as long as {first}, more than {within:g}."
        for spec, times in worst.items()
        if times > within + 0.005
    ]
