"""The common judge: files of callgrind, and servers whose costs are known."""

from __future__ import annotations

import pytest

from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone import judge as module
from gnomon.systems.clone.client import Load
from gnomon.systems.clone.judge import Cache, Caches, Counts, judge, machine_caches, read_counts
from tests.systems.clone.counted import LOAD, command, compile_server, need

SMALL = Caches.of_kib(32, 32, 1024)

CALLGRIND = """# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 7
cmd:  server --port 7001
part: 1

desc: I1 cache: 32768 B, 64 B, 8-way associative
desc: Trigger: Program termination

positions: line
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim
summary: 100 20 10 5 4 3 2 1

fn=(1) main
0 100 20 10 5 4 3 2 1

totals: 100 20 10 5 4 3 2 1
"""


def test_totals_of_all_processes_are_added():
    other = CALLGRIND.replace("totals: 100 20 10 5 4 3 2 1", "totals: 1 1 1 1 1 1 1 1 1 1 1 1 1")
    found = read_counts([CALLGRIND, other])
    assert found["Ir"] == 101
    assert found["DLmr"] == 2
    assert found["Bim"] == 1


def test_a_file_that_was_cut_short():
    with pytest.raises(GnomonError, match="cut short"):
        read_counts([CALLGRIND.partition("totals")[0]])
    with pytest.raises(GnomonError, match="cut short"):
        read_counts([""])


def test_rates():
    counts = Counts(
        instructions=1000, loads=80, stores=20, l1i_misses=5, l1d_read_misses=3,
        l1d_write_misses=1, l2_code_misses=1, l2_read_misses=1, l2_write_misses=0.2, branches=200,
        mispredicts=4, indirect_branches=10, indirect_mispredicts=1,
    )  # fmt: skip
    assert counts.l1i_miss_pct == 0.5
    assert counts.l1d_miss_pct == 4.0
    assert counts.l2_miss_pct == pytest.approx(0.2)
    assert counts.mispredicted_pct == 2.0
    assert counts.indirect_mispredicted_pct == 10.0
    assert Counts().l1d_miss_pct == 0.0


@pytest.mark.parametrize(("kib", "ways"), [(32, 8), (48, 12), (1280, 20)])
def test_caches_that_the_simulator_can_have(kib, ways):
    assert str(Cache(1024 * kib, ways)) == f"{1024 * kib},{ways},64"


@pytest.mark.parametrize(("kib", "ways"), [(48, 8), (33, 8), (0, 8)])
def test_caches_that_it_cannot_have(kib, ways):
    with pytest.raises(InputError, match="power of two"):
        Cache(1024 * kib, ways)


def test_the_caches_of_this_machine(tmp_path, monkeypatch):
    assert machine_caches().data.line_bytes == 64
    rows = [("1", "Data", "48K", "12"), ("1", "Instruction", "32K", "8"),
            ("2", "Unified", "3072K", "12"), ("3", "Unified", "30M", "0")]  # fmt: skip
    for number, (level, kind, size, ways) in enumerate(rows):
        index = tmp_path / f"index{number}"
        index.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size),
                            ("ways_of_associativity", ways), ("coherency_line_size", "64")):  # fmt: skip
            (index / name).write_text(value + "\n")
    monkeypatch.setattr(module, "_CACHES", tmp_path)
    assert machine_caches() == Caches.of_kib(32, 48, 3072, ways=(8, 12, 12))
    monkeypatch.setattr(module, "_CACHES", tmp_path / "none")
    assert machine_caches() == Caches.of_kib(32, 32, 1024)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    need("valgrind")
    return compile_server(tmp_path_factory.mktemp("server"))


def count(server, caches=SMALL, requests=400, **costs):
    return judge(
        command(server, **costs), Load(LOAD), caches=caches, connections=2, requests=requests
    )


def test_a_loop_is_counted_to_the_instruction(server):
    few, many = (count(server, iterations=one) for one in (1000, 3000))
    assert many.instructions - few.instructions == pytest.approx(4000, abs=2)
    assert many.branches - few.branches == pytest.approx(2000, abs=2)
    assert many.loads == pytest.approx(few.loads, abs=2)


def test_a_walk_misses_where_it_does_not_fit(server):
    """1,024 lines are 64 KiB: more than a cache of 32 KiB, where LRU misses every one."""
    small = count(server, lines=1024)
    large = count(server, Caches.of_kib(32, 256, 1024), lines=1024)
    assert small.l1d_read_misses == pytest.approx(1024, rel=0.02)
    assert large.l1d_read_misses < 5
    assert small.l2_read_misses < 1
    assert small.l1d_miss_pct > 80


@pytest.mark.slow  # a busy machine shifts ticks between the two launches
def test_timers_and_children(server):
    """A timer of four million instructions a second is of no request; a child has the requests."""
    plain = count(server, iterations=200, forks=1)
    ticking = count(server, iterations=200, tick_ms=10, forks=1, requests=1500)
    assert 400 < plain.instructions < 800
    # Off by a few ticks of 40,000; not taken off they would add more than 500.
    assert ticking.instructions == pytest.approx(plain.instructions, abs=200)


@pytest.mark.slow  # its own spread, on a quiet machine
def test_redis_costs_the_same_twice():
    need("valgrind", "redis-server", "redis-benchmark")
    load = Load("redis-benchmark -p {port} -t get -n {requests} -c {connections} -q")
    found = [
        judge("redis-server --port {port} --save ''", load, caches=SMALL, connections=8,
              requests=1500)
        for _ in range(2)
    ]  # fmt: skip
    assert 2500 < found[0].instructions < 8000
    assert found[1].instructions == pytest.approx(found[0].instructions, rel=0.05)
    assert found[1].branches == pytest.approx(found[0].branches, rel=0.2)


def test_a_load_that_sends_nothing(server):
    with pytest.raises(GnomonError, match="does nothing"):
        judge(command(server), Load("true {port} {requests}"), caches=SMALL, connections=1)


def test_no_valgrind(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    with pytest.raises(InputError, match="valgrind"):
        judge("x", object(), caches=SMALL, connections=1)
