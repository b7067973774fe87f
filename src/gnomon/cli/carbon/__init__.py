"""gnomon carbon: signals, accounts, placement, waiting and buying."""

from __future__ import annotations

from cyclopts import App

from gnomon.cli.carbon.account import account
from gnomon.cli.carbon.buy import buy
from gnomon.cli.carbon.place import place
from gnomon.cli.carbon.signal import signal
from gnomon.cli.carbon.wait import wait

__all__ = ["app"]

app = App(name="carbon", help="What does it emit, and which number should I minimise?")
for command in (signal, account, place, wait, buy):
    app.command(command)
