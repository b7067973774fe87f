"""A real Redis, profiled, cloned, and the clone driven by Redis's own client."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from gnomon.cli import main
from gnomon.systems.clone import compare, profile, read_bundle, tune, write_bundle, write_project
from gnomon.systems.clone.tune import mix_distance

MODELS = Path(__file__).parent / "models"


def need(*programs):
    for one in programs:
        if shutil.which(one) is None:
            pytest.skip(f"{one} is absent")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def load(port):
    return f"redis-benchmark -p {port} -t get -n 3000 -r 100 -d 64 -c 8 -q"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    need("redis-server", "redis-benchmark", "qemu-x86_64")
    port = free_port()
    made = profile(
        ["redis-server", "--port", str(port), "--save", ""], load(port), protocol="resp"
    )
    path = tmp_path_factory.mktemp("bundle") / "redis.bundle"
    write_bundle(made, path)
    return path


def test_the_profile_of_redis(bundle):
    found = read_bundle(bundle)
    server = found.server
    assert server.requests >= 3000
    assert server.wait == "epoll_wait"
    labels = [step.label for step in server.scripts[0].steps]
    assert labels == ["read:connection", "write:connection"]
    assert 2000 < found.instructions < 12000
    assert {"read:connection", "write:connection", "epoll_wait"} <= {
        one.before for one in found.edges
    }
    text = bundle.read_text()
    assert "redis" not in text.lower()
    assert "/" not in json.dumps(json.loads(text)["server"])


def test_the_clone_answers_and_costs_as_much(bundle, tmp_path):
    need("cmake", "cc")
    original = read_bundle(bundle)
    write_project(original, tmp_path / "clone")
    port = free_port()
    seen = tune(original, tmp_path / "clone", load(port), port=port, rounds=1)
    rows = {one.name: one for one in compare(original, seen)}
    first = [step.label for step in seen.server.scripts[0].steps]
    assert first == [step.label for step in original.server.scripts[0].steps]
    assert abs(rows["instructions"].error_pct) < 15
    assert abs(rows["branches taken"].error_pct) < 25
    assert mix_distance(original, seen) < 12


@pytest.mark.parametrize("name", ["redis", "memcached", "nginx"])
def test_the_runtime_carries_models_out(name, tmp_path):
    need("cmake", "cc")
    runtime = Path(__file__).parents[3] / "src" / "gnomon" / "systems" / "clone" / "runtime"
    shutil.copytree(runtime, tmp_path / "runtime")
    shutil.copy(runtime / "CMakeLists.txt", tmp_path)
    shutil.copy(MODELS / f"{name}.c", tmp_path / "model.c")
    for words in (
        ["cmake", "-S", tmp_path, "-B", tmp_path / "build"],
        ["cmake", "--build", tmp_path / "build"],
    ):
        subprocess.run(words, check=True, capture_output=True)
    port = free_port()
    with subprocess.Popen(
        [tmp_path / "build" / "clone", "--port", str(port)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert "ready" in server.stdout.readline()
            assert ask(name, port) == answer(name)
        finally:
            server.terminate()
        assert server.wait(60) == 0


def ask(name, port):
    requests = {"redis": b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n", "memcached": b"get x\r\n",
                "nginx": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"}  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), 60) as one, one.makefile("rb") as file:
        one.sendall(requests[name])
        return file.readline().split()[0]


def answer(name):
    return {"redis": b"$256", "memcached": b"VALUE", "nginx": b"HTTP/1.1"}[name]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--protocol", "resp", "--load", "true", "--", "no-such-server"], "no program"),
     (["--protocol", "resp", "--load", "no-such-load", "--", "sleep", "9"], "no command"),
     (["--protocol", "smoke", "--load", "true", "--", "sleep", "9"], "protocol"),
     (["--protocol", "resp", "--load", "true", "--", "true"], "ended before it listened"),
     (["--protocol", "resp", "--load", "true"], "COMMAND")],
)  # fmt: skip
def test_what_cannot_be_profiled_gets_a_line(words, said, tmp_path, capsys):
    need("qemu-x86_64")
    assert main(["clone", "profile", "-o", str(tmp_path / "x"), *words]) in (1, 2)
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "x").exists()
