"""gnomon clone: a running service, reproduced without its code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
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
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    bundle: Annotated[Path | None, Parameter(name=["--bundle", "-o"])] = None,
    load: str | None = None,
    protocol: str | None = None,
    pid: int | None = None,
    seconds: float = 5.0,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Launch a service and write a bundle; or look at one that runs already, by --pid.

    `gnomon clone profile -o redis.bundle --protocol resp
    --load 'redis-benchmark -p 7001 -t get -n 5000 -q' -- redis-server --port 7001`, or
    `gnomon clone profile --pid 4711`. The latter neither restarts nor signals the service, says
    what the look costs it, and gives system calls, threads and sizes, but no bundle.

    Args:
        command: Of the service, after `--`; it stays in the foreground.
        bundle: The folder to write: counts and sizes, no names, paths or payloads.
        load: A command that sends some thousand requests to it and ends; it runs twice, with
            --pid three times.
        protocol: That the clone is to speak: resp, memcached, http, length, raw; inferred unless
            given.
        pid: A process that runs; its children are included.
        seconds: To trace it for, with --pid and without --load.
        output: Where the answer goes.
    """
    check_output(output)
    if bundle is not None and not bundle.absolute().parent.is_dir():
        raise InputError("there is no such folder", where=str(bundle.parent))
    if pid is not None:
        if command or protocol is not None:
            raise InputError("--pid takes neither a command nor --protocol")
        _profile_live(pid, seconds, load, bundle, output)
        return
    if not command or bundle is None or load is None:
        raise InputError(
            "a service is profiled by -o, --load and its command after --, or by --pid",
            hint="gnomon clone profile --help",
        )
    from gnomon.systems.clone import profile as measure
    from gnomon.systems.clone import write_bundle
    from gnomon.systems.clone.clone_result import profile_to_result

    found = measure(command, load, protocol=protocol, progress=_say)
    write_bundle(found, bundle)
    show(profile_to_result(found, command=typed_command()), output)


def _profile_live(
    pid: int, seconds: float, load: str | None, folder: Path | None, output: Output
) -> None:
    from gnomon.systems.clone.live import check_folder, watch, write_live
    from gnomon.systems.clone.live_result import live_to_result, overhead_line

    if folder is not None:
        check_folder(folder)
    found = watch(pid, seconds=seconds, load=load, progress=_say)
    if folder is not None:
        write_live(found, folder)
    print(overhead_line(found), file=sys.stderr)
    show(live_to_result(found, command=typed_command()), output)


