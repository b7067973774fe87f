"""What clients send: inferred from first bytes, written as C, sent by the load generator."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone.generator import build_load, load_command, run_load
from gnomon.systems.clone.traffic import (
    FEWEST,
    OTHER,
    PROTOCOLS,
    LoadPhase,
    RequestClass,
    Traffic,
    classify,
    gap_bins,
    infer_traffic,
    traffic_c,
    wire_size,
)
from gnomon.systems.clone.vocabulary import HTTP, MEMCACHED, RESP

RUNTIME = Path(__file__).parents[3] / "src" / "gnomon" / "systems" / "clone" / "runtime"
MODELS = Path(__file__).parent / "models"


def resp(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


# --- first bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "protocol", "verb"),
    [(resp(b"GET", b"user:1"), "resp", "GET"), (resp(b"hset", b"k", b"f", b"v"), "resp", "HSET"),
     (resp(b"SECRETCMD", b"k"), "resp", OTHER), (b"*3\r\n$3\r\nSE", "resp", OTHER), (b"*1\r\n", "resp", OTHER),
     (b"PING\r\n", "resp", "PING"), (b"SET a b\r\n", "resp", "SET"),
     (b"get a\r\n", "memcached", "get"), (b"set k 0 0 5\r\nhello\r\n", "memcached", "set"), (b"stats\r\n", "memcached", "stats"),
     (b"GET / HTTP/1.1\r\n", "http", "GET"), (b"POST /a?token=1 HTTP/1.0\r\n", "http", "POST"),
     (b"GET /" + b"a" * 59, "http", "GET"), (b"BREW /pot HTTP/1.1\r\n", "raw", OTHER),
     (b"\0\0\0\4abcd", "length", OTHER), (b"\0\0\x10\0" + b"x" * 60, "length", OTHER), (b"", "raw", OTHER),
     (b"\x16\x03\x01\x02", "raw", OTHER), (b"hello world", "raw", OTHER)],
)  # fmt: skip
def test_requests_are_classified_by_their_first_bytes(head, protocol, verb):
    assert classify(head) == (protocol, verb)


@given(
    st.one_of(
        st.binary(max_size=64), st.text("*$\r\nGETgetsSHP/1.0 ", max_size=64).map(str.encode)
    )
)
def test_prop_a_verb_is_a_public_word_whatever_the_bytes(head):
    protocol, verb = classify(head)
    assert protocol in PROTOCOLS
    assert verb in RESP | MEMCACHED | HTTP | {OTHER}
    size = wire_size(protocol, head)
    assert size is None or size > 0


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5))
def test_prop_the_size_of_a_command_is_what_its_begin_says(words):
    whole = resp(*words)
    size = wire_size("resp", whole[:64])
    assert size in (len(whole), None)
    assert size is not None or len(whole) > 64


def test_the_size_of_memcached_requests():
    assert wire_size("memcached", b"set key 0 0 100 noreply\r\nxxx") == 25 + 102
    assert wire_size("memcached", b"get key\r\nget key\r\n") == 9
    assert wire_size("memcached", b"set key 0 0 10") is None


# --- requests of a known form --------------------------------------------------------------------


@pytest.fixture(scope="module")
def parsers(tmp_path_factory):
    """The runtime's parser of each protocol, with and without what it knows of earlier requests."""
    need("cc")
    folder, found = tmp_path_factory.mktemp("forms"), {}
    for protocol in ("resp", "memcached", "http"):
        found[protocol] = folder / protocol
        subprocess.run(
            ["cc", "-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", f"-I{RUNTIME}",
             f"-DPROTOCOL=GNC_{protocol.upper()}", MODELS / "forms.c", "-o", found[protocol]],
            check=True,
        )  # fmt: skip
    return found


