"""The load generator of a clone: building it for a service's traffic, and running it."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

import msgspec

from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone.traffic import Traffic, traffic_c


class PhaseResult(msgspec.Struct, frozen=True):
    """A phase of a load, all its times together."""

    seconds: float
    requests: int


class LoadResult(msgspec.Struct, frozen=True):
    """What the program `load` measured.

    Attributes:
        requests: That were answered.
        errors: Answers that were errors, and requests that were lost.
        late_ms: That the generator itself was late by, on average; part of the latencies.
    """

    requests: int
    errors: int
    seconds: float
    rps: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    mean_ms: float
    late_ms: float = 0.0
    request_bytes: float = 0.0
    reply_bytes: float = 0.0
    open_loop: bool = False
    connections: int = 1
    phases: tuple[PhaseResult, ...] = ()


def build_load(traffic: Traffic, folder: Path) -> Path:
    """Compiles `load` by itself, for a service of which there is no clone yet."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise InputError("there is no C compiler", hint="the distribution's package gcc")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "traffic.c").write_text(traffic_c(traffic))
    program = folder / "load"
    with as_file(files("gnomon.systems.clone") / "runtime") as runtime:
        done = subprocess.run(
            [compiler, "-std=gnu11", "-O2", f"-I{runtime}", *sorted(runtime.glob("load*.c")),
             folder / "traffic.c", "-lm", "-o", program],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise GnomonError(f"the load generator does not compile: {done.stderr.strip()[:300]}")
    return program


def load_command(
    program: Path, port: int, *, requests: int = 100_000, connections: int | None = None,
    rate: float | None = None, seed: int = 1, fill: str = "yes", path: str = "/",
    host: str = "127.0.0.1", timeout_s: float = 120.0,
) -> list[str]:  # fmt: skip
    """The command line of a run.

    Args:
        rate: Requests a second, sent whether or not earlier ones were answered. None: each
            connection sends the next when it has its answer.
        fill: Whether data that will be read is stored before: yes, no, or only that.
        path: That is asked for, in HTTP.
    """
    words = [str(program), "--host", host, "--port", str(port), "--requests", str(requests),
             "--seed", str(seed), "--fill", fill, "--path", path, "--timeout", f"{timeout_s:g}",
             "--json"]  # fmt: skip
    if connections is not None:
        words += ["--connections", str(connections)]
    return words if rate is None else [*words, "--rate", f"{rate:.9g}"]


def run_load(command: list[str], *, timeout_s: float = 150.0) -> LoadResult:
    """Runs `load_command` to its end.

    Raises:
        GnomonError: The server cannot be reached, or does not answer in time.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise GnomonError(f"the load did not end in {timeout_s:.0f} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise GnomonError(said[-1] if said else f"the load failed with {done.returncode}")
    try:
        return msgspec.json.decode(done.stdout, type=LoadResult)
    except msgspec.DecodeError as error:
        raise GnomonError(f"the load generator printed no result: {error}") from None
