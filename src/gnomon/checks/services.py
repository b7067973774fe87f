"""Cases for managers of services, and what holds of every run, decision by decision."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from gnomon.decide.services import Rails, ServicePolicy, SimTarget, manage
from gnomon.decide.services.guard import Decision
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla, Work
from gnomon.sim.mesh import poisson_requests

_SEED = 20_240_229
_SECONDS = 90


class ServiceCase(msgspec.Struct, frozen=True, eq=False):
    """An application, the rate of every second, and how far the manager is trusted."""

    app: Application
    rates: tuple[float, ...]
    rails: Rails = Rails(patience=10**6)


def run_service_case(policy: ServicePolicy, case: ServiceCase) -> list[Decision]:
    """One case under a manager."""
    arrivals = poisson_requests(case.app, case.rates, seed=_SEED)
    target = SimTarget(case.app, arrivals, seed=_SEED)
    run = manage(target, policy, duration_s=len(case.rates), seed=_SEED, rails=case.rails)
    return run.decisions


def no_decision_fails(case: ServiceCase, run: list[Decision]) -> None:
    """The manager answers every window, with an allocation for every service."""
    for decision in run:
        assert "failed" not in decision.reason, decision.reason


def within_bounds(case: ServiceCase, run: list[Decision]) -> None:
    """Limits and replicas stay within what the application allows."""
    services = list(case.app.services.values())
    for decision in run:
        limits, counts = decision.allocation.cpu_limit, decision.allocation.replicas
        for service, limit, count in zip(services, limits, counts):
            fits = np.isnan(limit) or service.cpu_min <= limit <= service.cpu_max
            assert fits, f"a limit of {limit:g} at {decision.window.now_s:g} s"
            most = max(service.replicas_max, service.replicas)
            assert count in range(-1, most + 1), f"{count} replicas"
            assert count != 0, f"no replica at {decision.window.now_s:g} s"


SERVICE_INVARIANTS: dict[str, Callable[[ServiceCase, list[Decision]], None]] = {
    check.__name__: check for check in (no_decision_fails, within_bounds)
}


def service_cases() -> dict[str, ServiceCase]:
    """Applications: without a request, with one service, overloaded, and with a surge.

    >>> list(service_cases())
    ['empty', 'single', 'overloaded', 'surge']
    """
    chain = Application(
        "chain",
        {
            "web": Service(cpu_limit=0.5, replicas=2, cpu_max=2.0),
            "logic": Service(cpu_limit=1.0, cpu_max=3.0, startup_s=2.0),
            "store": Service(),
        },
        {
            "read": RequestClass(
                Call("web", cpu_ms=1.0, then=((Call("logic", cpu_ms=Work(mean=4.0, cv=0.5)),),)),
                sla=Sla(50.0),
            ),
            "write": RequestClass(
                Call("web", cpu_ms=1.0, then=((Call("store", cpu_ms=1.0, mode="queue"),),)),
                share=0.2,
            ),
        },
    )
    single = Application(
        "single", {"web": Service(cpu_limit=0.3)}, {"get": RequestClass(Call("web", cpu_ms=2.0))}
    )
    return {
        "empty": ServiceCase(chain, (0.0,) * _SECONDS),
        "single": ServiceCase(single, (50.0,) * _SECONDS),
        "overloaded": ServiceCase(chain, (900.0,) * 20),
        "surge": ServiceCase(chain, (60.0,) * 40 + (240.0,) * 20 + (60.0,) * 30),
    }
