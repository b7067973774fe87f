"""A clone beside its original: rows, what clients print, traces of calls, and whole validations."""

from __future__ import annotations

import json
import socket
import time
from functools import partial

import pytest

from gnomon.cli import main
from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone import calls, launch, native
from gnomon.systems.clone import validate as module
from gnomon.systems.clone.calls import Calls, count_calls, read_calls
from gnomon.systems.clone.client import Load, Sent, read_sent
from gnomon.systems.clone.counters import why_no_counters
from gnomon.systems.clone.judge import Counts
from gnomon.systems.clone.launch import launched, serving
from gnomon.systems.clone.validate import Row, call_rows, count_rows, validate
from gnomon.systems.clone.validate_result import to_result, to_script
from tests.systems.clone.counted import LOAD, SOURCE, command, compile_server, need

# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("originals", "clones", "limit", "slack", "error", "within"),
    [((100.0, 102.0, 98.0), (101.0,), 2.0, 0.0, 1.0, True), ((100.0,), (97.0,), 2.0, 0.0, -3.0, False),
     ((0.02,), (0.06,), 10.0, 0.05, 200.0, True), ((0.02,), (0.08,), 10.0, 0.05, 300.0, False),
     ((0.0,), (0.0,), 1.0, 0.0, 0.0, True), ((0.0,), (1.0,), 1.0, 0.0, None, False),
     ((0.0,), (0.01,), 1.0, 0.05, None, True), ((5.0,), (50.0,), None, 0.0, 900.0, None),
     ((), (), 2.0, 0.0, None, None)],
)  # fmt: skip
def test_errors_and_limits(originals, clones, limit, slack, error, within):
    row = Row("metric", "setting", originals, clones, limit, slack=slack)
    assert row.error_pct == (error if error is None else pytest.approx(error))
    assert row.within is within


def test_a_distance_is_an_error_by_itself():
    row = Row("mix", "profiled", (0.1,), (4.0,), 5.0, is_distance=True)
    assert (row.error_pct, row.within) == (4.0, True)


def test_rows_of_counts():
    original = Counts(instructions=1000, loads=200, stores=100, branches=100, mispredicts=2,
                      l1i_misses=10)  # fmt: skip
    clone = Counts(instructions=1015, loads=200, stores=150, branches=100, mispredicts=3,
                   l1i_misses=11.8)  # fmt: skip
    for held_out in (False, True):
        rows = {one.metric: one for one in count_rows([original], clone, "x", held_out)}
        assert rows["instructions"].within is True
        assert rows["stores"].within is None
        assert rows["mispredicted (%)"].within is False
        assert rows["L1 code misses (%)"].error_pct == pytest.approx(16.3, abs=0.1)
        assert rows["L1 code misses (%)"].within is held_out


def test_rows_of_calls_leave_out_rare_ones_and_waits():
    original = Calls({"read": 1.0, "write": 1.0, "epoll_wait": 0.2, "brk": 0.001}, 36.0, 264.0)
    clone = Calls({"read": 1.0, "sendto": 1.0, "epoll_wait": 0.9}, 36.0, 260.0)
    rows = {one.metric: one.within for one in call_rows([original], clone, "x")}
    assert rows == {"calls of read": True, "calls of write": False, "calls of sendto": False,
                    "bytes received": True, "bytes sent": False}  # fmt: skip


def test_errors_within_the_spread_of_the_original_are_counted():
    rows = [Row("instructions", "here", (90.0, 100.0, 120.0), (118.0,), 2.0, True),
            Row("branches", "here", (10.0, 12.0), (15.0,), 5.0),
            Row("mix", "here", (1.0, 9.0), (8.0,), 5.0, is_distance=True)]  # fmt: skip
    notes = to_result(rows, command="gnomon clone validate x").notes
    assert any(one.startswith("Of these the clone's 1 ") for one in notes)
    assert not any("Of these" in one for one in to_result(rows[1:], command="x").notes)


