"""System calls of a request and the bytes they move, counted by strace."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone.client import LONG_S, SHORT_S, Load, per_request
from gnomon.systems.clone.launch import serving

#: That wait for something: how many there are depends on how requests come together.
WAITS = frozenset((
    "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "futex",
    "nanosleep", "clock_nanosleep", "rt_sigsuspend", "rt_sigtimedwait", "wait4",
))  # fmt: skip
_RECEIVES = frozenset(("read", "readv", "recvfrom", "recvmsg"))
_SENDS = frozenset(("write", "writev", "sendto", "sendmsg", "sendfile"))
_RECEIVED, _SENT = "received bytes", "sent bytes"
_LINE = re.compile(r"(\d+) +([\d.]+) (?:<\.\.\. (\w+) resumed>|(\w+)\((?:\d+<(socket|TCP))?)")
_RETURNED = re.compile(r"= (\d+)[^=]*$")
#: Times as many requests to warm up.
_WARM = 4
#: Seconds: until a load's connections are closed, until all is written.
_SETTLED_S, _WRITTEN_S = 0.2, 30.0


class Calls(msgspec.Struct, frozen=True):
    """Per request: how often each call is made, and what goes over sockets."""

    by_name: dict[str, float]
    received_bytes: float
    sent_bytes: float


def count_calls(command: str, load: Load, *, connections: int, requests: int = 2000) -> Calls:
    """Natively, but traced, which makes a call some five times slower.

    A long and a short load follow one that warms up; both take as long, since the service idles
    after the short one. The difference is of requests alone: see `count_per_request`.

    Raises:
        InputError: strace is not installed.
    """
    if shutil.which("strace") is None:
        raise InputError("strace is not installed", hint="the distribution's package strace")
    with tempfile.TemporaryDirectory(prefix="gnomon-calls-") as name:
        path = Path(name) / "calls"
        # -D: the tracer is not the parent, so that signals reach the service itself.
        tracer = [
            "strace",
            "-D",
            "-f",
            "-y",
            "-ttt",
            "-s",
            "0",
            "-e",
            "signal=none",
            "-o",
            str(path),
        ]
        with serving(command, prefix=tracer) as (service, port):
            send = partial(load.send, service, port=port, connections=connections)
            send(requests=_WARM * requests, seconds=SHORT_S)  # whatever is read has been written
            few = max(requests // 4, 1)
            time.sleep(_SETTLED_S)
            began = time.time()
            many = send(requests=few + requests, seconds=LONG_S).requests
            time.sleep(_SETTLED_S)
            middle = time.time()
            few = send(requests=few, seconds=SHORT_S).requests
            time.sleep(max(2 * middle - began - time.time(), _SETTLED_S))
            ended = time.time()
            service.end()
            _wait_until_written(path, service.pid)
        with path.open(errors="replace") as file:
            long, short = read_calls(file, (began, middle, ended))
    found = per_request(long, many, short, few)
    received, sent = found.pop(_RECEIVED, 0.0), found.pop(_SENT, 0.0)
    return Calls(found, received, sent)


def read_calls(lines: Iterable[str], times: Sequence[float]) -> list[Counter[str]]:
    """Calls by name, and bytes by direction, between each two times.

    One that was interrupted by another is put together.

    >>> read_calls(['7 1.5 read(8<socket:[5]>, ""..., 99) = 36', '7 2.5 brk(0) = 1'], (1, 2))
    [Counter({'received bytes': 36, 'read': 1})]
    """
    counts: list[Counter[str]] = [Counter() for _ in times[1:]]
    on_socket: dict[str, bool] = {}
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        pid, stamp, resumed, name, socket = found.groups()
        if line.rstrip().endswith("<unfinished ...>"):
            on_socket[pid] = socket is not None
            continue
        is_socket = on_socket.pop(pid, False) if resumed else socket is not None
        at = bisect(times, float(stamp)) - 1
        if not 0 <= at < len(counts):
            continue
        name = resumed or name
        counts[at][name] += 1
        returned = _RETURNED.search(line)
        if is_socket and returned and name in _RECEIVES:
            counts[at][_RECEIVED] += int(returned[1])
        elif is_socket and returned and name in _SENDS:
            counts[at][_SENT] += int(returned[1])
    return counts


def _wait_until_written(path: Path, pid: int) -> None:
    """The tracer writes on for a moment after the service has ended."""
    until = time.monotonic() + _WRITTEN_S
    last = re.compile(rf"^{pid} +[\d.]+ \+\+\+ (exited|killed)", re.MULTILINE)
    while not last.search(path.read_text(errors="replace")[-4096:]):
        if time.monotonic() > until:
            raise GnomonError("strace has not seen the end of the service")
        time.sleep(0.05)
