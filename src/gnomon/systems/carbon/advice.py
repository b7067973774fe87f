"""Advice in words: what sorting by a metric costs on this fleet, and what to sort by instead."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from gnomon.systems.carbon.metric import Metric

#: Less than this is not worth a change.
_MATTERS_PCT = 0.5


class Cost(msgspec.Struct, frozen=True):
    """What a metric adds to the best, in per cent.

    Attributes:
        operational_pct: Added operational carbon.
        total_pct: Added carbon with all embodied carbon on both sides.
    """

    metric: Metric
    operational_pct: float
    total_pct: float


def advise(costs: Iterable[Cost], best: Metric, where: str) -> list[str]:
    """A sentence a metric, the costly ones first.

    Args:
        where: The circumstances, as 'on this fleet at 58 % utilisation'.

    >>> from gnomon.systems.carbon.metric import METRICS
    >>> print(*advise([Cost(METRICS["sci"], 24.4, 10.9)], METRICS["osci"], "here"))
    You sort by SCI; here that costs 24.4 % more operational carbon (10.9 % of all): sort by oSCI.
    """
    ranked = sorted(costs, key=lambda cost: -cost.total_pct)
    matter = [c for c in ranked if max(c.operational_pct, c.total_pct) >= _MATTERS_PCT]
    if not matter:
        return [f"Every metric asked for is within {_MATTERS_PCT} % of the best {where}."]
    return [
        f"You sort by {cost.metric.title}; {where} that costs {_more(cost.operational_pct)} "
        f"operational carbon ({_of_all(cost.total_pct)}): sort by {best.title}."
        for cost in matter
    ]


def _more(pct: float) -> str:
    return f"{pct:.1f} % more" if math.isfinite(pct) else "some, where none is needed, of"


def _of_all(pct: float) -> str:
    return f"{pct:.1f} % of all" if math.isfinite(pct) else "all there is"
