"""Services that are hard to profile: each a profile, or one clear line, and nothing is left behind."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.errors import GnomonError
from gnomon.systems.clone import write_project
from gnomon.systems.clone.launch import free_port, launched
from gnomon.systems.clone.profile import profile
from gnomon.systems.clone.tune import build
from tests.systems.clone.counted import need

PROFILING = sys.modules["gnomon.systems.clone.profile"]  # the package's name is the function's
CLIENT = """import socket, sys
if sys.argv[1].isdigit():
    one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
else:
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
for i in range(300):
    one.sendall(b"question %04d" % i)
    assert one.recv(100) == b"hello there\\n" or sys.argv[2:]
one.shutdown(socket.SHUT_WR)
assert not one.recv(100), "more than was asked for"
"""


@pytest.fixture(scope="module", params=["-static", "-dynamic"])
def server(request, tmp_path_factory):
    need("cc", "qemu-x86_64")
    folder = tmp_path_factory.mktemp("server")
    source = Path(__file__).parent / "models" / "services.c"
    linking = ["-static"] if request.param == "-static" else []
    subprocess.run(
        ["cc", "-O1", "-pthread", *linking, source, "-o", folder / "server"], check=True
    )
    (folder / "client.py").write_text(CLIENT)
    return folder


def profiled(folder, how):
    port = free_port()
    load = f"{sys.executable} {folder}/client.py {port}"
    return profile([str(folder / "server"), str(port), how], load)


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ("false", "the load failed with 1"),
        ("sleep 60", "the load did not end"),
        ("true", "no request was served"),
    ],
)
def test_a_load_that_is_none(server, load, words, monkeypatch):
    monkeypatch.setattr(PROFILING, "_LOAD_S", 0.5)
    monkeypatch.setattr(PROFILING, "_READY_S", 0.5)
    with pytest.raises(GnomonError, match=words):
        profile([str(server / "server"), str(free_port()), "blocks"], load)
    assert not is_left(server)


def test_a_port_in_use(server):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(GnomonError, match="ended before it listened"):
            profile([str(server / "server"), str(port), "blocks"], "true")


def test_a_unix_socket_alone_is_profiled(server, monkeypatch):
    monkeypatch.setattr(PROFILING, "_ALONE_S", 0.1)
    load = f"{sys.executable} {server}/client.py {server}/socket"
    bundle = profile([str(server / "server"), f"{server}/socket", "unix"], load)
    assert bundle.server.requests == 300
    assert not is_left(server)


def is_left(folder):
    found = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return any(bytes(folder / "server") in one for one in found)


@pytest.mark.parametrize("how", ["blocks", "fork", "deaf", "replaces-itself", "alarms", "late"])
def test_a_server_that_waits_in_its_reads(server, how):
    """A protocol that nobody knows; the clone answers the same client with as many bytes."""
    bundle = profiled(server, how)
    assert (bundle.protocol, bundle.server.wait) == ("raw", "blocking")
    for script in bundle.server.scripts:
        assert [step.label for step in script.steps] == ["read:connection", "write:connection"]
    assert 10 < bundle.instructions < (50_000 if how == "alarms" else 500)
    assert not is_left(server)
    check_that_its_clone_answers(bundle, server, how)


def check_that_its_clone_answers(bundle, folder, how, *client):
    need("cmake")
    write_project(bundle, folder / f"clone-{how}")
    port = free_port()
    with launched([str(build(folder / f"clone-{how}")), "--port", str(port)]) as clone:
        clone.wait_until_listening(port)
        name, word = client or ("client.py", "other bytes")
        subprocess.run([sys.executable, folder / name, str(port), word], check=True, timeout=60)


def test_a_server_that_asks_another_before_it_answers(server):
    """The answer is of a later wake-up than the request; the clone waits in between, too."""
    bundle = profiled(server, "asks")
    (script,) = bundle.server.scripts
    assert [step.label for step in script.steps if step.call != "epoll_ctl"] == [
        "recvfrom:connection", "call53", "sendto", "close", "sendto",
        "epoll_wait", "recvfrom", "close", "sendto:connection"]  # fmt: skip
    assert bundle.server.requests == 300
    assert bundle.server.wakeups == pytest.approx(2, abs=0.1)
    check_that_its_clone_answers(bundle, server, "asks")


PIPELINE = """import socket, sys
one, got = socket.create_connection(("127.0.0.1", int(sys.argv[1]))), b""
for i in range(200):
    one.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" * int(sys.argv[2]))
    while got.count(b"HTTP/1.1 200 OK") < (i + 1) * int(sys.argv[2]):
        got += one.recv(4096)
"""


def test_the_next_request_may_be_read_with_the_rest_of_one(server):
    """The clone answers both, though only the first is what it was woken up for."""
    (server / "pipeline.py").write_text(PIPELINE)
    port = free_port()
    bundle = profile(
        [str(server / "server"), str(port), "http"],
        f"{sys.executable} {server}/pipeline.py {port} 1",
    )
    assert (bundle.protocol, bundle.server.requests) == ("http", 200)
    check_that_its_clone_answers(bundle, server, "http", "pipeline.py", "2")


def test_a_server_that_reads_a_request_in_two_parts(server):
    bundle = profiled(server, "parts")
    (script,) = bundle.server.scripts
    assert [(step.label, step.size) for step in script.steps] == [
        ("recvfrom:connection", 4), ("recvfrom:connection", 4096), ("sendto:connection", 12)]  # fmt: skip
    assert bundle.server.requests == 300
    check_that_its_clone_answers(bundle, server, "parts")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("daemon", "background"),
        ("udp", "UDP alone"),
        ("dies", "has ended while the load ran"),
    ],
)
def test_one_that_cannot_be_profiled(server, how, words, monkeypatch):
    monkeypatch.setattr(PROFILING, "_ALONE_S", 0.1)
    with pytest.raises(GnomonError, match=words):
        profiled(server, how)
    assert not is_left(server)


def test_a_script_that_runs_a_service_is_followed(tmp_path):
    """One that is replaced by another, which starts the service and waits for it."""
    need("qemu-x86_64", "redis-server", "redis-benchmark")
    (tmp_path / "inner").write_text('#!/bin/sh -e\ncd "$WHERE"\nredis-server "$@"\n')
    (tmp_path / "start").write_text(
        f'#!/usr/bin/env sh\nWHERE=$(dirname "$0") exec {tmp_path}/inner --save "" "$@"\n'
    )
    for name in ("inner", "start"):
        (tmp_path / name).chmod(0o755)
    port = free_port()
    load = f"redis-benchmark -p {port} -t get -n 500 -c 4 -q"
    bundle = profile([str(tmp_path / "start"), "--port", str(port), "--dir", "."], load)
    assert bundle.protocol == "resp"
    assert 1000 < bundle.instructions < 20_000
    assert not is_left(tmp_path)


def test_a_script_whose_program_does_not_start_says_so(tmp_path):
    need("qemu-x86_64")
    (tmp_path / "start").write_text("#!/bin/sh\nexec /no/such/program\n")
    (tmp_path / "start").chmod(0o755)
    with pytest.raises(GnomonError, match=r"ended before it listened: .*/no/such/program"):
        profile([str(tmp_path / "start")], "true")
