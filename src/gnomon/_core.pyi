"""
The native core: typed fronts are in gnomon.graph, gnomon.sim and gnomon.report.
"""

from collections.abc import Callable, Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


class Graph:
    """Columns of a work graph."""

    def __init__(self, *, lane: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], duration: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], edge_offset: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], edge_target: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], edge_kind: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], lanes: int, group: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, wait_task: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, wait_lane: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, issue_kind: int = -1) -> None: ...

    def is_forward(self) -> bool: ...

    def first_cycle(self) -> list[int]: ...

class Limits:
    """Which task uses which resource, and how much there is."""

    def __init__(self, *, resource: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], capacity: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], demand: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

class SlowDown:
    """How much kinds slow one another on a device."""

    def __init__(self, *, kind: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], kinds: int, device: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

class Stretch:
    """By what each sample stretches the durations."""

    def __init__(self, *, cell: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], factor: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], cells: int, mark: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, marks: int = 1, noise: float = 0.0, seed: int = 0, first: int = 0) -> None: ...

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

def replay(graph: Graph, *, limits: Limits | None = None, slow_down: SlowDown | None = None, causes: bool = True) -> Played:
    """Plays a graph; the rules are in native/engine/replay/replay.hpp."""

def replay_samples(graph: Graph, stretch: Stretch) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
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

