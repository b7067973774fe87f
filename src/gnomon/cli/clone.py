"""gnomon clone: a running service, reproduced without its code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gnomon.cli.output import Output, check_output, show
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError

app = App(name="clone", help="Can I hand over this service without handing over its code?")


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"==> {what}", file=sys.stderr)


@app.command
def profile(
    *command: Annotated[str, Parameter(required=True, allow_leading_hyphen=True)],
    bundle: Annotated[Path, Parameter(name=["--bundle", "-o"])],
    load: str,
    protocol: str,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Launch a service, profile it while a load runs, and write a bundle.

    `gnomon clone profile -o redis.bundle --protocol resp
    --load 'redis-benchmark -p 7001 -t get -n 5000 -q' -- redis-server --port 7001`

    Args:
        command: Of the service, after `--`; it stays in the foreground and ends on SIGTERM.
        bundle: The file to write: counts and sizes, no names, paths or payloads.
        load: A command that sends some thousand requests to it and ends; it runs twice.
        protocol: That the clone is to speak: resp, memcached, http, length.
        output: Where the answer goes.
    """
    from gnomon.systems.clone import profile as measure
    from gnomon.systems.clone import write_bundle
    from gnomon.systems.clone.clone_result import profile_to_result

    check_output(output)
    if not bundle.parent.is_dir():
        raise InputError("there is no such folder", where=str(bundle.parent))
    found = measure(command, load, protocol=protocol, progress=_say)
    write_bundle(found, bundle)
    show(profile_to_result(found, command=typed_command()), output)


@app.command
def generate(
    bundle: Path, *, folder: Annotated[Path, Parameter(name=["--folder", "-o"])], seed: int = 0
) -> None:
    """Write the clone of a bundle: a project that builds with a C compiler and CMake.

    Args:
        bundle: That `profile` wrote.
        folder: Where to; an earlier clone there is replaced.
        seed: Of what is left open: which register, which line.
    """
    from gnomon.systems.clone import read_bundle, write_project

    write_project(read_bundle(bundle), folder, seed=seed)
    print(f"{folder}: cmake -S {folder} -B {folder}/build && cmake --build {folder}/build")


@app.command
def tune(
    folder: Path,
    *,
    against: Path,
    load: str,
    port: int,
    rounds: int = 3,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Profile a clone, correct it by what is off, and say how close it is.

    Args:
        folder: That `generate` wrote.
        against: The bundle of the original.
        load: The same load, to the clone's port.
        port: That the clone listens on.
        rounds: Of corrections; 0 only compares.
        output: Where the answer goes.
    """
    from gnomon.systems.clone import compare, read_bundle
    from gnomon.systems.clone import tune as correct
    from gnomon.systems.clone.clone_result import tuning_to_result

    check_output(output)
    if not 0 <= rounds <= 20 or not 1 <= port <= 65535:
        raise InputError("--rounds is 0 to 20, --port 1 to 65535")
    original = read_bundle(against)
    seen = correct(original, folder, load, port=port, rounds=rounds, progress=_say)
    show(
        tuning_to_result(original, seen, compare(original, seen), command=typed_command()), output
    )
