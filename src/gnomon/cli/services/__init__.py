"""gnomon services: applications from traces, the simulator, the lab, managers, Kubernetes."""

from __future__ import annotations

from cyclopts import App

from gnomon.cli.services import simulate

__all__ = ["app"]

app = App(name="services", help="How little CPU meets this SLA?")
for command in (simulate.simulate, simulate.compare, simulate.managers):
    app.command(command)
