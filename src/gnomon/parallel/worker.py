"""The life of a local worker process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from gnomon.parallel.call import MappedCall, attempt


def serve(pipe: Connection, task: bytes) -> None:
    """Load the call, then answer each item as it is done."""
    # A group of its own, so that the parent can end it together with what it started. Ctrl-C
    # then reaches the parent alone, which ends the workers.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        call = pickle.loads(task)
    except Exception as error:
        pipe.send(("unusable", -1))
        pipe.send_bytes(f"{type(error).__qualname__}: {error}".encode())
        return
    with suppress(EOFError, OSError):  # the parent has closed the pipe: time to go
        pipe.send(("ready", -1))
        pipe.send_bytes(b"")
        while True:
            _answer(pipe, call, pickle.loads(pipe.recv_bytes()))


def _answer(pipe: Connection, call: MappedCall, chunk: list[tuple[int, bytes]]) -> None:
    for index, payload in chunk:
        is_done, data = attempt(call, index, payload)
        pipe.send(("done" if is_done else "fault", index))
        pipe.send_bytes(data)


def _leave_with_parent() -> None:
    """A parent that was killed cannot end its workers: they watch for it themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)
