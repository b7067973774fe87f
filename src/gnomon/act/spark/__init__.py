"""Control of an unpatched Spark: a plugin in its driver, and an agent that talks to it.

    settings = spark_conf(handshake="h.json", plugin=build_plugin())
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    ...
    driver = SparkDriver.connect("h.json")            # in the same process, or in another one
    run_agent(driver, lambda state, now: plan(decide(state, now), state))

Executors are scaled without losing a task, stages are held and ordered. The safety is in the
driver: one stage always runs, no running task is killed, and without a heartbeat of the agent
within the lease everything is released.
"""

from gnomon.act.spark.agent import AgentRun, run_agent
from gnomon.act.spark.build import build_plugin
from gnomon.act.spark.conf import spark_conf
from gnomon.act.spark.driver import Applied, DriverGone, SparkDriver
from gnomon.act.spark.home import SparkHome, find_spark
from gnomon.act.spark.plan import SparkDecision, SparkPlan, plan
from gnomon.act.spark.state import (
    Capabilities,
    DriverState,
    ExecutorState,
    Hello,
    JobState,
    StageState,
)

__all__ = [
    "AgentRun",
    "Applied",
    "Capabilities",
    "DriverGone",
    "DriverState",
    "ExecutorState",
    "Hello",
    "JobState",
    "SparkDecision",
    "SparkDriver",
    "SparkHome",
    "SparkPlan",
    "StageState",
    "build_plugin",
    "find_spark",
    "plan",
    "run_agent",
    "spark_conf",
]
