"""Carbon: what does it emit, and which number should I minimise?

The Sunk Carbon Fallacy (Bashir and others, SoCC 2024, arXiv 2410.15087): what has been built has
been emitted, so a scheduler that sorts servers by a metric with embodied carbon in it emits more.
Embodied carbon belongs to the purchase.

    fleet = read_fleet("bundled:mit-740")
    curves = curves_of(fleet, 10.0, parse_metrics("sci,osci"), year=2024, rng=default_rng(0))
    print(curves.worst["sci"])       # added operational and total carbon, and where
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.lazy import lazy_names

if TYPE_CHECKING:
    from gnomon.systems.carbon.buy import weigh_purchase
    from gnomon.systems.carbon.curves_result import curves_of
    from gnomon.systems.carbon.metric import parse_metrics
    from gnomon.systems.carbon.place import demand_of, place_jobs
    from gnomon.systems.carbon.wait import plan_wait, start_clean

__all__ = [
    "curves_of", "demand_of", "parse_metrics", "place_jobs", "plan_wait",
    "start_clean", "weigh_purchase",
]  # fmt: skip

__getattr__ = lazy_names(
    __name__,
    {
        "curves_result": ["curves_of"],
        "place": ["demand_of", "place_jobs"],
        "metric": ["parse_metrics"],
        "wait": ["plan_wait", "start_clean"],
        "buy": ["weigh_purchase"],
    },
)
