"""What a run comes to: SLAs, CPU, energy and carbon, decisions, and how long recovery took."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.services import Decision
from gnomon.estimate import Estimate
from gnomon.graph.application import Application

Floats = NDArray[np.float64]

#: An SLA is checked in windows of so many seconds.
SLA_WINDOW_S = 10.0
#: A guess: what an allocated core of a server draws, with its share of memory and board.
CORE_W = Estimate(3.0, 5.0, 8.0)
_J_PER_KWH = 3.6e6
#: How a guard begins its reason where the manager raised.
_FAILED = "the manager failed: "


class Requests(msgspec.Struct, frozen=True, eq=False):
    """Every request of a run, in order of arrival.

    Attributes:
        due_s: When it arrived.
        request_class: Its class.
        latency_ms: NaN without an answer.
        is_answered: Whether it was answered without an error.
    """

    due_s: Floats
    request_class: NDArray[np.int32]
    latency_ms: Floats
    is_answered: NDArray[np.bool_]


class ClassScore(msgspec.Struct, frozen=True):
    """One class of requests over a run; NaN where there were none."""

    name: str
    requests: int
    p50_ms: float
    p99_ms: float
    sla_ms: float
    sla_percentile: float
    violation_pct: float
    late_pct: float
    error_pct: float


class Score(msgspec.Struct, frozen=True):
    """One run of one manager.

    Attributes:
        violation_pct: Of checks, those that missed the SLA. Each class with an SLA is checked in
            each window of ten seconds in which it has requests. NaN without any check.
        late_pct: Of requests with an SLA, those over the bound or without an answer; NaN without
            any.
        cpu_mean: Cores allocated; so `cpu_p95`, and `cpu_used` on average. A service without a
            limit counts with what it uses.
        unlimited: Services that had no limit in most windows.
        decisions: Those that changed something.
        windows: All of them.
        failed: Those in which the manager failed.
        failure: Why it did, the first time.
        held: Those that were held back by the guard; so `capped`.
        recovery_s: The longest time that an SLA stayed violated.
        manager_ms: CPU time of a decision, the median; `manager_max_ms` of the slowest, such as
            one that solves a plan.
        energy_kwh: Of the allocated cores.
        carbon_g: Of that energy, where a zone was given.
    """

    manager: str
    rate: str
    violation_pct: float
    late_pct: float
    cpu_mean: float
    cpu_p95: float
    cpu_used: float
    unlimited: int
    decisions: int
    windows: int
    failed: int
    failure: str
    held: int
    capped: int
    recovery_s: float
    manager_ms: float
    manager_max_ms: float
    energy_kwh: Estimate
    carbon_g: Estimate | None
    classes: list[ClassScore]


def score(
    app: Application, requests: Requests, decisions: Sequence[Decision], *, manager: str,
    rate: str, spent_ms: Sequence[float], intensity: Estimate | None, core_w: Estimate = CORE_W,
) -> Score:  # fmt: skip
    """All of it from what was kept of a run."""
    allocated = np.array([decision.window.allocated.sum() for decision in decisions])
    used = np.array([np.nansum(decision.window.usage) for decision in decisions])
    lengths = np.array([decision.window.duration_s for decision in decisions])
    classes = [_class_score(app, requests, c, name) for c, name in enumerate(app.classes)]
    windows = [_violated(app, requests, c, SLA_WINDOW_S) for c in range(len(app.classes))]
    seconds = [_violated(app, requests, c, 1.0) for c in range(len(app.classes))]
    checked = sum(int((~np.isnan(one)).sum()) for one in windows)
    violated = sum(float(np.nansum(one)) for one in windows)
    counted = [one for one in classes if not math.isnan(one.late_pct)]
    total = sum(one.requests for one in counted)
    late = sum(one.late_pct * one.requests for one in counted)
    core_s = float(allocated @ lengths)
    no_limit = np.mean([np.isinf(decision.window.cpu_limit) for decision in decisions], axis=0)
    failures = [one.reason for one in decisions if one.reason.startswith(_FAILED)]
    energy_kwh = core_w * (core_s / _J_PER_KWH)
    return Score(
        manager=manager, rate=rate,
        violation_pct=100.0 * violated / checked if checked else math.nan,
        late_pct=late / total if total else math.nan,
        cpu_mean=core_s / float(lengths.sum()), cpu_p95=float(np.percentile(allocated, 95)),
        cpu_used=float(used @ lengths / lengths.sum()),
        unlimited=int(np.count_nonzero(no_limit > 0.5)),
        decisions=sum(decision.changed > 0 for decision in decisions), windows=len(decisions),
        failed=len(failures), failure=failures[0].removeprefix(_FAILED) if failures else "",
        held=sum(decision.verdict == "held" for decision in decisions),
        capped=sum(decision.verdict == "capped" for decision in decisions),
        recovery_s=max((_longest(one) for one in seconds), default=0.0),
        manager_ms=float(np.median(spent_ms)), manager_max_ms=max(spent_ms),
        energy_kwh=energy_kwh,
        carbon_g=None if intensity is None else energy_kwh * intensity, classes=classes,
    )  # fmt: skip


def _class_score(app: Application, requests: Requests, c: int, name: str) -> ClassScore:
    sla = app.classes[name].sla
    mine = requests.request_class == c
    latency, answered = requests.latency_ms[mine], requests.is_answered[mine]
    good = latency[answered]
    p50, p99 = np.percentile(good, [50, 99]) if good.size else (math.nan, math.nan)
    late = violation = math.nan
    if sla is not None and latency.size:
        late = 100.0 * float(np.mean(~answered | (latency > sla.bound_ms)))
        windows = _violated(app, requests, c, SLA_WINDOW_S)
        violation = 100.0 * float(np.nanmean(windows))
    return ClassScore(
        name, int(mine.sum()), float(p50), float(p99), sla.bound_ms if sla else math.nan,
        sla.percentile if sla else math.nan, violation, late,
        100.0 * float(np.mean(~answered)) if latency.size else math.nan,
    )  # fmt: skip


def _violated(app: Application, requests: Requests, c: int, window_s: float) -> Floats:
    """For each window: whether the percentile was over the bound; NaN without requests.

    A percentile is over its bound if more than the rest of the requests is: no sorting needed.
    What has no answer counts as late.
    """
    sla = list(app.classes.values())[c].sla
    mine = requests.request_class == c
    if sla is None or not mine.any():
        return np.empty(0)
    window = (requests.due_s[mine] // window_s).astype(np.int64)
    late = ~requests.is_answered[mine] | (requests.latency_ms[mine] > sla.bound_ms)
    count = np.bincount(window)
    over = np.bincount(window, weights=late)
    allowed = np.floor(count * (1 - sla.percentile / 100) + 1e-9)
    return np.where(count > 0, (over > allowed).astype(float), math.nan)


def _longest(violated: Floats) -> float:
    """The longest run of violated seconds; a second without requests does not end one."""
    longest = length = 0
    for one in violated:
        if not math.isnan(one):
            length = length + 1 if one else 0
        longest = max(longest, length)
    return float(longest)


def missing_parts(app: Application) -> dict[str, str]:
    """What an answer about limits and SLAs needs and an application lacks, and how to add it."""
    lacks = {}
    if all(one.sla is None for one in app.classes.values()):
        lacks["no class has an SLA"] = "add `sla: {bound_ms: 100}` to classes of the application"
    if not any(app.cpu_demand(name) for name in app.services):
        lacks["no call takes CPU time"] = (
            "import with `--cpu-share` or `--pod-metrics`, or add `cpu_ms` to calls"
        )
    free = [name for name, one in app.services.items() if one.cpu_limit is None]
    if free:
        some = ", ".join(free[:3]) + (f" and {len(free) - 3} more" if free[3:] else "")
        lacks[f"no CPU limit on {some}"] = "add `cpu_limit: 1` (cores) to services"
    return lacks
