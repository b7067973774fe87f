"""The tree of commands. Each is imported when it is called: help must not wait for numpy."""

from __future__ import annotations

from cyclopts import App, Group

from gnomon.cli.commands import NOUNS, VERBS

__all__ = ["app"]


def _version() -> str:
    from gnomon.version import __version__

    return f"gnomon {__version__}"


app = App(
    name="gnomon",
    help="Read what a datacenter workload left behind, rebuild it, play it again, decide.",
    version=_version,
    # Rich markdown would cost a third of the time that help may take.
    help_format="plaintext",
    help_epilogue="Every command takes --json and --verbose. Exit codes: 0 done, 1 our fault, "
    "2 wrong input or usage, 3 the answer is no.",
)
_systems = Group.create_ordered("Systems")
_shared = Group.create_ordered("Shared")
for _name, _about in NOUNS.items():
    app.command(f"gnomon.cli.{_name}:app", name=_name, help=_about, group=_systems)
for _name, _about in VERBS.items():
    app.command(f"gnomon.cli.{_name}:{_name}", name=_name, help=_about, group=_shared)
app.register_install_completion_command()
