"""Running a benchmark folder, and what it reports."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import IO, Any

import msgspec

from gnomon.errors import InputError
from gnomon.estimate import Estimate

_PROGRAM = "run.py"
_TRACE = "clone.json.gz"


class CloneRun(msgspec.Struct, frozen=True):
    """What `run.py --json` prints, as far as a check reads it.

    Attributes:
        step_ms: Each step, without the profiler.
        coverage_time_pct: Their share of its device time; None where that is not known.
        power_w: Samples of the device's power while it ran.
    """

    step_ms: list[float]
    median_ms: float | None = None
    coverage_ops_pct: float | None = None
    coverage_time_pct: float | None = None
    replayed: int | None = None
    placeholders: int | None = None
    skipped: int | None = None
    peak_bytes: float | None = None
    power_w: list[float] | float | None = None
    torch: str = ""
    device: str = ""

    @property
    def step(self) -> Estimate:
        """The median step, between the quantiles that hold eight of ten."""
        spread = Estimate.from_samples(self.step_ms)
        mid = spread.mid if self.median_ms is None else self.median_ms
        return Estimate(min(spread.low, mid), mid, max(spread.high, mid))

    @property
    def median_power_w(self) -> float | None:
        """The median of the power samples."""
        if self.power_w is None or self.power_w == []:
            return None
        return Estimate.from_samples(self.power_w).mid


def clone_run_of(printed: object, where: str) -> CloneRun:
    """What a benchmark printed, checked.

    Raises:
        InputError: It is not what a benchmark prints, or no step of it took any time.
    """
    hint = "run.py --json prints it"
    try:
        run = msgspec.convert(printed, CloneRun)
    except msgspec.ValidationError as error:
        raise InputError(
            f"not the answer of a benchmark: {error}", where=where, hint=hint
        ) from None
    steps = [*run.step_ms, *([] if run.median_ms is None else [run.median_ms])]
    if not run.step_ms or not all(math.isfinite(ms) and ms > 0 for ms in steps):
        what = "a benchmark's steps have to take some time, and there has to be one"
        raise InputError(what, where=where, hint=hint)
    return run


def read_clone_run(path: Path) -> CloneRun:
    """Reads what a benchmark printed on another machine."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    return clone_run_of(_decode(text, str(path)), str(path))


def run_clone(
    bench: Path,
    *,
    folder: Path,
    device: str | None = None,
    steps: int = 30,
    python: str = sys.executable,
    extra: Sequence[str] = (),
) -> tuple[dict[str, Any], Path]:
    """Runs a benchmark and has it profile itself.

    Returns:
        What it printed, and where its profile is.

    Raises:
        InputError: There is no benchmark, or it failed; with its last line on stderr.
    """
    program = bench / _PROGRAM
    if not program.is_file():
        raise InputError(
            f"there is no {_PROGRAM} here", where=str(bench),
            hint="`gnomon aibench build` makes such folders",
        )  # fmt: skip
    trace = folder / _TRACE
    # -B: a folder that is handed over and audited keeps no compiled files of its modules.
    command = [python, "-B", str(program), "--json", "--profile", str(trace)]
    command += ["--steps", str(steps), *(["--device", device] if device else []), *extra]
    printed, last, code = _run(command, str(program))
    if code:
        why = last or f"exit code {code}, no message"
        hint = "give a Python that has it" if "No module named" in why else None
        raise InputError(f"the benchmark failed: {why}", where=str(program), hint=hint)
    if not trace.is_file():
        raise InputError("the benchmark wrote no profile", where=str(program))
    answer = _decode(printed, str(program))
    if not isinstance(answer, dict):
        raise InputError("the benchmark printed no JSON object", where=str(program))
    return answer, trace


def _run(command: list[str], where: str) -> tuple[bytes, str, int]:
    """What it printed, the last line of its complaints, which are passed on, and how it ended."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        what = f"{command[0]} cannot be started: {error.strerror}"
        raise InputError(what, where=where) from None
    assert process.stdout is not None
    assert process.stderr is not None
    last: deque[str] = deque(maxlen=1)
    listener = Thread(target=_pass_on, args=(process.stderr, last), daemon=True)
    with process:
        listener.start()
        try:
            printed = process.stdout.read()
            listener.join()
        except BaseException:
            process.kill()
            raise
    return printed, last[0] if last else "", process.returncode


def _pass_on(complaints: IO[bytes], last: deque[str]) -> None:
    for line in complaints:
        text = line.decode(errors="replace")
        sys.stderr.write(text)
        if text.strip():
            last.append(text.strip())


def _decode(text: bytes, where: str) -> object:
    """The JSON in what was printed; a line before it is not the end of it."""
    try:
        return msgspec.json.decode(text[max(text.find(b"{"), 0) :])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"no JSON: {error}", where=where, hint="run.py --json prints it"
        ) from None
