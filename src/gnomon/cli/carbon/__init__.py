"""gnomon carbon: signals, accounts, placement, waiting and buying."""

from __future__ import annotations

from cyclopts import App

from gnomon.cli.carbon import account, buy, place, signal, wait

__all__ = ["app"]

app = App(name="carbon", help="What does it emit, and which number should I minimise?")
for command in (signal.signal, account.account, place.place, wait.wait, buy.buy):
    app.command(command)
