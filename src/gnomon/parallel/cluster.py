"""Map over Ray tasks: a cluster, or a Ray of our own on this machine.

One item is one task, because a task is what Ray runs again when its worker or its node dies; so
an item is charged for its own deaths alone. The workers must be able to import gnomon and the
function's module; a function without a module (a lambda, a closure) travels by value.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
import warnings
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from gnomon.errors import InputError, MissingExtra
from gnomon.parallel.call import Done, Fault, Job, MappedCall, attempt, decode, dump_item
from gnomon.parallel.environment import lent

_WAIT_S = 0.5
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def run(
    job: Job, indices: Sequence[int], address: str | None, workers: int | None
) -> Generator[tuple[int, Done | Fault], None, None]:
    """Yield (index, outcome) as tasks finish; Ray is shut down only if it was started here."""
    ray = _load(address)
    with _connected(ray, address, workers):
        # Twice the cores keeps them busy while answers travel, and holds few items in memory.
        bound = workers or max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
        flight = _Flight(ray, job, indices, bound)
        try:
            yield from flight.outcomes()
        finally:
            flight.cancel()


def _load(address: str | None) -> Any:
    if (address or "").startswith("ray://") and "ray" not in sys.modules:
        os.environ.update(_token_mode())
    # By name, so that neither importing gnomon nor checking its types pulls Ray in.
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtra("ray", "ray", "--on ray") from error


@contextmanager
def _connected(ray: Any, address: str | None, workers: int | None) -> Iterator[None]:
    """Join the Ray that is there, or start a quiet one and stop it afterwards."""
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    variables = {}
    if address == "local":
        options |= {"include_dashboard": False, "num_cpus": workers}
        # Workers on this machine can import what we can, and a Ray of ours reports to nobody.
        paths = (os.path.abspath(path) for path in sys.path)
        variables = {"PYTHONPATH": os.pathsep.join(paths), "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        # Ray's client warns in three lines about what it then raises.
        with lent(variables), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            ray.init(address=address, **options)
    except (ConnectionError, ImportError, RuntimeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__qualname__])[0]
        hint = "is the cluster up and reachable, and does it want a token (RAY_AUTH_MODE)?"
        raise InputError(f"cannot join Ray at {address!r}: {reason}", hint=hint) from error
    try:
        yield
    finally:
        ray.shutdown()


def _token_mode() -> dict[str, str]:
    """A cluster asks for the token it was started with; its client shows one only when asked to.

    Ray reads the mode once, when it is imported.
    """
    if "RAY_AUTH_MODE" in os.environ:
        return {}
    place = os.environ.get("RAY_AUTH_TOKEN_PATH", os.path.expanduser("~/.ray/auth_token"))
    has_token = "RAY_AUTH_TOKEN" in os.environ or os.path.isfile(place)
    return {"RAY_AUTH_MODE": "token"} if has_token else {}


class _Flight:
    """The tasks under way, never more than `bound` of them."""

    def __init__(self, ray: Any, job: Job, indices: Sequence[int], bound: int) -> None:
        self._ray, self._job, self._bound = ray, job, bound
        self._dumps = importlib.import_module("ray.cloudpickle").dumps
        try:
            self._call = ray.put(job.call)  # once, however large the function is
        except Exception as error:
            raise InputError(f"{job.name} cannot be sent to Ray workers: {error}") from error
        self._task = ray.remote(_task).options(num_cpus=1, max_retries=job.retries)
        self._pending = deque(indices)
        self._attempts: Counter[int] = Counter()
        self._under_way: dict[Any, int] = {}

    def outcomes(self) -> Iterator[tuple[int, Done | Fault]]:
        while self._pending or self._under_way:
            while self._pending and len(self._under_way) < self._bound:
                self._submit(self._pending.popleft())
            # A bounded wait lets a signal in: Ray waits in native code.
            finished, _ = self._ray.wait(list(self._under_way), num_returns=1, timeout=_WAIT_S)
            for reference in finished:
                index = self._under_way.pop(reference)
                outcome = self._collect(reference)
                if not self._runs_again(index, outcome):
                    yield index, outcome

    def cancel(self) -> None:
        for reference in self._under_way:
            with suppress(Exception):  # it may have finished, or its node may be gone
                self._ray.cancel(reference, force=True)
        self._under_way.clear()

    def _submit(self, index: int) -> None:
        payload = dump_item(index, self._job.items[index], self._dumps)
        reference = self._task.remote(self._call, index, payload, self._job.timeout_s)
        self._under_way[reference] = index

    def _collect(self, reference: Any) -> Done | Fault:
        try:
            is_done, data = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return self._fault_of(error)
        return decode(is_done, data)

    def _fault_of(self, error: Exception) -> Fault:
        exceptions = self._ray.exceptions
        if isinstance(error, exceptions.WorkerCrashedError | exceptions.OutOfMemoryError):
            times = self._job.retries + 1
            return Fault(f"its worker died {times} times" if times > 1 else "its worker died once")
        text = _COLOUR.sub("", str(error)).strip()
        reason = text.splitlines()[-1].strip() if text else type(error).__qualname__
        if isinstance(error, exceptions.RayTaskError):
            # Only what precedes the function can fail like this: loading it.
            refused = InputError(
                f"a Ray worker cannot load {self._job.name}: {reason}",
                hint="its module must be importable on every node",
            )
            return Fault(reason, text, refused)
        return Fault(f"{type(error).__qualname__}: {reason}", text)

    def _runs_again(self, index: int, outcome: Done | Fault) -> bool:
        if not isinstance(outcome, Fault) or not outcome.can_retry:
            return False
        self._attempts[index] += 1
        if self._attempts[index] > self._job.retries:
            return False
        self._pending.append(index)
        return True


def _task(
    call: MappedCall, index: int, payload: bytes, timeout_s: float | None
) -> tuple[bool, bytes]:
    """What runs in a Ray worker. Results may be of classes that only travel by value."""
    cloudpickle = importlib.import_module("ray.cloudpickle")
    return attempt(call, index, payload, dumps=cloudpickle.dumps, timeout_s=timeout_s)
