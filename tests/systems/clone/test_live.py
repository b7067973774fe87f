"""A running service is looked at: it answers afterwards, and what is missing is said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnomon.cli import main
from gnomon.systems.clone import live
from gnomon.systems.clone.launch import serving
from gnomon.systems.clone.live import watch
from gnomon.systems.clone.live_result import live_to_result, overhead_line

SERVER = """
import socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    while d := c.recv(4096):
        c.sendall(d * 4)
"""


class Echo:
    """A server of one connection, which four times repeats what it gets."""

    def __init__(self, child, port):
        self.child, self.pid, self.port = child, child.pid, port

    def ask(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as one:
            one.sendall(b"0123456789")
            return one.recv(100)

    @contextmanager
    def asked(self):
        stop = threading.Event()

        def go():
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as one:
                while not stop.is_set():
                    one.sendall(b"0123456789")
                    if not one.recv(100):
                        return
                    time.sleep(0.001)

        thread = threading.Thread(target=go)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@pytest.fixture
def echo():
    child = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    yield Echo(child, int(child.stdout.readline()))
    child.kill()
    child.wait()
    child.stdout.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(live, "_ROUNDS", 1)
    monkeypatch.setattr(live, "_PLAIN_S", 0.3)


def need_bpftrace():
    if os.geteuid() != 0 or shutil.which("bpftrace") is None:
        pytest.skip("bpftrace or root is absent")


def path_with(folder: Path, monkeypatch, *programs):
    found = [(name, shutil.which(name)) for name in programs]
    for name, path in found:
        if path is None:
            pytest.skip(f"{name} is absent")
        (folder / name).symlink_to(path)
    monkeypatch.setenv("PATH", str(folder))


def test_requests_calls_and_sizes_are_summed_up_in_the_kernel(echo, tmp_path):
    need_bpftrace()
    with echo.asked():
        found = watch(echo.pid, seconds=1)
    if found.tracer != "bpftrace":
        assert any("cannot attach" in one for one in found.missing), found
        pytest.skip(f"bpftrace does not attach here: {found.missing}")
    assert found.traced.requests > 20
    assert found.traced.moved["recvfrom", "client"][1] == 10 * found.traced.requests
    assert set(found.traced.sizes["sendto", "client"]) == {32}
    assert found.overhead_pct is not None
    assert found.descriptors.ports == (echo.port,)
    assert 1e6 < found.gap_quantiles([0.5])[0] < 1e9
    assert found.gaps
    result = live_to_result(found, command="")
    assert any("verhead of the live profile" in note for note in result.notes)
    live.write_live(found, tmp_path / "live")
    assert "python" not in (tmp_path / "live" / "live.json").read_text()
    assert echo.ask()


def test_of_many_calls_few_are_looked_up_and_counts_are_right(tmp_path):
    need_bpftrace()
    for name in ("redis-server", "redis-benchmark"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is absent")
    sent = 40_000
    command = f"redis-server --port {{port}} --save '' --dir {tmp_path}"
    with serving(command) as (service, port):
        load = f"redis-benchmark -p {port} -t get -n {sent} -c 20 -q"
        found = watch(service.pid, load=load)
        if found.tracer != "bpftrace":
            pytest.skip(f"bpftrace does not attach here: {found.missing}")
        steady = subprocess.Popen([*load.split(), "-l"], stdout=subprocess.DEVNULL)
        try:
            alternating = watch(service.pid, seconds=0.4)
        finally:
            steady.kill()
            steady.wait()
    assert found.traced.requests == pytest.approx(sent, rel=0.01)
    calls = {call: found.traced.calls[service.pid, call] for call in ("read", "write")}
    assert calls == {"read": pytest.approx(sent, rel=0.01), "write": pytest.approx(sent, rel=0.01)}
    assert found.traced.moved["write", "client"][1] == pytest.approx(5 * sent, rel=0.01)
    assert found.every > 1
    assert 0 < found.traced.gaps.total() < sent / 1.5
    assert alternating.traced_share < 0.5
    assert "over the look" in overhead_line(alternating)


def test_strace_is_the_fallback(echo, tmp_path, monkeypatch):
    path_with(tmp_path, monkeypatch, "strace")
    with echo.asked():
        found = watch(echo.pid, seconds=0.5)
    if not found.tracer:
        pytest.skip(f"strace may not attach here: {found.missing}")
    assert found.tracer == "strace"
    assert found.traced.requests > 5
    assert any("bpftrace" in one for one in found.missing)
    assert any("times slower" in note for note in live_to_result(found, command="").notes)
    assert echo.ask()


def test_without_tracers_proc_alone_is_read(echo, tmp_path, monkeypatch, capsys):
    path_with(tmp_path, monkeypatch)
    assert main(["clone", "profile", "--pid", str(echo.pid), "--seconds", "0.3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    text = json.dumps(found)
    assert "bpftrace" in text
    assert "strace is not installed" in text
    assert "listening socket" in text
    assert echo.ask()


def test_a_service_that_ends_meanwhile_is_reported_as_far_as_it_was_seen(
    echo, tmp_path, monkeypatch
):
    path_with(tmp_path, monkeypatch)
    timer = threading.Timer(0.15, echo.child.kill)
    timer.start()
    found = watch(echo.pid, seconds=5)
    timer.join()
    assert found.has_ended
    assert any("ended after" in one for one in live_to_result(found, command="").notes)


def test_a_service_of_another_user_is_seen_from_outside(echo):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("root or setpriv is absent")
    text = "import sys; from gnomon.systems.clone.live import watch; import msgspec\n"
    text += f"found = watch({echo.pid}, seconds=0.3)\n"
    text += "print(found.descriptors, found.tracer, found.missing, len(found.threads))"
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", text],
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    if "ModuleNotFoundError" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip("another user cannot run this Python")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("None ")
    assert "another user" in done.stdout
    assert "needs root" in done.stdout
    assert echo.ask()


def test_an_interrupt_leaves_the_service_alone(echo):
    text = "import sys; from gnomon.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", text, "clone", "profile", "--pid", str(echo.pid)]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(4)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    assert child.wait(20) != 0
    assert echo.ask()


def test_a_load_that_does_not_end_is_ended(echo, monkeypatch, capsys):
    monkeypatch.setattr(live, "_LONGEST_S", 0.5)
    pid = str(echo.pid)
    assert main(["clone", "profile", "--pid", pid, "--seconds", "0.3", "--load", "sleep 60"]) == 2
    assert "the load did not end" in capsys.readouterr().err
    assert echo.ask()


def test_a_load_that_fails_leaves_the_rest(echo, tmp_path, monkeypatch):
    path_with(tmp_path, monkeypatch, "false")
    assert (
        "throughput: the load failed with 1" in watch(echo.pid, seconds=0.3, load="false").missing
    )


@pytest.mark.parametrize(("pid", "said"), [(2**22 + 1, "does not exist"), (2, "kernel")])
def test_what_is_no_service_is_refused(pid, said, capsys):
    if pid == 2 and Path("/proc/2/comm").exists() is False:
        pytest.skip("no thread of the kernel is seen here")
    assert main(["clone", "profile", "--pid", str(pid)]) == 2
    assert said in capsys.readouterr().err
