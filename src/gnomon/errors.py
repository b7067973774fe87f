"""What gnomon raises on purpose. A message says what, where, and what to do now.

The command line prints the message as one line and leaves with `exit_code`:
1 is an internal error, 2 is wrong input or usage, 3 means that the answer is "no".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class GnomonError(Exception):
    """Anything gnomon raises on purpose."""

    exit_code: ClassVar[int] = 1


class InputError(GnomonError, ValueError):
    """A file or a parameter is wrong.

    >>> str(InputError("event 7 has no 'ts'", where="trace.json", hint="was the file cut short?"))
    "trace.json: event 7 has no 'ts'; was the file cut short?"
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what, self.where, self.hint = what, where, hint
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text}; {hint}" if hint else text)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling, and workers send errors home.
        return (_rebuild_input_error, (type(self), self.what, self.where, self.hint))


def _rebuild_input_error(
    cls: type[InputError], what: str, where: str | None, hint: str | None
) -> InputError:
    return cls(what, where=where, hint=hint)


class GraphError(InputError):
    """The workload graph is malformed: a cycle, a dangling edge, a negative duration."""


class SimulationError(GnomonError):
    """The run cannot go on. Carries the simulated time and the tasks that are stuck."""

    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, *, at_ns: int = 0, blocked: Sequence[int] = ()) -> None:
        self.at_ns, self.blocked = at_ns, tuple(blocked)
        super().__init__(what)


class Infeasible(GnomonError):
    """No decision meets the constraints; the message says which and by how much."""

    exit_code: ClassVar[int] = 3


class ActuationError(GnomonError):
    """The target refused or did not answer; nothing is assumed to have happened."""


class WorkerError(GnomonError):
    """A function failed in a worker process; carries which item, and the worker's traceback."""

    def __init__(self, what: str, *, index: int = -1, remote_traceback: str = "") -> None:
        self.index, self.remote_traceback = index, remote_traceback
        super().__init__(what)


class MissingExtra(GnomonError, ImportError):
    """An optional dependency is absent; the message is the install line."""

    exit_code: ClassVar[int] = 2

    def __init__(self, package: str, extra: str, needed_for: str) -> None:
        self.package, self.extra, self.needed_for = package, extra, needed_for
        remedy = f"run: pip install 'gnomon[{extra}]'"
        super().__init__(f"{needed_for} needs {package}, which is not installed; {remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.package, self.extra, self.needed_for))