def test_the_result_says_what_is_wrong_and_what_is_missing():
    rows = [Row("instructions", "here", (100.0, 101.0), (150.0,), 2.0, True),
            Row("branches", "here", (10.0, 12.0), (11.0,), 5.0),
            Row("counts", "not measured: valgrind is not installed")]  # fmt: skip
    result = to_result(rows, command="gnomon clone validate x")
    assert result.figure("within").value == 1
    assert result.figure("not_measured").value == 1
    assert any("valgrind is not installed" in one for one in result.notes)
    assert {"metric", "setting", "original", "original_spread", "clone", "error_pct", "held_out",
            "limit_pct", "within"} == set(result.table("Metrics").columns)  # fmt: skip
    found = to_script(rows)
    assert found["within"] is False
    assert found["metrics"][0]["original_spread"] == [100.0, 101.0]
    assert found["metrics"][2]["original"] is None
    assert to_script(rows[1:])["within"] is True


# --- what clients print --------------------------------------------------------------------------

WRK = """Running 2s test @ http://127.0.0.1:7393/
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     3.31ms    4.23ms  56.91ms   97.89%
  Latency Distribution
     50%    0.85ms
     75%    3.03ms
     99%    1.20s
  11302 requests in 2.00s, 9.19MB read
{}Requests/sec:   5640.56
"""
CSV = (
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"\n'
    '"SET","1000.00","0.1","0.1","0.2","0.3","0.4","0.5"\n"GET","500.00","0.1","0.1","0.4","0.5","0.6","0.7"\n'
)


@pytest.mark.parametrize(
    ("text", "sent"),
    [(WRK.format(""), Sent(11302, 2.0, 0.85, 1200.0)),
     (WRK.format("  Non-2xx or 3xx responses: 7\n"), Sent(11302, 2.0, 0.85, 1200.0, 7)),
     (CSV, Sent(2000, 3.0, pytest.approx(0.3), pytest.approx(0.5))),
     ("GET: rps=0.0 (overall: -nan)\rGET: 500.00 requests per second, p50=0.207 msec\n\n", Sent(1000, 2.0, 0.207)),
     ('{"requests": 9, "seconds": 2.5, "rps": 3.6, "p50_ms": 1.5, "p99_ms": 2.5}', Sent(9, 2.5, 1.5, 2.5)),
     ("all done\n", None), ("", None)],
)  # fmt: skip
def test_what_clients_print(text, sent):
    assert read_sent(text, 1000) == sent


@pytest.mark.parametrize("text", ["", "no-such-load {port} {requests}", "true {port}", "true {requests}"])  # fmt: skip
def test_loads_that_leave_nothing_open(text):
    with pytest.raises(InputError):
        Load(text)


def test_braces_of_the_command_itself_stay():
    load = Load("sh -c 'echo {\"requests\": {requests}} ${x} {port}'")
    words = load.words(port=1, connections=2, requests=3)
    assert words == ["sh", "-c", 'echo {"requests": 3} ${x} 1']


# --- system calls --------------------------------------------------------------------------------

TRACE = """7 1.0 execve("/x", [...], 0x7 /* 35 vars */) = 0
7 1.5 read(8<socket:[5]>, ""..., 16384) = 36
7 1.5 read(9<socket:[6]>,  <unfinished ...>
8 1.5 write(3</var/log/x>, ""..., 50) = 50
7 1.5 <... read resumed>""..., 16384) = 40
7 1.5 read(8<TCP:[127.0.0.1:1->127.0.0.1:2]>, 0x7ffd, 16384) = -1 EAGAIN (Resource temporarily unavailable)
7 1.5 sendfile(9<socket:[6]>, 10</srv/a>, [0] => [612], 612) = 612
7 1.5 epoll_wait(5<anon_inode:[eventpoll]>, [{events=EPOLLIN, data={u32=8}}], 512, -1) = 1
7 2.0 getpid()              = 7
8 1.5 +++ exited with 0 +++
"""


