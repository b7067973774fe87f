"""The front of the open-loop client: due times in, latencies out, live."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.act.local.cgroup import CpuTime
from gnomon.act.local.replica import Replica, find_cell
from gnomon.errors import ActuationError, InputError

PENDING, OK, ERROR, TIMEOUT = range(4)

#: Due times count from so long after the client said that it is ready.
_LEAD_NS = 20_000_000


class Schedule(NamedTuple):
    """Requests to send: when, in nanoseconds from the start, and of which class."""

    due_ns: NDArray[np.int64]
    class_index: NDArray[np.uint16]


def check_schedule(due_ns: ArrayLike, class_index: ArrayLike, classes: int) -> Schedule:
    """Refuses what the client cannot send."""
    due, which = np.asarray(due_ns, dtype=np.int64), np.asarray(class_index, dtype=np.uint16)
    if due.ndim != 1 or not len(due):
        raise InputError("a load needs at least one due time")
    if which.shape != due.shape:
        raise InputError("a load needs a class for each due time")
    if due[0] < 0 or np.any(np.diff(due) < 0):
        raise InputError("due times ascend from 0 on")
    if which.max() >= classes:
        raise InputError(f"there is no class {which.max()}")
    return Schedule(due, which)


class OpenLoop:
    """A native client that sends every request when it is due, whatever became of those before.

    Latencies count from the due time, so a server that falls behind shows, and so does a client
    that waits for a free connection. `Lab.load` makes one.

    Attributes:
        due_ns: When each request is due, from the start.
        class_index: The class of each.
        start_ns: The start, on the monotonic clock.
        latency_ns: Of each request, from its due time; live.
        lateness_ns: How late the client itself was; live.
        outcome: PENDING, OK, ERROR or TIMEOUT; live.
    """

    def __init__(
        self,
        replica: Replica,
        config: Mapping[str, Any],
        schedule: Schedule,
        targets: Mapping[int, Sequence[str]],
    ) -> None:
        self.due_ns, self.class_index = schedule
        self._replica = replica
        plan, results = (self._path(kind) for kind in ("schedule", "results"))
        plan.write_bytes(self.due_ns.tobytes() + self.class_index.tobytes())
        count = len(self.due_ns)
        with results.open("wb") as file:
            file.truncate(17 * count)
        # Cells write trace ids beside the ends of queued work: the tag is what is ours of them.
        self._tag = secrets.randbits(63) | 1
        own = {"schedule": str(plan), "results": str(results), "tag": self._tag}
        path = self._path("json")
        path.write_text(json.dumps({**config, **own}))
        replica.launch([find_cell(), "client", path])
        for entry, addresses in targets.items():
            self._command("targets", entry, *addresses)
        self.start_ns = time.monotonic_ns() + _LEAD_NS
        self._command("start", self.start_ns)
        times = np.memmap(results, dtype=np.int64, mode="r", shape=(2, count))
        self.latency_ns: NDArray[np.int64] = times[0]
        self.lateness_ns: NDArray[np.int64] = times[1]
        self.outcome: NDArray[np.uint8] = np.memmap(
            results, dtype=np.uint8, mode="r", offset=16 * count, shape=(count,)
        )

    def whole_latency_ns(self) -> NDArray[np.int64]:
        """Of each request, until the work that it queued has ended too; as far as it has."""
        whole = np.array(self.latency_ns)
        for file in self._replica.folder.glob("*.completions"):
            records = np.fromfile(file, dtype=np.int64)
            tag, number, end_ns = records[: len(records) // 3 * 3].reshape(-1, 3).T
            index = number[tag == self._tag] - 1
            ended_ns = end_ns[tag == self._tag] - self.start_ns - self.due_ns[index]
            np.maximum.at(whole, index, ended_ns)
        return whole

    def set_targets(self, entry: int, addresses: Sequence[str]) -> None:
        """From now on requests of an entry service go to these replicas."""
        try:
            if not self.is_done():
                self._command("targets", entry, *addresses)
        except (ActuationError, BrokenPipeError):
            if not self.is_done():  # it may have ended while we wrote
                raise

    def _command(self, *words: object) -> None:
        process = self._replica.process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()
        self._replica.read_line()

    def is_done(self) -> bool:
        """Whether all requests have an outcome."""
        if not self._replica.has_ended():
            return False
        process = self._replica.process
        if process is None or process.returncode != 0:
            raise self._replica.failure()
        return True

    def wait(self, timeout_s: float = 3600.0) -> None:
        """Waits until all requests have an outcome."""
        deadline = time.monotonic() + timeout_s
        while not self.is_done():
            if time.monotonic() > deadline:
                raise ActuationError(f"the load is not over after {timeout_s:g} s")
            time.sleep(0.01)

    def cpu_time(self) -> CpuTime:
        """What the client itself used."""
        return self._replica.group.read()

    def close(self) -> None:
        """Ends it, done or not. The results stay readable."""
        self._replica.stop()
        self._replica.end()

    def _path(self, suffix: str) -> Path:
        return self._replica.folder / f"{self._replica.name}.{suffix}"