@app.command
def morph(
    bundle: Path,
    *,
    folder: Annotated[Path, Parameter(name=["--folder", "-o"])],
    data: float = 1.0,
    code: float = 1.0,
    mix: str | None = None,
    instructions: str | None = None,
    phase: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    output: Output = Output(),  # noqa: B008
) -> None:
    """Write a bundle with a recipe: its clone differs from the original in data, code or load.

    `gnomon clone morph redis.bundle -o big.bundle --data 4 --mix get=0.9,set=0.1`. Then `generate`
    and `tune` as ever; tuning leaves the recipe out until the end. A recipe replaces the one
    before; without any option it is taken off.

    Args:
        bundle: That `profile` or `morph` wrote.
        folder: The bundle to write.
        data: How many times the lines of data that requests use in turn; 1/64 to 64.
        code: The same of code; to 16.
        mix: Shares of requests by command; the others share what is left.
        instructions: Factors of classes of instructions; the total stays.
        phase: A part of a cycle, such as 60s:rate=2,data=4,get=0.5. Repeatable.
        output: Where the answer goes.
    """
    from gnomon.systems.clone import read_bundle, write_bundle
    from gnomon.systems.clone.clone_result import morph_to_result
    from gnomon.systems.clone.morph import Morph, make_morph

    check_output(output)
    original = read_bundle(bundle)
    recipe = make_morph(original.traffic, data, code, mix, instructions, phase)
    found = morph_to_result(original, recipe, command=typed_command())
    morphed = None if recipe == Morph() else recipe
    write_bundle(msgspec.structs.replace(original, morphed=morphed), folder)
    show(found, output)


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
    load: str | None = None,
    port: int | None = None,
    rounds: int = 5,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Profile a clone, correct it by what is off, and say how close it is.

    Args:
        folder: That `generate` wrote.
        against: The bundle of the original.
        load: The same load; {port} becomes the clone's port. Its own load generator, which sends
            what was recorded, unless given.
        port: That the clone listens on; a free one unless given.
        rounds: Of corrections; 0 only compares. The best is kept.
        output: Where the answer goes.
    """
    from gnomon.systems.clone import compare, read_bundle
    from gnomon.systems.clone import tune as correct
    from gnomon.systems.clone.clone_result import tuning_to_result

    check_output(output)
    if not 0 <= rounds <= 20 or (port is not None and not 1 <= port <= 65535):
        raise InputError("--rounds is 0 to 20, --port 1 to 65535")
    original = read_bundle(against)
    seen = correct(original, folder, load, port=port, rounds=rounds, progress=_say)
    show(
        tuning_to_result(
            original, seen, compare(original, seen, at_rates_of=original), command=typed_command()
        ),
        output,
    )


@app.command
def validate(
    folder: Path,
    *,
    original: str,
    load: str | None = None,
    connections: int = 16,
    runs: int = 5,
    output: Output = Output(),  # noqa: B008
) -> int:
    """Measure a clone beside its original, also on settings it was not tuned to.

    `gnomon clone validate redis-clone --original 'redis-server --port {port}'
    --load 'redis-benchmark -p {port} -c {connections} -n {requests} -t get'`. Takes some minutes.
    Exit code 3: a metric is beyond its limit.

    Args:
        folder: That `generate` wrote.
        original: The command of the service; {port} becomes a free port.
        load: A command with {port}, {connections} and {requests} (or {seconds}) to fill in; the
            clone's own load generator unless given.
        connections: That the service was profiled with.
        runs: Of each, natively.
        output: Where the answer goes.
    """
    from gnomon.systems.clone.project import morphed_note
    from gnomon.systems.clone.validate import validate as measure
    from gnomon.systems.clone.validate_result import to_result, to_script

    check_output(output)
    if not 1 <= connections <= 1000 or not 1 <= runs <= 100:
        raise InputError("--connections is 1 to 1000, --runs 1 to 100")
    rows = measure(folder, original, load, connections=connections, runs=runs, progress=_say)
    found = to_script(rows)
    note = morphed_note(folder)
    show(to_result(rows, command=typed_command(), recipe=note), output, extra=found)
    return 0 if found["within"] else 3


@app.command
def topology(
    *traces: str,
    folder: Annotated[Path | None, Parameter(name=["--folder", "-o"])] = None,
    run: str | None = None,
    serve: Annotated[bool, Parameter(negative=())] = False,
    rate: float | None = None,
    cpu_share: float | None = None,
    least: int = 3,
    hold_out: float = 0.0,
    key: Path | None = None,
    seed: int = 0,
    output: Output = Output(),  # noqa: B008
) -> int:
    """Clone several tiers from traces, run them, compare the clone's spans with the original's.

    `gnomon clone topology traces.json -o shop --run 60`. Reads spans of Jaeger, Zipkin and
    OpenTelemetry. Names become tier-1, op-1 ... Later `gnomon clone topology shop --run 60` runs
    the same again. Exit code 3: the clone does not match.

    Args:
        traces: Files, folders or patterns; or the folder that an earlier call wrote.
        folder: Where the clone goes.
        run: Run it for so long (60, 60s, 5m), under load, and compare.
        serve: Run it without load until Ctrl-C, for a client of yours.
        rate: Requests per second; as recorded unless given. Too many for this machine are lowered.
        cpu_share: Of a tier's own time, what is CPU time; the rest, by default all, is waiting.
        least: Kinds of requests that were seen fewer times are merged into the nearest.
        hold_out: Share of requests to compare with instead of making shapes of them.
        key: Write what the pseudonyms stand for to this file; keep it to yourself.
        seed: Of arrivals and the order of requests.
        output: Where the answer goes.
    """
    from gnomon.cli.clone_topology import clone_topology

    return clone_topology(
        traces, folder=folder, run=run, serve=serve, rate=rate, cpu_share=cpu_share, least=least,
        hold_out=hold_out, key=key, seed=seed, output=output,
    )  # fmt: skip


@app.command
def audit(
    handed_over: Path,
    *,
    against: Annotated[list[Path], Parameter(negative=())],
    output: Output = Output(),  # noqa: B008
) -> int:
    """Search a clone, or a bundle, for strings, code and numbers of the original.

    `gnomon clone audit redis-clone --against /usr/bin/redis-server`. Exit code 3: something was
    found.

    Args:
        handed_over: The folder of a clone, or a bundle.
        against: The original's program; also its libraries, settings and data. Repeatable.
        output: Where the answer goes.
    """
    from gnomon.systems.clone.audit import audit as search
    from gnomon.systems.clone.audit.audit_result import audit_to_result, audit_to_script

    check_output(output)
    if not handed_over.exists():
        raise InputError("there is no such folder or file", where=str(handed_over))
    found = search(handed_over, against)
    show(audit_to_result(found, typed_command()), output, extra=audit_to_script(found))
    return 0 if found.is_clean else 3
