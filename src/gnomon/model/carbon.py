"""Carbon accounting: operational, embodied, and the metrics that are made of them.

The formulas are those of "The Sunk Carbon Fallacy" (arXiv 2410.15087, section 3) and, below SCI,
of ISO/IEC 21031. Every guess is an `Estimate`, or a column of them (`Ranges`): ranges of power,
intensity, embodied carbon and PUE travel into the answer. A year has 365 days.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.graph.timeline import Timeline, union_of_spans
from gnomon.model.machines.machine import Machine
from gnomon.model.ranges import Floats, Ranges
from gnomon.series import Signal, integrate_product
from gnomon.units import HOUR_NS, parse

#: Hours of a year, as amortisation tables count them.
YEAR_H = 365 * 24.0

#: How embodied carbon is spread over time: "life" evenly over the expected life and on at that
#: rate; "age" over max(life, age), the paper's amortisation A; "sunk" over the life and nothing
#: after it, its amortisation B.
Amortisation = Literal["life", "age", "sunk"]

Amount = TypeVar("Amount", Estimate, Ranges)
Intensity = Signal | Estimate


class Carbon(msgspec.Struct, frozen=True):
    """Energy, with PUE, and carbon of something that ran."""

    energy_kwh: Estimate
    operational_g: Estimate
    embodied_g: Estimate

    @property
    def total_g(self) -> Estimate:
        return self.operational_g + self.embodied_g

    def __add__(self, other: Carbon) -> Carbon:
        return Carbon(
            self.energy_kwh + other.energy_kwh,
            self.operational_g + other.operational_g,
            self.embodied_g + other.embodied_g,
        )


def draw_w(machine: Machine, utilisation: float = 1.0) -> Estimate:
    """Power of a machine at some load: idle, plus load's share of what lies between it and peak.

    >>> from gnomon.model.machines.machine import find_machine
    >>> draw_w(find_machine("H100"), 0.5).mid
    385.0
    """
    if not 0 <= utilisation <= 1:
        raise InputError(f"a utilisation of {utilisation:g}; it lies between 0 and 1")
    # Written as a mixture, for `idle + u * (peak - idle)` would count the range of idle twice.
    return machine.idle_w * (1 - utilisation) + machine.peak_w * utilisation


def embodied_rate_g_h(
    machine: Machine, *, bought: int = 0, year: float = 0, how: Amortisation = "life"
) -> Estimate:
    """Grams of embodied carbon that an hour of one machine is charged with, used or not.

    Args:
        bought: Year of purchase; 0 where unknown, which counts as new.

    >>> from gnomon.model.machines.machine import find_machine
    >>> old = find_machine("E5-2640v4")
    >>> hows = ("life", "age", "sunk")
    >>> [round(embodied_rate_g_h(old, bought=2016, year=2024, how=h).mid, 3) for h in hows]
    [0.436, 0.272, 0.0]
    """
    if how not in get_args(Amortisation):
        known = ", ".join(get_args(Amortisation))
        raise InputError(f"no amortisation is called {how!r}", hint=f"known are {known}")
    age = max(0.0, year - bought) if bought and year else 0.0
    if how == "sunk" and age > machine.life_years:
        return Estimate.exact(0.0)
    years = max(machine.life_years, age) if how == "age" else machine.life_years
    return machine.embodied_kg * (1000.0 / (years * YEAR_H))


def grid_hours(intensity: Intensity, start_ns: npt.ArrayLike, end_ns: npt.ArrayLike) -> Ranges:
    """Intensity integrated over intervals, (g/kWh) x h: times kilowatts it is grams.

    The signal has to cover the intervals, and to have no gap in them.

    >>> hour_ns = 3600 * 10**9
    >>> grid = Signal.regular(0, hour_ns, [400.0, 200.0], unit="gCO2e/kWh", kind="grid")
    >>> grid_hours(grid, [0, hour_ns // 2], [hour_ns, 2 * hour_ns]).mid
    array([400., 400.])
    """
    starts = np.atleast_1d(np.asarray(start_ns, dtype=np.int64))
    ends = np.atleast_1d(np.asarray(end_ns, dtype=np.int64))
    if isinstance(intensity, Estimate):
        return Ranges.of((ends - starts) / HOUR_NS) * intensity
    unit = parse("gCO2e/kWh") * parse("h")
    mid = _without_rounding(intensity.integrate(starts, ends, unit=unit))
    if not intensity.has_range:
        return Ranges.of(mid)
    low, high = (
        _end_of(intensity, end).integrate(starts, ends, unit=unit) for end in ("low", "high")
    )
    return Ranges(np.minimum(_without_rounding(low), mid), mid, np.maximum(mid, high))


def _without_rounding(areas: Floats) -> Floats:
    """Differences of running sums may fall below zero by less than nothing."""
    return np.where((areas < 0) & (areas > -1e-6), 0.0, areas)


def power_grams(power: Signal, intensity: Intensity, pue: Estimate | float = 1.0) -> Estimate:
    """Operational grams of a power signal, over all of it; both ranges count."""
    if isinstance(intensity, Estimate):
        return power.integrate_estimate(unit="kWh") * intensity * pue
    span = (power.start_ns, power.end_ns)
    if power.start_ns < intensity.start_ns or power.end_ns > intensity.end_ns:
        intensity.integrate(*span)  # says what lies outside
    ends = [
        integrate_product(_end_of(power, end), _end_of(intensity, end), *span, unit="gCO2e")
        for end in ("low", "values", "high")
    ]
    return Estimate(min(ends), ends[1], max(ends)) * pue


def _end_of(signal: Signal, end: str) -> Signal:
    if not signal.has_range:
        return signal
    return signal.replace(values=getattr(signal, end), low=None, high=None)


def osci(operational_g: Amount, work: float | Floats) -> Amount:
    """oSCI = E I / R: what a scheduler should minimise; embodied carbon is sunk by then."""
    return _over(operational_g, work)


def sci(operational_g: Amount, embodied_g: Amount, work: float | Floats) -> Amount:
    """SCI = (E I + M) / R with M = TE (T RR) / (EL TR) (ISO/IEC 21031): for procurement.

    The pair of section 3.2: SCI takes A, though with B the cluster emits less in total.

    >>> a = sci(Estimate.exact(0.83), Estimate.exact(0.11), 1.0)
    >>> b = sci(Estimate.exact(0.56), Estimate.exact(0.45), 1.0)
    >>> round(a.mid, 2), round(b.mid, 2)
    (0.94, 1.01)
    """
    return _over(operational_g + embodied_g, work)


def tsci(
    operational_g: Amount,
    embodied_g: Amount,
    idle_operational_g: Amount,
    idle_embodied_g: Amount,
    work: float | Floats,
) -> Amount:
    """tSCI = (tO + tM) / R: SCI plus the job's share of what idle capacity costs meanwhile.

    The shares come from `gnomon.model.attribution.share_idle`; summed over all jobs, tSCI x R is
    the carbon of the whole fleet.
    """
    return _over(operational_g + embodied_g + idle_operational_g + idle_embodied_g, work)


def cci(
    operational_g: Amount, embodied_g: Amount, work: float | Floats, network_g: float = 0.0
) -> Amount:
    """CCI: all carbon of a device's life over all work of its life (Junkyard Computing, 2023).

    Unlike SCI, the embodied part is the whole of it: `operational_g`, `network_g` and `work` are
    of the life as well.
    """
    return _over(operational_g + embodied_g + network_g, work)


def carbon_delay(carbon_g: Amount, delay_s: float | Floats) -> Amount:
    """tCDP, the carbon-delay product in gram-seconds: slowness weighs as much as carbon (ACT)."""
    return cast("Amount", carbon_g * cast("Any", delay_s))


def rsci(
    operational_g: Amount,
    work: float | Floats,
    reported_g: Estimate | float,
    all_operational_g: Estimate | float,
) -> Amount:
    """rSCI = oSCI x C_reported / O_all: the order of oSCI, adding up to a provider's report.

    Shares are of the mids, and the range is the report's: all jobs together are wrong by what the
    report is wrong by, and not by the range of the energy that it is shared by as well.
    """
    everything = (
        all_operational_g.mid if isinstance(all_operational_g, Estimate) else all_operational_g
    )
    if not everything > 0:
        raise InputError("rSCI needs operational carbon to share a report by")
    shared = _known(operational_g) * (1 / everything)
    return _over(cast("Amount", shared * cast("Any", reported_g)), work)


def _known(amount: Amount) -> Amount:
    if isinstance(amount, Estimate):
        return Estimate.exact(amount.mid)
    return Ranges.of(amount.mid)


def _over(amount: Amount, work: float | Floats) -> Amount:
    if not np.all(np.asarray(work) > 0):
        raise InputError("work (R) has to be above zero", hint="what would one of it be?")
    return cast("Amount", amount / cast("Any", work))


def account_timeline(
    timeline: Timeline,
    machine: Machine,
    intensity: Intensity,
    *,
    start_ns: int = 0,
    device_of: Callable[[str], str | None] = lambda lane: lane.partition("/")[0],
    kinds: Sequence[str] | None = None,
    load: float = 1.0,
    pue: Estimate | float = 1.0,
    bought: int = 0,
    year: float = 0,
    how: Amortisation = "life",
) -> dict[str, Carbon]:
    """Carbon of any timeline, by device: busy at `load`, idle for the rest of the makespan.

    Args:
        start_ns: When the first task started, on the intensity's clock.
        device_of: The device a lane belongs to, None for lanes that are no device's; without it
            the part of a lane's name before its first slash, as in 'rank 0/stream 7'.
        kinds: The kinds of tasks that keep a device busy; all of them unless given.
        bought: Year the devices were bought; 0 where unknown.

    >>> from gnomon.graph import WorkGraph
    >>> from gnomon.model.machines.machine import find_machine
    >>> g = WorkGraph.from_columns(["gpu 0", "gpu 1"], [3600 * 10**9, 1800 * 10**9])
    >>> line = Timeline(g, np.array([0, 0]))
    >>> account = account_timeline(line, find_machine("H100"), Estimate.exact(400.0))
    >>> {device: round(carbon.operational_g.mid) for device, carbon in account.items()}
    {'gpu 0': 280, 'gpu 1': 154}
    """
    graph = timeline.graph
    device = [device_of(lane) for lane in graph.lanes]
    counted = np.ones(len(timeline), dtype=bool)
    if kinds is not None:
        known = [k for k, name in enumerate(graph.kinds) if name in set(kinds)]
        counted = np.isin(graph.kind, known)
    shift = start_ns - timeline.begin_ns
    whole = grid_hours(intensity, [start_ns], [start_ns + timeline.makespan_ns])[0]
    hours = timeline.makespan_ns / HOUR_NS
    embodied = embodied_rate_g_h(machine, bought=bought, year=year, how=how) * hours
    busy_w = draw_w(machine, load)
    answer: dict[str, Carbon] = {}
    for name in dict.fromkeys(name for name in device if name is not None):
        lanes = [lane for lane, of in enumerate(device) if of == name]
        tasks = counted & np.isin(graph.lane, lanes)
        starts, ends = union_of_spans(timeline.start_ns[tasks], timeline.end_ns[tasks])
        busy_h = float((ends - starts).sum()) / HOUR_NS
        busy = grid_hours(intensity, starts + shift, ends + shift).total()
        pairs = ((whole.low, busy.low), (whole.mid, busy.mid), (whole.high, busy.high))
        rest = Estimate(*sorted(max(0.0, all_h - busy_part) for all_h, busy_part in pairs))
        energy = (busy_w * busy_h + machine.idle_w * (hours - busy_h)) * 1e-3 * pue
        grams = (busy_w * busy + machine.idle_w * rest) * 1e-3 * pue
        answer[name] = Carbon(energy, grams, embodied)
    return answer
