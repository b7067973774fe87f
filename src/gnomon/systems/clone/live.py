"""A service that runs already, looked at without a restart and without a signal.

Short windows with tracing alternate with windows three times as long without, so that a look costs
little on average, and what it costs is measured and reported.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.systems.clone import procfs, tracing
from gnomon.systems.clone.client import read_sent
from gnomon.systems.clone.counters import EVENTS, counted, why_no_counters
from gnomon.systems.clone.launch import fill
from gnomon.systems.clone.procfs import Descriptors, Snapshot, Thread
from gnomon.systems.clone.recording import Floats
from gnomon.systems.clone.tracing import Refused, Traced
from gnomon.systems.clone.traffic import gap_bins

#: Traced windows without a load; with one the load runs before, during and after tracing.
_ROUNDS = 5
#: A window without tracing is so many times as long as one with, and no shorter than this.
_PLAIN, _PLAIN_S = 3, 1.0
_STRACE_S, _LOOK_S, _LONGEST_S = 0.5, 0.1, 600.0
#: Of so many calls a second all are looked up; of more one in several, in this many at most.
#: A call with what is done for it takes no less than so many seconds.
_ALL_PER_S, _MOST, _LEAST_S = 5000, 16, 2e-6
_GAPS = 6400
#: That /proc counts: not what is received and sent by socket calls.
_IO = ("read", "readv", "pread64", "write", "writev", "pwrite64", "sendfile")
_FILE = "live.json"

Progress = Callable[[str], None]


class Window(msgspec.Struct, frozen=True):
    """A stretch of time: CPU seconds, context switches, and what the load achieved in it.

    Attributes:
        io_calls: Reads and writes by /proc, which are in proportion to requests.
        load_rps: As the load says, or loads per second if it says nothing.
    """

    is_traced: bool
    seconds: float
    user_s: float
    system_s: float
    switches: int
    io_calls: int | None
    load_rps: float | None = None

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


class Live(msgspec.Struct, frozen=True):
    """What was seen of a running service.

    Attributes:
        tracer: bpftrace, strace or nothing.
        attached_s: For how long it was attached.
        every: Descriptors, sizes and gaps are from one in so many calls.
        threads: By number: name, and CPU seconds and context switches over `seconds`.
        counters: Per second of the first window, by event.
        missing: What was not measured, and why.
        has_ended: The service ended meanwhile, by itself.
    """

    processes: int
    seconds: float
    tracer: str
    windows: tuple[Window, ...]
    threads: dict[int, Thread]
    resident_bytes: int
    descriptors: Descriptors | None
    traced: Traced
    attached_s: float = 0.0
    every: int = 1
    counters: dict[str, float] = {}
    missing: tuple[str, ...] = ()
    has_ended: bool = False

    @property
    def io_per_request(self) -> float | None:
        """Calls that /proc counts, a request; None where requests do not show there."""
        counted = sum(count for (_, call), count in self.traced.calls.items() if call in _IO)
        if counted < 0.5 * max(self.traced.requests, 1) or self.windows[0].io_calls is None:
            return None
        return counted / self.traced.requests if self.traced.requests else None

    def requests_in(self, window: Window) -> float | None:
        """From the reads and writes that /proc counts, with tracing and without."""
        each = self.io_per_request
        return None if each is None or window.io_calls is None else window.io_calls / each

    def cpu_us(self, *, is_traced: bool) -> float | None:
        """CPU time a request: the median of windows."""
        pairs = [(one.cpu_s, self.requests_in(one)) for one in self.windows
                 if one.is_traced == is_traced]  # fmt: skip
        found = [1e6 * cpu_s / requests for cpu_s, requests in pairs if requests]
        return median(found) if found else None

    def cpu_share(self, *, is_traced: bool) -> float | None:
        found = [one.cpu_s / one.seconds for one in self.windows
                 if one.is_traced == is_traced and one.seconds > 0]  # fmt: skip
        return median(found) if found else None

    def _cpu_of_load(self, *, is_traced: bool) -> float | None:
        """By what the load says that it sent; None without a load."""
        found = [one.cpu_s / (one.load_rps * one.seconds) for one in self.windows
                 if one.is_traced == is_traced and one.load_rps and one.seconds > 0]  # fmt: skip
        return median(found) if found else None

    @property
    def overhead_is_of_requests(self) -> bool:
        costs = (self.cpu_us, self._cpu_of_load)
        return any(one(is_traced=True) and one(is_traced=False) for one in costs)

    @property
    def overhead_pct(self) -> float | None:
        """While traced: of CPU time a request; of CPU time where requests are not known."""
        for cost in (self.cpu_us, self._cpu_of_load, self.cpu_share):
            plain, traced = cost(is_traced=False), cost(is_traced=True)
            if plain and traced is not None:
                return 100 * (traced / plain - 1)
        return None

    @property
    def traced_share(self) -> float:
        """Of the look."""
        return min(self.attached_s / self.seconds, 1.0) if self.seconds else 0.0

    @property
    def mean_overhead_pct(self) -> float | None:
        """Over the look, with and without tracing."""
        found = self.overhead_pct
        return None if found is None else found * self.traced_share

    @property
    def gaps(self) -> tuple[float, ...]:
        """As of `Traffic`."""
        return gap_bins(self.gap_quantiles((np.arange(_GAPS) + 0.5) / _GAPS))

    def gap_quantiles(self, shares: Sequence[float] | Floats) -> Floats:
        """Nanoseconds between requests; within a power of two all are taken as equally likely."""
        edges, counts = [0.0], [0.0]
        for low, count in sorted(self.traced.gaps.items()):
            edges += [float(max(low, edges[-1])), float(2 * low)]
            counts += [counts[-1], counts[-1] + count]
        if counts[-1] == 0:
            return np.zeros(0)
        found: Floats = np.interp(np.asarray(shares) * counts[-1], counts, edges)
        return found


def watch(
    pid: int, *, seconds: float = 2.0, load: str | None = None, progress: Progress = lambda _: None
) -> Live:
    """Looks at a process and its descendants for at least four times as long as is traced.

    Args:
        seconds: Traced, without a load.
        load: A command that sends requests and ends; it runs three times, the second time while
            the service is traced.

    Raises:
        InputError: There is no such process, or it is one of the kernel.
    """
    procfs.check_pid(pid)
    if not 0.2 <= seconds <= _LONGEST_S:
        raise InputError(f"{seconds:g} seconds", hint=f"0.2 to {_LONGEST_S:g}")
    pids = procfs.family(pid)
    held = procfs.descriptors(pids)
    words = _load_words(load, held)
    look = _Look(pid, pids, held, words, progress)
    look.run(seconds)
    return look.live()


def check_folder(folder: Path) -> None:
    """Raises InputError if something else is there."""
    if folder.exists() and (
        not folder.is_dir() or any(one.name != _FILE for one in folder.iterdir())
    ):
        raise InputError("exists, and is no live profile", where=str(folder))


def write_live(live: Live, folder: Path) -> None:
    """Counts and sizes as JSON; threads without their names."""
    check_folder(folder)
    folder.mkdir(exist_ok=True)
    nameless = {number: msgspec.structs.replace(one, name="")
                for number, one in enumerate(live.threads.values())}  # fmt: skip
    traced = live.traced
    found = msgspec.to_builtins(msgspec.structs.replace(live, threads=nameless, traced=Traced()))
    found["traced"] = {
        "calls": _added((call, count) for (_, call), count in traced.calls.items()),
        "moved": {f"{call}:{kind}": total for (call, kind), (_, total) in traced.moved.items()},
        "sizes": {f"{call}:{kind}": dict(bins) for (call, kind), bins in traced.sizes.items()},
        "gaps": live.gaps,
    }  # fmt: skip
    (folder / _FILE).write_bytes(msgspec.json.format(msgspec.json.encode(found)))


def _added(pairs: Iterator[tuple[str, int]] | Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, count in pairs:
        found[name] = found.get(name, 0) + count
    return found


class _Look:
    """One look at a service, window by window."""

    def __init__(
        self, pid: int, pids: list[int], held: Descriptors | None, load: list[str] | None,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._pid, self._pids, self._held, self._load = pid, pids, held, load
        self._say = progress
        self._windows: list[Window] = []
        self._traced, self._tracer, self._attached_s, self._every = Traced(), "", 0.0, 1
        self._counters: dict[str, float] = {}
        self._missing: list[str] = []
        self._first = self._last = procfs.take(pids)
        ports = held.ports if held else ()
        unix = held.listens_on_unix if held else False
        limit_s = int(_LONGEST_S) + 60
        # The gentler one first; what cannot attach is dropped.
        self._tracers: list[tuple[str, Callable[[int], AbstractContextManager[Traced]]]] = [
            ("bpftrace", lambda every: tracing.bpftrace(
                pids, ports, unix=unix, limit_s=limit_s, every=every)),
            ("strace", lambda _: tracing.strace(pids, ports, unix=unix)),
        ]  # fmt: skip
        self._refused: list[str] = []
        if held is None:
            self._missing.append("descriptors and ports: the process is another user's")
        if self._first.io_calls is None:
            self._missing.append("reads and writes by /proc: the process is another user's")

    def run(self, seconds: float) -> None:
        rounds = 1 if self._load is not None else _ROUNDS
        length = seconds / rounds
        plain = max(_PLAIN * length, _PLAIN_S)
        self._say("without tracing")
        with counted(self._pids) as counts:
            self._window(plain)
        if counts and self._windows:
            took = max(self._windows[0].seconds, 1e-3)
            self._counters = {name: count / took for name, count in counts.items()}
        if not counts:
            why = why_no_counters() or "perf may not count in this process"
            self._missing.append(f"{', '.join(EVENTS)}: {why}")
        done, self._every = 0, self._one_in()
        while done < rounds and self._tracers and procfs.is_alive(self._pid):
            self._tracer, start = self._tracers[0]
            if self._tracer == "strace":
                rounds, length = 1, min(seconds, _STRACE_S)
            self._say(f"with {self._tracer}")
            began = None
            try:
                with start(self._every) as seen:
                    began = time.monotonic()
                    self._window(length, is_traced=True)
            except Refused as error:
                self._refused.append(str(error))
                del self._tracers[0]
                continue
            finally:
                self._attached_s += 0.0 if began is None else time.monotonic() - began
            self._traced.add(seen)
            done += 1
            if done == 1 < rounds and (fewer := self._one_in()) <= self._every // 4:
                self._every, self._traced = fewer, Traced()  # too few were looked up
            self._say("without tracing")
            self._window(plain)

    def _one_in(self) -> int:
        """Of how many calls one is looked up, so that it costs little where there are many."""
        if self._traced.seconds:
            per_s = self._traced.calls.total() / self._traced.seconds
        else:  # as many as its CPU time allows
            per_s = sum(one.cpu_s / max(one.seconds, 1e-3) for one in self._windows) / _LEAST_S
        return min(max(int(per_s / _ALL_PER_S), 1), _MOST)

    def live(self) -> Live:
        first, last = self._first, self._last
        threads = {
            number: _less(one, first.threads.get(number))
            for number, one in last.threads.items()
        }  # fmt: skip
        if self._refused:
            what = "sums in the kernel" if self._tracers else "system calls and requests"
            self._missing.append(f"{what}: {'; '.join(self._refused)}")
        return Live(
            len(self._pids), last.at - first.at, self._tracer if self._traced.calls else "",
            tuple(self._windows), threads, last.resident_bytes, self._held, self._traced,
            self._attached_s, self._every if self._tracer == "bpftrace" else 1, self._counters,
            tuple(self._missing), not procfs.is_alive(self._pid),
        )  # fmt: skip

    def _window(self, seconds: float, *, is_traced: bool = False) -> None:
        first = procfs.take(self._pids)
        if not procfs.is_alive(self._pid):
            return
        self._last = first
        with tempfile.TemporaryFile("w+", errors="replace") as said, self._loading(said) as child:
            while procfs.is_alive(self._pid):
                took = self._last.at - first.at
                left = (_LONGEST_S if child is not None else seconds) - took
                if child is not None and child.poll() is not None:
                    break
                if left <= 0 and child is not None:
                    raise InputError(f"the load did not end in {_LONGEST_S:.0f} s",
                                     hint="without --load what comes anyway is seen")  # fmt: skip
                if left <= 0:
                    break
                time.sleep(max(min(_LOOK_S, left), 0.001))
                seen = procfs.take(self._pids)
                # What ends takes its times along: the last look at all of it counts.
                if seen.threads and procfs.is_alive(self._pid):
                    self._last = seen
            said.seek(0)
            text = said.read()
        last, took = self._last, self._last.at - first.at
        user, system = _cpu(first, last)
        io = None if None in (first.io_calls, last.io_calls) else (
            (last.io_calls or 0) - (first.io_calls or 0))  # fmt: skip
        self._windows.append(Window(
            is_traced, took, user, system, _switches(last) - _switches(first), io,
            load_rps=None if child is None else self._rps(child.returncode, text, took),
        ))  # fmt: skip

    @contextmanager
    def _loading(self, said: object) -> Iterator[subprocess.Popen[str] | None]:
        if self._load is None:
            yield None
            return
        child = subprocess.Popen(
            self._load, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.DEVNULL, text=True
        )  # type: ignore[call-overload]
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()

    def _rps(self, code: int | None, text: str, took: float) -> float | None:
        if code != 0:
            note = f"throughput: the load failed with {code}"
            if note not in self._missing:
                self._missing.append(note)
            return None
        sent = read_sent(text, 1)
        return sent.rps if sent else 1 / max(took, 1e-3)


def _load_words(load: str | None, held: Descriptors | None) -> list[str] | None:
    if load is None:
        return None
    ports = held.ports if held else ()
    words = shlex.split(load)
    if not words or shutil.which(words[0]) is None:
        raise InputError(f"the load {load!r} is no command")
    if "{port}" in load and len(ports) != 1:
        raise InputError(f"the service listens on {len(ports)} ports", hint="name one in --load")
    return [fill(word, port=ports[0]) for word in words] if ports else words


def _cpu(first: Snapshot, last: Snapshot) -> tuple[float, float]:
    """User and system; the sum by the scheduler's clock, their shares by ticks of 10 ms."""
    user, system = last.user_s - first.user_s, last.system_s - first.system_s
    if first.threads.keys() == last.threads.keys():
        exact = sum(one.run_s - first.threads[n].run_s for n, one in last.threads.items())
        if user + system <= 0:  # less than a tick: as it was since it began
            user, system = last.user_s, last.system_s
        share = user / (user + system) if user + system > 0 else 0.5
        user, system = exact * share, exact * (1 - share)
    return user, system


def _switches(one: Snapshot) -> int:
    return sum(thread.voluntary + thread.involuntary for thread in one.threads.values())


def _less(now: Thread, before: Thread | None) -> Thread:
    if before is None:
        return now
    return Thread(
        now.name, now.user_s - before.user_s, now.system_s - before.system_s,
        now.run_s - before.run_s, now.voluntary - before.voluntary,
        now.involuntary - before.involuntary,
    )  # fmt: skip
