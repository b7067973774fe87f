"""A client: a command that sends requests and ends, and what it says of them."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone.launch import Service, fill, serving

_LONGEST_S = 600.0
_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
#: Seconds of a short and of a long load, for a client that counts seconds and not requests.
SHORT_S, LONG_S = 1, 4


class Sent(msgspec.Struct, frozen=True):
    """What a load did; latencies where its command prints them."""

    requests: int
    seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    errors: int = 0

    @property
    def rps(self) -> float:
        return self.requests / self.seconds


class Load(msgspec.Struct, frozen=True):
    """A command with `{port}`, `{connections}` and `{requests}` or `{seconds}` left open."""

    text: str

    def __post_init__(self) -> None:
        words = shlex.split(self.text)
        if not words or shutil.which(words[0]) is None:
            raise InputError(f"the load {self.text!r} is no command")
        if not re.search(r"\{(requests|seconds)\}", self.text) or "{port}" not in self.text:
            raise InputError(
                f"the load {self.text!r} does not leave open where and how much it sends",
                hint="such as 'redis-benchmark -p {port} -c {connections} -n {requests}', or "
                "'wrk -c{connections} -d{seconds}s http://127.0.0.1:{port}/'",
            )

    def words(
        self, *, port: int, connections: int, requests: int, seconds: int = 1, rate: float = 0.0
    ) -> list[str]:
        return [
            fill(word, port=port, connections=connections, requests=requests, seconds=seconds,
                 rate=f"{rate:.9g}")
            for word in shlex.split(self.text)
        ]  # fmt: skip

    def send(
        self, service: Service, *, port: int, connections: int, requests: int,
        seconds: int = 1, rate: float = 0.0,
    ) -> Sent:  # fmt: skip
        """Runs it to its end.

        Raises:
            GnomonError: It fails or does not end, or the service ends; with the last line.
        """
        words = self.words(
            port=port, connections=connections, requests=requests, seconds=seconds, rate=rate
        )
        began = time.monotonic()
        try:
            done = subprocess.run(
                words, capture_output=True, timeout=_LONGEST_S, check=False,
                encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise GnomonError(f"the load did not end in {_LONGEST_S:.0f} s") from None
        took = time.monotonic() - began
        if not service.is_running:
            raise GnomonError(f"the service has ended while the load ran{service.last_words}")
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise GnomonError(
                f"the load failed with {done.returncode}{': ' + said[-1][:200] if said else ''}"
            )
        sent = read_sent(done.stdout, requests) or Sent(requests, took)
        if sent.requests == 0 or sent.errors * 100 > sent.requests:
            raise GnomonError(
                f"the load got {sent.errors} errors and {sent.requests} answers: {words[0]}"
            )
        return sent


def read_sent(text: str, requests: int) -> Sent | None:
    """From the output of our load generator, wrk, memaslap or redis-benchmark; None of another.

    Args:
        requests: That it was asked for; redis-benchmark sends them once for each of its tests.
    """
    try:
        return msgspec.json.decode(text, type=Sent)
    except msgspec.MsgspecError:
        pass
    if done := re.search(r"(\d+) requests in ([\d.]+)(us|ms|s|m)\b", text):
        quantiles = {share: float(value) * _MS[unit] for share, value, unit
                     in re.findall(r"\b(50|99)%\s+([\d.]+)(us|ms|s|m)\b", text)}  # fmt: skip
        wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
        return Sent(
            int(done[1]), float(done[2]) * _MS[done[3]] / 1e3, quantiles.get("50"),
            quantiles.get("99"), int(wrong[1]) if wrong else 0,
        )  # fmt: skip
    if done := re.search(r"Ops: (\d+) TPS: (\d+)", text):
        return Sent(int(done[1]), int(done[1]) / max(int(done[2]), 1))
    p99s: list[float] = []
    if text.startswith('"test","rps"'):
        rows = list(csv.DictReader(text.splitlines()))
        rates, p50s, p99s = (
            [float(row[name]) for row in rows]
            for name in ("rps", "p50_latency_ms", "p99_latency_ms")
        )
    else:
        found = re.findall(r"([\d.]+) requests per second(?:, p50=([\d.]+) msec)?", text)
        rates = [float(rate) for rate, _ in found]
        p50s = [float(one) for _, one in found if one]
    if not rates or not all(rates):
        return None
    return Sent(
        requests * len(rates), sum(requests / rate for rate in rates), _mean(p50s), _mean(p99s)
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def count_per_request(
    command: str, load: Load, *, connections: int, requests: int,
    prefix: Callable[[Path], Sequence[str]], finish: Callable[[Path, Service], Mapping[str, int]],
    open_files: int | None = None,
) -> dict[str, float]:  # fmt: skip
    """Counts of a service per request: the difference of a long and of a short load.

    Both follow a load that warms up, and both take as long: the service idles after the short
    one. What starting, connecting and warming up cost cancels, and so do timers, which a program
    that counts makes seem far more frequent: it slows requests down, not the clock.

    Args:
        command: Of the service.
        load: Is sent to two launches of it.
        requests: Of the long load over the short one, and of the one that warms up.
        prefix: The program that counts, which may write to a folder.
        finish: Ends the service and reads what was counted there.
        open_files: As of `launched`.
    """

    def measure(
        requests: int, seconds: int, lasts_s: float
    ) -> tuple[Mapping[str, int], int, float]:
        with tempfile.TemporaryDirectory(prefix="gnomon-count-") as name:
            folder = Path(name)
            folder.chmod(0o777)  # a server that gives up its rights writes here, too
            with serving(command, prefix=prefix(folder), open_files=open_files) as (service, port):
                began = time.monotonic()
                send = partial(load.send, service, port=port, connections=connections)
                # What warms up counts, too: a load of so many seconds sends more or less of it.
                sent = send(requests=warm, seconds=SHORT_S).requests
                sent += send(requests=requests, seconds=seconds).requests
                took_s = time.monotonic() - began
                time.sleep(max(lasts_s - took_s, 0.0))
                return finish(folder, service), sent, took_s

    warm, few = requests, max(requests // 4, 1)
    long, many, took_s = measure(few + requests, LONG_S, 0.0)
    short, few, _ = measure(few, SHORT_S, took_s)
    return per_request(long, many, short, few)


def per_request(
    long: Mapping[str, int], many: int, short: Mapping[str, int], few: int
) -> dict[str, float]:
    """The difference of what a long and a short load count, by the requests in between."""
    if many <= few:
        raise GnomonError(f"the long load sent {many} requests, the short one {few}")
    found = {
        name: max(long.get(name, 0) - short.get(name, 0), 0) / (many - few)
        for name in sorted(long.keys() | short.keys())
    }
    if sum(found.values()) < 1:
        raise GnomonError("the service does nothing for this load: does it reach the port?")
    return found
