"""Operating points of every service: how much load a replica carried, and how fast it was then."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.services.ursa.latencies import Latencies
from gnomon.errors import InputError
from gnomon.graph.application import Application

Floats = NDArray[np.float64]

FORMAT = "gnomon-exploration/1"


class Option(msgspec.Struct, frozen=True):
    """One operating point of a service.

    Attributes:
        cpu_limit: Cores of one replica.
        load: By class: calls per second that one replica got.
        utilisation: CPU used over the limit.
        latencies: By class: of its calls here, without the calls below.
    """

    cpu_limit: float
    load: dict[str, float]
    utilisation: float
    latencies: dict[str, Latencies]


class Explored(msgspec.Struct, frozen=True):
    """What is known of a service.

    Attributes:
        fingerprint: Of its definition and the calls to it: it is explored again if that changes.
        threshold: The utilisation up to which its callers do not wait for it.
        options: Least utilised first, of each level of load.
        samples: Windows that were measured.
        seconds: Time that they took, with settling.
        ended: Why exploration stopped.
    """

    fingerprint: str
    threshold: float
    options: tuple[Option, ...]
    samples: int
    seconds: float
    ended: str = ""


class Exploration(msgspec.Struct, frozen=True):
    """What is known of an application, service by service.

    Attributes:
        application: Its name.
        services: By name.
        correlation: By class: how alike the times of one request are at its services, so that the
            end-to-end latency that was measured comes out.
        format: Of the file.
    """

    application: str
    services: dict[str, Explored]
    correlation: dict[str, float] = {}
    format: str = FORMAT

    @property
    def samples(self) -> int:
        return sum(one.samples for one in self.services.values())

    @property
    def hours(self) -> float:
        return sum(one.seconds for one in self.services.values()) / 3600.0

    def write(self, path: str | os.PathLike[str]) -> None:
        """Into a file, all or nothing."""
        part = Path(f"{os.fspath(path)}.part")
        part.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=0))
        part.replace(path)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Exploration:
        """From a file that `write` made.

        Raises:
            InputError: It is not one.
        """
        try:
            found = msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except OSError as error:
            raise InputError(f"{os.fspath(path)}: {error.strerror or error}",
                             hint="`gnomon services explore` writes it") from None  # fmt: skip
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{os.fspath(path)} is not an exploration: {error}") from None
        if found.format != FORMAT:
            raise InputError(f"{os.fspath(path)}: format {found.format!r} is not {FORMAT!r}")
        return found

    def check(self, app: Application) -> None:
        """That it is about this application.

        Raises:
            InputError: It lacks a service.
        """
        called = {name for visits in app.visits().values() for name in visits}
        lacking = sorted(called - set(self.services))
        if lacking:
            raise InputError(f"{', '.join(lacking[:3])} of {app.name} was not explored",
                             hint="`gnomon services explore` adds what is missing")  # fmt: skip

    def changed(self, app: Application) -> list[str]:
        """Services that are not what they were when they were explored."""
        return [name for name in app.services if name in self.services
                and self.services[name].fingerprint != fingerprint(app, name)]  # fmt: skip


def fingerprint(app: Application, service: str) -> str:
    """Of all that makes a service fast or slow: itself and the calls to it."""
    calls = [
        (name, call.cpu_ms, call.wait_ms, call.mode, len(call.then))
        for name, one in app.classes.items()
        for call in one.call.walk()
        if call.service == service
    ]
    about = msgspec.structs.replace(app.services[service], replicas=1, cpu_limit=None)
    return digest([about, calls, app.period_ms, app.tick_ms])


def digest(about: Any) -> str:
    """The same for the same content, whatever the order of its keys."""
    plain = msgspec.to_builtins(about, str_keys=True)  # percentiles of a time are numbers
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:16]


def service_loads(app: Application, class_rate: dict[str, float]) -> dict[str, dict[str, float]]:
    """By service and class: calls per second, from the requests per second of each class.

    >>> from gnomon.graph.application import Call, RequestClass, Service
    >>> twice = RequestClass(Call("web", then=((Call("db"), Call("db")),)))
    >>> app = Application("two", {"web": Service(), "db": Service()}, {"get": twice})
    >>> service_loads(app, {"get": 10.0})
    {'web': {'get': 10.0}, 'db': {'get': 20.0}}
    """
    loads: dict[str, dict[str, float]] = {name: {} for name in app.services}
    for name, visits in app.visits().items():
        for service, calls in visits.items():
            if calls > 0:
                loads[service][name] = calls * class_rate.get(name, 0.0)
    return loads


def times_explored(option: Option, load: dict[str, float]) -> float:
    """How many replicas of an option a load needs, as a number with a fraction.

    Inf where a class comes that the option was never seen with.
    """
    most = 0.0
    for name, calls in load.items():
        if calls <= 0:
            continue
        known = option.load.get(name, 0.0)
        most = max(most, calls / known if known > 0 else math.inf)
    return most


class Size(msgspec.Struct, frozen=True):
    """Replicas and the limit of each."""

    replicas: int
    cpu_limit: float

    @property
    def cores(self) -> float:
        return self.replicas * self.cpu_limit


def size_for(
    app: Application, service: str, option: Option, load: dict[str, float], now: int
) -> Size | None:
    """The smallest size that is at least as good as an option, for a load; None if none is.

    A replica with twice the limit and twice the load is no slower: more quota in the same period,
    less chance that a burst uses it up. So up to `cpu_max`, and to what its workers can use,
    replicas grow; beyond that there are more of them. Of equal sizes the one nearest to the
    replicas that run now is taken.
    """
    about = app.services[service]
    needed = times_explored(option, load)
    if math.isinf(needed) or option.cpu_limit > about.cpu_max * (1 + 1e-9):
        return None
    # A single thread cannot use more than a core, whatever its limit.
    most = max(min(about.cpu_max, float(about.workers)), option.cpu_limit)
    fewest = max(1, math.ceil(needed * option.cpu_limit / most - 1e-9))
    if fewest > about.replicas_max:
        return None
    # More replicas than the load needs would each be larger than the option for nothing.
    useful = min(max(fewest, math.floor(needed + 1e-9)), about.replicas_max)
    count = min(max(now, fewest), useful)
    limit = option.cpu_limit * max(needed / count, 1.0)
    return Size(count, min(max(limit, about.cpu_min), most))
