"""Placement: jobs that take slots on the servers of a mixed fleet, in an order of preference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon import _core
from gnomon.errors import InputError
from gnomon.series import Signal

_PARTS = ("any", "awake", "asleep")


class Groups(msgspec.Struct, frozen=True, eq=False):
    """Equal servers, group by group.

    Attributes:
        servers: How many there are.
        slots: Of each server: threads, GPUs, whatever jobs take.
        speed: What a job's work is divided by.
    """

    servers: NDArray[np.int32]
    slots: NDArray[np.int32]
    speed: NDArray[np.float64]

    @classmethod
    def of(cls, servers: ArrayLike, slots: ArrayLike, speed: ArrayLike | None = None) -> Groups:
        """From lists; all equally fast unless set otherwise."""
        counts = np.ascontiguousarray(servers, dtype=np.int32)
        fast = np.ones(counts.size) if speed is None else speed
        return cls(
            counts,
            np.ascontiguousarray(slots, dtype=np.int32),
            np.ascontiguousarray(fast, dtype=np.float64),
        )


class Tasks(msgspec.Struct, frozen=True, eq=False):
    """Jobs, in order of release.

    Attributes:
        release_ns: From when each may run.
        slots: What it takes on one server.
        work_ns: How long it runs at speed 1.
    """

    release_ns: NDArray[np.int64]
    slots: NDArray[np.int32]
    work_ns: NDArray[np.int64]

    @classmethod
    def of(cls, release_ns: ArrayLike, slots: ArrayLike, work_ns: ArrayLike) -> Tasks:
        """From lists."""
        return cls(
            np.ascontiguousarray(release_ns, dtype=np.int64),
            np.ascontiguousarray(slots, dtype=np.int32),
            np.ascontiguousarray(work_ns, dtype=np.int64),
        )


class Candidate(NamedTuple):
    """A group of servers, or only those of it that are awake or asleep."""

    group: int
    part: Literal["any", "awake", "asleep"] = "any"


class Placed(msgspec.Struct, frozen=True, eq=False):
    """Where and when each job ran.

    Attributes:
        start_ns: Its release, or when room came up.
        server: Its number inside its group.
        awake_group: Where empty servers sleep, the group of every stretch of being awake.
        awake_from_ns: When each stretch begins.
        awake_until_ns: When it ends.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    group: NDArray[np.int32]
    server: NDArray[np.int32]
    awake_group: NDArray[np.int32]
    awake_from_ns: NDArray[np.int64]
    awake_until_ns: NDArray[np.int64]


def place(
    groups: Groups, order: Sequence[Candidate], tasks: Tasks, *, empty_servers_sleep: bool = False
) -> Placed:
    """Plays jobs onto servers.

    A job goes to the first candidate that has a server with room, and there to the fullest one
    that has. Jobs that find none wait in line, in order of release, and do not overtake.

    >>> groups = Groups.of(servers=[1, 1], slots=[2, 4], speed=[1.0, 2.0])
    >>> tasks = Tasks.of([0, 0, 0], slots=[2, 2, 4], work_ns=[100, 100, 100])
    >>> placed = place(groups, [Candidate(0), Candidate(1)], tasks)
    >>> placed.group.tolist(), placed.start_ns.tolist(), placed.end_ns.tolist()
    ([0, 1, 1], [0, 0, 50], [100, 50, 100])

    Raises:
        InputError: A job fits on no server, or the order is none.
    """
    try:
        placed = _core.place(
            groups=_core.ServerGroups(
                servers=groups.servers, slots=groups.slots, speed=groups.speed
            ),
            order=_core.Preference(
                group=np.array([candidate.group for candidate in order], dtype=np.int32),
                part=np.array([_PARTS.index(candidate.part) for candidate in order], np.uint8),
            ),
            jobs=_core.PlacementJobs(
                release=tasks.release_ns, slots=tasks.slots, work=tasks.work_ns
            ),
            empty_servers_sleep=empty_servers_sleep,
        )
    except ValueError as error:
        raise InputError(str(error), where="placement") from None
    return Placed(
        placed.start, placed.end, placed.group, placed.server, placed.awake_group,
        placed.awake_from, placed.awake_until,
    )  # fmt: skip


def cleanest_starts(
    intensity: Signal, earliest_ns: ArrayLike, latest_ns: ArrayLike, length_ns: ArrayLike
) -> NDArray[np.int64]:
    """For each job the start, between two times, with the least area of a step signal under it.

    Of equally good starts the earliest is taken.

    >>> grid = Signal.regular(0, 10, [5, 1, 3, 1], unit="gCO2e/kWh", kind="carbon-intensity")
    >>> cleanest_starts(grid, [0, 0], [25, 4], [10, 10]).tolist()
    [10, 4]
    """
    if intensity.shape != "step" or intensity.gaps():
        raise InputError(
            "the cleanest hours need a step signal without gaps", where=intensity.kind
        )
    times = np.append(intensity.time_ns, intensity.end_ns)
    area = np.append(0.0, np.cumsum(intensity.values * np.diff(times) / 1e9))
    arrays = [
        np.ascontiguousarray(values, dtype=np.int64)
        for values in (earliest_ns, latest_ns, length_ns)
    ]
    try:
        return _core.cleanest_starts(times, area, *arrays)
    except ValueError as error:
        raise InputError(str(error), where="placement") from None
