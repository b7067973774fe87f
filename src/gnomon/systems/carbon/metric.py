"""Metrics: which number a scheduler sorts servers by, and what order that makes.

The names are those of the Sunk Carbon Fallacy (arXiv 2410.15087, section 3). What has been built
has been emitted: sorting by a metric with embodied carbon in it (SCI, CCI) keeps old, hungry
servers busy. A server's own numbers are enough for most metrics; `tsci` needs the whole fleet, and
summed over all jobs it is the fleet's true total: what lowers that sum is what one more job adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.sim.placement import Candidate
from gnomon.systems.carbon.supply import Floats, Supply

__all__ = ["METRICS", "Metric", "candidates_of", "find_metric", "order_of", "parse_metrics"]


class Metric(msgspec.Struct, frozen=True):
    """A number to sort servers by; less is better.

    Attributes:
        name: What the command line calls it.
        title: What a reader calls it.
        about: What it counts.
        value: From the fleet and grams a kWh, a number a group.
        knows_sleep: Whether it asks what waking a server costs.
    """

    name: str
    title: str
    about: str
    value: Callable[[Supply, float], Floats]
    knows_sleep: bool = False


def _sci(supply: Supply, g_kwh: float) -> Floats:
    return supply.operational_g(g_kwh) + supply.embodied_g()


def _delay(supply: Supply) -> Floats:
    """How long one thread takes for a point: the delay that carbon is multiplied with."""
    return supply.threads / supply.points


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("sci", "SCI", "operational and embodied carbon of the server used", _sci),
        Metric(
            "tsci",
            "tSCI",
            "all carbon of the fleet, shared by those who use it: what one more job adds",
            Supply.marginal_g,
            knows_sleep=True,
        ),
        Metric("osci", "oSCI", "operational carbon of the server used", Supply.operational_g),
        Metric(
            "cdp", "CDP", "carbon-delay product: SCI times the time a thread takes",
            lambda supply, g_kwh: _sci(supply, g_kwh) * _delay(supply),
        ),
        Metric(
            "rsci", "rSCI", "oSCI, scaled to the provider's report: the order of oSCI",
            Supply.operational_g,
        ),
        Metric(
            "embodied", "embodied", "embodied carbon alone", lambda supply, _: supply.embodied_g()
        ),
        Metric("fastest", "fastest", "time alone", lambda supply, _: _delay(supply)),
    )
}  # fmt: skip


def find_metric(name: str) -> Metric:
    """A metric by name.

    >>> find_metric("oSCI").title
    'oSCI'
    """
    try:
        return METRICS[name.strip().lower()]
    except KeyError:
        raise InputError(
            f"no metric is called {name!r}", hint=f"known are {', '.join(METRICS)}, or all"
        ) from None


def parse_metrics(text: str) -> list[Metric]:
    """Metrics from names with commas; `all` for every one."""
    if text.strip().lower() == "all":
        return list(METRICS.values())
    found = [find_metric(name) for name in text.split(",") if name.strip()]
    if not found:
        raise InputError("no metric was named", hint=f"known are {', '.join(METRICS)}, or all")
    return list(dict.fromkeys(found))


def order_of(metric: Metric, supply: Supply, g_kwh: float) -> list[int]:
    """Groups from best to worst; of equals the first."""
    return [int(group) for group in np.argsort(metric.value(supply, g_kwh), kind="stable")]


def candidates_of(
    metric: Metric, supply: Supply, g_kwh: float, *, sleep: bool = False
) -> Sequence[Candidate]:
    """The order as candidates for jobs.

    Where empty servers sleep, a metric that knows of it ranks a sleeping server by all its power
    at full load, and one that is awake by what the job adds: filling up comes before waking up,
    but an efficient sleeper before a hungry server that is awake.
    """
    if not (sleep and metric.knows_sleep):
        return [Candidate(group) for group in order_of(metric, supply, g_kwh)]
    ranked = [
        *((value, 0, group) for group, value in enumerate(supply.marginal_g(g_kwh).tolist())),
        *((value, 1, group) for group, value in enumerate(supply.operational_g(g_kwh).tolist())),
    ]
    return [Candidate(group, "asleep" if part else "awake") for _, part, group in sorted(ranked)]
