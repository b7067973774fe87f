"""How far a map has come: a callback, and a bar for terminals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichBar
    from rich.progress import TaskID


class Progress(Protocol):
    """Notified of how many items are done, reused and failed ones included.

    An object that also has `close()` is closed when the map ends, however it ends.

    >>> class Dots:
    ...     def update(self, done: int, total: int) -> None:
    ...         print(f"{done}/{total}")
    >>> from gnomon.parallel import pmap
    >>> pmap(abs, [-1, 2], on="serial", progress=Dots())
    0/2
    1/2
    2/2
    [1, 2]
    """

    def update(self, done: int, total: int) -> None:
        """Take note that `done` of `total` items are finished."""


class RichProgress:
    """A bar on stderr, drawn only when stderr is a terminal.

    >>> from gnomon.parallel import pmap
    >>> pmap(abs, [-1, 2], on="serial", progress=RichProgress("sweep"))
    [1, 2]
    """

    def __init__(self, label: str = "working") -> None:
        self._label = label
        self._bar: RichBar | None = None
        self._task: TaskID | None = None

    def update(self, done: int, total: int) -> None:
        if self._bar is None:
            if not sys.stderr.isatty():
                return
            self._start(total)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)

    def close(self) -> None:
        """Leave the terminal as a bar that has ended leaves it; may be called twice."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def _start(self, total: int) -> None:
        # Imported here: most maps run without a terminal, and rich takes about 0.1 s to import.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(self._label, total=total)
        self._bar.start()
