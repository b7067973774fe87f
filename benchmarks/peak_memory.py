"""How much memory a benchmark's process has taken."""

from __future__ import annotations


def peak_mib() -> float:
    """Of this process alone: the peak in rusage would include its parent's before exec."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
