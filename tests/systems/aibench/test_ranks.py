"""Benchmarks that communicate: re-splitting, real ranks over loopback, and ranks that fall."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.aibench.builder.communication import TENTHS
from gnomon.systems.aibench.folder import write_bench
from gnomon.systems.aibench.pipeline import Options, build_program
from tests.systems.aibench.communicating import every_kind

torch = pytest.importorskip("torch")
RUNTIME = Path(importlib.import_module("gnomon.systems.aibench").__file__).parent / "runtime"
KINDS = {f"collective.{kind}" for kind in (
    "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather",
    "scatter", "barrier", "send", "recv",
)}  # fmt: skip
SCRIPT = Path(__file__).with_name("rank_program.py")


@pytest.fixture(scope="module")
def runtime():
    """The module as a benchmark has it: beside its siblings, in no package."""
    sys.path.insert(0, str(RUNTIME))
    try:
        yield importlib.import_module("collectives")
    finally:
        sys.path.remove(str(RUNTIME))
        for name in ("collectives", "ranks"):
            sys.modules.pop(name, None)


# -- who and how much --------------------------------------------------------------------------


@given(
    total=st.integers(0, 10**6), world=st.integers(1, 40),
    recorded=st.lists(st.integers(0, 1000), max_size=40),
)  # fmt: skip
def test_prop_what_one_sends_the_other_expects(runtime, total, world, recorded):
    total = sum(recorded) if len(recorded) == world else total
    shares = runtime.shares_of(total, recorded, world)
    assert len(shares) == world
    assert sum(shares) == total
    if len(recorded) == world:
        assert shares == recorded
    else:
        assert max(shares) - min(shares) <= 1
    splits = [runtime.splits_of(shares, rank) for rank in range(world)]
    for rank, (sends, gets) in enumerate(splits):
        assert sum(sends) == sum(gets) == total
        assert gets == [splits[other][0][rank] for other in range(world)]


@given(
    first=st.integers(0, 20), step=st.integers(1, 5), count=st.integers(1, 8),
    world=st.integers(1, 40),
)  # fmt: skip
def test_prop_groups_of_a_pattern_share_out_the_world(runtime, first, step, count, world):
    groups = [runtime.pattern_of((0, first, step, count), rank, world) for rank in range(world)]
    for rank, group in enumerate(groups):
        assert rank in group
        assert len(group) <= count
        assert all(groups[other] == group for other in group)
    recorded = tuple(range(first, first + step * count, step))
    if recorded[-1] < world:
        assert groups[first] == recorded


def test_groups_of_all_and_of_no_pattern(runtime):
    assert runtime.pattern_of((3,), 1, 4) == (0, 1, 2, 3)
    # Ranks 0, 1 and 5 of the recording: five is not here, and two was never in it.
    assert [runtime.pattern_of((0, 0, 1, 2, 5, 1, 1), rank, 4) for rank in range(3)] == [
        (0, 1), (0, 1), (2,),
    ]  # fmt: skip


@given(st.integers(0, 20), st.integers(0, 50))
def test_prop_pouring_fills_to_the_brim(runtime, size, room):
    out = torch.full((room,), -1)
    runtime.pour(torch.arange(size), out)
    assert out.tolist() == [at % size if size else -1 for at in range(room)]


# -- real ranks --------------------------------------------------------------------------------


def start(path, *options, folder="/tmp"):
    env = {name: value for name, value in os.environ.items() if "RANK" not in name}
    env |= {
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(RUNTIME),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.Popen(
        [sys.executable, str(path), "--device", "cpu", *options], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def left_running(word):
    """Processes that have a word among their arguments."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        found += [place.name] if word.encode() in words else []
    return found


