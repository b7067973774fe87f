"""Applications whose measurements or services fail for a while, and what managers must make of it."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from gnomon.decide.services import Rails, SimTarget, manage, service_policies
from gnomon.sim.mesh import poisson_requests


def target_of(app, rate, seconds=60, seed=1):
    return SimTarget(app, poisson_requests(app, [rate] * seconds, seed=seed), seed=seed)


class Faulty:
    """A simulated application whose measurements or services fail for a while."""

    def __init__(self, app, spoil, *, rate=100.0, seconds=120):
        self.app, self._spoil = app, spoil
        self._inner = target_of(app, rate, seconds)

    def observe(self, duration_s):
        return self._spoil(self._inner, self._inner.observe(duration_s))

    def apply(self, allocation):
        self._inner.apply(allocation)


def metrics_vanish(target, window):
    if not 40 <= window.now_s < 70:
        return window
    nothing = np.full_like(window.usage, math.nan)
    return msgspec.structs.replace(
        window, usage=nothing, cpu_limit=nothing, rate=nothing,
        class_rate=np.full_like(window.class_rate, math.nan),
        class_ms=np.full_like(window.class_ms, math.nan),
    )  # fmt: skip


def probes_lie(target, window):
    if not 40 <= window.now_s < 70:
        return window
    return msgspec.structs.replace(
        window, class_ms=np.full_like(window.class_ms, 1e-3), class_violations=np.zeros_like(window.class_violations),
        service_ms=np.full_like(window.service_ms, 1e9),
    )  # fmt: skip


def a_service_dies(target, window):
    if window.now_s == 40:
        target.sim.set_replicas(1, 0)
    if window.now_s == 60:
        target.sim.set_replicas(1, 1)
    return window


FAULTS = (metrics_vanish, probes_lie, a_service_dies)


def survives(app, manager, spoil):
    """Two minutes with a fault in the middle: no crash, the safe action, a reason, recovery."""
    run = manage(
        Faulty(app, spoil), service_policies.create(manager), duration_s=120, rails=Rails()
    )
    assert len(run.decisions) == 120
    during = [d for d in run.decisions if 41 <= d.window.now_s < 60]
    assert all(d.reason for d in during)
    if spoil is metrics_vanish:
        assert {d.verdict for d in during} == {"held"}
        assert all(d.changed == 0 for d in during)
    if spoil is a_service_dies:
        assert any(d.verdict == "capped" for d in run.decisions if d.window.now_s >= 41)
    assert not any("manager failed" in d.reason for d in run.decisions)
    after = [d.window for d in run.decisions[-20:]]
    assert np.mean([w.class_violations.max() > 0.05 for w in after]) < 0.2
