"""Metrics: which number a scheduler sorts servers by, and what order that makes.

The names are those of the Sunk Carbon Fallacy (arXiv 2410.15087, section 3). What has been built
has been emitted: sorting by a metric with embodied carbon in it (SCI) keeps old, hungry servers
busy. A server's own numbers are enough for most metrics; `tsci` needs the whole fleet, and summed
over all jobs it is the fleet's true total: what lowers that sum is what one more job adds. CCI is
for accounts only, `embodied` and `fastest` for sorting only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.sim.placement import Candidate
from gnomon.systems.carbon.supply import Floats, Supply

#: Every metric there is, for sorting or for accounts: what a reader calls it, by its name.
TITLES: Mapping[str, str] = {
    "sci": "SCI",
    "osci": "oSCI",
    "tsci": "tSCI",
    "cci": "CCI",
    "cdp": "CDP",
    "rsci": "rSCI",
    "embodied": "embodied",
    "fastest": "fastest",
}


class Metric(msgspec.Struct, frozen=True):
    """A number to sort servers by; less is better.

    Attributes:
        value: From the fleet and g/kWh, a number per group.
        knows_sleep: Whether it asks what waking a server costs.
    """

    name: str
    about: str
    value: Callable[[Supply, float], Floats]
    knows_sleep: bool = False

    @property
    def title(self) -> str:
        return TITLES[self.name]


def _sci(supply: Supply, g_kwh: float) -> Floats:
    return supply.operational_g(g_kwh) + supply.embodied_g()


def _delay(supply: Supply) -> Floats:
    """How long one thread takes for a point: the delay that carbon is multiplied with."""
    return supply.threads / supply.points


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("sci", "operational and embodied carbon of the server used", _sci),
        Metric(
            "tsci",
            "all carbon of the fleet, shared by those who use it: what one more job adds",
            Supply.marginal_g,
            knows_sleep=True,
        ),
        Metric("osci", "operational carbon of the server used", Supply.operational_g),
        Metric(
            "cdp", "carbon-delay product: SCI times the time a thread takes",
            lambda supply, g_kwh: _sci(supply, g_kwh) * _delay(supply),
        ),
        Metric(
            "rsci", "oSCI, scaled to the provider's report: the order of oSCI",
            Supply.operational_g,
        ),
        Metric(
            "embodied", "embodied carbon alone", lambda supply, _: supply.embodied_g()
        ),
        Metric("fastest", "time alone", lambda supply, _: _delay(supply)),
    )
}  # fmt: skip


def parse_metrics(text: str) -> list[Metric]:
    """Metrics from names with commas; `all` for every one."""
    return [METRICS[name] for name in parse_names(text, METRICS)]


def parse_names(text: str, known: Collection[str]) -> list[str]:
    """Names of metrics from a text with commas, each once; `all` for every one that is known.

    >>> parse_names("oSCI, sci,osci", ["sci", "osci"])
    ['osci', 'sci']
    """
    if text.strip().lower() == "all":
        return list(known)
    found = [_find(name, known) for name in text.split(",") if name.strip()]
    if not found:
        raise InputError("no metric was named", hint=f"known are {', '.join(known)}, or all")
    return list(dict.fromkeys(found))


def _find(text: str, known: Collection[str]) -> str:
    name = text.strip().lower()
    if name in known:
        return name
    hint = f"known are {', '.join(known)}, or all"
    if name in TITLES:
        raise InputError(f"{TITLES[name]} is no metric of this command", hint=hint)
    raise InputError(f"no metric is called {text.strip()!r}", hint=hint)


def order_of(metric: Metric, supply: Supply, g_kwh: float, *, sleep: bool = False) -> list[int]:
    """Groups from best to worst; of equals the first.

    Where servers without work sleep, a metric that knows of it counts idle power too.
    """
    knows = sleep and metric.knows_sleep
    value = supply.operational_g(g_kwh) if knows else metric.value(supply, g_kwh)
    return [int(group) for group in np.argsort(value, kind="stable")]


def candidates_of(
    metric: Metric, supply: Supply, g_kwh: float, *, sleep: bool = False
) -> list[list[Candidate]]:
    """Orders of candidates that follow from a metric: one, or several to choose the least from.

    Where empty servers sleep, a metric that knows of it ranks one that is awake by what a job
    adds, and a sleeping one by all its power at some load: filling up comes before waking up, but
    an efficient sleeper before a hungry server that is awake. At which load depends on how many
    jobs will follow the first, which nobody knows: one thread, a quarter and all are tried.
    """
    if not (sleep and metric.knows_sleep):
        return [[Candidate(group) for group in order_of(metric, supply, g_kwh)]]
    one = 1.0 / supply.threads
    loads = (one, np.maximum(0.25, one), np.ones_like(one))
    orders = []
    for load in loads:
        woken = supply.marginal_g(g_kwh) + (
            supply.idle_w * supply.pue * g_kwh / 1000.0 / (supply.points * load)
        )
        ranked = [
            *((value, 0, group) for group, value in enumerate(supply.marginal_g(g_kwh).tolist())),
            *((value, 1, group) for group, value in enumerate(woken.tolist())),
        ]
        order = [
            Candidate(group, "asleep" if part else "awake") for _, part, group in sorted(ranked)
        ]
        if order not in orders:
            orders.append(order)
    return orders
