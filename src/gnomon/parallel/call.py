"""One call of the mapped function: made in a worker, reported at home.

Everything here runs on both sides of a process boundary, and is the same for every back end, so
that an error looks the same whether it came from this process, a neighbour, or a cluster.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from gnomon.errors import GnomonError, InputError, WorkerError

_REPR_CHARS = 200


class MappedCall(msgspec.Struct, frozen=True):
    """What a worker is given once: the function and how to call it."""

    function: Callable[..., Any]
    seed: int | None = None
    retry_on: tuple[type[BaseException], ...] = ()

    def __call__(self, index: int, item: object) -> Any:
        if self.seed is None:
            return self.function(item)
        # The child number `index` of SeedSequence(seed).spawn(n), without making the others:
        # it depends on the index alone, hence not on workers, order or back end.
        sequence = np.random.SeedSequence(self.seed, spawn_key=(index,))
        return self.function(item, np.random.default_rng(sequence))


class Job(msgspec.Struct, frozen=True):
    """What a back end is given: the call, its items, and how patient to be."""

    call: MappedCall
    items: Sequence[Any]
    retries: int = 2
    chunk: int | None = None
    timeout_s: float | None = None

    @property
    def name(self) -> str:
        function = self.call.function
        return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


class Done(msgspec.Struct, frozen=True):
    """A call that came back. `data` is the pickled value where the back end has it anyway."""

    value: Any
    data: bytes | None = None


class Fault(msgspec.Struct, frozen=True):
    """A call that did not come back, in a form that always crosses a process boundary."""

    what: str
    traceback: str = ""
    error: BaseException | None = None
    can_retry: bool = False

    @classmethod
    def of(cls, error: BaseException, retry_on: tuple[type[BaseException], ...] = ()) -> Fault:
        frames = error.__traceback__
        while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
            frames = frames.tb_next  # our own frames tell the user nothing
        text = "".join(traceback.format_exception(type(error), error, frames))
        name = type(error).__qualname__
        what = f"{name}: {error}" if str(error) else name
        return cls(what, text, error, isinstance(error, retry_on))

    def encode(self) -> bytes:
        """Pickle, with the exception itself only where it survives the round trip."""
        try:
            data = pickle.dumps(self)
            if type(pickle.loads(data).error) is type(self.error):
                return data
        except Exception:
            # An exception may refuse to pickle in any way it likes; the text still travels.
            pass
        return pickle.dumps(msgspec.structs.replace(self, error=None))


class Failure(msgspec.Struct, frozen=True):
    """Stands in the results of `errors="collect"` for an item that failed.

    >>> from gnomon.parallel import pmap
    >>> one, two = pmap(int, ["1", "x"], on="serial", errors="collect")
    >>> one, two.index, type(two.error).__name__
    (1, 1, 'WorkerError')
    """

    index: int
    error: Exception


def attempt(
    call: MappedCall,
    index: int,
    payload: bytes,
    *,
    dumps: Callable[[Any], bytes] = pickle.dumps,
    timeout_s: float | None = None,
) -> tuple[bool, bytes]:
    """Make one call in a worker: (True, pickled value) or (False, pickled Fault)."""
    try:
        with _alarm(timeout_s):
            value = call(index, pickle.loads(payload))
        return True, dumps(value)
    except BaseException as error:  # SystemExit too: a function must not end its worker quietly
        return False, Fault.of(error, call.retry_on).encode()


def decode(is_done: bool, data: bytes) -> Done | Fault:
    """What `attempt` gave, back at home."""
    try:
        value = pickle.loads(data)
    except Exception as error:
        return Fault(f"its result cannot be unpickled: {type(error).__qualname__}: {error}")
    if is_done:
        return Done(value, data)
    assert isinstance(value, Fault)
    return value


@contextmanager
def _alarm(timeout_s: float | None) -> Iterator[None]:
    if timeout_s is None:
        yield
        return

    def ring(signum: int, frame: object) -> None:
        raise TimeoutError(f"ran longer than {timeout_s:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def dump(thing: object) -> bytes:
    """Pickle with a fixed protocol: keys on disk must not change with the Python version."""
    return pickle.dumps(thing, protocol=5)


def dump_item(index: int, item: object, dumps: Callable[[Any], bytes] = dump) -> bytes:
    """Pickle an item, or say which one refuses."""
    try:
        return dumps(item)
    except Exception as error:
        raise InputError(
            f"item {index} ({_brief(item)}) cannot be pickled: {error}",
            hint="give plain data, or a path that the function opens",
        ) from error


def failure_of(fault: Fault, index: int, item: object) -> Exception:
    """The exception a caller sees.

    gnomon's own errors keep their type, so that the command line leaves with their exit code;
    anything else becomes a WorkerError caused by the original.
    """
    error = fault.error
    if isinstance(error, GnomonError):
        error.add_note(f"item {index} ({_brief(item)})")
        if fault.traceback:
            error.add_note(f"In the worker:\n{fault.traceback}")
        return error
    wrapped = WorkerError(
        f"item {index} ({_brief(item)}): {fault.what}",
        index=index,
        remote_traceback=fault.traceback,
    )
    wrapped.__cause__ = error
    if fault.traceback and (error is None or error.__traceback__ is None):
        wrapped.add_note(f"In the worker:\n{fault.traceback}")
    return wrapped


def _is_ours(filename: str) -> bool:
    return os.path.dirname(filename) == os.path.dirname(__file__)


def _brief(item: object) -> str:
    """The item's repr, cut: an item may be a whole trace."""
    try:
        text = repr(item)
    except Exception:
        text = f"<{type(item).__qualname__} whose repr fails>"
    return text if len(text) <= _REPR_CHARS else text[: _REPR_CHARS - 3] + "..."
