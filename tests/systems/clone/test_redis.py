"""A real Redis, profiled, cloned, and the clone driven by Redis's own clients; and models by hand."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gnomon.cli import main
from gnomon.systems.clone import compare, profile, read_bundle, tune, write_bundle, write_project
from gnomon.systems.clone.bundle import per_request
from gnomon.systems.clone.client import Load
from gnomon.systems.clone.generator import load_command, run_load
from gnomon.systems.clone.judge import Caches, judge
from gnomon.systems.clone.morph import Morph
from gnomon.systems.clone.recording import bucket_of
from gnomon.systems.clone.tune import build, mix_distance
from tests.systems.clone.counted import need

MODELS = Path(__file__).parent / "models"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def serving(*program):
    port = free_port()
    words = [*program, "--port", str(port)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert "ready" in server.stdout.readline()
            yield port
        finally:
            server.terminate()
        assert server.wait(60) == 0


# --- Redis ---------------------------------------------------------------------------------------


def load(port):
    return f"redis-benchmark -p {port} -t set,get -n 2500 -r 100 -d 64 -c 8 -q"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    need("redis-server", "redis-benchmark", "qemu-x86_64")
    port = free_port()
    made = profile(["redis-server", "--port", str(port), "--save", ""], load(port))
    path = tmp_path_factory.mktemp("bundle") / "redis.bundle"
    write_bundle(made, path)
    return path


@pytest.fixture(scope="module")
def tuned(bundle, tmp_path_factory):
    """The original, what the clone was seen to do, and the clone."""
    need("cmake", "cc")
    original = read_bundle(bundle)
    folder = tmp_path_factory.mktemp("clone") / "clone"
    write_project(original, folder)
    port = free_port()
    return (
        original,
        tune(original, folder, load(port), port=port, rounds=2),
        folder / "build" / "clone",
    )


def labels(server):
    return [[[step.label for step in phase] for phase in one.phases] for one in server.scripts[:1]]


def test_the_profile_of_redis(bundle):
    found = read_bundle(bundle)
    server = found.server
    assert server.requests >= 5000
    assert server.wait == "epoll_wait"
    assert labels(server) == [[["read:connection"], ["write:connection"]]]
    assert 2000 < found.instructions < 12000
    assert {"read:connection", "write:connection", "epoll_wait"} <= {
        one.before for one in found.edges
    }
    assert found.traffic.protocol == "resp"
    assert {one.verb for one in found.traffic.classes} == {"GET", "SET"}


def test_the_paths_of_redis_stand_for_what_it_executed(bundle):
    found = read_bundle(bundle)
    assert found.skeleton.left_out < 0.1
    blocks = found.skeleton.blocks
    for number, edge in enumerate(found.edges):
        mine = [one for one in found.skeleton.paths if one.edge == number]
        if edge.per_request * edge.instructions < 0.05 * found.instructions:
            continue
        length = sum(one.weight * sum(len(blocks[b].ops) + (blocks[b].ends != "fall") for b in one.blocks)
                     for one in mine)  # fmt: skip
        assert length == pytest.approx(edge.per_request * edge.instructions, rel=0.15)
    waits = {i for i, one in enumerate(found.edges) if one.before == found.server.wait}
    kinds = {one.kind for one in found.skeleton.paths if one.edge not in waits}
    assert kinds == {0, 1}  # of requests
    assert len({one.kind for one in found.skeleton.paths if one.edge in waits}) > 2  # of wake-ups


def test_a_bundle_names_neither_service_nor_files(bundle):
    for path in bundle.iterdir():
        data = path.read_bytes().lower()
        assert not [
            word for word in (b"redis", b"/usr", b"/proc", b"key:", b"xxxxxxxx") if word in data
        ]


def test_the_clone_costs_as_much(tuned):
    original, seen, _ = tuned
    rows = {one.name: one for one in compare(original, seen)}
    assert abs(rows["instructions"].error_pct) < 8
    assert abs(rows["loads"].error_pct) < 12
    assert abs(rows["branches taken"].error_pct) < 15
    assert mix_distance(original, seen) < 8


def test_the_clone_makes_the_same_system_calls(tuned):
    original, seen, _ = tuned
    assert labels(seen.server) == labels(original.server)
    assert seen.server.wait == original.server.wait

    def often(one):
        calls = Counter()
        for edge in one.edges:
            calls[edge.after] += edge.per_request
        return {call for call, rate in calls.items() if rate > 0.02}

    assert often(seen) == often(original)


ARM = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DCMAKE_EXE_LINKER_FLAGS=-static",
       *(f"-DCMAKE_{what}_COMPILER=aarch64-linux-gnu-gcc" for what in ("C", "ASM"))]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "emulator", "edges"),
    [([], [], "edges.S"), (ARM, ["qemu-aarch64"], "edges-aarch64.S"),
     (["-DGNC_PORTABLE=ON"], [], "edges.c")],
    ids=["x86-64", "aarch64", "portable"],
)  # fmt: skip
def test_clients_of_redis_are_answered(tuned, tmp_path, options, emulator, edges):
    need("redis-cli", *(["aarch64-linux-gnu-gcc", *emulator] if emulator else []))
    folder = tuned[2].parents[1]
    for words in (["-S", folder, "-B", tmp_path, *options], ["--build", tmp_path]):
        subprocess.run(["cmake", *words], check=True, capture_output=True)
    built = (tmp_path / "CMakeFiles" / "clone.dir").glob("edges*.o")
    assert [one.name for one in built] == [f"{edges}.o"]
    with serving(*emulator, tmp_path / "clone") as port:
        done = subprocess.run(
            load(port).split(), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0
        assert "GET" in done.stdout
        assert "requests per second" in done.stdout

        def ask(*words):
            return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True,
                                  timeout=60, check=True).stdout.strip()  # fmt: skip

        assert ask("set", "key:000000000001", "x" * 64) == "OK"
        assert len(ask("get", "key:000000000001")) == 64


@pytest.mark.slow
def test_twice_the_data_in_a_cache_twice_as_large(bundle, tmp_path, capsys):
    """Misses as often as the clone without a recipe; in the same cache far more often."""
    need("cmake", "cc", "valgrind")
    recipes = {"plain": ["--data", "1"], "morphed": ["--data", "2", "--mix", "get=1"]}
    for name, recipe in recipes.items():
        to, folder = str(tmp_path / f"{name}.bundle"), str(tmp_path / name)
        assert main(["clone", "morph", str(bundle), "-o", to, *recipe]) == 0
        assert main(["clone", "generate", to, "-o", folder]) == 0
        build(tmp_path / name)
    capsys.readouterr()

    def misses(name, kib):
        load = Load(f"{load_of(tmp_path / 'plain')} --requests {{requests}}")
        seen = judge(f"{tmp_path / name}/build/clone --port {{port}}", load, connections=8,
                     caches=Caches.of_kib(32, kib, 2048), requests=800)  # fmt: skip
        return seen.l1d_read_misses + seen.l1d_write_misses

    plain = misses("plain", 16)
    assert misses("morphed", 16) > 1.3 * plain
    assert misses("morphed", 32) == pytest.approx(plain, rel=0.3)
    with serving(tmp_path / "morphed" / "build" / "clone") as port:
        for name, reply in (("plain", (72 + 5) / 2), ("morphed", 72)):
            words = load_command(tmp_path / name / "build" / "load", port, requests=2000)
            assert run_load(words).reply_bytes == pytest.approx(reply, rel=0.05)


def test_wake_ups_by_how_many_events_they_bring(bundle):
    """What is done first takes an instruction or two more for each; wake-ups of a few are rare."""
    made = read_bundle(bundle)
    (number,) = (i for i, edge in enumerate(made.edges)
                 if (edge.before, edge.after) == ("epoll_wait", "read:connection"))  # fmt: skip
    paths = [one for one in made.skeleton.paths if one.edge == number]
    assert sum(one.weight for one in paths) == pytest.approx(made.edges[number].per_request)
    blocks = made.skeleton.blocks
    shortest = {}
    for one in paths:
        length = sum(len(blocks[b].ops) + (blocks[b].ends != "fall") for b in one.blocks)
        shortest[one.kind] = min(length, shortest.get(one.kind, length))
    several = [length for kind, length in sorted(shortest.items()) if kind]  # 0: one, or a timer
    assert len(several) >= 2
    assert several == sorted(set(several))


def load_of(folder):
    return f"{folder}/build/load --port {{port}} --connections {{connections}} --json"


@pytest.mark.slow
def test_tuning_leaves_the_recipe_out_until_the_end(bundle, tmp_path):
    need("cmake", "cc")
    original = read_bundle(bundle)
    morphed = msgspec.structs.replace(original, morphed=Morph(code=4))
    port = free_port()
    few = load(port).replace("2500", "600")
    seen = tune(morphed, tmp_path, few, port=port, rounds=1)
    assert seen.morphed is None
    assert labels(seen.server) == labels(original.server)
    # Of some 400 lines of code a request, with four copies, most would be reused that far away.
    assert per_request(seen, "code")[bucket_of(1024) :].sum() < 100
    assert ".turns" in (tmp_path / "model.c").read_text()
    with serving(tmp_path / "build" / "clone") as port:
        subprocess.run(load(port).split(), check=True, stdout=subprocess.DEVNULL, timeout=60)


# --- models by hand ------------------------------------------------------------------------------


NAMES = ["redis", "memcached", "nginx", "raw"]


@pytest.fixture(scope="module", params=[*NAMES, *(f"{one} on aarch64" for one in NAMES)])
def model(request, tmp_path_factory):
    """A server by a model, and which."""
    name, _, machine = request.param.partition(" on ")
    emulator = ["qemu-aarch64"] if machine else []
    need("cmake", *(["aarch64-linux-gnu-gcc", *emulator] if machine else ["cc"]))
    folder = tmp_path_factory.mktemp(name)
    runtime = Path(__file__).parents[3] / "src" / "gnomon" / "systems" / "clone" / "runtime"
    shutil.copytree(runtime, folder / "runtime")
    shutil.copy(runtime / "CMakeLists.txt", folder)
    shutil.copy(MODELS / f"{name}.c", folder / "model.c")
    for words in (
        ["cmake", "-S", folder, "-B", folder / "build", *(ARM if machine else [])],
        ["cmake", "--build", folder / "build"],
    ):
        subprocess.run(words, check=True, capture_output=True)
    with serving(*emulator, folder / "build" / "clone") as port:
        yield name, port


REQUESTS = {"redis": b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n", "memcached": b"get x\r\n",
            "nginx": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "raw": b"12345678"}  # fmt: skip
ANSWERS = {
    "redis": [b"$256"],
    "memcached": [b"VALUE", b"END"],
    "nginx": [b"HTTP/1.1"],
    "raw": None,
}


def test_the_runtime_carries_models_out(model):
    name, port = model
    for _ in range(20):
        reply = ask(port, REQUESTS[name])
        assert ANSWERS[name] is None or reply.split()[0] in ANSWERS[name]


def command(*words):
    return b"".join(
        [b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(one), one) for one in words)]
    )


#: Requests, and of how many bytes their replies are: the command counts first, then the size.
BY_KIND = {
    "redis": [(command(b"GET", b"x"), {264}), (command(b"get", b"x" * 1900), {1064}), (command(b"SET", b"k", b"v"), {5}),
              (command(b"SET", b"k", b"v" * 1990), {5}), (b"get x\r\n", {264})],
    "raw": [(b"x" * 7, {10}), (b"x" * 900, {500, 700}), (b"x" * 100, {10})],
}  # fmt: skip


@pytest.mark.parametrize("model", sorted(BY_KIND), indirect=True)
def test_each_kind_of_request_gets_replies_of_its_own_sizes(model):
    name, port = model
    seen = {request: {len(ask(port, request)) for _ in range(30)} for request, _ in BY_KIND[name]}
    assert seen == dict(BY_KIND[name])


@pytest.mark.parametrize("model", ["redis"], indirect=True)
def test_kinds_of_pipelined_requests_are_told_apart(model):
    _, port = model
    both = [command(b"GET", b"x"), command(b"SET", b"k", b"v"), command(b"GET", b"x" * 1900)]
    assert len(ask(port, b"".join(both * 5), least=5 * (264 + 5 + 1064))) == 5 * (264 + 5 + 1064)


def ask(port, request, least=1):
    """All that comes back; until nothing more does."""
    with socket.create_connection(("127.0.0.1", port), 60) as one:
        one.sendall(request)
        reply = b""
        while len(reply) < least:
            reply += one.recv(65536)
        one.settimeout(0.01)
        try:
            while more := one.recv(65536):
                reply += more
        except TimeoutError:
            return reply
        return reply


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--protocol", "resp", "--load", "true", "--", "no-such-server"], "no program"),
     (["--protocol", "resp", "--load", "no-such-load", "--", "sleep", "9"], "no command"),
     (["--protocol", "smoke", "--load", "true", "--", "sleep", "9"], "protocol"),
     (["--protocol", "resp", "--load", "true", "--", "true"], "ended before it listened"),
     (["--protocol", "resp", "--load", "true"], "its command after --")],
)  # fmt: skip
def test_what_cannot_be_profiled_gets_a_line(words, said, tmp_path, capsys):
    need("qemu-x86_64")
    assert main(["clone", "profile", "-o", str(tmp_path / "x"), *words]) in (1, 2)
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "x").exists()