def some_request(protocol, rng):
    """Of few sizes, so that most have the form of an earlier one."""
    key = bytes(rng.choice([*b"abcdefgh:"], rng.choice([3, 9, 16])).tolist())
    data = bytes(rng.choice([*b"xy \r\n$*3"], rng.choice([0, 5, 30])).tolist())
    if protocol == "resp":
        return resp(rng.choice([b"GET", b"SET"]), key, *([data] if rng.random() < 0.5 else []))
    if protocol == "memcached":
        if rng.random() < 0.5:
            return rng.choice([b"get ", b"gets "]) + key + b"\r\n"
        return b"set %s 0 0 %d\r\n%s\r\n" % (key, len(data), data)
    body = b"Content-Length: %d\r\n\r\n%s" % (len(data), data)
    return b"GET /%s HTTP/1.1\r\nHost: a\r\n%s" % (key, body)


@settings(max_examples=25)
@given(st.sampled_from(["resp", "memcached", "http"]), st.integers(0, 2**31))
def test_prop_a_request_of_a_known_form_is_read_as_any_other(parsers, protocol, seed):
    rng = np.random.default_rng(seed)
    messages = []
    for _ in range(300):
        one = bytearray(
            b"".join(some_request(protocol, rng) for _ in range(rng.choice([1, 1, 2])))
        )
        for _ in range(
            rng.choice([0, 0, 0, 1, 3])
        ):  # broken, or of another form with as many bytes
            one[rng.integers(len(one))] = rng.choice([*b"\r\n $*019az\0\xff"])
        messages.append(bytes(one[: rng.integers(1, len(one) + 1)] if rng.random() < 0.1 else one))
    data = b"".join(len(one).to_bytes(4, "little") + one for one in messages)
    done = subprocess.run([parsers[protocol]], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    rows = [line.split("|") for line in done.stdout.decode().splitlines()]
    assert len(rows) == len(messages)
    for message, (fast, slow) in zip(messages, rows, strict=True):
        assert fast == slow, message


# --- many of them --------------------------------------------------------------------------------


def test_a_benchmark_of_redis_is_two_classes():
    rng = np.random.default_rng(1)
    reads, replies = [], []
    for i in range(4000):
        key = b"key:%012d" % rng.integers(1000)
        whole = resp(b"GET", key) if i % 4 else resp(b"SET", key, b"v" * 256)
        reads.append((len(whole), whole[:64]))
        replies.append(264 if i % 4 else 5)
    found = infer_traffic(reads, replies, gaps=rng.exponential(3.0, 3999), connections=16)
    assert found.protocol == "resp"
    assert [(one.verb, one.request_bytes, one.reply_bytes) for one in found.classes] == [
        ("GET", 36, 264),
        ("SET", 300, 5),
    ]
    assert [one.weight for one in found.classes] == pytest.approx([0.75, 0.25])
    assert 950 <= found.keys <= 1050
    assert (found.connections, found.pipeline, found.left_out) == (16, 1, 0.0)
    assert len(found.gaps) == 64


@pytest.mark.parametrize("size", [5, 64])
def test_what_is_encrypted_is_said(size):
    """Services read a record at once, or its head first."""
    record = b"\x17\x03\x03\x00\x3b" + bytes(range(59))
    reads = [record[:size], record[size:]] if size == 5 else [record]
    found = infer_traffic([(len(one), one) for one in 50 * reads], [20] * 50 * len(reads))
    assert (found.protocol, found.is_encrypted) == ("raw", True)
    plain = infer_traffic([(len(one), one) for one in [b"hello there"] * 50], [20] * 50)
    assert not plain.is_encrypted


def test_more_keys_than_were_seen_are_estimated():
    rng = np.random.default_rng(1)
    heads = [resp(b"GET", b"%d" % key) for key in rng.integers(20_000, size=5000)]
    found = infer_traffic([(len(one), one) for one in heads], [5] * len(heads))
    assert 15_000 < found.keys < 25_000


def test_reads_of_several_requests_and_of_parts_of_one():
    one = resp(b"GET", b"a" * 16)
    reads = [(16 * len(one), (16 * one)[:64])] * 50
    found = infer_traffic(reads, [16 * 100] * 50)
    assert found.classes == (RequestClass(1.0, "GET", len(one), 100),)
    assert found.pipeline == 16
    big = resp(b"SET", b"a" * 16, b"v" * 100_000)
    parts = [(16384, big[at : at + 64]) for at in range(0, len(big), 16384)]
    found = infer_traffic(parts * 20, [5] * len(parts) * 20)
    assert found.classes == (RequestClass(1.0, "SET", len(big), 5),)


def test_requests_that_were_answered_together_get_a_reply_each():
    one = resp(b"SET", b"a" * 16, b"v" * 10)
    found = infer_traffic([(len(one), one)] * 20, [5] * 15 + [0] * 5)
    assert found.classes == (RequestClass(1.0, "SET", len(one), 5),)
    silent = infer_traffic([(9, b"\0\0\0\5hello")] * 20, [0] * 20)
    assert silent.classes == (RequestClass(1.0, OTHER, 9, 0),)


def test_commands_on_a_line_are_of_redis_if_we_are_told_so():
    reads = [(7, b"get a\r\n")] * 10
    assert infer_traffic(reads, [5] * 10).protocol == "memcached"
    found = infer_traffic(reads, [5] * 10, protocol="resp")
    assert found.classes == (RequestClass(1.0, "GET", 7, 5),)


def test_rare_requests_are_put_together_and_single_ones_left_out():
    often = [(len(one), one) for one in [resp(b"GET", b"aaa")] * 100]
    rare = [
        (len(one), one[:64]) for size in range(40) for one in [resp(b"SET", b"k", b"v" * size)]
    ]
    single = [(len(one), one) for one in [resp(b"DEBUG", b"password")]]
    found = infer_traffic(often + rare + single, [5] * 141)
    assert {one.verb for one in found.classes} == {"GET", "SET"}
    assert all(one.weight * 140 >= FEWEST - 1e-6 for one in found.classes)
    assert found.left_out == pytest.approx(1 / 141)


@settings(max_examples=50)
@given(st.data())
def test_prop_nothing_of_a_payload_is_kept(data):
    secret = data.draw(st.text("abcdefghijklmnop", min_size=8, max_size=16))
    sizes = data.draw(st.lists(st.integers(0, 3000), min_size=10, max_size=60))
    heads = [
        resp(b"SET", b"%s:%d" % (secret.encode(), i), secret.encode() + b"x" * size)
        for i, size in enumerate(sizes)
    ]
    found = infer_traffic([(len(one), one[:64]) for one in heads], [5] * len(heads))
    assert sum(one.weight for one in found.classes) == pytest.approx(1)
    assert all(one.weight * len(heads) >= FEWEST - 1e-6 for one in found.classes)
    text = msgspec.json.encode(found).decode() + traffic_c(found)
    assert secret not in text


@given(st.lists(st.floats(0, 1e9), max_size=400))
def test_prop_gaps_have_the_mean_one_and_no_single_ones(values):
    bins = gap_bins(values)
    assert len(bins) <= min(64, len(values) // FEWEST)
    if bins:
        assert np.mean(bins) == pytest.approx(1)
        assert list(bins) == sorted(bins)


@pytest.mark.parametrize(
    "wrong",
    [lambda: infer_traffic([], []), lambda: infer_traffic([(1, b"x")], []), lambda: infer_traffic([(3, b"abc")] * 4, [1] * 4),
     lambda: infer_traffic([(3, b"abc")] * 9, [1] * 9, protocol="smoke"), lambda: infer_traffic([(3, b"abc")] * 9, [1] * 9, protocol="resp"),
     lambda: traffic_c(Traffic("resp", ())), lambda: traffic_c(Traffic("smoke", (RequestClass(1, "GET", 1, 1),)))],
)  # fmt: skip
def test_what_cannot_be_inferred_gets_a_line(wrong):
    with pytest.raises(InputError):
        wrong()


def test_words_of_others_do_not_get_into_c():
    text = traffic_c(Traffic("resp", (RequestClass(1.0, 'x"; evil', 10, 10),)))
    assert "evil" not in text
    assert '"OTHER"' in text


# --- the generator -------------------------------------------------------------------------------


def need(*programs):
    for one in programs:
        if shutil.which(one) is None:
            pytest.skip(f"{one} is absent")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def fake_server(handle):
    """Handles each connection by `handle`, in a thread, until it returns."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(one):
            with one, suppress(OSError):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                handle(one)

        def accept():
            try:
                while True:
                    threading.Thread(
                        target=serve, args=(listener.accept()[0],), daemon=True
                    ).start()
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def resp_requests(one):
    """Commands as they come, each with its bytes."""
    with one.makefile("rb") as file:
        while line := file.readline():
            whole, words = line, []
            for _ in range(int(line[1:]) if line[:1] == b"*" else 0):
                size = file.readline()
                words.append(file.read(int(size[1:]) + 2)[:-2])
                whole += size + words[-1] + b"\r\n"
            yield words or line.split(), whole


def build(folder, protocol, *classes, **more):
    need("cc")
    return build_load(
        Traffic(protocol, tuple(RequestClass(*one) for one in classes), **more), folder
    )


@pytest.fixture(scope="module")
def get_load(tmp_path_factory):
    return build(tmp_path_factory.mktemp("get"), "resp", (1.0, "GET", 36, 5), keys=100)


def test_requests_have_the_sizes_of_their_classes(tmp_path):
    wanted = {*(("GET", size) for size in range(24, 80)), *(("SET", size) for size in range(36, 160)),
              ("SET", 1100), ("SET", 20_000), ("LPUSH", 64), ("PING", 6), ("ZADD", 90), ("HSET", 123)}  # fmt: skip
    classes = [(1.0, verb, size, 5) for verb, size in wanted]
    load = build(tmp_path, "resp", *classes, keys=50, connections=4)
    seen = set()

    def handle(one):
        for words, whole in resp_requests(one):
            seen.add((words[0].decode(), len(whole)))
            one.sendall(b"+OK\r\n")

    with fake_server(handle) as port:
        run_load(load_command(load, port, requests=8000, fill="no"))
    # A key of ten bytes has a length of two digits: one size in between cannot be had.
    assert len(wanted - seen) <= 2
    assert all(
        (verb, size - 1) in seen or (verb, size + 1) in seen for verb, size in wanted - seen
    )


def test_values_are_stored_before_they_are_read(tmp_path):
    """Values that answer as the class says; classes of the same data share keys."""
    load = build(
        tmp_path,
        "resp",
        (0.5, "GET", 36, 264),
        (0.2, "SET", 300, 5),
        (0.3, "GET", 36, 5),
        keys=100,
    )
    stored, misses = {}, []

    def handle(one):
        for words, _ in resp_requests(one):
            if words[0] == b"SET":
                stored[words[1]] = words[2]
                one.sendall(b"+OK\r\n")
                continue
            value = stored.get(words[1])
            misses.append(value is None)
            one.sendall(b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value))

    with fake_server(handle) as port:
        done = run_load(load_command(load, port, requests=4000))
    assert {len(value) for value in stored.values()} == {256}
    assert len(stored) == 70
    assert np.mean(misses) == pytest.approx(0.3 / 0.8, abs=0.05)
    assert done.requests == 4000
    assert done.errors == 0


def test_the_same_seed_sends_the_same_requests(get_load):
    digests = []

    def handle(one):
        digest = hashlib.sha256()
        digests.append(digest)
        for _, whole in resp_requests(one):
            digest.update(whole)
            one.sendall(b"$-1\r\n")

    with fake_server(handle) as port:
        for seed in (1, 1, 2):
            run_load(load_command(get_load, port, requests=300, connections=1, seed=seed))
    found = [one.digest() for one in digests if one.digest() != hashlib.sha256().digest()]
    assert len(found) == 3
    assert found[0] == found[1] != found[2]


def test_latency_counts_from_when_a_request_was_due(get_load):
    """A server of 100 requests a second, asked for 200: those sent later wait longer."""

    def handle(one):
        for _ in resp_requests(one):
            time.sleep(0.01)
            one.sendall(b"$-1\r\n")

    with fake_server(handle) as port:
        closed = run_load(load_command(get_load, port, requests=60, connections=1))
        opened = run_load(load_command(get_load, port, requests=60, connections=1, rate=200))
    assert closed.max_ms < 100
    assert opened.open_loop
    assert opened.p99_ms > 200
    assert opened.p50_ms > 3 * closed.p50_ms


def test_arrivals_have_the_rate_and_the_recorded_gaps(tmp_path):
    """Bursts of four, then a pause: gaps of 0 and 4, mean 1, five a share."""
    load = build(
        tmp_path,
        "length",
        (1.0, OTHER, 20, 8),
        gaps=gap_bins([0.0] * 75 + [4.0] * 25),
        connections=16,
    )
    times = []

    def handle(one):
        while one.recv(20):
            times.append(time.monotonic())
            one.sendall(b"\0\0\0\4abcd")

    with fake_server(handle) as port:
        done = run_load(load_command(load, port, requests=400, rate=400))
    assert done.requests == 400
    assert done.seconds == pytest.approx(1.0, abs=0.25)
    gaps = np.diff(times)
    assert np.mean(gaps < 0.004) == pytest.approx(0.75, abs=0.1)


def test_phases_change_the_rate_and_the_mix(tmp_path):
    """Four times as often in the second half of each half second, and then only GET."""
    load = build(
        tmp_path,
        "resp",
        (0.5, "GET", 36, 5),
        (0.5, "SET", 60, 5),
        connections=16,
        phases=(LoadPhase(0.25, 1.0, (0.5, 0.5)), LoadPhase(0.25, 4.0, (1.0, 0.0))),
    )
    seen = [Counter(), Counter()]

    def handle(one):
        for words, _ in resp_requests(one):
            seen[int(time.time() % 0.5 > 0.25)][words[0]] += 1
            one.sendall(b"$-1\r\n")

    with fake_server(handle) as port:
        done = run_load(load_command(load, port, requests=1500, rate=400, fill="no"))
    slow, fast = done.phases
    assert slow.requests + fast.requests == done.requests == 1500
    assert slow.seconds + fast.seconds == pytest.approx(done.seconds, rel=0.05)
    assert slow.requests / slow.seconds == pytest.approx(400, rel=0.2)
    assert fast.requests / fast.seconds == pytest.approx(1600, rel=0.2)
    assert seen[0][b"GET"] == pytest.approx(seen[0][b"SET"], rel=0.2)
    assert seen[1][b"SET"] < 0.1 * seen[1][b"GET"]  # those that come late


def test_a_closed_loop_says_that_it_does_not_follow_rates(tmp_path):
    phases = (LoadPhase(1.0, 1.0, (1.0,)), LoadPhase(1.0, 2.0, (1.0,)))
    load = build(tmp_path, "resp", (1.0, "GET", 36, 5), phases=phases)

    def handle(one):
        for _ in resp_requests(one):
            one.sendall(b"$-1\r\n")

    with fake_server(handle) as port:
        done = subprocess.run(
            load_command(load, port, requests=10), capture_output=True, text=True, check=True
        )
    assert "give --rate" in done.stderr


def test_any_bytes_are_answered_by_as_many_as_were_recorded(tmp_path):
    load = build(tmp_path, "raw", (0.5, OTHER, 100, 7000), (0.5, OTHER, 9, 30))
    sizes = {100: 7000, 9: 30}

    def handle(one):
        while got := one.recv(4096):
            one.sendall(b"x" * (sizes[len(got)] // 3))
            one.sendall(b"x" * (sizes[len(got)] - sizes[len(got)] // 3))

    with fake_server(handle) as port:
        done = run_load(load_command(load, port, requests=512, connections=3))
    assert (done.requests, done.errors) == (512, 0)
    assert done.reply_bytes == pytest.approx(3515, rel=0.02)


BODIES = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n",
    "close": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
    "continue": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("cut", [1, 1000])
def test_answers_of_http_however_they_are_cut(tmp_path_factory, kind, cut, http_load):
    def handle(one):
        while one.recv(4096):
            for at in range(0, len(BODIES[kind]), cut):
                one.sendall(BODIES[kind][at : at + cut])
            if kind == "close":
                return

    with fake_server(handle) as port:
        done = run_load(load_command(http_load, port, requests=40, connections=2, path="/x"))
    assert (done.requests, done.errors) == (40, 0)
    assert done.request_bytes == 150


@pytest.fixture(scope="module")
def http_load(tmp_path_factory):
    return build(tmp_path_factory.mktemp("http"), "http", (1.0, "GET", 150, 100))


@pytest.mark.parametrize(
    ("answer", "errors"),
    [(b"-ERR no\r\n", 50), (b"*2\r\n*2\r\n:1\r\n$-1\r\n%1\r\n+a\r\n$3\r\nb\r\n\r\n", 0), (b"*0\r\n", 0),
     (b"!5\r\nERR x\r\n", 0), (b"what is this\r\n", 50)],
)  # fmt: skip
def test_answers_of_redis(get_load, answer, errors):
    def handle(one):
        for _ in resp_requests(one):
            one.sendall(answer)

    with fake_server(handle) as port:
        done = run_load(load_command(get_load, port, requests=50, connections=2, fill="no"))
    assert (done.requests, done.errors) == (50, errors)


def test_a_server_that_closes_now_and_then_loses_requests_not_the_run(get_load):
    def handle(one):
        for number, _ in enumerate(resp_requests(one)):
            if number == 9:
                return
            one.sendall(b"$-1\r\n")

    with fake_server(handle) as port:
        done = run_load(load_command(get_load, port, requests=200, connections=2))
    assert done.requests + done.errors == 200
    assert 15 <= done.errors <= 25


def close(one):
    one.recv(1)


def say_nothing(one):
    while one.recv(4096):
        pass


@pytest.mark.parametrize(
    ("handle", "said"), [(close, "answers nothing"), (say_nothing, "before the timeout")]
)
def test_a_server_that_does_not_answer_ends_the_run(get_load, handle, said):
    began = time.monotonic()
    with fake_server(handle) as port, pytest.raises(GnomonError, match=said):
        run_load(load_command(get_load, port, requests=5000, timeout_s=1.0))
    assert time.monotonic() - began < 10


def test_nobody_there(get_load):
    with pytest.raises(GnomonError, match="Connection refused"):
        run_load(load_command(get_load, free_port()))


@pytest.mark.parametrize(
    "words", [[], ["--port", "x"], ["--port", "80", "--fill", "maybe"], ["--port", "80", "--rate"],
              ["--port", "80", "--requests", "0"], ["--port", "80", "--smoke", "1"]]
)  # fmt: skip
def test_wrong_options_of_the_generator(get_load, words):
    done = subprocess.run([get_load, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr


# --- real servers, and a clone -------------------------------------------------------------------


def wait_for(port, child):
    for _ in range(200):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert child.poll() is None
        time.sleep(0.05)
    raise AssertionError("does not listen")


@contextmanager
def running(*words):
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            yield child
        finally:
            child.terminate()
            child.wait(30)


def start(name, port, folder):
    if name == "redis-server":
        return [
            name,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(folder),
        ]
    if name == "memcached":
        return [name, "-p", str(port), "-l", "127.0.0.1", "-U", "0", "-u", "nobody"]
    (folder / "index.html").write_bytes(b"x" * 612)
    folder.chmod(0o755)
    temporary = "".join(
        f"{one}_temp_path {folder}/{one};"
        for one in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    return [
        name,
        "-p",
        str(folder),
        "-c",
        str(folder / "nginx.conf"),
        "-e",
        str(folder / "error.log"),
    ]


REAL = {
    "redis-server": ("resp", [(0.45, "GET", 36, 264), (0.3, "SET", 300, 5), (0.05, "GET", 36, 5), (0.05, "INCR", 37, 4),
                              (0.05, "LPUSH", 60, 4), (0.05, "HGET", 60, 70), (0.04, "ZADD", 70, 4), (0.01, OTHER, 80, 60)]),
    "memcached": ("memcached", [(0.8, "get", 22, 1060), (0.1, "get", 22, 5), (0.06, "set", 1060, 8), (0.01, "incr", 20, 3),
                                (0.01, "append", 60, 8), (0.01, "gets", 30, 300), (0.01, "delete", 20, 11)]),
    "nginx": ("http", [(0.9, "GET", 40, 850), (0.1, "HEAD", 100, 238)]),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_it_drives_the_original(name, tmp_path):
    need(name)
    protocol, classes = REAL[name]
    load = build(tmp_path / "load", protocol, *classes, keys=200, connections=8)
    port = free_port()
    with running(*start(name, port, tmp_path)) as child:
        wait_for(port, child)
        closed = run_load(load_command(load, port, requests=5000))
        opened = run_load(load_command(load, port, requests=1000, rate=2000))
    for done in (closed, opened):
        assert done.errors == 0
        assert done.request_bytes == pytest.approx(
            sum(one[0] * one[2] for one in classes), rel=0.06
        )
        assert done.reply_bytes == pytest.approx(sum(one[0] * one[3] for one in classes), rel=0.06)
    assert closed.requests == 5000
    assert 0 < closed.p50_ms <= closed.p90_ms <= closed.p99_ms <= closed.max_ms
    assert opened.seconds == pytest.approx(0.5, rel=0.5)


def test_a_project_builds_it_beside_the_clone(tmp_path):
    need("cmake", "cc")
    shutil.copytree(RUNTIME, tmp_path / "runtime")
    shutil.copy(RUNTIME / "CMakeLists.txt", tmp_path)
    shutil.copy(MODELS / "redis.c", tmp_path / "model.c")
    traffic = Traffic("resp", (RequestClass(1.0, "GET", 36, 264),), connections=4)
    (tmp_path / "traffic.c").write_text(traffic_c(traffic))
    for words in (["-S", tmp_path, "-B", tmp_path / "build"], ["--build", tmp_path / "build"]):
        done = subprocess.run(["cmake", *words], check=True, capture_output=True, text=True)
    assert not [line for line in done.stderr.splitlines() if "warning" in line and "load" in line]
    port = free_port()
    with running(tmp_path / "build" / "clone", "--port", str(port)) as child:
        wait_for(port, child)
        done = run_load(load_command(tmp_path / "build" / "load", port, requests=5000))
    assert (done.requests, done.errors) == (5000, 0)
    assert done.reply_bytes == pytest.approx(264, rel=0.1)


def test_a_thread_works_in_the_background_while_requests_are_answered(tmp_path):
    need("cmake", "cc")
    shutil.copytree(RUNTIME, tmp_path / "runtime")
    shutil.copy(RUNTIME / "CMakeLists.txt", tmp_path)
    shutil.copy(MODELS / "background.c", tmp_path / "model.c")
    for words in (["-S", tmp_path, "-B", tmp_path / "build"], ["--build", tmp_path / "build"]):
        subprocess.run(["cmake", *words], check=True, capture_output=True)
    program = tmp_path / "build" / "clone"
    with subprocess.Popen([program, "--port", "0"], stdout=subprocess.PIPE, text=True) as child:
        lines = [child.stdout.readline() for _ in range(20)]
        port = int(next(one for one in lines if "ready" in one).rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 60) as one:
            one.sendall(b"hello")
            assert len(one.recv(100)) == 5
        lines = [child.stdout.readline() for _ in range(20)]
        child.terminate()
    assert lines == ["cleaned up\n"] * 20
