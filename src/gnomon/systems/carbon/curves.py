"""Curves: how much carbon a metric adds, by utilisation, embodied share, life, grid, idle power.

Servers are filled in the order of a metric until the demand is met, as in sections 4 and 5 of the
Sunk Carbon Fallacy (arXiv 2410.15087). Every server has been built, so all embodied carbon stands
on both sides. With servers that stay on, filling by what one more job adds is optimal: the
operational carbon of a fleet is then a sum over work, and the least sum takes the cheapest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from gnomon.errors import InputError
from gnomon.systems.carbon.metric import METRICS, Metric, order_of
from gnomon.systems.carbon.supply import Floats, Supply


class Added(msgspec.Struct, frozen=True, eq=False):
    """What a metric adds to the best, along some axis.

    Attributes:
        at: The axis: utilisation (0 to 1), share, years, g/kWh ...
        total_pct: Added carbon with all embodied carbon on both sides.
    """

    at: Floats
    operational_pct: Floats
    total_pct: Floats


def filled_g_h(
    supply: Supply, order: Sequence[int], utilisation: ArrayLike, g_kwh: float, *,
    sleep: bool = False,
) -> Floats:  # fmt: skip
    """Operational g/h of the fleet, its servers filled in this order.

    Args:
        order: Groups, the first to be filled first.
        utilisation: Share of the fleet's points in use.
    """
    used = np.asarray(utilisation, dtype=float) * supply.capacity.sum()
    groups = list(order)
    rate = supply.operational_g(g_kwh) if sleep else supply.marginal_g(g_kwh)
    points = np.concatenate([[0.0], np.cumsum(supply.capacity[groups])])
    grams = np.concatenate([[0.0], np.cumsum((supply.capacity * rate)[groups])])
    idle = 0.0 if sleep else float((supply.servers * supply.idle_w).sum())
    filled: Floats = np.interp(used, points, grams)
    return filled + idle * supply.pue * g_kwh / 1000.0


def best_order(supply: Supply, g_kwh: float, *, sleep: bool = False) -> list[int]:
    """The order that emits least at any demand."""
    return order_of(METRICS["tsci"], supply, g_kwh, sleep=sleep)


def _added(
    supply: Supply, order: Sequence[int], utilisation: ArrayLike, g_kwh: float, *,
    sleep: bool = False,
) -> tuple[Floats, Floats]:  # fmt: skip
    least = filled_g_h(
        supply, best_order(supply, g_kwh, sleep=sleep), utilisation, g_kwh, sleep=sleep
    )
    mine = filled_g_h(supply, order, utilisation, g_kwh, sleep=sleep)
    sunk = supply.embodied_total_g_h
    return _percent(mine, least), _percent(mine + sunk, least + sunk)


def _percent(mine: Floats, least: Floats) -> Floats:
    """How much more; nothing where there is nothing to compare with."""
    return 100.0 * np.divide(mine - least, least, out=np.zeros_like(mine), where=least > 0)


def added_by_utilisation(
    supply: Supply, metric: Metric, g_kwh: float, *, utilisation: ArrayLike | None = None,
    sleep: bool = False,
) -> Added:  # fmt: skip
    """What the metric adds, by share of the fleet's points in use; every half per cent."""
    at = np.linspace(0.0, 1.0, 201) if utilisation is None else np.asarray(utilisation, float)
    order = order_of(metric, supply, g_kwh, sleep=sleep)
    return Added(at, *_added(supply, order, at, g_kwh, sleep=sleep))


