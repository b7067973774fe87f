"""Services: how little CPU meets this SLA?

One application model for a native simulator, a lab of real processes and Kubernetes, and one shape
for the managers that set CPU limits and replicas on any of them. Ground for Sinan (Zhang et al.,
ASPLOS 2021) and Ursa (Zhang et al., HPCA 2024).

    app = read_application("bundled:social-network")
    outcome = simulate(Setup(app), "hpa", find_rate("diurnal", app.rate))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.lazy import lazy_names

if TYPE_CHECKING:
    from gnomon.systems.services.measure import Requests, Score
    from gnomon.systems.services.rates import Rate, find_rate
    from gnomon.systems.services.trial import Outcome, Setup, compare, simulate

__all__ = ["Outcome", "Rate", "Requests", "Score", "Setup", "compare", "find_rate", "simulate"]

__getattr__ = lazy_names(
    __name__,
    {
        "trial": ["Outcome", "Setup", "compare", "simulate"],
        "rates": ["Rate", "find_rate"],
        "measure": ["Requests", "Score"],
    },
)
