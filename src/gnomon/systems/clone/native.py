"""Two services natively, in turns: throughput, latency, CPU time, hardware counters."""

from __future__ import annotations

from functools import partial

import msgspec

from gnomon.systems.clone.client import Load
from gnomon.systems.clone.counters import counted
from gnomon.systems.clone.launch import naming, serving
from gnomon.systems.clone.profile import Progress

#: How long a load takes, and the share of capacity at which latency is measured.
_LOAD_S, _BELOW = 2, 0.6
_FEWEST = 1000


class Run(msgspec.Struct, frozen=True):
    """One launch of a service; times are of a request."""

    rps: float
    seconds: float
    user_us: float
    system_us: float
    p50_ms: float | None
    p99_ms: float | None
    counters: dict[str, float] = {}

    @property
    def ipc(self) -> float | None:
        """Instructions per cycle."""
        return self._ratio("instructions", "cycles")

    @property
    def cache_mpki(self) -> float | None:
        """Misses of the last cache per 1,000 instructions."""
        found = self._ratio("cache-misses", "instructions")
        return None if found is None else 1000 * found

    def _ratio(self, above: str, below: str) -> float | None:
        counts = self.counters
        return counts[above] / counts[below] if above in counts and counts.get(below) else None

    @property
    def cpu_us(self) -> float:
        return self.user_us + self.system_us


class Turns(msgspec.Struct, frozen=True):
    """Runs of both; latencies are at a rate that both can take, or of a closed loop if it is 0."""

    originals: list[Run]
    clones: list[Run]
    rate: float


def take_turns(
    original: str, clone: str, load: Load, rated: Load | None, *, connections: int, runs: int,
    progress: Progress,
) -> Turns:  # fmt: skip
    """One after the other, so that both see the same neighbours on this machine.

    Args:
        load: As fast as the service answers.
        rated: A load with `{rate}`, for latencies below saturation.
    """
    commands = {"original": original, "clone": clone}
    progress("natively: how much it can take")
    requests, rate = 2 * _FEWEST, 0.0
    for _ in range(2):  # the first is too short to tell much
        tried = [_run(side, commands[side], load, None, connections, requests, 0.0)
                 for side in commands]  # fmt: skip
        requests = max(round(requests * _LOAD_S / max(one.seconds for one in tried)), _FEWEST)
        rate = _BELOW * min(one.rps for one in tried)
    seen: dict[str, list[Run]] = {side: [] for side in commands}
    for number in range(runs):
        progress(f"natively: turn {number + 1} of {runs}")
        for side, done in seen.items():
            done.append(_run(side, commands[side], load, rated, connections, requests, rate))
    return Turns(seen["original"], seen["clone"], rate if rated else 0.0)


def _run(
    side: str, command: str, load: Load, rated: Load | None, connections: int, requests: int,
    rate: float,
) -> Run:  # fmt: skip
    with naming(side), serving(command) as (service, port):
        send = partial(load.send, service, port=port, connections=connections)
        send(requests=requests // 8 + 1)
        before = service.cpu_s()
        with counted(service.processes()) as counters:
            sent = send(requests=requests, seconds=_LOAD_S)
        user, system = (b - a for a, b in zip(before, service.cpu_s(), strict=True))
        slow = sent
        if rated is not None:
            slow = rated.send(
                service, port=port, connections=connections, rate=rate,
                requests=max(round(rate * _LOAD_S), _FEWEST),
            )  # fmt: skip
    return Run(
        sent.rps, sent.seconds, 1e6 * user / sent.requests, 1e6 * system / sent.requests,
        slow.p50_ms, slow.p99_ms, counters,
    )  # fmt: skip
