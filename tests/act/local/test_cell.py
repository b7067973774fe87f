"""What a cell does with bytes: HTTP, frames, garbage; and what it shows of itself."""

from __future__ import annotations

import http.client
import os
import random
import re
import socket
import struct
import subprocess
import urllib.error

import pytest

from gnomon.act.local.lab import Lab
from gnomon.act.local.reading import percentiles_ms
from gnomon.act.local.replica import find_cell
from gnomon.graph.application import Call
from tests.act.local.loads import app_of, get, read_spans, send
from tests.waiting import until

FRAME = struct.Struct("<BBHIiQQQqB")  # as in native/cell/wire.hpp


def frame(node=0, kind=1, magic=0xC5, length=41):
    return FRAME.pack(magic, kind, length, node, 0, 0, 0, 0, 0, 0)


def recorded(planned_ns, payload):
    """A call that says when it was planned, and has a payload."""
    return frame(length=41 + 12) + struct.pack("<qI", planned_ns, payload)


def exchange(address, bytes_sent, expected=1):
    """What a cell answers, until it closes or has sent so many bytes."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(bytes_sent)
        answer = b""
        while len(answer) < expected:
            try:
                more = connection.recv(4096)
            except ConnectionResetError:
                break
            if not more:
                break
            answer += more
    return answer


@pytest.fixture(scope="module")
def lab():
    app = app_of(
        Call("front", operation="home", cpu_ms=0.1, then=((Call("store", operation="look"),),))
    )
    with Lab(app, sample_share=1.0) as lab:
        yield lab


@pytest.fixture
def address(lab):
    return lab.addresses("front")[0]


def test_http(address):
    assert get(address, "/call/0") == "ok\n"
    assert get(address, "/healthz") == "ok\n"
    for path in ("/call/1", "/call/x", "/call/99999999999999", "/", "/callx"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(address, path)


def test_http_requests_begin_when_they_arrive(lab, address):
    """They do not say when they were sent, as frames do."""
    before = lab.read()
    get(address, "/call/0")
    assert exchange(address, frame(), 5)
    front = lab.read().since(before)
    assert front.ok[0, 0] == 2
    assert percentiles_ms(front.total[0, 0], [100.0])[0] < 60_000


def test_http_keeps_the_connection(address):
    connection = http.client.HTTPConnection(address, timeout=60)
    for _ in range(3):
        connection.request("GET", "/call/0")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok\n")
        before = connection.sock
    assert connection.sock is before
    connection.request("GET", "/call/0", headers={"Connection": "close"})
    connection.getresponse().read()
    assert connection.sock is None
    connection.close()


def test_requests_in_one_breath_are_answered_in_order(address):
    two = b"GET /call/0 HTTP/1.1\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n"
    answer = exchange(address, two, expected=10_000)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert exchange(address, frame() + frame(), expected=10) == b"\xc5\x03\x01\x00\x01" * 2


def test_frames(address):
    assert exchange(address, frame(), 5) == b"\xc5\x03\x01\x00\x01"
    assert exchange(address, frame(kind=2), 5) == b"\xc5\x03\x01\x00\x01", "a queued call is taken"
    assert exchange(address, frame(node=77), 5) == b"\xc5\x03\x01\x00\x00", "there is no such call"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00",
        b"\xc5\xff\xff\xff" + b"x" * 100,
        frame(length=0xFFFF) + b"y" * 70_000,
        frame(length=0),
        frame(kind=3),
        recorded(2**63 - 1, 0),
        recorded(-(2**63), 10) + b"x" * 5,
        recorded(0, 2**32 - 1),
        frame()[:20],
        b"GET /call/0 HTTP/9.9\r\n\r\n",
        b"POST /peers HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /peers HTTP/1.1\r\nContent-Length: 9\r\n\r\n{\"front\":",
        b"POST /peers HTTP/1.1\r\nContent-Length: 20\r\n\r\n{\"store\":[\"1.2.3.4\"]}",
        b"x" * 3_000_000,
        b"\r\n" * 1000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10_000,
    ],
)  # fmt: skip
def test_garbage_harms_nobody(lab, address, garbage):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        try:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
        except OSError:  # it has closed already
            pass
    assert get(address, "/call/0") == "ok\n"
    lab.read()


def test_random_bytes_harm_nobody(lab, address):
    rng = random.Random(7)
    pieces = [
        frame(),
        b"GET /call/0 HTTP/1.1\r\n\r\n",
        b"POST /peers HTTP/1.1\r\n",
        b"\xc5",
        b"\r\n\r\n",
    ]
    for _ in range(150):
        text = bytearray(b"".join(rng.choices(pieces, k=3)))
        for _ in range(rng.randrange(4)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(text)
    assert get(address, "/call/0") == "ok\n"
    until(lambda: "gnomon_in_flight 0\n" in get(address, "/metrics"))
    lab.read()


def test_peers_are_checked(lab):
    replica = lab.tiers["front"].replicas[0]
    for body in ({"nobody": []}, {"store": ["x"]}, {"store": 3}, [], {"store": ["127.0.0.1:0"]}):
        with pytest.raises(Exception, match="refused POST /peers: the list"):
            replica.ask("POST", "/peers", body)
    assert get(replica.address, "/call/0") == "ok\n", "wrong peers change nothing"


def test_metrics_are_prometheus_text(lab, address):
    send(lab, 20)
    text = get(address, "/metrics")
    sample = re.compile(r'(gnomon_\w+)(\{\w+="[^"]*"(,\w+="[^"]*")*\})? (\S+)')
    values = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            found = sample.fullmatch(line)
            assert found, line
            values[found[1] + (found[2] or "")] = float(found[4])
    count = values['gnomon_requests_total{class="get",outcome="ok"}']
    assert count >= 20
    assert values['gnomon_latency_seconds_count{class="get"}'] == count
    assert values['gnomon_exclusive_seconds_bucket{class="get",le="+Inf"}'] == count
    assert values["gnomon_process_cpu_seconds_total"] > 0
    buckets = [v for name, v in values.items() if name.startswith("gnomon_latency_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} >= {
        "gnomon_in_flight", "gnomon_waiting", "gnomon_pool_waiting", "gnomon_pool_wait_seconds",
    }  # fmt: skip


def test_spans_have_their_parents(lab, address):
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    get(address, "/call/0", {"traceparent": f"00-{trace}-{parent}-01"})
    mine = until(
        lambda: (s := [x for x in read_spans(lab) if x["traceId"] == trace]) and len(s) == 3 and s
    )
    server, client, below = (
        next(s for s in mine if (s["service"], s["kind"]) == key)
        for key in (("front", 2), ("front", 3), ("store", 2))
    )
    assert server["parentSpanId"] == parent
    assert client["parentSpanId"] == server["spanId"]
    assert below["parentSpanId"] == client["spanId"]
    assert (server["name"], client["name"], below["name"]) == ("home", "look", "look")
    starts = [int(s["startTimeUnixNano"]) for s in (server, client, below)]
    ends = [int(s["endTimeUnixNano"]) for s in (below, client, server)]
    assert starts + ends == sorted(starts + ends)
    assert {s["status"]["code"] for s in mine} == {1}
    get(address, "/call/0", {"traceparent": f"00-{'1' * 32}-{parent}-00"})
    assert not [s for s in read_spans(lab) if s["traceId"] == "1" * 32], "not sampled"


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        ([], 2, "usage"),
        (["sing", "x"], 2, "usage"),
        (["serve", "/nowhere"], 1, "/nowhere: cannot be read"),
        (["client", "/dev/null"], 1, "/dev/null: ends early"),
        (["run", "me", "--", "true"], 1, "needs the parent's pid"),
        (["run", "1", "--", "true"], 1, ""),  # 1 is not its parent: that one is dead
        (["run", "PARENT", "/nowhere/cgroup.procs", "--", "true"], 1, "cannot be entered"),
        (["run", "PARENT", "--"], 1, "needs a command"),
        (["run", "PARENT", "--", "/nowhere"], 1, "No such file"),
        (["run", "PARENT", "--", "true"], 0, ""),
    ],
)
def test_the_command_line(arguments, code, what):
    given = [str(os.getpid()) if one == "PARENT" else one for one in arguments]
    done = subprocess.run([find_cell(), *given], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert what in done.stderr


@pytest.mark.parametrize(
    "config",
    ["{", "[]", '{"workers": 0}', '{"workers": "x"}', '{"what": 1}', '{"nodes": [{"class": 3}]}',
     '{"callees": [{"server": "apache"}]}', '{"seed": -1}', '{"nodes": [{"stages": [[{"callee": 9}]]}]}'],
)  # fmt: skip
def test_wrong_configurations_are_refused(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(config)
    done = subprocess.run(
        [find_cell(), "serve", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"gnomon-cell: {path}: ")
    assert done.stderr.count("\n") == 1


def test_queued_calls_have_producers_and_consumers():
    app = app_of(Call("front", then=((Call("mail", mode="queue"), Call("bad", error_share=1.0)),)))
    with Lab(app, sample_share=1.0) as lab:
        send(lab, 3)
        spans = until(lambda: (s := read_spans(lab)) and len(s) == 15 and s)
    kinds = sorted((s["service"], s["kind"], s["status"]["code"]) for s in spans)
    assert kinds == sorted(
        3 * [("front", 2, 2), ("front", 3, 2), ("front", 4, 1), ("mail", 5, 1), ("bad", 2, 2)]
    )
    assert len({s["traceId"] for s in spans}) == 3
