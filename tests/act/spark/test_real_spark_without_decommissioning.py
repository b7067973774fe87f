"""A Spark that moves no blocks: only executors leave that have nothing to lose."""

from __future__ import annotations

import pytest

from gnomon.act.spark import SparkDriver, SparkPlan
from tests.act.spark.harness import running_stage, staying
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_only_those_leave_that_have_nothing(process, master_url):
    process.start(master_url, spark__decommission__enabled="false")
    with SparkDriver.connect(process.handshake, wait_s=20) as driver:
        driver.set_lease(60.0)
        assert not driver.hello.capabilities.decommission
        until(lambda: staying(driver.state()) == 3, "three executors", 90)
        driver.apply(SparkPlan(target=2))
        until(lambda: len(driver.state().executors) == 2, "an idle one is gone", 60)
        assert driver.state().degraded == ""
        # Both others run tasks, and then keep what they shuffled: they stay.
        expected = process.submit("a", tasks=24, ms=200)
        running_stage(driver)
        until(lambda: sum(e.running for e in driver.state().executors) == 2, "both work")
        driver.apply(SparkPlan(target=1))
        assert process.result("a") == expected
        seen = driver.state()
        assert (len(seen.executors), seen.failed_tasks, seen.degraded) == (2, 0, "")
        driver.release()
    process.stop()
