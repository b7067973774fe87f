"""Applications: services that call one another, the classes of requests they get, their SLAs.

An application is what an `app.yaml` holds. The simulator and the process lab run the same object,
and readers of traces produce one. A request class is a tree of calls: each call names the service
that handles it, the CPU time it takes there, and the calls that it makes in turn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from gnomon.errors import InputError

#: Trees deeper or larger than this are mistakes (a cycle written out, a file cut and pasted).
_DEEPEST, _MOST_CALLS = 200, 100_000
_LONGEST_MS = 1e9
_MOST_CORES = 1e5

Server = Literal["cell", "nginx", "redis", "memcached"]


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time in milliseconds that varies from request to request.

    Log-normal with `mean` and coefficient of variation `cv`, constant where `cv` is 0;
    exponential; or measured: `quantiles` maps percentiles to milliseconds, with straight lines
    between them (0 and 100 are the least and the greatest).

    >>> Work(mean=3.0, cv=0.5).average, Work(quantiles={0: 1.0, 50: 2.0, 100: 5.0}).average
    (3.0, 2.5)
    """

    mean: float = 0.0
    cv: float = 0.0
    shape: Literal["lognormal", "exponential"] = "lognormal"
    quantiles: dict[float, float] = {}

    @property
    def average(self) -> float:
        if not self.quantiles:
            return self.mean
        points = sorted(self.quantiles.items())
        return sum((q - p) / 100 * (a + b) / 2 for (p, a), (q, b) in itertools.pairwise(points))

    def scaled(self, factor: float) -> Work:
        """The same distribution, `factor` times as long."""
        return msgspec.structs.replace(
            self,
            mean=self.mean * factor,
            quantiles={p: value * factor for p, value in self.quantiles.items()},
        )


Milliseconds = float | Work


def as_work(time: Milliseconds) -> Work:
    """A plain number is a constant time."""
    return time if isinstance(time, Work) else Work(mean=time)


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a service and what it calls in turn.

    Attributes:
        service: Who handles it.
        cpu_ms: CPU time there, without the calls below; spread evenly over the stretches before,
            between and after the stages of `then`.
        wait_ms: Time there off the CPU (a disk, a device, a remote store that is not modelled),
            after the first stretch of CPU time.
        then: Stages of calls. The calls of one stage are made in parallel, a stage begins when
            the one before has been answered.
        mode: `rpc` waits for the answer; `queue` puts a message into the service's queue and
            goes on.
        probability: Whether the call is made at all; drawn for every request.
        timeout_ms: When the caller gives up; the callee goes on working.
        retries: How often a failed or timed-out call is tried again.
        error_share: Of calls that fail at the service after their work.
        operation: The name of the endpoint, for reports.
    """

    service: str
    cpu_ms: Milliseconds = 0.0
    wait_ms: Milliseconds = 0.0
    then: tuple[tuple[Call, ...], ...] = ()
    mode: Literal["rpc", "queue"] = "rpc"
    probability: float = 1.0
    timeout_ms: float | None = None
    retries: int = 0
    error_share: float = 0.0
    operation: str = ""

    def walk(self) -> Iterator[Call]:
        """This call and all below, parents first."""
        left = [self]
        while left:
            call = left.pop()
            yield call
            left += [below for stage in reversed(call.then) for below in reversed(stage)]


class Sla(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A latency bound at a percentile.

    Attributes:
        percentile: Of requests, in percent.
        bound_ms: What it may be at most.
        until: `reply`: until the client has its answer; `all`: until queued work is done too.
    """

    bound_ms: float
    percentile: float = 99.0
    until: Literal["reply", "all"] = "reply"


class RequestClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of request: its call tree, share of the load, priority and SLA.

    Attributes:
        call: The root of the tree.
        share: Of all requests, relative to the other classes.
        priority: Higher ones are taken first from every queue.
        sla: What is promised; nothing where None.
        timeout_ms: When the client gives up.
        correlation: How alike the times of one request are: 0, each is drawn by itself; towards
            1, a request that is slow at one service is slow at all (a Gaussian copula).
    """

    call: Call
    share: float = 1.0
    priority: int = 0
    sla: Sla | None = None
    timeout_ms: float | None = None
    correlation: float = 0.0


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service and what its replicas have.

    Attributes:
        replicas: At the start.
        cpu_limit: Cores that one replica may use on average over each CFS period; None: no limit.
        cpu_request: Its weight where a host's cores are contended.
        workers: Threads of a replica: so many stretches of CPU time run at once.
        blocking: A worker is held from a request's start to its end, calls included (a thread per
            request); else only while it computes (an event loop).
        pools: Connections that a replica has to another service; as many as needed unless given.
        queue_limit: Requests that may wait at a replica before more are refused.
        startup_s: From the decision to a replica that answers.
        host: Where it runs; alone, with all cores it can use, unless given.
        server: What the lab starts for it: our own program, or a real server.
        overhead_ms: CPU time of a request besides `cpu_ms` (parsing, system calls). Measured in
            the lab, where it is spent anyway; the simulator adds it.
        cpu_min: The least limit that a manager may set.
        cpu_max: The greatest; where replicas have no limit, what managers fall back to.
        replicas_max: The most replicas that a manager may ask for.
    """

    replicas: int = 1
    cpu_limit: float | None = None
    cpu_request: float = 1.0
    workers: int = 16
    blocking: bool = False
    pools: dict[str, int] = {}
    queue_limit: int | None = None
    startup_s: float = 0.0
    host: str = ""
    server: Server = "cell"
    overhead_ms: Milliseconds = 0.0
    cpu_min: float = 0.1
    cpu_max: float = 8.0
    replicas_max: int = 10


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine that services share, and its noisy neighbours.

    Attributes:
        cores: What it has.
        noise_cores: What foreign processes take while they are busy, with a weight of one core
            each; the times are exponential.
        noise_on_s: How long they are busy, on average.
        noise_off_s: How long they pause.
    """

    cores: float
    noise_cores: float = 0.0
    noise_on_s: float = 1.0
    noise_off_s: float = 1.0


class Application(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Services, request classes and hosts.

    Attributes:
        services: By name.
        classes: By name.
        hosts: By name; services name the one they run on.
        network_ms: One way between two services.
        period_ms: The CFS period of all limits.
        tick_ms: The kernel enforces limits at its ticks: 4 ms at 250 Hz; 0: at once.
        rate: Requests per second that it is made for; rate traces are scaled to it.

    >>> starter = Application("one", {"web": Service(workers=4)},
    ...                       {"get": RequestClass(Call("web", cpu_ms=2.0), sla=Sla(50.0))})
    >>> starter.cpu_demand("web")
    0.2
    """

    name: str
    services: dict[str, Service]
    classes: dict[str, RequestClass]
    hosts: dict[str, Host] = {}
    network_ms: Milliseconds = 0.0
    period_ms: float = 100.0
    tick_ms: float = 4.0
    rate: float = 100.0

    def __post_init__(self) -> None:
        _check(self)

    def shares(self) -> dict[str, float]:
        """The part of the requests that each class is; they add up to one."""
        total = math.fsum(one.share for one in self.classes.values())
        return {name: one.share / total for name, one in self.classes.items()}

    def visits(self) -> dict[str, dict[str, float]]:
        """Calls that one request of a class makes at each service on average, retries aside."""
        found: dict[str, dict[str, float]] = {}
        for name, one in self.classes.items():
            found[name] = {}
            for call, chance in _chances(one.call):
                found[name][call.service] = found[name].get(call.service, 0.0) + chance
        return found

    def cpu_demand(self, service: str, rate: float | None = None) -> float:
        """Cores that a service needs on average, at a rate or that of the application."""
        overhead = as_work(self.services[service].overhead_ms).average
        per_request_ms = sum(
            share * chance * (as_work(call.cpu_ms).average + overhead)
            for name, share in self.shares().items()
            for call, chance in _chances(self.classes[name].call)
            if call.service == service
        )
        return (self.rate if rate is None else rate) * per_request_ms / 1e3


class _Chance(NamedTuple):
    call: Call
    chance: float


def _chances(root: Call) -> Iterator[_Chance]:
    """Every call below with the chance that a request makes it."""
    left = [_Chance(root, root.probability)]
    while left:
        call, chance = left.pop()
        yield _Chance(call, chance)
        left += [
            _Chance(below, chance * below.probability) for stage in call.then for below in stage
        ]


def _check(app: Application) -> None:
    if not app.services or not app.classes:
        missing = "classes" if app.services else "services"
        raise InputError(
            f"an application needs at least one of its {missing}", where=f"$.{missing}"
        )
    _number(app.rate, "$.rate", above=0.0, most=1e9)
    _number(app.period_ms, "$.period_ms", least=1.0, most=1e3)
    _number(app.tick_ms, "$.tick_ms", least=0.0, most=app.period_ms)
    _time(app.network_ms, "$.network_ms")
    for name, host in app.hosts.items():
        where = f"$.hosts.{name}"
        _number(host.cores, f"{where}.cores", above=0.0, most=_MOST_CORES)
        _number(host.noise_cores, f"{where}.noise_cores", least=0.0, most=_MOST_CORES)
        for field in ("noise_on_s", "noise_off_s"):
            _number(getattr(host, field), f"{where}.{field}", least=1e-3, most=1e6)
    for name, service in app.services.items():
        _check_service(app, name, service)
    for name, one in app.classes.items():
        _check_class(app, name, one)
    if not math.fsum(one.share for one in app.classes.values()) > 0:
        raise InputError("every class has a share of 0", where="$.classes")