def test_a_trace_of_calls():
    first, then = read_calls(TRACE.splitlines(), (1.5, 2.0, 3.0))
    assert first == {"read": 3, "write": 1, "sendfile": 1, "epoll_wait": 1, "received bytes": 76,
                     "sent bytes": 612}  # fmt: skip
    assert then == {"getpid": 1}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    return compile_server(tmp_path_factory.mktemp("server"))


def test_calls_of_a_request(server):
    need("strace")
    found = count_calls(command(server, forks=1), Load(LOAD), connections=2, requests=200)
    assert found.by_name["read"] == found.by_name["write"] == pytest.approx(1)
    assert (found.received_bytes, found.sent_bytes) == (1.0, 1.0)
    assert "execve" not in {name for name, count in found.by_name.items() if count}


def test_no_strace(monkeypatch):
    load = Load(LOAD)
    monkeypatch.setattr(calls.shutil, "which", lambda _: None)
    with pytest.raises(InputError, match="strace"):
        count_calls("x", load, connections=1)


# --- services ------------------------------------------------------------------------------------


def test_a_service_its_children_its_port_and_its_time(server):
    with serving(command(server, iterations=50_000_000, forks=1)) as (service, port):
        assert len(service.processes()) == 2
        assert service.ports() == {port}
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(b"x")
            assert one.recv(1) == b"x"
        assert sum(service.cpu_s()) > 0
        family = service.processes()
    assert not service.is_running
    assert not any(launch.Path(f"/proc/{pid}").exists() for pid in family)


def test_a_port_that_nobody_was_asked_for_is_found(server):
    fixed = command(server).replace("{port}", str(launch.free_port()))
    with serving(fixed) as (_, port):
        assert str(port) in fixed
    assert launch.find_port(fixed) == port


def test_services_that_do_not_start(server):
    with pytest.raises(GnomonError, match="no program"), serving("no-such-server --port {port}"):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fixed = command(server).replace("{port}", str(taken.getsockname()[1]))
        with pytest.raises(GnomonError, match="ended before it listened: the port is taken"), serving(fixed):  # fmt: skip
            pass


def test_one_that_ignores_sigterm_is_killed_with_its_children(monkeypatch):
    monkeypatch.setattr(launch, "_END_S", 0.3)
    with launched(["sh", "-c", "trap '' TERM; sleep 1000 & while :; do sleep 0.1; done"]) as one:
        until = time.monotonic() + 10
        while len(one.processes()) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        family = one.processes()
        assert not one.end()
    assert not one.is_running
    time.sleep(0.1)
    for pid in family[:2]:
        stat = launch.Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.mark.parametrize(
    ("load", "said"),
    [("sh -c 'echo starting; echo no server >&2; exit 3' {port} {requests}", "failed with 3: no server"),
     ("echo {port} 0 requests in 2.00s {requests}", "0 answers"),
     ("echo {port} 50 requests in 2.00s Non-2xx or 3xx responses: {requests}", "got 9 errors")],
)  # fmt: skip
def test_loads_that_fail(server, load, said):
    with serving(command(server)) as (service, port), pytest.raises(GnomonError, match=said):
        Load(load).send(service, port=port, connections=1, requests=9)


# --- whole ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clone(tmp_path_factory, server):
    """A project that is the server itself, with as much to do as it is told when it is built."""
    need("cmake", "valgrind", "strace")

    def make(iterations):
        folder = tmp_path_factory.mktemp("clone")
        text = SOURCE.read_text().replace(
            "long iterations = atol(a[2])", f"long iterations = {iterations}"
        )
        text = text.replace("count < 6", "count < 3").replace("atoi(a[1])", "atoi(a[2])")
        text = text.replace(
            "lines = atol(a[3]), tick = atol(a[4]), forks = atol(a[5])",
            "lines = 0, tick = 0, forks = 0",
        )
        (folder / "model.c").write_text(text)
        (folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(clone C)\nset(CMAKE_C_FLAGS -O1)\nadd_executable(clone model.c)\n"
        )
        return folder

    return make


