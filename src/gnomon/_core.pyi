"""
The native core: typed fronts are in gnomon.graph, gnomon.sim and gnomon.report.
"""

from collections.abc import Callable, Sequence
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
    """Plays a graph; the rules are in native/engine/replay/replay.hpp."""

def replay_samples(graph: Graph, cell: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], cells: int, mark: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, marks: int = 1, noise: float = 0.0, seed: int = 0, first: int = 0) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """
    Latest end of each mark in every sample; empty when the graph cannot be played.
    """

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

def place(servers: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], room: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], speed: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], parts: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], release: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], work: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], empty_servers_sleep: bool) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))], Annotated[NDArray[numpy.int32], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]]:
    """
    Start, end, group and server of each job; group, begin and end of each time awake.
    """

def cleanest_starts(time: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], area: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], earliest: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], latest: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], length: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """For each job the start with the least area under it."""

class Order:
    pass

class ProbabilisticOrder(Order):
    pass

class DecimaOrder(ProbabilisticOrder):
    def record(self) -> dict:
        """What it saw and drew at each decision of its last runs."""

def fifo_order(per_job: int, keep: bool) -> Order: ...

def fair_order(exponent: float) -> Order: ...

def shortest_order() -> Order: ...

def critical_path_order() -> Order: ...

def path_softmax_order(sharpness: float) -> ProbabilisticOrder: ...

def decima_order(parameters: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], records: bool = False, can_have_enough: bool = False) -> DecimaOrder: ...

def pcaps_order(inner: ProbabilisticOrder, gamma: float, narrowing: int) -> Order: ...

def asked_order(choose: Callable) -> Order:
    """An order that asks a function of Python."""

class Gate:
    pass

def quota_gate(quota: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], narrows: bool, each_task: bool = True, of_held: bool = False) -> Gate: ...

def green_hadoop_gate(theta: float) -> Gate: ...

def window_gate(window: int, whole: bool) -> Gate: ...

def scaler_gate(window: int) -> Gate: ...

def look_ahead_gate(window: int, margin: float, spread: float, careful: float, width: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Gate: ...

def pcaps_threshold(importance: float, gamma: float, low: float, high: float) -> float: ...

def pcaps_narrowed(limit: int, how: int, gamma: float, intensity: float, low: float, high: float) -> int: ...

def runs_now(intensity: float, coming: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], needed: float, margin: float) -> bool: ...

def cap_alpha(low: float, high: float, steps: int) -> float: ...

def cap_thresholds(high: float, steps: int, alpha: float) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

def cap_quota(intensity: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], low: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], high: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], least: int, executors: int) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

def run_cluster(kinds: tuple, jobs: tuple, executors: int, speed: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, stays: object | None, times: tuple, chances: tuple, grid_step: int, grid: object | None, horizon: int, guard: tuple, order: Order, gates: Sequence[Gate], seed: int, policy_seed: int, record_tasks: bool, record_holds: bool) -> dict:
    """Runs jobs on a cluster: what came of each, and what was busy when."""

DECIMA_PARAMETERS: int = 4770

def decima_probabilities(parameters: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], job_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], job_executors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], source_job: int, free_executors: float, work_ms: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], tasks: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], child_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], child: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], height: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], ready: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], job: int, lowest: int, highest: int, repeat: int = 1) -> tuple[Annotated[NDArray[numpy.float32], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))]]:
    """
    Probability of each ready stage, and of each limit of a job; computed `repeat` times.
    """

def decima_gradient(parameters: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], record: dict, decisions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], advantage: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], entropy_weight: float) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None,))], float, float]:
    """
    Gradient of -advantage x log p - entropy_weight x entropy over some decisions of a record; also the sums of log p and of entropies.
    """

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

    def take_shape(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_extra(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def categories(self) -> list[bytes]: ...

    def names(self) -> list[bytes]: ...

    def threads(self) -> list[bytes]: ...

    def shapes(self) -> list[bytes]: ...

    def extras(self) -> list[bytes]: ...

    def base_time(self) -> bytes: ...

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

class TraceGraph:
    """Tasks, edges and waits rebuilt from a trace."""

    def take_lane(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_event(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_start(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_end(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_sized(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_kind(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

    def take_launched_by(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_source(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_target(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_edge_kind(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

    def take_wait_task(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_wait_lane(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_inferred_source(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_inferred_target(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_confidence(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def overlapping(self) -> int: ...

    @property
    def before_launch(self) -> int: ...

    @property
    def refuted(self) -> int: ...

def build_trace_graph(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], event_class: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], flags: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], lane: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], correlation: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], host_lanes: int, lanes: int, known_source: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], known_target: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], identity: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], step: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> TraceGraph:
    """Tasks, edges and waits of one trace."""
