"""Commands on this machine: started at a time, watched to their end."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import msgspec

from gnomon.errors import InputError

#: A sleeping machine's clock may jump: look again at least this often.
_LOOK_S = 30.0


class Ran(msgspec.Struct, frozen=True):
    """A command that ran.

    Attributes:
        start_ns: When it started, since 1970.
        end_ns: When it ended.
        code: Its exit status as in a shell: 128 plus the number of a signal that ended it.
    """

    start_ns: int
    end_ns: int
    code: int


def sleep_until(
    moment_ns: int, *, now_ns: Callable[[], int] = time.time_ns,
    sleep: Callable[[float], None] = time.sleep, on_wake: Callable[[int], None] | None = None,
) -> None:  # fmt: skip
    """Sleeps until a time by the wall clock, which may be set or stand still on the way.

    Args:
        moment_ns: Until when, since 1970.
        now_ns: The clock.
        sleep: Waits seconds.
        on_wake: Called with the nanoseconds that are left, whenever it looks at the clock.
    """
    while (left_ns := moment_ns - now_ns()) > 0:
        if on_wake is not None:
            on_wake(left_ns)
        sleep(min(left_ns / 1e9, _LOOK_S))


def run_command(command: Sequence[str]) -> Ran:
    """Runs a command in the foreground, and forwards the signals that would end this process.

    Raises:
        InputError: There is no such command, or it may not be run.
    """
    running: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        # The terminal sends an interrupt to the command itself: it must not come twice.
        for process in running:
            if number != signal.SIGINT:
                process.send_signal(number)

    start_ns = time.time_ns()
    try:
        # Before it starts, so that no signal is missed; a started program has its defaults again.
        with _handling(forward, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = subprocess.Popen(list(command))
            running.append(process)
            code = process.wait()
    except FileNotFoundError:
        raise InputError("no such command", where=command[0]) from None
    except OSError as error:
        raise InputError(error.strerror or str(error), where=command[0]) from None
    return Ran(start_ns, time.time_ns(), code if code >= 0 else 128 - code)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Inside, a request to end (SIGTERM, SIGHUP) is a KeyboardInterrupt, as Ctrl-C is."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling(stop, signal.SIGTERM, signal.SIGHUP):
        yield


@contextlib.contextmanager
def _handling(
    handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals
) -> Iterator[None]:
    """Handles signals inside; not from another thread, which may not set handlers."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if is_main}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