@pytest.fixture
def brief(monkeypatch):
    """Enough to see that all is measured, not enough to trust it."""
    monkeypatch.setattr(native, "_LOAD_S", 0.2)
    monkeypatch.setattr(module, "_PROFILED_REQUESTS", 100)
    monkeypatch.setattr(module, "count_calls", partial(count_calls, requests=200))
    monkeypatch.setattr(validate, "__kwdefaults__", validate.__kwdefaults__ | {
        "caches": (), "other_connections": (), "requests": 300})  # fmt: skip


def tiny(folder, server, **more):
    return validate(
        folder, command(server, iterations=2000), LOAD, connections=2, runs=1,
        other_connections=(1,), **more,
    )  # fmt: skip


@pytest.mark.usefixtures("brief")
def test_a_clone_that_is_the_original(clone, server):
    said = []
    rows = tiny(clone(2000), server, progress=said.append)
    counted = {(one.metric, one.setting): one for one in rows if one.limit_pct is not None}
    for (metric, setting), one in counted.items():
        if "mispredicted" in metric:  # of a few hundred jumps one or two may go wrong
            assert one.clone == pytest.approx(one.original, abs=1.0)
        elif not setting.startswith("native"):
            assert one.within, (metric, setting, one.originals, one.clones)
    assert {one.held_out for one in rows} == {True, False}
    held_out = next(one for one in rows if one.held_out and one.metric == "instructions")
    assert "1 connection" in held_out.setting
    native = {one.metric for one in rows if one.setting.startswith("native")}
    assert {"requests per second", "CPU time (us)", "p50 (ms)", "p99 (ms)"} <= native
    assert "system calls" in said


@pytest.mark.usefixtures("brief")
def test_one_that_does_more(clone, server, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(module, "_profiled", lambda *_: [])
    words = ["clone", "validate", str(clone(2100)), "--original", command(server, iterations=2000),
             "--load", LOAD, "--connections", "2", "--runs", "1", "--json", "--html", str(tmp_path / "x.html")]  # fmt: skip
    assert main(words) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["within"] is False
    row = next(one for one in found["metrics"] if one["metric"] == "instructions")
    assert row["error_pct"] == pytest.approx(100 * 200 / 4070, rel=0.1)
    assert row["within"] is False
    assert row["held_out"] is False
    assert row["original_spread"][0] <= row["original"] <= row["original_spread"][1]
    assert "original_spread" in found["tables"]["Metrics"]["columns"]
    assert "Error on settings of the profile" in (tmp_path / "x.html").read_text()


@pytest.mark.usefixtures("brief")
def test_without_the_tools_the_rest_is_measured(clone, server, monkeypatch):
    def refuse(*_, **__):
        raise InputError("valgrind is not installed")

    monkeypatch.setattr(module, "judge", refuse)
    monkeypatch.setattr(module, "count_calls", refuse)
    monkeypatch.setattr(module, "record", refuse)
    rows = tiny(clone(2000), server)
    missing = [one.setting for one in rows if one.original is None]
    refused = "not measured: the original: valgrind is not installed"
    assert missing.count(refused) == 4
    # The other two need hardware counters.
    assert len(missing) == (6 if why_no_counters() else 4)


@pytest.mark.parametrize(
    ("original", "load", "said"),
    [("no-such-server {port}", LOAD, "the original: there is no program"), ("true {port}", LOAD, "the original: the service has ended"),
     (None, "false {port} {requests}", "the load failed with 1"),
     (None, "wrk -c1", "leave open"), (None, None, "no load generator")],
)  # fmt: skip
def test_what_cannot_be_validated_gets_a_line(original, load, said, clone, server, capsys):
    words = ["clone", "validate", str(clone(1)), "--original", original or command(server)]
    assert main([*words, *(["--load", load] if load else [])]) in (1, 2)
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_a_folder_that_is_no_clone(tmp_path, capsys):
    assert main(["clone", "validate", str(tmp_path), "--original", "true {port}"]) == 2
    assert "is no clone" in capsys.readouterr().err
