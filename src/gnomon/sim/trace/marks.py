"""Steps: which one an event belongs to, and which events of other steps are its like."""

from __future__ import annotations

import numpy as np

from gnomon.graph.column_types import Codes, Ints
from gnomon.graph.repeats import count_within
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.sim.trace.events import EventClass, LaidOut


def asked_at(trace: KinetoTrace, laid: LaidOut) -> Ints:
    """When the host launched each device event; -1 where that lies before the trace."""
    asked = np.full(len(trace), -1, np.int64)
    calls = np.flatnonzero((laid.event_class == EventClass.CALL) & (laid.correlation > 0))
    events = np.flatnonzero((laid.event_class == EventClass.DEVICE) & (laid.correlation > 0))
    if not len(calls) or not len(events):
        return asked
    calls = calls[np.argsort(laid.correlation[calls], kind="stable")]
    wanted = laid.correlation[events]
    at = np.minimum(np.searchsorted(laid.correlation[calls], wanted), len(calls) - 1)
    found = laid.correlation[calls[at]] == wanted
    asked[events[found]] = trace.start_ns[calls[at[found]]]
    return asked


def step_of_device_events(trace: KinetoTrace, asked: Ints, marks: Ints) -> Codes:
    """The step that launched each device event, as its place among the marks; -1 for none."""
    step = np.full(len(trace), -1, np.int32)
    if len(marks):
        at = np.searchsorted(trace.start_ns[marks], asked, side="right") - 1
        inside = (asked >= 0) & (at >= 0) & (asked < trace.end_ns[marks][at])
        step[inside] = at[inside]
    return step


def nth_of_its_kind(trace: KinetoTrace, asked: Ints, step: Codes) -> Codes:
    """A number that is the same for the same device event of another step; -1 without a step.

    The n-th event of a name within a step, in order of launch, is the n-th of that name in the
    others: steps repeat one another.
    """
    rows = np.flatnonzero(step >= 0)
    rows = rows[np.argsort(asked[rows], kind="stable")]
    number = np.full(len(trace), -1, np.int32)
    if len(rows):
        name = trace.name[rows].astype(np.int64)
        nth = count_within(name * (int(step.max()) + 1) + step[rows])
        key = name * (int(nth.max()) + 1) + nth
        number[rows] = np.unique(key, return_inverse=True)[1]
    return number