def largest(
    supply: Supply, order: Sequence[int], g_kwh: float, *, sleep: bool = False
) -> tuple[float, float, float]:
    """The largest added operational and total carbon over all utilisations, and where it is.

    Between two corners of the filled points both curves are ratios of straight lines, which have
    no peak of their own: looking at the corners is exact.
    """
    whole = supply.capacity.sum()
    filled = [
        np.cumsum(supply.capacity[list(groups)]) / whole
        for groups in (order, best_order(supply, g_kwh, sleep=sleep))
    ]
    corners = np.unique(np.clip(np.concatenate([[0.0, 1e-9], *filled]), 0.0, 1.0))
    operational, total = _added(supply, order, corners, g_kwh, sleep=sleep)
    return float(operational.max()), float(total.max()), float(corners[operational.argmax()])


def added_by_share(
    supply: Supply, metric: Metric, shares: ArrayLike, g_kwh: float, *, sort_anew: bool = False,
    sleep: bool = False,
) -> Added:  # fmt: skip
    """The largest that is added, by embodied share of the carbon of a point-hour.

    Args:
        shares: From 0 to 1; at each the grid is the one that makes this share.
        sort_anew: Whether servers are re-sorted at each share. Otherwise, as in the paper, the
            order of today stays: the curve is then what the choice costs, whoever made it.
    """
    at = np.asarray(shares, dtype=float)
    if ((at < 0) | (at > 1)).any():
        raise InputError("a share lies between 0 and 1")
    embodied, operational = supply.embodied_g().sum(), supply.operational_g(1.0).sum()
    if operational <= 0:
        raise InputError("no machine of the fleet draws any power")
    rows = []
    for share in at.tolist():
        if share >= 1.0:  # a grid without carbon: no choice adds any
            rows.append((0.0, 0.0))
            continue
        grid = float(embodied * (1.0 - share) / (operational * max(share, 1e-9)))
        order = order_of(metric, supply, grid if sort_anew else g_kwh, sleep=sleep)
        rows.append(largest(supply, order, grid, sleep=sleep)[:2])
    return _as_added(at, rows)


def added_by_life(
    lived: Callable[[float], Supply], metric: Metric, years: ArrayLike, g_kwh: float, *,
    today: Supply | None = None, sleep: bool = False,
) -> Added:  # fmt: skip
    """The largest that is added, by expected life.

    Args:
        today: The fleet whose order stays at every life, as in the paper; without it servers are
            re-sorted.
    """
    at = np.asarray(years, dtype=float)
    if (at <= 0).any():
        raise InputError("a life has to be longer than nothing")
    rows = []
    for life in at.tolist():
        supply = lived(life)
        order = order_of(metric, today or supply, g_kwh, sleep=sleep)
        rows.append(largest(supply, order, g_kwh, sleep=sleep)[:2])
    return _as_added(at, rows)


def added_by_grid(
    supply: Supply, metric: Metric, g_kwh: ArrayLike, *, sleep: bool = False
) -> Added:
    """The largest that is added, by how dirty the grid is."""
    at = np.asarray(g_kwh, dtype=float)
    return _as_added(at, [_largest(supply, metric, grams, sleep=sleep) for grams in at.tolist()])


def added_by_idle(
    supply: Supply, metric: Metric, shares: ArrayLike, g_kwh: float, *, sleep: bool = False
) -> Added:
    """The largest that is added, by idle power as a share of peak power, the same for all."""
    at = np.asarray(shares, dtype=float)
    if ((at < 0) | (at > 1)).any():
        raise InputError("idle power lies between 0 and 1 of peak power")
    idling = [
        msgspec.structs.replace(supply, idle_w=supply.peak_w * share) for share in at.tolist()
    ]
    return _as_added(at, [_largest(fleet, metric, g_kwh, sleep=sleep) for fleet in idling])


def _largest(supply: Supply, metric: Metric, g_kwh: float, *, sleep: bool) -> tuple[float, float]:
    order = order_of(metric, supply, g_kwh, sleep=sleep)
    return largest(supply, order, g_kwh, sleep=sleep)[:2]


def _as_added(at: Floats, rows: Sequence[tuple[float, float]]) -> Added:
    operational, total = np.array(rows, dtype=float).reshape(-1, 2).T
    return Added(at, operational, total)
