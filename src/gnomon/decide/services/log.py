"""The decision log: append-only JSON lines, from which decisions are explained and replayed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import msgspec
import numpy as np

from gnomon.decide.services.guard import BARE, Decision, Guard, Rails, decision_rng
from gnomon.decide.services.policy import ServicePolicy
from gnomon.decide.services.state import PERCENTILES, Window
from gnomon.errors import InputError
from gnomon.graph.application import Application


class LogHead(msgspec.Struct, frozen=True):
    """The first line of a log: who decided, for which services and classes, with which rails."""

    manager: str
    services: tuple[str, ...]
    classes: tuple[str, ...]
    seed: int
    rails: dict[str, float | int | bool | None] = {}
    kind: str = "gnomon decision log"


class LogRow(msgspec.Struct, frozen=True):
    """One decision: what was measured, what was applied, why."""

    window: dict[str, Any]
    cpu_limit: list[float | None]
    replicas: list[int]
    verdict: str
    reason: str
    trust: float
    reasons: dict[str, str] = {}


class DecisionLog:
    """Writes decisions as they are made; each line is flushed, so that a crash loses none."""

    def __init__(
        self, path: str | os.PathLike[str], app: Application, manager: str, *, seed: int = 0,
        rails: Rails | None = None,
    ) -> None:  # fmt: skip
        head = LogHead(
            manager, tuple(app.services), tuple(app.classes), seed,
            {} if rails is None else _plain(msgspec.structs.asdict(rails)),
        )  # fmt: skip
        try:
            is_torn = _is_torn(Path(path))
            self._file: IO[bytes] = open(path, "ab")  # noqa: SIM115
        except OSError as error:
            raise InputError(error.strerror or str(error), where=os.fspath(path)) from None
        if is_torn:  # by a crash: what follows must not be part of that line
            self._file.write(b"\n")
        self._write(head)

    def write(self, decision: Decision) -> None:
        window = {
            field: _plain(getattr(decision.window, field))
            for field in decision.window.__struct_fields__
        }
        given = decision.allocation
        self._write(
            LogRow(
                window, _plain(given.cpu_limit), _plain(given.replicas), decision.verdict,
                decision.reason, decision.trust, given.reasons,
            )
        )  # fmt: skip

    def _write(self, row: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(row) + b"\n")
        self._file.flush()

    def __enter__(self) -> DecisionLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._file.close()


class Log(msgspec.Struct, frozen=True):
    """What a log holds.

    Attributes:
        decisions: Each with its head; a log that was appended to has several heads.
        torn: Lines that a crash cut off; they are left out.
    """

    decisions: list[tuple[LogHead, LogRow]]
    torn: int = 0

    def __iter__(self) -> Iterator[tuple[LogHead, LogRow]]:
        return iter(self.decisions)


def read_log(path: str | os.PathLike[str]) -> Log:
    """Every decision of a log. What was cut off by a crash is left out and counted."""
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path)) from None
    head: LogHead | None = None
    decisions: list[tuple[LogHead, LogRow]] = []
    torn = 0
    for number, line in enumerate(lines, 1):
        whole = line
        if line and not _is_json(line):
            torn += 1
            # In logs of older versions a head follows a torn line at once.
            whole = line[line.rfind(_HEAD) :] if _HEAD in line else b""
            whole = whole if whole and _is_json(whole) else b""
        try:
            if whole.startswith(_HEAD):
                head = msgspec.json.decode(whole, type=LogHead)
            elif whole:
                row = msgspec.json.decode(whole, type=LogRow)
                _check_row(head, row)
                decisions.append((cast(LogHead, head), row))
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            what = f"the window lacks {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"line {number}: {what}", where=str(path), hint=_HINT) from None
    if torn and head is None:
        raise InputError("holds no decision", where=str(path), hint=_HINT)
    return Log(decisions, torn)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _is_torn(path: Path) -> bool:
    """Whether a file ends within a line."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _check_row(head: LogHead | None, row: LogRow) -> None:
    """Refuses measurements that are not of the services and classes of the head."""
    if head is None:
        raise ValueError("a decision before any head")
    window, services, classes = _window(row.window), len(head.services), len(head.classes)
    for name in Window.__struct_fields__:
        found = getattr(window, name)
        if isinstance(found, float):
            continue
        columns = classes if name.startswith("class_") else services
        rows = {"class_ms": len(PERCENTILES), "service_ms": len(PERCENTILES)}.get(name)
        if name.endswith("_samples"):
            fits = found.size == 0 or (found.ndim == 2 and found.shape[1] == columns)
        else:
            fits = found.shape == ((columns,) if rows is None else (rows, columns))
        if not fits:
            raise TypeError(f"window.{name} is not of {columns} columns")
    if not len(row.cpu_limit) == len(row.replicas) == services:
        raise TypeError(f"an allocation that is not of {services} services")


def replay_log(
    path: str | os.PathLike[str], app: Application, policy: ServicePolicy
) -> list[tuple[LogRow, Decision]]:
    """What a manager would decide on recorded windows, beside what was decided then.

    The rails and the seed are those of the log: with its manager both are the same. With another
    it is a dry run on yesterday's measurements: what its decisions would have changed is not in
    them.
    """
    guard: Guard | None = None
    last: LogHead | None = None
    compared = []
    for head, row in read_log(path):
        if head is not last:
            if head.services != tuple(app.services) or head.classes != tuple(app.classes):
                raise InputError("is of another application", where=os.fspath(path))
            rails = msgspec.convert(head.rails, Rails) if head.rails else BARE
            guard = Guard(app, policy, decision_rng(head.seed), rails)
            last = head
        assert guard is not None
        compared.append((row, guard.decide(_window(row.window))))
    return compared


_INFINITE = 1e308
_HEAD = b'{"manager"'
_HINT = "is it a decision log?"


def _plain(value: Any) -> Any:
    """JSON has neither NaN nor infinity: null, and a number past all limits."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return None if math.isnan(value) else max(min(value, _INFINITE), -_INFINITE)
    return value


def _window(plain: dict[str, Any]) -> Window:
    def array(name: str, kind: Any = float) -> Any:
        found = np.array(plain[name], dtype=kind)
        return np.where(found >= _INFINITE, math.inf, found) if kind is float else found

    scalars = {name: float(plain[name]) for name in ("now_s", "duration_s", "foreign_cores")}
    columns = {
        name: array(name)
        for name in Window.__struct_fields__
        if name not in {*scalars, "replicas"}
    }
    fields: dict[str, Any] = {**scalars, **columns, "replicas": array("replicas", np.int64)}
    return Window(**fields)