def _check_service(app: Application, name: str, service: Service) -> None:
    where = f"$.services.{name}"
    if not name or len(name) > 200 or any(ord(letter) < 33 or letter in '"\\/' for letter in name):
        raise InputError(f"{name!r} cannot name a service", where="$.services",
                         hint="letters, digits, - and _")  # fmt: skip
    if service.cpu_limit is not None:
        _number(service.cpu_limit, f"{where}.cpu_limit", least=0.0, most=_MOST_CORES)
    _number(service.cpu_request, f"{where}.cpu_request", above=0.0, most=_MOST_CORES)
    _number(service.startup_s, f"{where}.startup_s", least=0.0, most=1e6)
    _number(service.cpu_min, f"{where}.cpu_min", above=0.0, most=_MOST_CORES)
    _number(service.cpu_max, f"{where}.cpu_max", least=service.cpu_min, most=_MOST_CORES)
    _number(service.replicas, f"{where}.replicas", least=0, most=10_000)
    _number(service.replicas_max, f"{where}.replicas_max", least=1, most=10_000)
    _number(service.workers, f"{where}.workers", least=1, most=100_000)
    if service.queue_limit is not None:
        _number(service.queue_limit, f"{where}.queue_limit", least=0, most=10**9)
    _time(service.overhead_ms, f"{where}.overhead_ms")
    if service.host and service.host not in app.hosts:
        raise InputError(f"there is no host {service.host!r}", where=f"{where}.host",
                         hint="list it under hosts")  # fmt: skip
    for callee, connections in service.pools.items():
        if callee not in app.services:
            raise InputError(f"there is no service {callee!r}", where=f"{where}.pools")
        _number(connections, f"{where}.pools.{callee}", least=1, most=10**6)


def _check_class(app: Application, name: str, one: RequestClass) -> None:
    where = f"$.classes.{name}"
    if not name:
        raise InputError("a class needs a name", where="$.classes")
    _number(one.share, f"{where}.share", least=0.0, most=1e9)
    _number(one.priority, f"{where}.priority", least=-1000, most=1000)
    _number(one.correlation, f"{where}.correlation", least=0.0, most=1.0)
    if one.timeout_ms is not None:
        _number(one.timeout_ms, f"{where}.timeout_ms", above=0.0, most=_LONGEST_MS)
    if one.sla is not None:
        _number(one.sla.bound_ms, f"{where}.sla.bound_ms", above=0.0, most=_LONGEST_MS)
        _number(one.sla.percentile, f"{where}.sla.percentile", above=0.0, most=100.0)
    if one.call.mode == "queue" and one.call.retries:
        raise InputError("a queued request is not tried again", where=f"{where}.call.retries")
    count, left = 0, [(one.call, f"{where}.call", 1)]
    while left:
        call, path, depth = left.pop()
        count += 1
        if depth > _DEEPEST or count > _MOST_CALLS:
            what = f"calls nest deeper than {_DEEPEST}" if depth > _DEEPEST else "too many calls"
            raise InputError(what, where=where)
        _check_call(app, call, path)
        left += [
            (below, f"{path}.then[{i}]" + (f"[{j}]" if len(stage) > 1 else ""), depth + 1)
            for i, stage in enumerate(call.then)
            for j, below in enumerate(stage)
        ]


def _check_call(app: Application, call: Call, where: str) -> None:
    if call.service not in app.services:
        raise InputError(f"there is no service {call.service!r}", where=f"{where}.service",
                         hint=f"there are: {', '.join(list(app.services)[:20])}")  # fmt: skip
    _time(call.cpu_ms, f"{where}.cpu_ms")
    _time(call.wait_ms, f"{where}.wait_ms")
    _number(call.probability, f"{where}.probability", least=0.0, most=1.0)
    _number(call.error_share, f"{where}.error_share", least=0.0, most=1.0)
    _number(call.retries, f"{where}.retries", least=0, most=100)
    if call.timeout_ms is not None:
        _number(call.timeout_ms, f"{where}.timeout_ms", above=0.0, most=_LONGEST_MS)


def _time(time: Milliseconds, where: str) -> None:
    work = as_work(time)
    _number(work.mean, where, least=0.0, most=_LONGEST_MS)
    _number(work.cv, f"{where}.cv", least=0.0, most=100.0)
    if not work.quantiles:
        return
    points = sorted(work.quantiles.items())
    if points[0][0] != 0 or points[-1][0] != 100:
        raise InputError("quantiles begin with 0 and end with 100", where=f"{where}.quantiles")
    for (_, before), (percentile, value) in zip([(0.0, 0.0), *points], points):
        _number(value, f"{where}.quantiles.{percentile:g}", least=before, most=_LONGEST_MS)


def _number(
    value: float, where: str, *, least: float = -math.inf, above: float = -math.inf, most: float
) -> None:
    if math.isfinite(value) and least <= value <= most and value > above:
        return
    low = f"over {above:g}" if above > -math.inf else f"at least {least:g}"
    raise InputError(f"{value:g} is out of range", where=where, hint=f"{low}, at most {most:g}")