class Served:
    """Start, end and server of each job."""

    @property
    def start(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def end(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def server(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

def serve(*, arrival: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], servers: int, discipline: Discipline, seed: int = 0, choose: object | None = None) -> Served:
    """Plays jobs through a queue."""

def poisson_arrivals(count: int, mean_gap_ns: float, seed: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

def exponential_sizes(count: int, mean_ns: float, seed: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

class CoreRequests:
    """Requests in order of arrival; times in ns."""

    def __init__(self, *, arrival: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], service: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], kind: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, hint: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, deadline: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

class Mechanism:
    """What preempting costs, and how late it is."""

    def __init__(self, *, cost_ns: int = 0, dispatch_ns: int = 0, late_ns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

class Scheduling:
    """A scheduling policy."""

    def __init__(self, *, rule: int, quantum: int = 9223372036854775807, hard_quantum: int = 500000, patience: int = 9223372036854775807, reserved: int = 0, share: float = 0.0) -> None: ...

class CoreRun:
    """Latency of each request, and what was lost."""

    def take_latency(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_preemptions(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def end(self) -> int: ...

    @property
    def lost(self) -> int: ...

    @property
    def asked(self) -> int: ...

    def take_quanta(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

class QuantumController:
    """Chooses a quantum by what it is told of the last requests."""

    def __init__(self, *, is_paper: bool, scheduling: Scheduling, mechanism: Mechanism) -> None: ...

    def decide(self, *, period: int, arrivals: int, in_hand: int, workers: int, service: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple: ...

def run_cores(*, requests: CoreRequests, mechanism: Mechanism, scheduling: Scheduling, workers: int, is_shared: bool, control: int, control_period: int, seed: int) -> CoreRun:
    """Requests on workers under a scheduling policy."""

def thread_sources() -> list:
    """
    Preemption sources: name, what it does, whether functions poll, whether a core is burnt, why it cannot be had.
    """

def thread_clock_ns() -> int:
    """The clock of deadlines."""

class Calibration:
    """What a preemption source costs here."""

    @property
    def name(self) -> str: ...

    @property
    def why_not(self) -> str: ...

    @property
    def cost_ns(self) -> int: ...

    @property
    def cost_runs(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def late_ns(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def per_s(self) -> float: ...

    @property
    def slowdown(self) -> float: ...

    @property
    def quantum_ns(self) -> int: ...

    @property
    def has_priority(self) -> bool: ...

def calibrate_source(*, name: str, worker_cpu: int, timer_cpu: int, realtime: int, quantum: int, duration: int, repeats: int) -> Calibration:
    """Measures a preemption source."""

def choose_source(polls: bool) -> tuple:
    """The cheapest source here, and why."""

def measure_switch_ns(*, cpu: int, realtime: int) -> float:
    """A switch between two stacks, in ns."""

class Interruptions:
    """Times in which a thread did not run."""

    @property
    def watched_ns(self) -> int: ...

    @property
    def length_ns(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

def measure_interruptions(*, cpu: int, realtime: int, duration: int) -> Interruptions:
    """How often a thread is interrupted."""

class Burst:
    """Requests that ran on real threads."""

    def take_latency(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def take_preemptions(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    def take_attained(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def longest_gap(self) -> int: ...

    @property
    def longest_stall(self) -> int: ...

    @property
    def outside(self) -> int: ...

    @property
    def stolen(self) -> int: ...

    @property
    def no_realtime(self) -> int: ...

def run_burst(*, source: str, requests: CoreRequests, scheduling: Scheduling, workers: int, cpus: Sequence[int], timer_cpu: int, realtime: int) -> Burst:
    """Plays requests on real threads."""

class EndedTasks:
    """Tasks that ended."""

    @property
    def task(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]: ...

    @property
    def status(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def result(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def arrival(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def begun(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def ended(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def attained(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def preemptions(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

class ThreadPool:
    """Workers that run native functions, preemptively."""

    def __init__(self, *, scheduling: Scheduling, workers: int, source: str, polls: bool, max_tasks: int, stack_bytes: int, control: int, cpus: Sequence[int], timer_cpu: int, realtime: int) -> None: ...

    def submit(self, *, function: int, argument: int, kind: int, hint: int, deadline: int) -> int: ...

    def cancel(self, task: int) -> bool: ...

    def stop(self, drain: bool) -> None: ...

    def take_ended(self) -> EndedTasks: ...

    def stats(self) -> dict: ...

    @property
    def source(self) -> str: ...

    @property
    def why(self) -> str: ...

MESH_PERCENTILES: tuple = (50.0, 90.0, 95.0, 98.0, 99.0, 99.9)

class MeshInput:
    """An application as columns."""

    def __init__(self, *, service_replicas: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], service_workers: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], service_host: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], service_overhead: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], service_queue_limit: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], service_startup: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], service_is_blocking: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], service_limit: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], service_request: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], pool_service: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], pool_callee: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], pool_size: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], host_cores: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], host_noise_cores: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], host_noise_on: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], host_noise_off: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], call_service: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], call_cpu: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], call_wait: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], call_stage: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], call_retries: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], call_timeout: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], call_is_queued: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], call_probability: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], call_error_share: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], stage_call: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], class_call: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], class_priority: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], class_timeout: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], class_bound: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], class_until_all: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], class_correlation: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], draw_shape: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], draw_mean: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], draw_cv: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], draw_points: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], share: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], arrival_time: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arrival_class: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], network: int = 0, period: int = 100000000, tick: int = 0, seed: int = 0, most_events: int = 9223372036854775807, keeps_requests: bool = False) -> None: ...

