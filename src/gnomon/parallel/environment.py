"""The environment that new processes inherit, changed for the moment in which they start."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_lock = threading.Lock()


@contextmanager
def lent(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for processes started inside; ours is as before afterwards.

    >>> with lent({"GNOMON_EXAMPLE": "1"}):
    ...     os.environ["GNOMON_EXAMPLE"]
    '1'
    >>> "GNOMON_EXAMPLE" in os.environ
    False
    """
    # Two maps may start workers from two threads: one must not restore what the other has set.
    with _lock:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
