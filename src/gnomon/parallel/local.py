"""Map over processes of this machine, through a pipe to each.

A pipe to each worker, rather than one shared queue, tells exactly which item a dead worker was
running: that one is charged, its neighbours and the rest of its chunk are not. An item on its
last attempt runs alone after everything else, so that what died of its neighbours' appetite for
memory gets through, and what is poisonous harms nobody.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import wait

from gnomon.errors import InputError, WorkerError
from gnomon.parallel.call import Done, Fault, Job, decode, dump_item
from gnomon.parallel.environment import lent
from gnomon.parallel.worker import serve

# Never fork: it copies locks that other threads hold (BLAS, the native core, a progress bar) and
# the child then waits for ever. Not forkserver: it keeps the environment of the moment it first
# started and outlives the map. Spawn takes some 0.3 s, and starts clean.
_CONTEXT = multiprocessing.get_context("spawn")

# Read by the numeric libraries when they load, hence set before the worker starts. Workers times
# BLAS threads on the same cores is slower than either alone.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_MAX_START_FAILURES = 3
_MAX_CHUNK = 64


def check(job: Job) -> None:
    """Say at the call, not at the first result, that this job cannot run here."""
    if multiprocessing.current_process().daemon:
        raise InputError("a worker cannot start workers", hint="use on='serial' inside a worker")
    _pack(job)


def run(
    job: Job, indices: Sequence[int], workers: int
) -> Generator[tuple[int, Done | Fault], None, None]:
    """Yield (index, outcome) as items finish; whatever happens, no worker outlives the call."""
    pool = _Pool(job, indices, workers)
    try:
        yield from pool.outcomes()
        pool.retire()
    finally:
        pool.end()


class _Worker:
    """A process, its pipe, and the items it was given and has not finished, oldest first."""

    def __init__(self, task: bytes) -> None:
        self.pipe, theirs = _CONTEXT.Pipe()
        # A daemon, so that a map left unfinished when the interpreter exits does not hold it up.
        self.process = _CONTEXT.Process(target=serve, args=(theirs, task), daemon=True)
        with lent(_ONE_THREAD):
            self.process.start()
        theirs.close()
        self.ready = False
        self.items: deque[int] = deque()
        self.since_s = 0.0

    def signal(self, number: signal.Signals) -> None:
        """Signal the worker and whatever it started; one that is ready leads its own group."""
        pid = self.process.pid
        if pid is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            if self.ready:
                os.killpg(pid, number)
            elif self.process.exitcode is None:
                os.kill(pid, number)


class _Pool:
    def __init__(self, job: Job, indices: Sequence[int], size: int) -> None:
        self._job = job
        self._size = max(1, size)
        self._task = _pack(job)
        # A tail of one chunk a worker should stay a small part of the whole.
        auto = min(_MAX_CHUNK, len(indices) // (self._size * 16))
        self._chunk = max(1, auto if job.chunk is None else job.chunk)
        self._pending = deque(indices)
        self._alone: deque[int] = deque()
        self._attempts: Counter[int] = Counter()
        self._workers: list[_Worker] = []
        self._left = len(indices)
        self._start_failures = 0

    def outcomes(self) -> Iterator[tuple[int, Done | Fault]]:
        settled: list[tuple[int, Done | Fault]] = []
        while self._left or settled:
            self._hire()
            self._assign()
            # Given only now, so that workers have their next items while the caller is busy.
            yield from settled
            settled.clear()
            for worker in self._wait() if self._left else ():
                if worker.pipe.poll():
                    settled.extend(self._listen(worker))
                else:
                    settled.extend(self._bury(worker))
            if self._job.timeout_s is not None:
                settled.extend(self._end_overdue(self._job.timeout_s))

    def retire(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(2.0)

    def end(self) -> None:
        """End every worker that is still there: asked first, then made to."""
        for number, grace_s in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)):
            for worker in self._workers:
                worker.signal(number)
            until = time.monotonic() + grace_s
            for worker in self._workers:
                worker.process.join(max(0.0, until - time.monotonic()))
        for worker in self._workers:
            worker.pipe.close()
        self._workers.clear()

    def _hire(self) -> None:
        busy = sum(1 for worker in self._workers if worker.items)
        wanted = min(self._size, busy + len(self._pending) + len(self._alone))
        while len(self._workers) < wanted:
            self._workers.append(_Worker(self._task))

    def _assign(self) -> None:
        for worker in self._workers:
            if not worker.ready or worker.items:
                continue
            if not (given := self._next_chunk()):
                return
            items = self._job.items
            message = pickle.dumps([(i, dump_item(i, items[i])) for i in given])
            try:
                # One message: the worker has read all of it before it starts, so that neither
                # side can be stuck writing to the other.
                worker.pipe.send_bytes(message)
            except OSError:
                self._pending.extendleft(reversed(given))  # dead while idle; _wait reports it
                continue
            worker.items.extend(given)
            worker.since_s = time.monotonic()

    def _next_chunk(self) -> list[int]:
        if not self._pending:
            if self._alone and not any(worker.items for worker in self._workers):
                return [self._alone.popleft()]
            return []
        given = [self._pending.popleft()]
        # A suspect travels in a chunk of its own.
        while (
            len(given) < self._chunk
            and self._pending
            and not self._attempts[given[0]]
            and not self._attempts[self._pending[0]]
        ):
            given.append(self._pending.popleft())
        return given

    def _wait(self) -> list[_Worker]:
        timeout_s = self._job.timeout_s
        patience_s = None
        if timeout_s is not None:
            oldest_s = min((w.since_s for w in self._workers if w.items), default=time.monotonic())
            patience_s = max(0.0, oldest_s + timeout_s - time.monotonic())
        handles: dict[object, _Worker] = {}
        for worker in self._workers:
            handles[worker.pipe] = handles[worker.process.sentinel] = worker
        heard = wait(list(handles), patience_s)  # type: ignore[arg-type]
        return list(dict.fromkeys(handles[handle] for handle in heard))

    def _listen(self, worker: _Worker) -> Iterator[tuple[int, Done | Fault]]:
        try:
            kind, index = worker.pipe.recv()
            data = worker.pipe.recv_bytes()
        except (EOFError, OSError):
            yield from self._bury(worker)
            return
        if kind == "ready":
            worker.ready = True
        elif kind == "unusable":
            raise InputError(
                f"a worker cannot load {self._job.name}: {data.decode()}",
                hint="define it at the top level of a module that can be imported",
            )
        else:
            worker.items.popleft()
            worker.since_s = time.monotonic()
            self._start_failures = 0
            yield from self._settle(index, decode(kind == "done", data))

    def _settle(self, index: int, outcome: Done | Fault) -> Iterator[tuple[int, Done | Fault]]:
        if isinstance(outcome, Fault) and outcome.can_retry:
            self._attempts[index] += 1
            if self._attempts[index] <= self._job.retries:
                self._pending.append(index)
                return
        self._left -= 1
        yield index, outcome

    def _bury(self, worker: _Worker) -> Iterator[tuple[int, Done | Fault]]:
        """Charge the item that was running; the rest of the chunk goes back untouched."""
        exitcode = self._dismiss(worker)
        if not worker.items:
            self._start_failures += 1
            if self._start_failures >= _MAX_START_FAILURES:
                raise WorkerError(
                    f"workers end before they begin ({_cause(exitcode)}); is the script guarded "
                    "by: if __name__ == '__main__'?"
                )
            return
        suspect = self._take_back(worker)
        self._attempts[suspect] += 1
        deaths = self._attempts[suspect]
        if deaths < self._job.retries:
            self._pending.append(suspect)
        elif deaths == self._job.retries:
            self._alone.append(suspect)
        else:
            self._left -= 1
            times = "once" if deaths == 1 else f"{deaths} times"
            yield suspect, Fault(f"its worker died {times}, lastly {_cause(exitcode)}")

    def _end_overdue(self, timeout_s: float) -> Iterator[tuple[int, Done | Fault]]:
        now_s = time.monotonic()
        for worker in list(self._workers):
            if not worker.items or now_s < worker.since_s + timeout_s:
                continue
            if worker.pipe.poll():
                continue  # it did finish: the caller of this generator was slow, not the item
            self._dismiss(worker, grace_s=0.0)
            late = TimeoutError(f"ran longer than {timeout_s:g} s")
            yield from self._settle(
                self._take_back(worker), Fault.of(late, self._job.call.retry_on)
            )

    def _take_back(self, worker: _Worker) -> int:
        """The item that was running; those behind it wait again, in front and uncharged."""
        running = worker.items.popleft()
        self._pending.extendleft(reversed(worker.items))
        worker.items.clear()
        return running

    def _dismiss(self, worker: _Worker, grace_s: float = 1.0) -> int | None:
        """Make sure that the worker and what it started are gone; its exit code."""
        self._workers.remove(worker)
        # Waiting on the sentinel does not reap: the exit code stays its own, and the process
        # group cannot be somebody else's when it is signalled.
        wait([worker.process.sentinel], grace_s)
        worker.signal(signal.SIGKILL)
        worker.process.join()
        worker.pipe.close()
        return worker.process.exitcode


def _pack(job: Job) -> bytes:
    try:
        return pickle.dumps(job.call)
    except Exception as error:
        raise InputError(
            f"{job.name} cannot be sent to worker processes",
            hint="use a module-level function, not a lambda or a function inside a function",
        ) from error


def _cause(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"by {name} (out of memory?)" if name == "SIGKILL" else f"by {name}"
