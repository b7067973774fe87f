"""Up to which utilisation do the callers of a service not wait for it?

Load comes through a proxy with all the CPU it wants and the connections and threads of a real
caller. The CPU limit of the tested service is raised step by step until the proxy's own p99, the
callee's time left out, is no longer greater than without a limit (Welch's test).
"""

from __future__ import annotations

import msgspec
import numpy as np

from gnomon.decide.services import PERCENTILES, Allocation, Window
from gnomon.decide.services.target import Target
from gnomon.graph.application import Application, Call, RequestClass, Service
from gnomon.model.welch import welch_greater
from gnomon.systems.services.ursa.stage import Stage

#: Utilisations that are tried, from starved to ample.
LADDER = (0.97, 0.94, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4)
#: Of a service that nobody waits for: queues and entries.
FREE = 0.9
_SIGNIFICANT = 0.05
_PROXY = "proxy"
_P99 = PERCENTILES.index(99.0)


def proxy_application(app: Application, service: str) -> Application | None:
    """A service behind a proxy that stands for its callers; None if nobody waits for it."""
    callers = [
        app.services[call.service]
        for one in app.classes.values()
        for call in one.call.walk()
        if any(b.service == service and b.mode == "rpc" for stage in call.then for b in stage)
    ]
    if not callers:
        return None
    pools = [one.pools[service] for one in callers if service in one.pools]
    proxy = Service(
        workers=min(one.workers for one in callers), blocking=any(one.blocking for one in callers),
        pools={service: min(pools)} if pools else {},
    )  # fmt: skip
    if not pools and not proxy.blocking:
        return None
    classes = {}
    shares, visits = app.shares(), app.visits()
    for name, one in app.classes.items():
        calls = [call for call in one.call.walk() if call.service == service]
        for number, call in enumerate(calls):
            below = msgspec.structs.replace(call, mode="rpc", probability=1.0)
            share = shares[name] * visits[name][service] / len(calls)
            classes[f"{name}-{number}"] = RequestClass(
                Call(_PROXY, cpu_ms=0.05, then=((below,),)), share=share, priority=one.priority
            )
    used = {call.service for one in classes.values() for call in one.call.walk()}
    services = {
        name: msgspec.structs.replace(about, cpu_limit=None, host="")
        for name, about in app.services.items()
        if name in used
    }
    pooled = {
        name: msgspec.structs.replace(
            about, pools={callee: size for callee, size in about.pools.items() if callee in used}
        )
        for name, about in services.items()
    }
    return Application(
        f"{app.name}-{service}", {_PROXY: proxy, **pooled}, classes, network_ms=app.network_ms,
        period_ms=app.period_ms, tick_ms=app.tick_ms,
    )  # fmt: skip


def backpressure_threshold(
    app: Application, service: str, rate: float, stage: Stage, *, window_s: float = 10.0,
    windows: int = 8,
) -> float:  # fmt: skip
    """The greatest utilisation at which callers of a service do not wait for it.

    Args:
        app: The application; its other services have no limits here.
        service: The tested one.
        rate: Requests per second of the whole application.
        stage: Where it runs.
        window_s: Each p99 is of so many seconds.
        windows: So many are compared.
    """
    tested = proxy_application(app, service)
    if tested is None:
        return FREE
    calls = rate * sum(share * app.visits()[name].get(service, 0.0)
                       for name, share in app.shares().items())  # fmt: skip
    if calls <= 0:
        return FREE
    seconds = (len(LADDER) + 2) * (windows + 1) * window_s
    at = list(tested.services).index(service)
    with stage(tested, calls, seconds) as target:
        ample = _p99(target, window_s, windows)
        demand = ample.usage[at]
        replicas = max(app.services[service].replicas, 1)
        for utilisation in LADDER:
            _limit(target, at, demand / utilisation / replicas)
            seen = _p99(target, window_s, windows)
            if welch_greater(seen.p99_ms, ample.p99_ms) > _SIGNIFICANT:
                return min(float(seen.utilisation[at]), 1.0)
    return LADDER[-1]


class _Seen(msgspec.Struct, frozen=True, eq=False):
    p99_ms: list[float]
    usage: np.ndarray[tuple[int], np.dtype[np.float64]]
    utilisation: np.ndarray[tuple[int], np.dtype[np.float64]]


def _p99(target: Target, window_s: float, windows: int) -> _Seen:
    target.observe(window_s)  # what the step before left behind drains
    seen: list[Window] = [target.observe(window_s) for _ in range(windows)]
    known = [float(np.nan_to_num(one.service_ms[_P99, 0], nan=1e6)) for one in seen]
    return _Seen(
        known, np.mean([one.usage for one in seen], axis=0),
        np.mean([one.utilisation for one in seen], axis=0),
    )  # fmt: skip


def _limit(target: Target, service: int, cores: float) -> None:
    limits = np.full(len(target.app.services), np.nan)
    limits[service] = cores
    target.apply(Allocation(limits, np.full(len(limits), -1, np.int64)))
