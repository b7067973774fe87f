"""Native functions on preemptive threads, from Python.

The workers are native threads that never hold the interpreter's lock. A Python function cannot run
on them: switched away in the middle of the interpreter, it would crash the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Self, get_args

import msgspec

from gnomon import _core
from gnomon.decide.threads import thread_policies
from gnomon.errors import GnomonError, InputError
from gnomon.sim.cores import Control, control_number

#: Of functions of libraries and of callbacks alike.
_CFunction: Any = type(ctypes.pythonapi.Py_IsInitialized).__mro__[1]
_HINT = (
    "compile it (numba.cfunc, Cython, C) and give that; "
    "for Python functions there is concurrent.futures.ThreadPoolExecutor"
)


class TaskReport(msgspec.Struct, frozen=True):
    """How a task ended.

    Attributes:
        result: What the function returned.
        latency_us: From submission to end.
        service_us: Time on a worker.
    """

    result: int
    latency_us: float
    service_us: float
    preemptions: int


class NativePool:
    """Workers that run native functions `intptr_t f(void *)` and preempt them.

    A function is a symbol of a ctypes library, a cffi function, a numba `cfunc`, or an address.
    Its argument is a ctypes object, a writable buffer such as a NumPy array, an address or None;
    it is kept alive until the function has ended.

    >>> import ctypes
    >>> libc = ctypes.CDLL(None)
    >>> with NativePool(source="posix_timer") as pool:
    ...     pool.submit(libc.atol, ctypes.create_string_buffer(b"42")).result().result
    42

    Args:
        policy: As `gnomon threads policies` lists them, such as `two-queue?quantum_us=20`.
        source: Of preemptions; `auto` measures those of this machine for a moment.
        polls: Whether the functions poll (`gnt_poll`), so that `auto` may choose a polled source.
        control: How the quantum follows the load: `off`, `paper` or `cost`.
    """

    def __init__(
        self, workers: int = 1, *, policy: str = "two-queue", source: str = "auto",
        polls: bool = False, max_tasks: int = 1024, stack_kib: int = 64, control: Control = "off",
    ) -> None:  # fmt: skip
        scheduling = thread_policies.create(policy).native(None)
        if control not in get_args(Control):
            raise InputError(f"control {control!r}", hint=", ".join(get_args(Control)))
        for name, value, least, most in (
            ("workers", workers, 1, 30_000), ("max_tasks", max_tasks, 1, 30_000),
            ("stack_kib", stack_kib, 16, 65_536),
        ):  # fmt: skip
            if not isinstance(value, int) or not least <= value <= most:
                hint = f"a whole number, {least} to {most:,}"
                raise InputError(f"{name} is {value!r}", hint=hint)
        try:
            self._pool = _core.ThreadPool(
                scheduling=scheduling.to_native(), workers=workers, source=source, polls=polls,
                max_tasks=max_tasks, stack_bytes=1024 * stack_kib, control=control_number(control),
                cpus=[], timer_cpu=-1, realtime=0,
            )  # fmt: skip
        except ValueError as error:
            raise InputError(str(error)) from None
        self.source, self.why = self._pool.source, self._pool.why
        self._lock = threading.Lock()
        self._open: dict[int, tuple[_TaskFuture, Any]] = {}
        self._is_stopped = self._is_stopped_by_reader = False
        self._reader = threading.Thread(target=self._read, name="gnomon-threads", daemon=True)
        self._reader.start()

    def submit(
        self, function: Any, argument: Any = None, *, kind: int = 0, hint_us: float = 0.0,
        deadline_us: float = 0.0,
    ) -> Future[TaskReport]:  # fmt: skip
        """Runs a function; the future can be cancelled until it ends.

        Where `cancel` returns True, `result` raises CancelledError: after the function was cut, or
        at its end if it does not poll or was about to end.

        Args:
            kind: Of request, 0 the most urgent, for policies that know.
            hint_us: How long it should take.
            deadline_us: From now on.
        """
        if not isinstance(kind, int) or not 0 <= kind < 2**20:
            raise InputError(f"kind is {kind!r}", hint="a whole number from 0 on")
        for name, value in (("hint_us", hint_us), ("deadline_us", deadline_us)):
            if not isinstance(value, (int, float)) or not 0 <= value <= 1e12:
                raise InputError(f"{name} is {value!r}", hint="microseconds, 0 to 1e12")
        address = function_address(function)
        pointer, owner = argument_address(argument)
        due = _core.thread_clock_ns() + round(1e3 * deadline_us) if deadline_us else 0
        future = _TaskFuture(self)
        with self._lock:  # so that a task that ends at once is known
            if self._is_stopped:
                raise GnomonError("the pool has been stopped")
            try:
                task = self._pool.submit(
                    function=address, argument=pointer, kind=kind, hint=round(1e3 * hint_us),
                    deadline=due,
                )  # fmt: skip
            except ValueError as error:
                raise InputError(str(error)) from None
            except RuntimeError as error:
                hint = "; wait for some tasks to end" if "full" in str(error) else ""
                raise GnomonError(f"{error}{hint}") from None
            future.task = task
            self._open[task] = future, (function, owner)
        return future

    async def run(self, function: Any, argument: Any = None, **how: Any) -> TaskReport:
        """`submit` for asyncio: cancelling the awaiting task cancels the function."""
        return await asyncio.wrap_future(self.submit(function, argument, **how))

    def stats(self) -> dict[str, int]:
        """Counts since the start: tasks, preemptions, ticks that were not preemptions."""
        return dict(self._pool.stats())

    def stop(self, *, drain: bool = True) -> None:
        """Waits for tasks to end, or cancels them; from a callback of a future without waiting."""
        with self._lock:
            is_first, self._is_stopped = not self._is_stopped, True
            left = [future for future, _ in self._open.values()]
        is_reader = threading.current_thread() is self._reader
        if is_reader or not is_first:
            self._is_stopped_by_reader |= is_first
            for future in [] if drain else left:
                future.cancel()
            if not is_reader:  # which calls the futures, so it cannot wait for them or for itself
                self._reader.join()
            return
        try:
            if drain:
                wait(left)  # unlike the native wait this one can be interrupted
        finally:
            self._pool.stop(False)
            self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stop(drain=kind is None)

    def _cancel(self, future: _TaskFuture) -> bool:
        with self._lock:  # whoever ends meanwhile is not settled before it knows
            if future.task not in self._open:
                return False
            with contextlib.suppress(RuntimeError):  # stopped
                future.is_cancelled |= bool(self._pool.cancel(future.task))
            return future.is_cancelled

    def _read(self) -> None:
        while len((ended := self._pool.take_ended()).task):
            with self._lock:
                mine = [self._open.pop(int(one)) for one in ended.task]
            for i, (future, _) in enumerate(mine):
                _settle(future, ended, i)
            if self._is_stopped_by_reader and not self._open:
                self._pool.stop(False)


class _TaskFuture(Future[TaskReport]):
    """A future whose cancellation reaches the worker.

    A task that ends before the worker sees it counts as cancelled all the same: whether `result`
    raises must not hang on who was faster.
    """

    task = 0
    is_cancelled = False

    def __init__(self, pool: NativePool) -> None:
        super().__init__()
        self._pool = pool

    def cancel(self) -> bool:
        return self._pool._cancel(self)


def _settle(future: _TaskFuture, ended: _core.EndedTasks, i: int) -> None:
    if ended.status[i] != 0 or future.is_cancelled:
        Future.cancel(future)
        future.set_running_or_notify_cancel()
        return
    future.set_result(TaskReport(
        int(ended.result[i]), (int(ended.ended[i]) - int(ended.arrival[i])) / 1e3,
        int(ended.attained[i]) / 1e3, int(ended.preemptions[i]),
    ))  # fmt: skip


def function_address(function: Any) -> int:
    """Of a native function; a Python function is refused, however it is wrapped."""
    if isinstance(function, bool):
        raise InputError(f"{function} is no function", hint=_HINT)
    if isinstance(function, int):
        if not 4096 <= function < 2**63:
            raise InputError(f"{function:#x} is no address of a function")
        return function
    if isinstance(function, _CFunction):
        # A callback keeps its thunk, a function of a library the library.
        kept = function._objects or {}
        of = list(kept.values()) if isinstance(kept, dict) else [kept]
        if any("Thunk" in type(one).__name__ or isinstance(one, ctypes.PyDLL) for one in of):
            raise InputError("a ctypes callback runs Python: it cannot be preempted", hint=_HINT)
        return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
    if isinstance(address := getattr(function, "address", None), int):  # numba's cfunc
        return address
    if type(function).__module__ == "_cffi_backend":
        return _cffi_address(function)
    name = getattr(function, "__qualname__", type(function).__name__)
    raise InputError(f"{name} is a Python object: it cannot be preempted", hint=_HINT)


def _cffi_address(function: Any) -> int:
    import cffi

    if " calling " in repr(function):
        raise InputError("a cffi callback runs Python: it cannot be preempted", hint=_HINT)
    ffi = cffi.FFI()
    kind = ffi.typeof(function)
    if kind.kind == "pointer" and kind.item.kind == "function":
        kind = kind.item
    if kind.kind != "function":
        raise InputError(f"cffi: {kind.cname} is no function", hint="ffi.addressof(lib, name)")
    return int(ffi.cast("uintptr_t", function))


def argument_address(argument: Any) -> tuple[int, Any]:
    """Where an argument lies, and what has to live as long."""
    if argument is None:
        return 0, None
    if isinstance(argument, int) and not isinstance(argument, bool):
        if not 0 <= argument < 2**63:
            raise InputError(f"{argument} is no address")
        return argument, None
    if isinstance(argument, (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)):
        return ctypes.addressof(argument), argument
    try:
        view = memoryview(argument)
    except TypeError:
        raise InputError(
            f"an argument of type {type(argument).__name__}",
            hint="a ctypes object, a writable buffer such as a NumPy array, an address or None",
        ) from None
    if view.readonly or not view.contiguous:
        raise InputError("a buffer that is read-only or not contiguous")
    held = (ctypes.c_char * max(view.nbytes, 1)).from_buffer(
        view.cast("B") if view.nbytes else bytearray(1)
    )
    return ctypes.addressof(held), (argument, held)
