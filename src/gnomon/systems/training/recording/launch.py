"""Runs a training command unchanged and records it from inside."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from gnomon.errors import InputError
from gnomon.systems.training.recording.autostep import CLAIM
from gnomon.systems.training.recording.folder import Recording, refuse_existing, remove_existing
from gnomon.systems.training.recording.recorder import RecordOptions

_INJECTED = Path(__file__).with_name("_inject")


@dataclasses.dataclass(frozen=True)
class Launched:
    """How a recorded command ended.

    Attributes:
        exit_code: The command's own; 128 and the signal's number when one ended it.
        has_stepped: Whether an optimizer step was seen.
        recording: What lies in the folder now.
    """

    exit_code: int
    has_stepped: bool
    recording: Recording


def record_command(
    command: Sequence[str], folder: Path, options: RecordOptions, *, overwrite: bool = False
) -> Launched:
    """Runs a command until it ends, recording the first optimizer that steps in it.

    Whatever Python processes it starts are watched too, so that `torchrun` may be the command.

    Args:
        command: Program and arguments.
        folder: Where the recording goes.
        options: What to record.
        overwrite: Replace a recording that is there.
    """
    if not command:
        raise InputError("no command to record", hint="gnomon training record -- python train.py")
    if options.skip < 1:
        raise InputError("is 0, but nobody knows when the first step began", where="skip")
    if shutil.which(command[0]) is None:
        raise InputError("there is no such program", where=command[0])
    if overwrite:
        remove_existing(folder, 0, 1)
    else:
        refuse_existing(folder, 0, 1)
    was_there = folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _drop_claims(folder)
        code = _run(command, _environment(folder, options))
        has_stepped = _drop_claims(folder)
    finally:
        if not was_there:
            with contextlib.suppress(OSError):
                folder.rmdir()  # unless something was recorded
    return Launched(code, has_stepped, Recording.open(folder))


def _environment(folder: Path, options: RecordOptions) -> dict[str, str]:
    order: dict[str, Any] = {
        "folder": str(folder.resolve()),
        "name": folder.resolve().name,
        "options": dataclasses.asdict(options),
    }
    # No empty entry: it would mean the current folder.
    paths = [str(_INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"GNOMON_RECORD": json.dumps(order), "PYTHONPATH": os.pathsep.join(paths)}


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    with _signals_left_to_the_child() as adopt:
        try:
            child = subprocess.Popen(list(command), env=environment)
        except OSError as error:
            what = f"cannot be started: {error.strerror}"
            raise InputError(what, where=command[0]) from None
        adopt.append(child)
        code = child.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _signals_left_to_the_child() -> Iterator[list[subprocess.Popen[bytes]]]:
    """While a command runs, it decides when to end; we pass on what only we receive.

    Ctrl-C on a terminal reaches both of us. Passing the first one on would interrupt the command
    twice, perhaps while it keeps what was measured; a second one is passed on.
    """
    children: list[subprocess.Popen[bytes]] = []
    interrupts = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            pass_on(number, frame)

    def pass_on(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(number)

    # Handlers, not SIG_IGN: a child inherits what is ignored, but not what is handled.
    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: pass_on, signal.SIGHUP: pass_on}
    before = {}
    for number, handler in handlers.items():
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    try:
        yield children
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _drop_claims(folder: Path) -> bool:
    claims = list(folder.glob(f"{CLAIM}*"))
    for claim in claims:
        claim.unlink(missing_ok=True)
    return bool(claims)
