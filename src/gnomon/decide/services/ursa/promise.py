"""What options of services promise, what is asked of them, and the answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gnomon.decide.services.ursa.paths import Paths


class Promise(msgspec.Struct, frozen=True):
    """Of a class at a service: at most `residual` percent of calls take longer than `time_ms`."""

    residual: float
    time_ms: float


class Candidate(msgspec.Struct, frozen=True):
    """An option of a service in the program.

    Attributes:
        cores: What it costs at the present load.
        promises: By class: what it can promise.
    """

    cores: float
    promises: dict[str, tuple[Promise, ...]]


class Target(msgspec.Struct, frozen=True):
    """A class with an SLA."""

    paths: Paths
    bound_ms: float
    percentile: float


class Solution(msgspec.Struct, frozen=True):
    """The answer.

    Attributes:
        chosen: By service: the place of its option.
        promised: By service and class: what was promised.
        cores: Of all services.
        gap: Between this and the best that may be possible, as a share.
        seconds: That the solver took.
    """

    chosen: dict[str, int]
    promised: dict[str, dict[str, Promise]]
    cores: float
    gap: float
    seconds: float


def undominated(promises: Sequence[Promise]) -> tuple[Promise, ...]:
    """Without those that are beaten in both by another."""
    kept: list[Promise] = []
    for one in sorted(promises, key=lambda p: (p.time_ms, p.residual)):
        if not kept or one.residual < kept[-1].residual:
            kept.append(one)
    return tuple(kept)
