"""A log's jobs again: the executors it had, and how long it took."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.spark.event_log import read_spark_logs
from gnomon.ingest.spark.jobs import spark_jobs
from gnomon.ingest.stages.trace import BatchTrace
from gnomon.sim.cluster import NEVER_NS
from gnomon.systems.batch.logs import Replayed, recorded_executors, replay_recorded
from gnomon.systems.batch.run_result import _distrust

LOG = bundled("spark-diamonds")


def test_a_replay_takes_as_long_as_was_recorded():
    replayed = replay_recorded(spark_jobs(read_spark_logs(LOG)))
    assert replayed.recorded_s == pytest.approx(107.2, abs=0.5)
    assert abs(replayed.error_pct) < 10.0
    assert replayed.makespan_s.low <= replayed.makespan_s.mid <= replayed.makespan_s.high


def trace(when, held, ended_ns=100):
    log = spark_jobs(read_spark_logs(LOG))
    return BatchTrace(
        "x", log.jobs, executors=int(max(held, default=0)),
        held_from_ns=np.array(when, dtype=np.int64), held=np.array(held, dtype=np.int32),
        ended_ns=ended_ns,
    )  # fmt: skip


def test_executors_come_and_leave_as_recorded():
    got = recorded_executors(trace([0, 10, 20, 50, 100], [1, 3, 2, 3, 0]))
    assert got.count == 4
    assert got.from_ns == (0, 10, 10, 50)
    # The one that came last leaves first; those at the end stay.
    assert got.until_ns == (NEVER_NS, NEVER_NS, 20, NEVER_NS)


def test_a_log_without_executors_is_told():
    with pytest.raises(InputError, match="how many executors"):
        recorded_executors(trace([], []))


def test_a_replay_that_is_off_is_not_trusted():
    off = Replayed(Estimate.exact(130.0), 100.0)
    (said,) = _distrust(off)
    assert "off by +30 %" in said
    assert _distrust(Replayed(Estimate.exact(95.0), 100.0)) == []
    assert _distrust(Replayed(Estimate.exact(95.0), None)) == []
    assert _distrust(None) == []
