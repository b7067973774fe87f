"""What a CPU limit does to latency: measured in the lab at several limits, then predicted.

The simulator gets the same application with costs that were calibrated at one limit only. What it
says of the other limits is a prediction.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.act.local import Reading, percentiles_ms
from gnomon.act.local.client import OK
from gnomon.errors import InputError
from gnomon.graph.application import Application, Host
from gnomon.sim.mesh import Arrivals, MeshSim, poisson_requests
from gnomon.systems.services.calibrate import calibrated
from gnomon.systems.services.lab import LabRun
from gnomon.units import MILLISECOND_NS, SECOND_NS

Floats = NDArray[np.float64]

#: A row in which others used more than this is measured again, so often.
QUIET_CORES = 0.1
_ATTEMPTS = 3
#: Of each row: until the change of the limit has settled. Queues of the row before drain first.
_SETTLE_S = 1.0
#: At most so long: until those queues are empty, and until the last requests of a row end.
_DRAIN_S, _LATE_S = 10.0, 20.0
_LOOK_S = 0.1


class Row(msgspec.Struct, frozen=True):
    """One limit: measured, or predicted.

    Attributes:
        limit: Cores of each replica of the service; None: no limit.
        use_pct: CPU used over the limit, or over one core without.
        throttled_pct: Of CFS periods.
        throttled_s: How long replicas stood still.
        pool_p99_ms: What calls of the callers waited for a connection, measured only.
        foreign_cores: Of other processes and of other virtual machines (steal), measured only.
    """

    limit: float | None
    requests: int
    use_pct: float
    throttled_pct: float
    throttled_s: float
    p50_ms: float
    p99_ms: float
    error_pct: float
    pool_p99_ms: float = math.nan
    foreign_cores: float = 0.0
    attempts: int = 1


class Load(msgspec.Struct, frozen=True, eq=False):
    """What arrived during a row, from the moment that its limit was set: for the simulator.

    Attributes:
        from_s: When the row itself begins.
        row_s: How long it is.
        latency_ms: By class: what the client saw in the row.
    """

    arrivals: Arrivals
    from_s: float
    row_s: float
    latency_ms: list[Floats]


class Sweep(msgspec.Struct, frozen=True, eq=False):
    """Measured and predicted rows side by side, and the application they were predicted from."""

    service: str
    measured: list[Row]
    predicted: list[Row]
    app: Application
    note: str

    def errors(self) -> Floats:
        """Relative errors of p50 and p99 at the limits that were not calibrated at."""
        return np.array([
            abs(getattr(p, name) / getattr(m, name) - 1.0)
            for m, p in zip(self.measured, self.predicted)
            if m.limit != self.measured[0].limit
            for name in ("p50_ms", "p99_ms")
            if getattr(m, name) > 0
        ])  # fmt: skip

    def throttled_gaps(self) -> Floats:
        """Points between measured and predicted throttled shares, at the same limits."""
        return np.array([
            abs(p.throttled_pct - m.throttled_pct)
            for m, p in zip(self.measured, self.predicted)
            if m.limit != self.measured[0].limit
        ])  # fmt: skip


def sweep(
    app: Application, service: str, limits: Sequence[float | None], *, row_s: float = 12.0,
    rate: float | None = None, cores: int, seed: int = 0, foreign_cores: float = QUIET_CORES,
    repeats: int = 1, on_row: Callable[[Row], None] | None = None,
) -> Sweep:  # fmt: skip
    """Measures every limit in one lab, calibrates at the first, and predicts the others.

    The other services run without a limit, so that only this one is seen. A row is the median of
    `repeats` passes over all limits.

    Args:
        app: The application; its own limits are not used.
        service: Whose limit changes.
        limits: One row each; the first one calibrates the simulator.
        row_s: How long each is measured.
        rate: Requests per second; the application's unless given.
        cores: Of the machine that the lab runs on.
        foreign_cores: A row in which others used more is measured again.
        repeats: Passes.
    """
    if service not in app.services:
        raise InputError(f"there is no service {service!r}",
                         hint=f"there are: {', '.join(app.services)}")  # fmt: skip
    if not limits:
        raise InputError("which limits?", hint="--sweep logic=none,0.6,0.4")
    free = without_limits(app)
    rate = app.rate if rate is None else rate
    passes: list[list[Row]] = []
    loads: list[list[Load]] = []
    calibration: list[Reading] = []
    note = ""
    for number in range(repeats):
        measured: list[Row] = []
        loads.append([])
        load_s = longest_pass_s(len(limits), row_s)
        arrivals = poisson_requests(free, [rate] * load_s, seed=seed + number)
        with LabRun(free, arrivals, seed=seed + number) as run:
            note = run.lab.note
            for limit in limits:
                row, reading, load = _measure(run, service, limit, row_s, foreign_cores)
                loads[-1].append(load)
                if not measured:
                    calibration.append(reading)
                measured.append(row)
                if on_row is not None:
                    on_row(row)
        passes.append(measured)
    rows = [_median([one[i] for one in passes]) for i in range(len(limits))]
    model = calibrated(
        on_host(free, cores), calibration, [one[0].latency_ms for one in loads],
        limit=limits[0], service=service, rate=rate,
    )  # fmt: skip
    predicted = [
        _median([predict(model, service, limit, one[i], seed=seed) for one in loads])
        for i, limit in enumerate(limits)
    ]
    return Sweep(service, rows, predicted, model, note)


def longest_pass_s(limits: int, row_s: float) -> int:
    """Seconds of load for one pass, were every row measured as often and as long as it may be.

    The client ends with its last request, so too little would leave the last rows without any. It
    is stopped when all rows are measured.
    """
    attempt_s = _DRAIN_S + _SETTLE_S + row_s + _LATE_S
    return math.ceil(limits * _ATTEMPTS * attempt_s + 30)


def without_limits(app: Application) -> Application:
    """Every service may use all it can get."""
    services = {
        name: msgspec.structs.replace(one, cpu_limit=None) for name, one in app.services.items()
    }
    return msgspec.structs.replace(app, services=services)


def on_host(app: Application, cores: int) -> Application:
    """All services on one machine, as in the lab."""
    services = {
        name: msgspec.structs.replace(one, host="machine") for name, one in app.services.items()
    }
    return msgspec.structs.replace(app, services=services, hosts={"machine": Host(cores=cores)})


def _measure(
    run: LabRun, service: str, limit: float | None, row_s: float, foreign_cores: float
) -> tuple[Row, Reading, Load]:
    for attempt in range(1, _ATTEMPTS + 1):
        _drain(run, service)
        run.lab.set_limit(service, limit)
        set_ns = time.monotonic_ns()
        run.target.observe(_SETTLE_S)
        before = run.lab.read()
        run.target.observe(row_s)
        passed = run.lab.read().since(before)
        row = _row(run, service, limit, before, passed, attempt)
        if row.foreign_cores <= foreign_cores:
            break
    due_ns = run.load.start_ns + run.load.due_ns
    during = (due_ns >= set_ns) & (due_ns < before.now_ns + passed.elapsed_ns)
    arrivals = Arrivals(due_ns[during] - set_ns, run.load.class_index[during].astype(np.int32))
    from_s = (before.now_ns - set_ns) / SECOND_NS
    in_row = (due_ns >= before.now_ns) & during & (np.array(run.load.outcome) == OK)
    latency_ms = [
        np.array(run.load.latency_ns)[in_row & (run.load.class_index == c)] / MILLISECOND_NS
        for c in range(len(run.lab.app.classes))
    ]
    return row, passed, Load(arrivals, from_s, passed.elapsed_ns / SECOND_NS, latency_ms)


def _drain(run: LabRun, service: str) -> None:
    """Lets go of what a tight limit held up, so that rows do not depend on their order."""
    run.lab.set_limit(service, None)
    for _ in range(round(_DRAIN_S / (_SETTLE_S / 2))):
        run.target.observe(_SETTLE_S / 2)
        if run.lab.read().waiting.sum() <= 2:
            return


def _row(
    run: LabRun, service: str, limit: float | None, before: Reading, passed: Reading, attempt: int
) -> Row:
    names = list(run.lab.app.services)
    s = names.index(service)
    load = run.load
    due_ns = load.start_ns + load.due_ns
    mine = (due_ns >= before.now_ns) & (due_ns < before.now_ns + passed.elapsed_ns)
    _wait_for(run, mine)
    outcome = np.array(load.outcome)[mine]
    good = np.array(load.latency_ns)[mine][outcome == OK] / MILLISECOND_NS
    p50, p99 = np.percentile(good, [50, 99]) if good.size else (math.nan, math.nan)
    callers = [i for i, name in enumerate(names) if service in run.lab.tiers[name].callees]
    pool = percentiles_ms(passed.pool[callers].sum(axis=0), [99.0])
    used = int(passed.usage_ns[s]) / passed.elapsed_ns
    return Row(
        limit, int(mine.sum()), 100.0 * used / (limit or 1.0) / max(int(passed.replicas[s]), 1),
        100.0 * int(passed.throttled[s]) / max(int(passed.periods[s]), 1),
        float(passed.throttled_ns[s]) / SECOND_NS, float(p50), float(p99),
        100.0 * float(np.mean(outcome != OK)) if outcome.size else 0.0, float(pool[0]),
        passed.foreign_ns / passed.elapsed_ns, attempt,
    )  # fmt: skip


def _wait_for(run: LabRun, mine: NDArray[np.bool_]) -> None:
    """Requests of a row may end after it."""
    for _ in range(round(_LATE_S / _LOOK_S)):
        if np.all(np.array(run.load.outcome)[mine] != 0):
            return
        run.target.observe(_LOOK_S)


def _median(rows: Sequence[Row]) -> Row:
    """Figure by figure."""
    numbers = {
        name: float(np.median([getattr(row, name) for row in rows]))
        for name in ("use_pct", "throttled_pct", "throttled_s", "p50_ms", "p99_ms", "error_pct",
                     "pool_p99_ms", "foreign_cores")
    }  # fmt: skip
    return msgspec.structs.replace(
        rows[0], requests=sum(row.requests for row in rows),
        attempts=sum(row.attempts for row in rows), **numbers,
    )  # fmt: skip


def predict(app: Application, service: str, limit: float | None, load: Load, *, seed: int) -> Row:
    """A row from the simulator, of the requests that arrived in the lab."""
    s = list(app.services).index(service)
    sim = MeshSim(app, load.arrivals, seed=seed, keep_requests=True)
    sim.set_limit(s, math.inf if limit is None else limit)
    sim.advance(round(load.from_s * SECOND_NS))
    sim.observe()
    sim.advance(round((load.from_s + load.row_s) * SECOND_NS))
    seen = sim.observe()
    sim.advance(round((load.from_s + load.row_s + 60) * SECOND_NS))
    mine = load.arrivals.time_ns >= load.from_s * SECOND_NS
    is_good = sim.request_status[mine] == 1
    latency = sim.request_latency_ns[mine][is_good] / MILLISECOND_NS
    p50, p99 = np.percentile(latency, [50, 99]) if latency.size else (math.nan, math.nan)
    used = float(seen.used[s]) / (load.row_s * SECOND_NS)
    return Row(
        limit, int(mine.sum()), 100.0 * used / (limit or 1.0) / max(int(seen.replicas[s]), 1),
        100.0 * int(seen.throttled[s]) / max(int(seen.periods[s]), 1), math.nan, float(p50),
        float(p99), 100.0 * float(np.mean(~is_good)),
    )  # fmt: skip
