"""A service beside its clone, on settings that the clone was tuned to and on others.

    python benchmarks/clone.py [redis|memcached|nginx|lighttpd] [--runs 5] [--json FILE]

A server of the distribution is profiled, its clone generated, tuned, validated and audited: natively in turns, under the
profiler, and in simulated caches. lighttpd was not used while the cloner was built. Needs qemu-user, valgrind, strace,
CMake, a C compiler, the server and its client (wrk for HTTP); takes some eight minutes. Exit code 3: a metric is beyond
its limit.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

REDIS_LOAD = (
    "redis-benchmark -p {port} -t set,get -n {requests} -r 1000 -d 256 -c {connections} -q"
)
WRK = "wrk -t1 -c{connections} -d{seconds}s --latency http://127.0.0.1:{port}/index.html"
FILE_BYTES = 612


class Service(msgspec.Struct, frozen=True):
    """Commands with places left open, and how much to send while it is profiled."""

    command: str
    load: str
    requests: int
    program: str


def redis(_: Path) -> Service:
    return Service("redis-server --port {port} --save ''", REDIS_LOAD, 8000, "redis-server")


def memcached(_: Path) -> Service:
    # Debian calls memaslap so; every tenth request is a set, values have 1 KiB.
    load = "memcaslap -s 127.0.0.1:{port} -T 1 -c {connections} -x {requests} -w 1k"
    return Service("memcached -p {port} -l 127.0.0.1 -U 0 -u nobody -t 2", load, 8000, "memcached")


def nginx(folder: Path) -> Service:
    return _http(folder, "nginx", f"nginx -p {folder} -c", f"""daemon off; worker_processes 1;
pid {folder}/{{port}}.pid; error_log {folder}/error.log; events {{ worker_connections 512; }}
http {{ access_log {folder}/access.log; keepalive_requests 1000000;
  server {{ listen 127.0.0.1:{{port}}; root {folder}/html; }} }}
""")  # fmt: skip


def lighttpd(folder: Path) -> Service:
    return _http(folder, "lighttpd", "lighttpd -D -f", f"""server.document-root = "{folder}/html"
server.port = {{port}}
server.bind = "127.0.0.1"
server.max-keep-alive-requests = 100000
index-file.names = ("index.html")
server.modules = ("mod_accesslog")
accesslog.filename = "{folder}/access.log"
""")  # fmt: skip


def _site(folder: Path) -> Path:
    folder.chmod(0o755)
    (folder / "html").mkdir(exist_ok=True)
    (folder / "html" / "index.html").write_text("x" * FILE_BYTES)
    return folder / "html"


def _http(folder: Path, program: str, start: str, settings: str) -> Service:
    """A server whose port is in a file: a shell writes it, and becomes the server."""
    _site(folder)
    script = folder / f"{program}.sh"
    text = settings.replace("{port}", "$1")
    script.write_text(
        f"#!/bin/sh\ncat > {folder}/$1.conf <<END\n{text}END\nexec {start} {folder}/$1.conf\n"
    )
    script.chmod(0o755)
    return Service(f"sh {script} {{port}}", WRK, 0, program)


SERVICES = {one.__name__: one for one in (redis, memcached, nginx, lighttpd)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("service", nargs="?", default="redis", choices=SERVICES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures of validate there, too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        return measure(Path(name), given.service, given.runs, given.json)


def measure(folder: Path, name: str, runs: int, json: Path | None) -> int:
    from gnomon.systems.clone.launch import fill, free_port

    service = SERVICES[name](folder)
    bundle, clone, port = str(folder / "bundle"), str(folder / "clone"), free_port()
    load = fill(service.load, connections=16, requests=service.requests, seconds=2)

    def clone_verb(*words: str, into: Path | None = None) -> int:
        command = [sys.executable, "-m", "gnomon.cli", "clone", *words]
        if into is None:
            return subprocess.run(command, check=False).returncode
        with into.open("wb") as file:
            return subprocess.run(command, check=False, stdout=file).returncode

    began = time.monotonic()
    profiled = [
        "--load",
        fill(load, port=port),
        "--",
        *shlex.split(fill(service.command, port=port)),
    ]
    if clone_verb("profile", "-o", bundle, *profiled, into=folder / "profile"):
        return 1
    if clone_verb("generate", bundle, "-o", clone):
        return 1
    print(f"profile, bundle and project: {time.monotonic() - began:.0f} s", flush=True)
    if clone_verb("tune", clone, "--against", bundle, "--load", load):
        return 1
    print(f"with tuning: {time.monotonic() - began:.0f} s", flush=True)
    both = [clone, "--original", service.command, "--load", service.load, "--runs", str(runs)]
    path = subprocess.run(["which", service.program], capture_output=True, text=True, check=True)
    audited = clone_verb("audit", clone, "--against", path.stdout.strip())
    if json is None:
        return max(clone_verb("validate", *both), audited)
    return max(clone_verb("validate", *both, "--json", into=json), audited)


if __name__ == "__main__":
    sys.exit(main())
