"""What the processor counts while a service runs, by perf, where there are hardware counters."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

EVENTS = ("instructions", "cycles", "cache-misses")
_STAT = ("perf", "stat", "-x", ",", "-e", ",".join(EVENTS))


def why_no_counters() -> str:
    """Empty where there are some."""
    if shutil.which("perf") is None:
        return "perf is not installed"
    probe = subprocess.run([*_STAT, "true"], capture_output=True, text=True, check=False)
    return "" if read_counts(probe.stderr) else "no hardware counters here"


@contextmanager
def counted(pids: Sequence[int]) -> Iterator[dict[str, float]]:
    """Counts of processes while the block runs, by event; filled in when it is left."""
    found: dict[str, float] = {}
    if why_no_counters():
        yield found
        return
    with tempfile.NamedTemporaryFile("r") as out:
        words = [*_STAT, "-o", out.name, "-p", ",".join(map(str, pids))]
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield found
        finally:
            child.send_signal(signal.SIGINT)
            child.wait()
        found |= read_counts(out.read())


def read_counts(text: str) -> dict[str, float]:
    """Of what perf prints; without events that are not counted here.

    >>> read_counts("120,,instructions:u,9,100.00,,\\n<not supported>,,cycles,0,100.00,,")
    {'instructions': 120.0}
    """
    rows = [line.split(",") for line in text.splitlines()]
    return {row[2].partition(":")[0]: float(row[0])
            for row in rows if len(row) > 2 and row[0].isdigit()}  # fmt: skip
