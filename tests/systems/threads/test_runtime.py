"""Native functions on preemptive threads, from Python: ctypes, cffi, numba, asyncio, refusals."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, wait
from pathlib import Path

import numpy as np
import pytest

from gnomon import _core
from gnomon.errors import GnomonError, InputError
from gnomon.systems.threads.runtime import NativePool, function_address

SOURCE = r"""
#include <stdint.h>
#include "gnomon/threads.h"
static void spin(volatile int64_t *v, int polls) {
    /* v[0]: go on until this is set; v[1]: turns */
    while (v[0] == 0) { v[1]++; if (polls) gnt_poll(); }
}
intptr_t hold(void *p) { spin(p, 0); return ((int64_t *)p)[1] > 0; }
intptr_t hold_and_poll(void *p) { spin(p, 1); return ((int64_t *)p)[1] > 0; }
intptr_t add(void *p) { int64_t *v = p; v[2] = v[0] + v[1]; return v[2]; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Compiled with the headers that are installed, linked with the library of the module."""
    folder = tmp_path_factory.mktemp("library")
    prefix = Path(_core.__file__).parent
    (folder / "work.c").write_text(SOURCE)
    subprocess.run(
        ["cc", "-O1", "-shared", "-fPIC", f"-I{prefix}/include", "work.c", "-o", "libwork.so",
         f"-L{prefix}/lib", "-lgnomon_threads", f"-Wl,-rpath,{prefix}/lib"], cwd=folder, check=True,
    )  # fmt: skip
    found = ctypes.CDLL(str(folder / "libwork.so"))
    for name in ("hold", "hold_and_poll", "add"):
        getattr(found, name).restype = ctypes.c_ssize_t
        getattr(found, name).argtypes = [ctypes.c_void_p]
    return found


def fresh():
    return np.zeros(3, np.int64)


@pytest.mark.parametrize("source", ["safepoint", "clock", "signal", "sleeper", "posix_timer"])
def test_a_short_function_passes_one_that_does_not_end(library, source):
    """The long one ends only after the short one has: without preemption this would hang."""
    long, short = fresh(), np.array([19, 23, 0])
    function = library.hold_and_poll if source in ("safepoint", "clock") else library.hold
    with NativePool(source=source, policy="two-queue?quantum_us=100") as pool:
        assert pool.source == source
        holding = pool.submit(function, long, kind=1)
        while long[1] == 0:  # until it runs
            pass
        report = pool.submit(library.add, short).result()
        assert (report.result, short[2]) == (42, 42)
        assert report.latency_us >= report.service_us >= 0
        assert not holding.done()
        long[0] = 1
        assert holding.result().preemptions >= 1
        assert pool.stats()["completed"] == 2


def test_python_goes_on_while_functions_run(library):
    """Workers hold no lock of the interpreter."""
    value = fresh()
    with NativePool(source="none") as pool:
        running = pool.submit(library.hold, value)
        assert sum(range(100_000)) > 0
        while value[1] == 0:
            pass
        assert not running.done()
        value[0] = 1
        assert running.result().result == 1


def test_asyncio(library):
    async def both():
        value = fresh()
        with NativePool(source="clock", policy="rr?quantum_us=50") as pool:
            holding = asyncio.ensure_future(pool.run(library.hold_and_poll, value))
            added = await pool.run(library.add, np.array([1, 2, 0]))
            assert not holding.done()
            value[0] = 1
            return added.result, (await holding).result

    assert asyncio.run(both()) == (3, 1)


def test_cancelling_reaches_the_worker(library):
    with NativePool(source="safepoint", policy="fcfs") as pool:
        first, second = fresh(), fresh()
        running = pool.submit(library.hold_and_poll, first)
        waiting = pool.submit(library.hold_and_poll, second)
        assert waiting.cancel()
        while first[1] == 0:
            pass
        assert running.cancel()
        for one in (running, waiting):
            with pytest.raises(CancelledError):
                one.result()
        assert second[1] == 0
        assert not running.cancel()
        assert pool.stats()["cancelled"] == 2


def test_a_cancellation_that_was_accepted_holds(library):
    """The function does not poll and runs to its end: its result is not delivered all the same."""
    value = fresh()
    with NativePool(source="none") as pool:
        running = pool.submit(library.hold, value)
        while value[1] == 0:
            pass
        assert running.cancel()
        assert running.cancel()
        assert not running.done()  # its argument is in use
        value[0] = 1
        with pytest.raises(CancelledError):
            running.result()
        added = [pool.submit(library.add, np.array([i, 1, 0])) for i in range(500)]
        accepted = [one.cancel() for one in added]  # in a race with the worker
        wait(added)
        assert [one.cancelled() for one in added] == accepted


@pytest.mark.parametrize("drain", [True, False])
def test_a_callback_may_stop_the_pool(library, caplog, drain):
    """It runs in the thread that settles the other futures: it must not wait for them."""
    value, other = fresh(), fresh()
    with NativePool(source="clock", policy="rr?quantum_us=50") as pool:
        holding = pool.submit(library.hold_and_poll, value)
        called = threading.Event()

        def stop(_):
            pool.stop(drain=drain)
            called.set()

        pool.submit(library.hold_and_poll, other).add_done_callback(stop)
        other[0] = 1
        assert called.wait(60)
        with pytest.raises(GnomonError, match="stopped"):
            pool.submit(library.add, fresh())
        if drain:
            assert not holding.done()
            value[0] = 1
    assert not pool._reader.is_alive()
    assert holding.cancelled() is not drain
    assert not caplog.records


def test_stopping_cancels_or_drains(library):
    value = fresh()
    pool = NativePool(source="clock", policy="fcfs")
    futures = [pool.submit(library.hold_and_poll, value) for _ in range(5)]
    pool.stop(drain=False)
    assert all(one.cancelled() for one in futures)
    with pytest.raises(GnomonError, match="stopped"):
        pool.submit(library.add, fresh())
    pool.stop()
    drained = NativePool(source="clock")
    futures = [drained.submit(library.add, np.array([i, i, 0])) for i in range(200)]
    drained.stop()
    assert [one.result().result for one in futures] == [2 * i for i in range(200)]


def test_arguments_live_until_the_function_has_ended(library):
    with NativePool(source="none", workers=2) as pool:
        futures = [pool.submit(library.add, np.array([i, 1, 0])) for i in range(500)]
        assert [one.result().result for one in futures] == [i + 1 for i in range(500)]


def test_numba(library):
    numba = pytest.importorskip("numba")

    @numba.cfunc("int64(voidptr)")
    def scramble(pointer):
        values = numba.carray(pointer, 1, np.int64)
        x = np.uint64(88172645463325252)
        for _ in range(values[0]):
            x ^= x << np.uint64(13)
            x ^= x >> np.uint64(7)
            x ^= x << np.uint64(17)
        return np.int64(x & np.uint64(0xFFFFFF))

    turns = np.array([200_000_000])
    expected = scramble.ctypes(turns.ctypes.data)
    with NativePool(source="signal", policy="two-queue?quantum_us=100") as pool:
        long = pool.submit(scramble, turns)
        while pool.stats()["preemptions"] == 0 and not long.done():
            assert pool.submit(library.add, np.array([1, 1, 0])).result().result == 2
        report = long.result()
    assert report.result == expected
    assert report.preemptions >= 1


def test_cffi(library):
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    ffi.cdef("intptr_t add(void *);")
    opened = ffi.dlopen(library._name)
    with NativePool(source="none") as pool:
        assert pool.submit(opened.add, np.array([2, 3, 0])).result().result == 5
    callback = ffi.callback("intptr_t(void *)", lambda pointer: 0)
    with pytest.raises(InputError, match="cffi callback runs Python"):
        function_address(callback)
    with pytest.raises(InputError, match="no function"):
        function_address(ffi.new("int *"))


@ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p)
def callback(pointer):
    return 0


@pytest.mark.parametrize(
    "function", [len, lambda pointer: 0, callback, "work", None, threading.Thread, True, 12]
)
def test_python_functions_are_refused_by_name(function):
    with pytest.raises(InputError) as refused:
        function_address(function)
    assert "\n" not in str(refused.value)
    if callable(function):
        assert "numba.cfunc" in str(refused.value)


@pytest.mark.parametrize("argument", ["text", b"bytes", 1.5, np.arange(10)[::2], object()])
def test_arguments_that_have_no_memory_are_refused(library, argument):
    with NativePool(source="none") as pool, pytest.raises(InputError):
        pool.submit(library.add, argument)


def test_wrong_settings_are_refused():
    for wrong in ({"workers": 0}, {"source": "magic"}, {"policy": "magic"}, {"max_tasks": 0},
                  {"policy": "reserved", "workers": 1, "source": "none"}, {"stack_kib": 1},
                  {"stack_kib": 20.5}, {"stack_kib": "a"}, {"max_tasks": 1.5}):  # fmt: skip
        with pytest.raises(InputError) as refused:
            NativePool(**wrong)
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match=r"user interrupts|GNOMON_UINTR"):
        NativePool(source="uintr")


def test_a_full_pool_says_so(library):
    value = fresh()
    with NativePool(source="clock", max_tasks=2) as pool:
        held = [pool.submit(library.hold_and_poll, value) for _ in range(2)]
        with pytest.raises(GnomonError, match="full"):
            pool.submit(library.add, fresh())
        while value[1] == 0:
            pass
        value[0] = 1
        assert all(one.result().result == 1 for one in held)


def test_a_fork_is_told(library):
    with NativePool(source="safepoint") as pool:
        pool.submit(library.add, fresh()).result()
        child = os.fork()
        if child == 0:
            try:
                pool.submit(library.add, fresh())
            except GnomonError as error:
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert pool.submit(library.add, np.array([4, 5, 0])).result().result == 9


def test_a_pool_that_nobody_stops_does_not_keep_the_process(library):
    code = (
        "import ctypes, numpy as np\n"
        "from gnomon.systems.threads.runtime import NativePool\n"
        f"lib = ctypes.CDLL({library._name!r})\n"
        "pool = NativePool(source='safepoint')\n"
        "keep = np.zeros(3, np.int64)\n"
        "pool.submit(lib.hold_and_poll, keep)\n"
        "print('done')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
