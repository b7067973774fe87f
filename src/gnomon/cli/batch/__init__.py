"""gnomon batch: policies tried, one's own logs, a live agent, and Decima's training."""

from __future__ import annotations

from cyclopts import App

from gnomon.cli.batch.run import policies, run, whatif
from gnomon.cli.batch.spark import spark_agent, spark_conf
from gnomon.cli.batch.train import train_decima

__all__ = ["app"]

app = App(name="batch", help="When should which stage run, given the grid?")
for command in (run, whatif, spark_agent, spark_conf, train_decima, policies):
    app.command(command)
