"""The map itself: checks what it is given, picks a back end, keeps what is finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from gnomon.errors import InputError
from gnomon.parallel import cluster, local
from gnomon.parallel.call import Done, Failure, Fault, Job, MappedCall, failure_of
from gnomon.parallel.place import Place, parse_on
from gnomon.parallel.progress import Progress
from gnomon.parallel.results import Results
from gnomon.parallel.store import Store

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class MapOptions(TypedDict, total=False):
    """How a map runs: every keyword of `pmap` except `errors`.

    Attributes:
        on: serial, local, local:4, ray, ray://auto or ray://host:port.
        retries: how often an item may run again after its worker died. The last attempt on
            local processes is made alone, when nothing else runs.
        retry_on: exceptions of the function that are worth another attempt as well.
        resume: a folder that keeps finished results; a later call with the same function and
            items goes on from there. `Results.reused` says how many were found.
        seed: gives each item a generator of its own, the same on any back end.
        chunk: items sent to a local worker at once; by default few enough to end together.
        timeout_s: the time one attempt may take. On Ray it interrupts Python code only.

    >>> from gnomon.parallel import pmap
    >>> options: MapOptions = {"on": "serial", "retries": 0}
    >>> pmap(abs, [-1], **options)
    [1]
    """

    on: str
    workers: int | None
    retries: int
    retry_on: tuple[type[BaseException], ...]
    resume: str | os.PathLike[str] | None
    progress: Progress | None
    seed: int | None
    chunk: int | None
    timeout_s: float | None


class Completed(Generic[R_co]):
    """Iterates over (index, result) as items finish; `reused` says how many were on disk.

    Leaving early ends the workers: close it, or use it in a `with`.

    >>> from gnomon.parallel import as_completed
    >>> with as_completed(abs, [-1, 2], on="serial") as completed:
    ...     sorted(completed), completed.total, completed.reused
    ([(0, 1), (1, 2)], 2, 0)
    """

    def __init__(
        self, job: Job, place: Place, store: Store | None, progress: Progress | None, collect: bool
    ) -> None:
        self._job, self._place, self._store = job, place, store
        self._progress, self._collect = progress, collect
        self._keys: list[str] = []
        self._found: dict[int, Done] = {}
        if store is not None:
            self._keys = [store.key(index, item) for index, item in enumerate(job.items)]
            loaded = ((index, store.load(key)) for index, key in enumerate(self._keys))
            self._found = {index: done for index, done in loaded if done is not None}
        self.total = len(job.items)
        self.reused = len(self._found)
        self._iterator = self._iterate()

    def __iter__(self) -> Iterator[tuple[int, R_co]]:
        return self

    def __next__(self) -> tuple[int, R_co]:
        return next(self._iterator)

    def __enter__(self) -> Completed[R_co]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._iterator.close()

    def _iterate(self) -> Generator[tuple[int, Any], None, None]:
        finished = self.reused
        missing = [index for index in range(self.total) if index not in self._found]
        try:
            self._tell(finished)
            while self._found:
                index, done = self._found.popitem()
                yield index, done.value
            # Closed here, not when it is collected: workers end before an error is raised.
            with closing(self._outcomes(missing)) as outcomes:
                for index, outcome in outcomes:
                    value = self._value_of(index, outcome)
                    finished += 1
                    self._tell(finished)
                    yield index, value
        finally:
            if close := getattr(self._progress, "close", None):
                close()

    def _outcomes(self, missing: list[int]) -> Generator[tuple[int, Done | Fault], None, None]:
        if self._place.kind == "serial" or not missing:
            return _run_here(self._job, missing)
        if self._place.kind == "local":
            # In a container this process may use fewer cores than the machine has.
            workers = self._place.workers or len(os.sched_getaffinity(0))
            return local.run(self._job, missing, workers)
        return cluster.run(self._job, missing, self._place.address, self._place.workers)

    def _value_of(self, index: int, outcome: Done | Fault) -> Any:
        if isinstance(outcome, Done):
            if self._store is not None:
                self._store.save(self._keys[index], outcome)
            return outcome.value
        error = failure_of(outcome, index, self._job.items[index])
        if not self._collect:
            raise error
        return Failure(index, error)

    def _tell(self, finished: int) -> None:
        if self._progress is not None:
            self._progress.update(finished, self.total)


def _run_here(job: Job, indices: list[int]) -> Generator[tuple[int, Done | Fault], None, None]:
    """The serial back end: the same outcomes, in this process, one after the other."""
    for index in indices:
        for attempts_left in range(job.retries, -1, -1):
            try:
                outcome: Done | Fault = Done(job.call(index, job.items[index]))
            except (Exception, SystemExit) as error:
                outcome = Fault.of(error, job.call.retry_on)
                if outcome.can_retry and attempts_left:
                    continue
            break
        yield index, outcome


@overload
def as_completed(
    function: Callable[..., R],
    items: Iterable[Any],
    *,
    errors: Literal["raise"] = "raise",
    **options: Unpack[MapOptions],
) -> Completed[R]: ...
@overload
def as_completed(
    function: Callable[..., R],
    items: Iterable[Any],
    *,
    errors: Literal["collect"],
    **options: Unpack[MapOptions],
) -> Completed[R | Failure]: ...
def as_completed(
    function: Callable[..., R],
    items: Iterable[Any],
    *,
    errors: Literal["raise", "collect"] = "raise",
    on: str = "local",
    workers: int | None = None,
    retries: int = 2,
    retry_on: tuple[type[BaseException], ...] = (),
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    seed: int | None = None,
    chunk: int | None = None,
    timeout_s: float | None = None,
) -> Completed[Any]:
    """Like `pmap`, but gives (index, result) as items finish, the reused ones first.

    Wrong input is reported at the call, not at the first result.

    >>> dict(as_completed(len, ["a", "bb"], on="serial"))
    {0: 1, 1: 2}
    """
    place = _settled_place(on, workers)
    job = Job(MappedCall(function, seed, retry_on), list(items), retries, chunk, timeout_s)
    _check(job, place, errors)
    store = None if resume is None else Store(resume, job.call)
    return Completed(job, place, store, progress, collect=errors == "collect")


@overload
def pmap(
    function: Callable[..., R],
    items: Iterable[Any],
    *,
    errors: Literal["raise"] = "raise",
    **options: Unpack[MapOptions],
) -> Results[R]: ...
@overload
def pmap(
    function: Callable[..., R],
    items: Iterable[Any],
    *,
    errors: Literal["collect"],
    **options: Unpack[MapOptions],
) -> Results[R | Failure]: ...
def pmap(
    function: Callable[..., R],
    items: Iterable[Any],
    *,
    errors: Literal["raise", "collect"] = "raise",
    **options: Unpack[MapOptions],
) -> Results[Any]:
    """Call a function on every item, somewhere else, and give the results in order.

    An error of the function is raised as a WorkerError that names the item and carries the
    worker's traceback; gnomon's own errors keep their type.

    Args:
        function: called as function(item), or function(item, rng) with a seed. Local workers
            import it, so it stands at the top level of a module.
        errors: "raise" the first error, or "collect" a Failure in the place of the result.
        options: how it runs, see `MapOptions`.

    >>> pmap(abs, [-1, 2, -3], on="serial")
    [1, 2, 3]
    >>> pmap(bytes.fromhex, ["00", "x"], on="serial")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    gnomon.errors.WorkerError: item 1 ('x'): ValueError: ...
    """
    completed: Completed[Any] = as_completed(function, items, errors=errors, **options)
    results: list[Any] = [None] * completed.total
    with completed:
        for index, value in completed:
            results[index] = value
    return Results(results, reused=completed.reused)


def _settled_place(on: str, workers: int | None) -> Place:
    place = parse_on(on)
    if workers is None:
        return place
    if workers < 1:
        raise InputError(f"workers={workers}", hint="give at least 1")
    if place.workers not in (None, workers):
        raise InputError(f"on={on!r} and workers={workers} disagree", hint="give one of them")
    return Place(place.kind, workers, place.address)


def _check(job: Job, place: Place, errors: str) -> None:
    if not callable(job.call.function):
        raise InputError(f"{job.call.function!r} cannot be called")
    if errors not in ("raise", "collect"):
        raise InputError(f"errors={errors!r}", hint="use 'raise' or 'collect'")
    if job.retries < 0:
        raise InputError(f"retries={job.retries}", hint="give 0 or more")
    if job.chunk is not None and job.chunk < 1:
        raise InputError(f"chunk={job.chunk}", hint="give at least 1")
    if job.timeout_s is not None and job.timeout_s <= 0:
        raise InputError(f"timeout_s={job.timeout_s}", hint="give more than 0")
    if job.timeout_s is not None and place.kind == "serial":
        raise InputError("on='serial' cannot end an item", hint="use timeout_s with local:1")
    if place.kind == "local" and job.items:
        local.check(job)
