"""Functions that the tests of gnomon.parallel run in worker processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from gnomon.errors import InputError
from gnomon.parallel import pmap


def square(number):
    return number * number


def last_first(item):
    """The first one waits until the second one has run."""
    folder, number = item
    mark = Path(folder) / "second"
    if number == 1:
        mark.touch()
    while number == 0 and not mark.exists():
        time.sleep(0.01)
    return number


def noise(item, rng):
    return item, float(rng.normal()), int(rng.integers(1 << 40))


def log_line(folder, text):
    """Append atomically: short writes to an O_APPEND file do not mix."""
    with open(Path(folder) / "log", "a") as log:
        log.write(f"{text}\n")


def read_log(folder):
    path = Path(folder) / "log"
    return path.read_text().split() if path.exists() else []


def logged(item):
    """Square the number and leave a line that says it was computed."""
    folder, number = item
    log_line(folder, number)
    return number * number


def logged_when_told(item):
    """As `logged`; from the tenth on only once somebody has said so."""
    folder, number = item
    while number >= 10 and not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return logged(item)


def die_once(item):
    """SIGKILL the worker at the first attempt on an odd number, answer at the second."""
    folder, number = item
    log_line(folder, number)
    marker = Path(folder) / f"tried-{number}"
    if number % 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def poison_three(item):
    """Number 3 ends its worker always; the others take long enough to be its neighbours."""
    folder, number = item
    log_line(folder, number)
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return number


def segfault(_):
    os.kill(os.getpid(), signal.SIGSEGV)


def leave_quietly(_):
    sys.exit(0)


def fail_on_two(number):
    if number == 2:
        raise ValueError("two is too many")
    return number


def reject(number):
    raise InputError("event has no 'ts'", where="trace.json", hint="was it cut short?")


class StubbornError(Exception):
    """An exception that does not survive pickling, as many in the wild do not."""

    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")


def fail_stubbornly(number):
    raise StubbornError("broken", number)


def flaky(item):
    """Raise OSError until the third attempt."""
    folder, number = item
    log_line(folder, number)
    if read_log(folder).count(str(number)) < 3:
        raise OSError("try again")
    return number


def unpicklable_result(_):
    return lambda: None


def forever(folder):
    (Path(folder) / f"pid-{os.getpid()}").touch()
    time.sleep(3600)


def forever_with_child(folder):
    child = subprocess.Popen(["sleep", "3600"])
    (Path(folder) / f"pid-{child.pid}").touch()
    return forever(folder)


def forever_unless_none(folder):
    return None if folder is None else forever(folder)


def sleep_if_one(number):
    time.sleep(3600 if number == 1 else 0)
    return number


def threads(_):
    return os.environ["OMP_NUM_THREADS"]


def nested(number):
    return pmap(square, [number], on="local:1")


def mutate(array):
    array += 1
    return float(np.sum(array))


class Scale:
    """A callable object: its factor is part of what it computes."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, item):
        folder, number = item
        log_line(folder, number)
        return self.factor * number


def on_which_node(item):
    """A block too large to travel inside the answer; the Ray node that made it leaves a mark.

    All but the first wait until somebody has said so.
    """
    import ray

    folder, number = item
    node = ray.get_runtime_context().get_node_id()
    (Path(folder) / f"node-{node}").touch()
    while number and not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return np.full(200_000, number)


def nodes_seen(folder):
    return {path.name.removeprefix("node-") for path in Path(folder).glob("node-*")}
