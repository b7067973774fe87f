"""gnomon services: applications from traces, the simulator, the lab, managers, Kubernetes."""

from __future__ import annotations

from cyclopts import App

from gnomon.cli.services import control, explore, imports, lab, learn, simulate

__all__ = ["app"]

app = App(name="services", help="How little CPU meets this SLA?")
app.command(imports.import_, name="import")
for command in (
    simulate.simulate,
    simulate.compare,
    explore.explore,
    explore.plan,
    learn.collect,
    learn.train,
    learn.tune,
    lab.lab,
    control.control,
    control.decisions,
    simulate.managers,
):
    app.command(command)
