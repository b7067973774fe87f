"""Hardware counters: what perf prints is read, and where there are none that is said."""

import os
import shutil
import time

import pytest

from gnomon.systems.clone.counters import counted, read_counts, why_no_counters
from gnomon.systems.clone.native import Run

#: Prints as the real one: of `true` at once, of processes when it is interrupted.
PERF = """#!/bin/sh
counts="3000,,instructions:u,7,100.00,,
2000,,cycles:u,7,100.00,1.50,insn per cycle
<not counted>,,cache-misses:u,0,100.00,,"
while [ $# -gt 1 ]; do
    [ "$1" = -o ] && out=$2
    shift
done
[ -z "$out" ] && echo "$counts" >&2 && exit 0
trap 'echo "$counts" > "$out"; exit 0' INT
: > "$0.attached"
while :; do sleep 0.01; done
"""


def test_what_perf_prints_is_read(tmp_path, monkeypatch):
    perf = tmp_path / "perf"
    perf.write_text(PERF)
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert why_no_counters() == ""
    with counted([os.getpid()]) as found:
        until = time.monotonic() + 20
        while not (tmp_path / "perf.attached").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
    assert found == {"instructions": 3000, "cycles": 2000}
    run = Run(1.0, 1.0, 1.0, 1.0, None, None, found)
    assert (run.ipc, run.cache_mpki) == (1.5, None)


def test_where_perf_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_no_counters() == "perf is not installed"
    with counted([os.getpid()]) as found:
        pass
    assert found == {}


def test_the_real_one_counts_or_says_why_not():
    if shutil.which("perf") is None:
        pytest.skip("perf is absent")
    with counted([os.getpid()]) as found:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            pass
    assert bool(found) != (why_no_counters() == "no hardware counters here")


def test_lines_that_are_no_counts():
    assert read_counts("# started on Monday\n\nError:\nNo permission, sorry, none") == {}
