"""A service beside its clone, on settings that the clone was tuned to and on others.

    python benchmarks/clone.py [redis|memcached|nginx] [--runs 5]

A server of the distribution is profiled, its clone generated, tuned and validated: natively in turns, under the profiler,
and in simulated caches. Needs qemu-user, valgrind, strace, CMake, a C compiler, and the server with its client; takes some
six minutes. Exit code 3: a metric is beyond its limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PORT = 7101
REDIS_LOAD = (
    "redis-benchmark -p {port} -t set,get -n {requests} -r 1000 -d 256 -c {connections} -q"
)
WRK = "wrk -t1 -c{connections} -d{seconds}s --latency http://127.0.0.1:{port}/index.html"


def nginx(folder: Path, port: int) -> list[str]:
    (folder / "html").mkdir(exist_ok=True)
    (folder / "html" / "index.html").write_text("x" * 612)
    folder.chmod(0o755)
    settings = folder / f"{port}.conf"
    settings.write_text(f"""daemon off; worker_processes 1; pid {folder}/{port}.pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{ access_log {folder}/access.log; keepalive_requests 1000000;
  server {{ listen 127.0.0.1:{port}; root {folder}/html; }} }}
""")
    return ["nginx", "-p", str(folder), "-c", str(settings)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "service", nargs="?", default="redis", choices=["redis", "memcached", "nginx"]
    )
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gnomon = [sys.executable, "-m", "gnomon.cli"]
        bundle, clone = str(folder / "bundle"), str(folder / "clone")
        command, original, load, later = of(given.service, folder)
        began = time.monotonic()
        profile = [*gnomon, "clone", "profile", "-o", bundle, "--load", load, "--", *command]
        subprocess.run(profile, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*gnomon, "clone", "generate", bundle, "-o", clone], check=True)
        print(f"profile, bundle and project: {time.monotonic() - began:.0f} s")
        tuning = ["--load", load.replace(str(PORT), "{port}")]
        subprocess.run([*gnomon, "clone", "tune", clone, "--against", bundle, *tuning], check=True)
        validate = [
            *gnomon,
            "clone",
            "validate",
            clone,
            "--original",
            original,
            "--runs",
            str(given.runs),
        ]
        done = subprocess.run([*validate, *(["--load", later] if later else [])], check=False)
    sys.exit(done.returncode)


def of(service: str, folder: Path) -> tuple[list[str], str, str, str]:
    """The command to profile, the same with a free port, the load to profile with, and the load to validate with."""
    if service == "redis":
        command = ["redis-server", "--port", str(PORT), "--save", ""]
        load = REDIS_LOAD.format(port=PORT, requests=8000, connections=16)
        return command, "redis-server --port {port} --save ''", load, REDIS_LOAD
    if service == "memcached":
        from gnomon.systems.clone.generator import build_load
        from gnomon.systems.clone.traffic import RequestClass, Traffic

        classes = (RequestClass(0.9, "get", 30, 1080), RequestClass(0.1, "set", 1070, 8))
        program = build_load(
            Traffic("memcached", classes, keys=1000, connections=16), folder / "load"
        )
        options = "-l 127.0.0.1 -U 0 -u nobody -t 2"
        load = f"{program} --port {PORT} --connections 16 --requests 6000 --fill no"
        later = f"{program} --port {{port}} --connections {{connections}} --requests {{requests}} --json"
        return (
            ["memcached", "-p", str(PORT), *options.split()],
            f"memcached -p {{port}} {options}",
            load,
            later,
        )
    load = WRK.format(port=PORT, connections=16, seconds=2)
    return nginx(folder, PORT), " ".join(nginx(folder, PORT + 1)), load, WRK


if __name__ == "__main__":
    main()
