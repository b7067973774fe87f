"""The decision log: append-only JSON lines, from which decisions are explained and replayed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import msgspec
import numpy as np

from gnomon.decide.services.guard import BARE, Decision, Guard, Rails
from gnomon.decide.services.policy import ServicePolicy
from gnomon.decide.services.state import Window
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
            self._file: IO[bytes] = open(path, "ab")  # noqa: SIM115
        except OSError as error:
            raise InputError(error.strerror or str(error), where=os.fspath(path)) from None
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


def read_log(path: str | os.PathLike[str]) -> Iterator[tuple[LogHead, LogRow]]:
    """Every decision of a log with its head; a log that was appended to has several heads.

    A last line that was cut off by a crash is left out.
    """
    where = Path(path)
    try:
        lines = where.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path)) from None
    head: LogHead | None = None
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line.endswith(b"\n"):
            break
        try:
            if line.startswith(b'{"manager"'):
                head = msgspec.json.decode(line, type=LogHead)
                continue
            row = msgspec.json.decode(line, type=LogRow)
        except msgspec.DecodeError as error:
            raise InputError(f"line {number}: {error}", where=str(path),
                             hint="is it a decision log?") from None  # fmt: skip
        if head is None:
            raise InputError("does not begin with its head", where=str(path))
        yield head, row


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
            guard = Guard(app, policy, np.random.default_rng([head.seed, 0xDEC1DE]), rails)
            last = head
        assert guard is not None
        compared.append((row, guard.decide(_window(row.window))))
    return compared


_INFINITE = 1e308


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
