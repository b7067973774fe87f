"""The grid of a trial: its hours as steps of the simulation, and what is known of them then."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.series import Signal
from gnomon.series.forecast import METHODS, outlooks
from gnomon.series.zones import zone_profile, zone_signal
from gnomon.sim.cluster import GridSteps
from gnomon.units import HOUR_NS

#: How far policies look ahead, as PCAPS and CAP do.
HORIZON_H = 48
#: History that a fitted forecast needs before a trial may start.
_HISTORY_H = 60 * 24
#: Of so many hours that much is left out whatever the forecast, so that they can be compared.
_MANY_H = 4 * _HISTORY_H
#: g/kWh: rounding errors of sums are no cleaner hour.
_DIGITS = 6

Floats = NDArray[np.float64]
#: What is known of the hours to come: all, or what a method expects from those before.
Forecast = Literal["known", "persistence", "seasonal", "fitted"]


class KnownGrid(NamedTuple):
    """Steps of the grid, and the upper end of what is expected of those to come."""

    steps: GridSteps
    high: Floats


class GridHours(msgspec.Struct, frozen=True, eq=False):
    """Hours of a grid that trials are taken from."""

    name: str
    signal: Signal

    @classmethod
    def of(cls, name: str, signal: Signal) -> GridHours:
        """From any signal of grid intensity; finer steps are averaged to hours."""
        if signal.gaps():
            raise InputError("the signal has gaps", where=name, hint="fill them: --fill hold")
        start = -(-signal.start_ns // HOUR_NS) * HOUR_NS
        end = signal.end_ns // HOUR_NS * HOUR_NS
        if end - start < 24 * HOUR_NS:
            raise InputError("the signal has less than a day of whole hours", where=name)
        hourly = signal.slice(start, end).resample(HOUR_NS, start)
        return cls(name, hourly.replace(values=hourly.values.round(_DIGITS)))

    @property
    def count(self) -> int:
        return int(self.signal.values.size)

    def first_start(self, forecast: Forecast) -> int:
        """The first hour that a trial may start at: the same for all, where there are many."""
        return 0 if forecast == "known" and self.count < _MANY_H else _HISTORY_H

    def steps(
        self, start: int, count: int, hour_ns: int, forecast: Forecast = "known"
    ) -> KnownGrid:
        """Hours from `start` on, each `hour_ns` long in the simulation.

        The signal begins anew where it ends: hours that nobody has are better than none, and few
        trials come there.
        """
        values = self.signal.values
        around = (start + np.arange(count + HORIZON_H)) % values.size
        known = GridSteps.known(values[around], hour_ns, horizon=HORIZON_H)
        cut = {
            name: np.ascontiguousarray(getattr(known, name)[:count])
            for name in ("actual", "seen", "low", "high", "outlook")
        }
        steps = known.replace(**cut)
        if forecast == "known":
            return KnownGrid(steps, steps.outlook)
        return self._expected(start, steps, forecast)

    def _expected(self, start: int, steps: GridSteps, forecast: Forecast) -> KnownGrid:
        count, horizon = steps.outlook.shape
        looked = min(count, self.count - start)
        expected = outlooks(self.signal, start, looked, horizon - 1, forecast)
        # Past the end of the signal nothing was measured to forecast from.
        mid, high = (
            np.concatenate([steps.seen[:, None], _pad(part, count)], axis=1).round(_DIGITS)
            for part in (expected.mid, expected.high)
        )
        low = np.concatenate([steps.seen[:, None], _pad(expected.low, count)], axis=1)
        return KnownGrid(
            steps.replace(
                low=low.min(axis=1).round(_DIGITS),
                high=high.max(axis=1),
                outlook=np.ascontiguousarray(mid),
            ),
            high,
        )


def _pad(rows: Floats, count: int) -> Floats:
    return np.concatenate([rows, np.repeat(rows[-1:], count - len(rows), axis=0)])


def hours_of_zone(zone: str, *, seed: int = 0) -> GridHours:
    """The years of a zone's profile, generated: what it might have been like.

    >>> hours_of_zone("DE").count
    35064
    """
    profile = zone_profile(zone)
    return GridHours.of(zone, zone_signal(zone, profile.start_ns, profile.end_ns, seed=seed))


def shuffled(grid: KnownGrid, hours: int, rng: np.random.Generator) -> KnownGrid:
    """The first hours in an order of chance, for decisions alone: emissions stay where they are.

    What was known at an hour goes with it, so that a policy decides as often as it did on each
    hour, and only its time is wrong.
    """
    steps = grid.steps
    order = np.arange(steps.seen.size)
    rng.shuffle(order[:hours])
    mixed = steps.replace(
        seen=steps.seen[order], low=steps.low[order], high=steps.high[order],
        outlook=steps.outlook[order],
    )  # fmt: skip
    return KnownGrid(mixed, grid.high[order])


assert set(get_args(Forecast)) == {"known", *METHODS}
