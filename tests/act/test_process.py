"""Commands: their ends, their signals, and clocks that jump."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from gnomon.act.process import run_command, sleep_until
from gnomon.errors import InputError


def test_codes_and_times():
    before = time.time_ns()
    ran = run_command([sys.executable, "-c", "import sys; sys.exit(7)"])
    assert ran.code == 7
    assert before <= ran.start_ns < ran.end_ns <= time.time_ns()


def test_ended_by_a_signal():
    ran = run_command([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"])
    assert ran.code == 128 + 15


def test_no_such_command():
    with pytest.raises(InputError, match="no such command"):
        run_command(["a-command-that-does-not-exist"])


def test_signals_are_forwarded(tmp_path):
    """Ending the one that waits ends the command, which may tidy up first."""
    mark = tmp_path / "tidied"
    inner = (
        "import signal, sys, time\n"
        f"def end(*_): open({str(mark)!r}, 'w').close(); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    outer = (
        "import sys\n"
        "from gnomon.act.process import run_command\n"
        f"sys.exit(run_command([sys.executable, '-c', {inner!r}]).code)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=240) == 3
    process.stdout.close()
    assert mark.exists()


def test_a_clock_that_jumps():
    times = iter([0, 10**12, 10**12])
    slept: list[float] = []
    left: list[int] = []
    sleep_until(
        10**11, now_ns=lambda: next(times), sleep=slept.append, on_wake=left.append
    )  # it was set ahead while we slept
    assert slept == [30.0]
    assert left == [10**11]


def test_an_interrupt_reaches_the_command_once():
    """A terminal gives it to all of the foreground; forwarded as well it would come twice."""
    inner = (
        "import signal, time\n"
        "count = 0\n"
        "def got(*_):\n"
        "    global count\n"
        "    count += 1\n"
        "signal.signal(signal.SIGINT, got)\n"
        "print('up', flush=True)\n"
        "end = time.monotonic() + 60\n"
        "while not count and time.monotonic() < end: time.sleep(0.05)\n"
        "end = time.monotonic() + 1\n"  # for a second one
        "while time.monotonic() < end: time.sleep(0.05)\n"
        "raise SystemExit(count)\n"
    )
    outer = (
        "import sys\n"
        "from gnomon.act.process import run_command\n"
        f"sys.exit(run_command([sys.executable, '-c', {inner!r}]).code)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=240) == 1
    process.stdout.close()


def test_from_another_thread():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run_command, [sys.executable, "-c", "exit(4)"]).result().code == 4
