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

__all__ = ["Ran", "interrupted_by_signals", "run_command", "sleep_until"]

#: A sleeping machine's clock may jump: look again at least this often.
_LOOK_S = 30.0


class Ran(msgspec.Struct, frozen=True):
    """A command that ran.

    Attributes:
        start_ns: When it started, since 1970.
        end_ns: When it ended.
        code: How it ended, as a shell has it: 128 and the signal's number where one ended it.
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
    """Runs a command in the foreground; what would end us is handed on to it.

    An interrupt from the terminal reaches the command by itself, and we wait for what it does.

    Raises:
        InputError: There is no such command, or it may not be run.
    """
    running: list[subprocess.Popen[bytes]] = []

    def hand_on(number: int, _frame: FrameType | None) -> None:
        # A terminal gives an interrupt to the command itself: a second one would be one too many.
        for process in running:
            if number != signal.SIGINT:
                process.send_signal(number)

    # Before it starts, so that no signal falls between; a started program has its defaults again.
    before = {number: signal.signal(number, hand_on) for number in _handled()}
    start_ns = time.time_ns()
    try:
        process = subprocess.Popen(list(command))
        running.append(process)
        code = process.wait()
    except FileNotFoundError:
        raise InputError("no such command", where=command[0]) from None
    except OSError as error:
        raise InputError(error.strerror or str(error), where=command[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Ran(start_ns, time.time_ns(), code if code >= 0 else 128 - code)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Inside, a request to end (SIGTERM, SIGHUP) is a KeyboardInterrupt, as Ctrl-C is."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, stop) for number in _handled() if number != signal.SIGINT
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _handled() -> tuple[signal.Signals, ...]:
    """Signals are the main thread's affair: from another one they stay as they are."""
    is_main = threading.current_thread() is threading.main_thread()
    return (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if is_main else ()