@pytest.mark.parametrize(
    ("options", "backend", "world"),
    [((), "none", 1), (("--backend", "gloo"), "gloo", 1), (("--ranks", "3"), "gloo", 3)],
)
def test_every_kind_among_ranks(options, backend, world):
    process = start(SCRIPT, *options)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    summary = eval(out)
    assert (summary["backend"], summary["world"]) == (backend, world)
    assert summary["local"] + summary["real"] == sum(summary["kinds"].values()) == 10
    assert summary["real"] == (0 if backend == "none" else 10)
    assert summary.get("step_ms_by_rank", [[0.0]]) == [[float(rank)] for rank in range(world)]


def test_a_killed_rank_ends_the_others(tmp_path):
    note = tmp_path / "killed"
    process = start(SCRIPT, "--ranks", "2", "--die", "1", "--profile", str(note))
    out, err = process.communicate(timeout=240)
    # Nobody waits for the time after which a rank that does not answer is given up (300 s).
    assert time.time() - float(note.read_text()) < 100.0
    assert process.returncode == 1
    assert err == "run.py: rank 1: was ended by SIGKILL; the other ranks were stopped\n"
    assert left_running(str(note)) == []


def test_ranks_end_with_who_started_them(tmp_path):
    note = str(tmp_path / "never")
    process = start(SCRIPT, "--ranks", "2", "--die", "7", "--profile", note, folder=tmp_path)
    until = time.monotonic() + 60
    while len(left_running(note)) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=240)
    until = time.monotonic() + 60
    while left_running(note) and time.monotonic() < until:
        time.sleep(0.05)
    assert left_running(note) == []


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--ranks", "0"), "run.py: --ranks has to be at least 1"),
        (("--ranks", "2", "--backend", "nccl"), "run.py: --backend nccl needs CUDA devices; use gloo"),
        (("--ranks", "2", "--backend", "none"),
         "run.py: --backend none is for one process; ranks need nccl or gloo"),
    ],
)  # fmt: skip
def test_ranks_that_cannot_be_say_so_once(options, line):
    process = start(SCRIPT, *options)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 1
    assert err.strip() == line


# -- whole benchmarks --------------------------------------------------------------------------


def bench(folder, world=None):
    built = build_program(every_kind(), options=Options(emulate_world=world))
    assert list(built.modules) == ["collectives", "ranks"]
    write_bench(folder, built.program, "", modules=built.modules)
    return folder / "run.py"


def run_json(path, *options):
    process = start(path, "--steps", "2", "--json", *options)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return json.loads(out)


def test_a_benchmark_alone_and_among_ranks(tmp_path):
    path = bench(tmp_path / "bench")
    alone = run_json(path)
    assert alone["replayed"] == alone["ops"]
    assert alone["collectives"]["backend"] == "none"
    assert (alone["collectives"]["local"], alone["collectives"]["emulated"]) == (18, 2)
    pair = run_json(path, "--ranks", "2")
    assert pair["replayed"] == pair["ops"] == alone["ops"]
    assert (pair["collectives"]["real"], pair["collectives"]["emulated"]) == (18, 2)
    assert pair["collectives"]["kinds"] == alone["collectives"]["kinds"]
    steps = pair["collectives"]["step_ms_by_rank"]
    assert len(steps) == 2
    assert steps[0] == pair["step_ms"]


def test_an_emulated_world_takes_its_time(tmp_path):
    path = bench(tmp_path / "bench", world=4096)
    program = json.loads(gzip.decompress((tmp_path / "bench" / "program.json.gz").read_bytes()))
    rows = [row for row in program["steps"][0][0] if not isinstance(row[0], str) and row[0] >= 0]
    tenths = [row[1][TENTHS] for row in rows if program["operators"][row[0]] in KINDS]
    assert len(tenths) == 20
    result = run_json(path)
    assert result["replayed"] == result["ops"]
    assert result["collectives"]["emulated"] == sum(result["collectives"]["kinds"].values()) == 20
    # All but one are of one group, whose collectives come one after the other.
    assert result["median_ms"] > 0.9 * (sum(tenths) - max(tenths)) / 1e4