class MeshObservation:
    """What happened since the last look."""

    @property
    def used(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def allocated(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def periods(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def throttled(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def queue(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def pool_wait(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def calls(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def replicas(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def used_slices(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def throttled_slices(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def service_latency(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def arrived(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def answered(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def failed(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def violated(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def class_latency(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

class MeshSpent:
    """Where the time goes, by class and service."""

    @property
    def request_class(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def service(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def calls(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def exclusive(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def cpu(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def queued(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def counts(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

class Mesh:
    """Services that call one another, simulated request by request."""

    def __init__(self, input: MeshInput) -> None: ...

    def advance(self, until: int) -> None:
        """Plays everything up to a time."""

    def observe(self) -> MeshObservation: ...

    def set_limit(self, service: int, cores: float) -> None: ...

    def set_request(self, service: int, weight: float) -> None: ...

    def set_replicas(self, service: int, count: int) -> None: ...

    def spent(self) -> MeshSpent: ...

    def request_latency(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    def request_status(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

    @property
    def events(self) -> int: ...

    @property
    def pending(self) -> int: ...

def mesh_buckets() -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]:
    """Edges of the buckets of exclusive latency, in ns."""

class OperatingPoints:
    """Points that a plan allows, service by service."""

    def __init__(self, *, first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], cpu_min: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], cpu_max: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], replicas_max: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], visits: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], limit: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], most: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rank: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], load: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class ServiceLoad:
    """What is known of services now."""

    def __init__(self, *, class_rate: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], replicas: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], trusted: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, queue: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, usage: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, rate: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

class ServiceSizes:
    """Limits and replicas, by service."""

    @property
    def cpu_limit(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def replicas(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def is_lacking(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

def sizes_for(points: OperatingPoints, now: ServiceLoad) -> ServiceSizes:
    """The smallest size of every service for a load."""

def load_ahead(rates: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], classes: int, rise: float, window_s: float, *, chance: float) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]:
    """Requests per second of each class to be ready for."""

class ServerGroups:
    """Equal servers, group by group."""

    def __init__(self, *, servers: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], speed: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class Preference:
    """Groups of servers, or parts of them, the best first."""

    def __init__(self, *, group: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], part: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class PlacementJobs:
    """Jobs in order of release."""

    def __init__(self, *, release: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], work: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class PlacedJobs:
    """Where and when each job ran, and when servers were awake."""

    @property
    def start(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def end(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def group(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def server(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def awake_group(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def awake_from(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def awake_until(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

def place(*, groups: ServerGroups, order: Preference, jobs: PlacementJobs, empty_servers_sleep: bool) -> PlacedJobs:
    """Places jobs on servers."""

def cleanest_starts(time: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], area: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], earliest: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], latest: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], length: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
    """For each job the start with the least area under it."""

class ChoiceProblem:
    """
    Options of services, what they promise, and the rows that promises use up.
    """

    def __init__(self, *, first_option: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], cost: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], first_part: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], part_class: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], first_use: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], use_row: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], use_residual: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], use_time: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], first_promise: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], residual: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], time: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], row_class: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class Choice:
    """The cheapest options that keep every row."""

    @property
    def option(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def promise(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def cost(self) -> float: ...

    @property
    def bound(self) -> float: ...

    @property
    def nodes(self) -> int: ...

    @property
    def is_proven(self) -> bool: ...

def choose(problem: ChoiceProblem, *, gap: float, most_nodes: int) -> Choice:
    """Finds the cheapest options, with proof unless it takes too many nodes."""

class ClusterKinds:
    """Shapes of jobs, stage by stage."""

    def __init__(self, *, first_stage: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], tasks: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], first_parent: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], parents: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], levels: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], sample_first: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], sample_count: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], sample: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], cpu: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], typical: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], path: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], work_at_level: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class ClusterJobs:
    """Jobs that arrive."""

    def __init__(self, *, kind: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arrival: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], after: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], application: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], deadline: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class ClusterExecutors:
    """What runs tasks."""

    def __init__(self, *, count: int, speed: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, from_: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, until: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, moving_delay: int = 0, startup: int = 0, off_after: int = 9223372036854775807, straggler_chance: float = 0.0, straggler_factor: float = 1.0, task_failure_chance: float = 0.0, failures_per_ns: float = 0.0) -> None: ...

class ClusterGrid:
    """The grid in equal steps; without columns only their length."""

    def __init__(self, *, step: int, actual: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, seen: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, low: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, high: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, horizon: int = 0, outlook: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

class ClusterGuard:
    """How long the grid may keep work waiting."""

    def __init__(self, *, patience: int = 9223372036854775807, longest_hold: int = 9223372036854775807, finish_by: int = 9223372036854775807) -> None: ...

class AskedState:
    """What a policy in Python sees."""

    @property
    def now(self) -> int: ...

    @property
    def executors(self) -> int: ...

    @property
    def idle(self) -> int: ...

    @property
    def busy(self) -> int: ...

    @property
    def source(self) -> int: ...

    @property
    def intensity(self) -> float | None: ...

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...

    @property
    def job(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def job_executors(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def job_arrival(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def job_work(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def stage_job(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def stage(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def stage_tasks(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def stage_way(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

class ClusterHeld:
    """Stages that could have run and were held."""

    @property
    def job(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def stage(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def held(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def resumed(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def intensity(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def importance(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def threshold(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def busy(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def weighted(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

class ClusterLog:
    """Tasks that ran, in the order of their ends."""

    @property
    def job(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def stage(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def executor(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def wave(self) -> Annotated[NDArray[numpy.int8], dict(shape=(None,))]: ...

    @property
    def failed(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

    @property
    def start(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def end(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

class ClusterRun:
    """What became of each job, and what was busy when."""

    @property
    def start(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def finish(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def busy(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def weighted(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def busy_at(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def cpu_at(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def moving_at(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def on_at(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def quota_at(self) -> Annotated[NDArray[numpy.float64], dict(shape=(None,))]: ...

    @property
    def end(self) -> int: ...

    @property
    def events(self) -> int: ...

    @property
    def tasks(self) -> int: ...

    @property
    def decisions(self) -> int: ...

    @property
    def holds(self) -> int: ...

    @property
    def moves(self) -> int: ...

    @property
    def starts(self) -> int: ...

    @property
    def failed_tasks(self) -> int: ...

    @property
    def failed_executors(self) -> int: ...

    @property
    def wasted(self) -> int: ...

    @property
    def held(self) -> ClusterHeld: ...

    @property
    def log(self) -> ClusterLog: ...

    @property
    def unfinished(self) -> int: ...

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

def asked_order(choose: Callable[[AskedState], object]) -> Order:
    """
    An order that asks a function: it answers with an `index` among the stages and a `limit`, or None to wait.
    """

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

def run_cluster(*, kinds: ClusterKinds, jobs: ClusterJobs, executors: ClusterExecutors, grid: ClusterGrid, guard: ClusterGuard, order: Order, gates: Sequence[Gate], seed: int, policy_seed: int, log_tasks: bool, log_holds: bool) -> ClusterRun:
    """Runs jobs on a cluster."""

DECIMA_PARAMETERS: int = 4770

class DecimaView:
    """What a decision sees."""

    def __init__(self, *, job_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], job_executors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], source_job: int, free_executors: float, work_ms: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], tasks: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], child_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], child: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], height: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], ready: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

def decima_probabilities(parameters: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], view: DecimaView, *, job: int, lowest: int, highest: int, repeat: int = 1) -> tuple[Annotated[NDArray[numpy.float32], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))]]:
    """
    Probability of each ready stage, and of each limit of a job; computed `repeat` times.
    """

def decima_gradient(parameters: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], record: dict, decisions: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], advantage: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], entropy_weight: float) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None,))], float, float]:
    """
    Gradient of -advantage x log p - entropy_weight x entropy over some decisions of a record; also the sums of log p and of entropies.
    """

class Slices:
    """Tasks as Perfetto shows them."""

    def __init__(self, *, lane: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], name: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], kind: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], critical: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, flow_from: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, flow_to: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

class PerfettoWriter:
    """Writes a .pftrace file."""

    def __init__(self, path: str) -> None: ...

    def add_process(self, name: str) -> int: ...

    def add_lane(self, process: int, name: str) -> int: ...

    def add_counter(self, process: int, name: str, unit: str) -> int: ...

    def write_slices(self, slices: Slices, *, lane_tracks: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], names: Sequence[str], kinds: Sequence[str]) -> None: ...

    def write_counter(self, track: int, time: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def close(self) -> None: ...

class TraceColumns:
    """Complete events, as they stand in the trace."""

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

class TraceReader:
    """Chrome trace JSON to columns, piece by piece."""

    def __init__(self) -> None: ...

    def feed(self, text: bytes) -> None: ...

    def finish(self) -> TraceColumns:
        """The columns of all events."""

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

class TraceEvents:
    """Events of one trace, in order of their start."""

    def __init__(self, *, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], event_class: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], flags: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], lane: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], correlation: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], host_lanes: int, lanes: int, known_source: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], known_target: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], identity: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], step: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

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

def build_trace_graph(events: TraceEvents) -> TraceGraph:
    """Tasks, edges and waits of one trace."""
