"""What a carbon guard saves on a day of services: by less CPU, by cleaner hours, and by chance.

Energy is that of allocated cores, as in every score of services: a core that is not allocated
saves its energy only where somebody turns it off or gives it other work. `used_pct` is the saving
by CPU time alone, for those who do neither.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.services.policies.relax import day_intensity
from gnomon.errors import InputError
from gnomon.graph.application import Application
from gnomon.series.zones import resolve_zone
from gnomon.systems.services.rates import Rate, find_rate
from gnomon.systems.services.trial import Outcome, Series, Setup, simulate

Floats = NDArray[np.float64]

_HOURS = 24


class Saving(msgspec.Struct, frozen=True):
    """How much less carbon a run causes than its base; below zero, it causes more.

    Attributes:
        total_pct: Of the base's carbon, by allocated cores.
        less_cpu_pct: Part of it because fewer core hours were allocated.
        cleaner_hours_pct: The rest: those that were are in cleaner hours.
        used_pct: The same total, by the CPU time that was used.
        base_violation_pct: Of SLA checks, those that the base missed; NaN without any.
        violation_pct: And this run.
    """

    total_pct: float
    less_cpu_pct: float
    cleaner_hours_pct: float
    used_pct: float
    base_violation_pct: float
    violation_pct: float


class Study(msgspec.Struct, frozen=True, eq=False):
    """One day under a manager alone, behind the guard, and behind its placebo."""

    manager: str
    zone: str
    base: Outcome
    relaxed: Outcome
    placebo: Outcome
    saving: Saving
    placebo_saving: Saving


def split_saving(
    base: Outcome, relaxed: Outcome, intensity_by_hour: Floats, *, hour: float = 0.0,
    hour_s: float = 3600.0,
) -> Saving:  # fmt: skip
    """Splits the change in carbon into less CPU and cleaner hours.

    The factors are those of batch (`systems/batch/compare.py`): carbon is energy times mean
    intensity, so its ratio is that of energy times that of intensity. There, parts multiply; here
    each factor counts by its logarithm, so that parts add up to the total (the LMDI of Ang, Energy
    Policy 32, 2004). For savings of a few per cent both are the same within a tenth of them.

    Args:
        intensity_by_hour: g/kWh of the 24 hours of a day, UTC.
        hour: Of the day, at the start of both runs.
        hour_s: How long an hour of the grid takes in the run.
    """
    if np.shape(intensity_by_hour) != (_HOURS,) or not np.all(np.asarray(intensity_by_hour) > 0):
        raise InputError("the intensity of a day is 24 values above zero, in g/kWh")
    series = (base.series, relaxed.series)
    if not np.array_equal(base.series.end_s, relaxed.series.end_s):
        raise InputError("both runs need the same windows")
    at = [_intensity(one, intensity_by_hour, hour, hour_s) for one in series]
    length = [_length_s(one) for one in series]
    energy = [float(one.allocated @ span) for one, span in zip(series, length)]
    carbon = [float(one.allocated * g @ span) for one, g, span in zip(series, at, length)]
    used = [float(np.nan_to_num(one.used) * g @ span) for one, g, span in zip(series, at, length)]
    by_energy, by_hours = _parts_pct(carbon, energy)
    return Saving(
        total_pct=by_energy + by_hours, less_cpu_pct=by_energy, cleaner_hours_pct=by_hours,
        used_pct=100.0 * (1.0 - used[1] / used[0]) if used[0] > 0 else math.nan,
        base_violation_pct=base.score.violation_pct, violation_pct=relaxed.score.violation_pct,
    )  # fmt: skip


def _parts_pct(carbon: list[float], energy: list[float]) -> tuple[float, float]:
    """Savings by energy and by intensity, in per cent of the first carbon."""
    if min(*carbon, *energy) <= 0:
        raise InputError("a run without allocated cores has nothing to compare")
    change, by_energy = math.log(carbon[1] / carbon[0]), math.log(energy[1] / energy[0])
    weight = math.expm1(change) / change if change else 1.0
    return -100.0 * weight * by_energy, -100.0 * weight * (change - by_energy)


def _length_s(series: Series) -> Floats:
    return np.diff(series.end_s, prepend=0.0)


def _intensity(series: Series, by_hour: Floats, hour: float, hour_s: float) -> Floats:
    """g/kWh of each window: that of its middle."""
    middle_s = series.end_s - _length_s(series) / 2
    return np.asarray(by_hour, float)[(hour + middle_s / hour_s).astype(np.int64) % _HOURS]


def day_rate(app: Application, *, hour_s: float = 3600.0, seed: int = 0) -> Rate:
    """A day of requests at the application's mean rate: least at its start, most in its middle."""
    return find_rate("diurnal", app.rate, duration_s=_HOURS * hour_s, seed=seed)


def study(
    app: Application, manager: str, zone: str, *, hour: float = 0.0, depth: float = 0.2,
    hour_s: float = 3600.0, interval_s: float = 10.0, seed: int = 0, base: Outcome | None = None,
) -> Study:  # fmt: skip
    """A day of an application under a manager, behind the guard `relax`, and behind its placebo.

    All three get the same requests. The day's grid is the zone's typical one, which the guard
    knows: real forecasts err, so what cleaner hours save here is the most that they could.

    Args:
        zone: Of the grid: a bundled one.
        hour: UTC, when the day begins: the hour of the fewest requests.
        depth: Share that the guard may take off limits.
        hour_s: How long an hour of the grid takes; less than 3600 is a day in fast motion.
        interval_s: From decision to decision.
        base: The run without the guard, of the same rate, interval and seed, if there is one.
    """
    resolve_zone(zone)
    setup = Setup(app, interval_s, seed=seed)
    rate = day_rate(app, hour_s=hour_s, seed=seed)
    guard = f"relax?zone={zone}&hour={hour:g}&depth={depth:g}&hour_s={hour_s:g}"
    alone = simulate(setup, manager, rate) if base is None else base
    relaxed, placebo = (
        simulate(setup, f"{guard}{more}:{manager}", rate) for more in ("", "&placebo=true")
    )
    saving, placebo_saving = (
        split_saving(alone, run, day_intensity(zone), hour=hour, hour_s=hour_s)
        for run in (relaxed, placebo)
    )
    return Study(manager, zone, alone, relaxed, placebo, saving, placebo_saving)
