"""The tree of commands. Each is imported when it is called: help must not wait for numpy."""

from __future__ import annotations

from cyclopts import App, Group

from gnomon.cli.commands import ABOUT, NOUNS, VERBS

app = App(
    suppress_keyboard_interrupt=False,
    name="gnomon",
    help=ABOUT,
    version_flags=(),  # answered before the parser is loaded
)
_systems = Group.create_ordered("Systems")
_shared = Group.create_ordered("Shared")
for _name, _about in NOUNS.items():
    app.command(f"gnomon.cli.{_name}:app", name=_name, help=_about, group=_systems)
for _name, _about in VERBS.items():
    app.command(f"gnomon.cli.{_name}:{_name}", name=_name, help=_about, group=_shared)
