"""A server whose cost is known (models/counted.c), and a client of it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).parent / "models" / "counted.c"
LOAD = f"{sys.executable} {__file__} {{port}} {{connections}} {{requests}}"


def need(*programs):
    import pytest  # not by the client, which is to start at once

    for one in programs:
        if shutil.which(one) is None:
            pytest.skip(f"{one} is absent")


def compile_server(folder):
    """Optimised, so that hardly anything but the loops is executed."""
    need("cc")
    program = folder / "counted"
    subprocess.run(["cc", "-O1", SOURCE, "-o", program], check=True, capture_output=True)
    return program


def command(program, iterations=0, lines=0, tick_ms=0, forks=0):
    return f"{program} {{port}} {iterations} {lines} {tick_ms} {forks}"


def send(port, connections, requests):
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    took, began = [], time.perf_counter()
    for number in range(requests):
        sent = time.perf_counter()
        sockets[number % connections].sendall(b"x")
        assert sockets[number % connections].recv(1) == b"x"
        took.append(1e3 * (time.perf_counter() - sent))
    took.sort()
    return {
        "requests": requests,
        "seconds": time.perf_counter() - began,
        "p50_ms": took[requests // 2],
        "p99_ms": took[requests * 99 // 100],
    }


if __name__ == "__main__":
    print(json.dumps(send(*map(int, sys.argv[1:]))))
