"""Waiting for what another process or thread does."""

from __future__ import annotations

import time


def until(happened, what: str = "it", timeout_s: float = 240.0, every_s: float = 0.05):
    """Waits for something; answers what it was."""
    deadline = time.monotonic() + timeout_s
    while not (found := happened()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(every_s)
    return found
