"""Collectives and messages of a recorded job: their sizes, and how long they took on the wire."""

from __future__ import annotations

import math
from collections import Counter

import msgspec
import numpy as np

from gnomon.model.accelerator.collective_names import MODEL_KINDS, collective_kind
from gnomon.sim.trace.events import lay_out
from gnomon.systems.training.communication import Communication, communications
from gnomon.systems.training.job import RankPart, TrainingJob
from gnomon.systems.training.prediction.recorded.units import parse_shapes

_WIDTHS = {
    "bfloat16": 2,
    "half": 2,
    "float16": 2,
    "float": 4,
    "float32": 4,
    "double": 8,
    "long": 8,
}
#: Alone, a rank does not know how long it waited; of many equal ones the shortest did least.
_LEAST_WAITING = 0.2


class TimedCollective(msgspec.Struct, frozen=True):
    """One collective or message: kind, bytes, members, and microseconds once all were there."""

    kind: str
    bytes: float
    ranks: int
    us: float


def timed_collectives(job: TrainingJob) -> tuple[TimedCollective, ...]:
    """Every communication of a job whose size its traces tell."""
    if job.rendezvous is None:
        return tuple(_alone(job.parts[0])) if job.parts else ()
    rendezvous = job.rendezvous
    members = Counter(rendezvous.group.tolist())
    by_part: dict[int, dict[int, Communication]] = {}
    found = []
    first = np.asarray([part.first_task for part in job.parts])
    for task, group, transfer in zip(
        rendezvous.task.tolist(),
        rendezvous.group.tolist(),
        rendezvous.transfer_ns.tolist(),
        strict=True,
    ):
        number = int(np.searchsorted(first, task, side="right")) - 1
        part = job.parts[number]
        if part.trace is None or part.training.event is None or group < 0:
            continue
        if number not in by_part:
            by_part[number] = _by_event(part)
        event = int(part.training.event[task - part.first_task])
        collective = _timed(by_part[number].get(event), members[group], transfer / 1e3)
        if collective is not None:
            found.append(collective)
    return tuple(found)


def unmet_messages(job: TrainingJob) -> float:
    """The share of a job's messages whose other side is in none of its traces."""
    rendezvous = job.rendezvous
    met = np.empty(0, np.int64)
    if rendezvous is not None:
        met = np.concatenate([rendezvous.task, rendezvous.sent, rendezvous.received])
    sent = found = 0
    for part in job.parts:
        if part.trace is None or part.training.event is None or part.proxy_of is not None:
            continue
        messages = [one.event for one in _by_event(part).values() if one.is_point_to_point]
        own = met[(met >= part.first_task) & (met < part.first_task + len(part.training.graph))]
        events = part.training.event[own - part.first_task]
        sent += len(messages)
        found += int(np.isin(messages, events).sum())
    return 1.0 - found / sent if sent else 0.0


def model_kind(name: str) -> str:
    """What the models call a collective of this name; "" for none they know.

    >>> model_kind("ncclDevKernel_AllGather_RING_LL"), model_kind("c10d::allreduce_")
    ('all-gather', 'all-reduce')
    """
    return MODEL_KINDS.get(collective_kind(name) or "", "")


def _by_event(part: RankPart) -> dict[int, Communication]:
    assert part.trace is not None
    return {one.event: one for one in communications(part.trace, lay_out(part.trace))}


def _alone(part: RankPart) -> list[TimedCollective]:
    """What a single rank shows: of one kind and size the ones that waited least."""
    if part.trace is None:
        return []
    world = part.trace.world_size or 2
    rows: dict[tuple[str, float, int], list[float]] = {}
    for one in _by_event(part).values():
        ranks = len(one.ranks) or (2 if one.is_point_to_point else world)
        collective = _timed(one, ranks, (one.end_ns - one.start_ns) / 1e3)
        if collective is not None:
            rows.setdefault((collective.kind, collective.bytes, ranks), []).append(collective.us)
    return [
        TimedCollective(kind, size, ranks, float(np.quantile(us, _LEAST_WAITING)))
        for (kind, size, ranks), us in rows.items()
    ]


def _timed(one: Communication | None, ranks: int, us: float) -> TimedCollective | None:
    if one is None or us <= 0:
        return None
    kind = model_kind(one.operation)
    size = _bytes(one.size)
    if not kind or not size:
        return None
    return TimedCollective(kind, size, max(ranks, 2), us)


def _bytes(size: str) -> float:
    """Bytes of a message as a trace tells it: shapes, or a type with a number of elements.

    >>> _bytes("[[2, 3]]"), _bytes("BFloat16 10"), _bytes("")
    (24.0, 20.0, 0.0)
    """
    words = size.rsplit(" ", 1)
    if len(words) == 2 and words[1].isdigit():
        return float(_WIDTHS.get(words[0].lower(), 4) * int(words[1]))
    # Without a type: what CPU backends move is float.
    return 4.0 * sum(math.prod(shape) for shape in parse_shapes(size))
