"""A Spark that drops what it would tell: nothing that has ended is taken for running."""

from __future__ import annotations

import pytest

from gnomon.act.spark import SparkDriver
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def queue_of_one(name: str) -> dict[str, str]:
    return {f"spark__scheduler__listenerbus__eventqueue__{name}__capacity": "1"}


def test_others_that_are_slow_cost_no_event(process):
    """The plugin listens in a queue of its own: the shared one drops nearly everything here."""
    process.start("local[2]", **queue_of_one("shared"))
    with SparkDriver.connect(process.handshake, wait_s=20, watch=True) as watcher:
        for _ in range(3):
            assert process.submit("a", tasks=40, ms=1) == process.result("a")
        seen = until(lambda: not (s := watcher.state()).jobs and s, "every end is known")
        assert (seen.finished_tasks, seen.stages) == (3 * 43, ())
    process.stop()


def test_lost_events_are_reconciled(process):
    """Its own queue drops, and that of Spark's status: the scheduler is asked what has ended."""
    process.start("local[2]", **queue_of_one("gnomon"), **queue_of_one("appStatus"))
    with SparkDriver.connect(process.handshake, wait_s=20, watch=True) as watcher:
        for _ in range(5):
            assert process.submit("a", tasks=40, ms=1) == process.result("a")
        assert watcher.state().finished_tasks < 5 * 43  # else nothing was dropped
        until(lambda: not watcher.state().jobs, "ended jobs are forgotten", 30)
        seen = watcher.state()
        assert (seen.stages, seen.degraded) == ((), "")
    process.stop()
