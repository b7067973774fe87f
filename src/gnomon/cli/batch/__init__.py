"""gnomon batch: policies tried, one's own logs, a live agent, and Decima's training."""

from __future__ import annotations

from cyclopts import App

from gnomon.cli.batch import run, spark, train

__all__ = ["app"]

app = App(name="batch", help="When should which stage run, given the grid?")
for command in (
    run.run,
    run.whatif,
    spark.spark_agent,
    spark.spark_conf,
    train.train_decima,
    run.policies,
):
    app.command(command)
