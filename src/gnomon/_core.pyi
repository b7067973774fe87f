"""
The native core: typed fronts are in gnomon.graph, gnomon.sim and gnomon.report.
"""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


class Graph:
    """Columns of a work graph, checked by the caller."""

    def __init__(self, lane: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], duration: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], edge_offset: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], edge_target: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], edge_kind: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], lanes: int, group: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, wait_task: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, wait_lane: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, issue_kind: int = -1) -> None: ...

    def is_forward(self) -> bool: ...

    def first_cycle(self) -> list[int]: ...

class Limits:
    """Which task uses which resource, and how much there is."""

    def __init__(self, resource: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], capacity: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], demand: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

class SlowDown:
    """How much kinds slow one another on a device."""

    def __init__(self, kind: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], kinds: int, device: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

class Played:
    """What a replay gave; each column can be taken once."""

    def take_start(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_end(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_cause(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_reason(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

    @property
    def makespan(self) -> int: ...

    @property
    def finished(self) -> int: ...

    @property
    def stuck_at(self) -> int: ...

    @property
    def stuck(self) -> list[int]: ...

    @property
    def method(self) -> str: ...

def replay(graph: Graph, limits: Limits | None = None, slow_down: SlowDown | None = None, causes: bool = True) -> Played:
    """Plays a graph; the rules are in native/engine/replay.hpp."""

def class_overlap(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], span_class: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], device: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, devices: int, classes: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """
    Nanoseconds in which exactly each set of classes was active, device by device.
    """

def follow_causes(cause: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], from_task: int) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]:
    """The chain of causes, latest first."""

class Discipline(enum.Enum):
    fifo = 0

    lifo = 1

    shortest = 2

    random = 3

    custom = 4

def serve(arrival: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], servers: int, discipline: Discipline, seed: int = 0, choose: object | None = None) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))]]:
    """Start, end and server of each job."""

def poisson_arrivals(count: int, mean_gap_ns: float, seed: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

def exponential_sizes(count: int, mean_ns: float, seed: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

class PerfettoWriter:
    """Writes a .pftrace file."""

    def __init__(self, path: str) -> None: ...

    def add_process(self, name: str) -> int: ...

    def add_lane(self, process: int, name: str) -> int: ...

    def add_counter(self, process: int, name: str, unit: str) -> int: ...

    def write_slices(self, lane_tracks: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], lane: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], name: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], kind: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], names: Sequence[str], kinds: Sequence[str], critical: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, flow_from: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, flow_to: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

    def write_counter(self, track: int, time: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def close(self) -> None: ...

class TraceReader:
    """Chrome trace JSON to columns, piece by piece."""

    def __init__(self) -> None: ...

    def feed(self, text: bytes) -> None: ...

    def finish(self) -> None: ...

    def take_category(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_name(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_thread(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_start_ns(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_duration_ns(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_correlation(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_stream(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_device(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_bytes(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def categories(self) -> list[bytes]: ...

    def names(self) -> list[bytes]: ...

    def threads(self) -> list[bytes]: ...

    def device_properties(self) -> bytes: ...

    def distributed_info(self) -> bytes: ...

    @property
    def events(self) -> int: ...

    @property
    def without_end(self) -> int: ...

    @property
    def begin_end(self) -> int: ...

    @property
    def odd_arguments(self) -> int: ...
