"""Work models of muBench: services, whom each calls, and what each does for a request.

Groups of external services are called in parallel, those of a group one after the other; a group
with fewer calls than services draws them by chance. The loads are Python programs. Their CPU times
were measured with muBench's own code on CPython 3.11, on a core that computes 100 digits of pi in
0.6 ms; `speed` scales them to another.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, Milliseconds, RequestClass, Service, Work
from gnomon.ingest.text import BAD_JSON, read_whole

_MOST_BYTES = 64 << 20
_MOST_CALLS, _DEEPEST = 20_000, 150
#: ms for n digits of pi: so much for each, and for each pair.
_PI_MS, _PI_SQUARED_MS = 2.0e-3, 4.1e-5
#: ms for a kB of a response, of memory to fill and of memory to visit; for a block on a disk.
_RESPONSE_MS, _FILL_MS, _VISIT_MS, _BLOCK_MS = 0.31, 2.5e-5, 2.5e-4, 9.4e-3
_FSYNC_MS = 5.0  # not measured: it depends on the disk
_DEFAULTS: dict[str, dict[str, Any]] = {
    "cpu_stress": {
        "run": False, "range_complexity": [100, 100], "thread_pool_size": 1, "trials": 1,
    },
    "memory_stress": {"run": False, "memory_size": 10000, "memory_io": 1000},
    "disk_stress": {"run": False, "disk_write_block_count": 1000},
    "sleep_stress": {"run": True, "sleep_time": 0.01},
}  # fmt: skip


class WorkModel(msgspec.Struct, frozen=True):
    """An application, and what of the work model it leaves out or approximates."""

    app: Application
    notes: tuple[str, ...]


class _Group(msgspec.Struct):
    services: list[str] = []
    seq_len: int = 100
    probabilities: dict[str, float] = {}


class _Cell(msgspec.Struct, rename="kebab"):
    external_services: list[_Group] = msgspec.field(default=[], name="external_services")
    internal_service: Any = msgspec.field(default=None, name="internal_service")
    params: dict[str, Any] = {}
    workers: int = 1
    replicas: int = 1
    cpu_limits: str | float | None = None
    cpu_requests: str | float | None = None


def is_mubench(head: bytes) -> bool:
    """Whether a file begins as a work model does.

    >>> is_mubench(b'{"s0": {"external_services": [], "internal_service": {"loader": {}}}}')
    True
    """
    return (
        head.lstrip()[:1] == b"{"
        and b'"external_services"' in head
        and (b'"internal_service"' in head)
    )


def read_mubench(path: str | os.PathLike[str], *, speed: float = 1.0) -> WorkModel:
    """Read a work model. Services that nobody calls are where requests come in, each a class."""
    where = os.fspath(path)
    if not 0 < speed < math.inf:
        raise InputError(f"a speed of {speed:g}", hint="1 is the core that was measured")
    content = read_whole(path, _MOST_BYTES, "is it a work model?")
    try:
        document = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"), type=dict[str, Any])
    except BAD_JSON as error:
        what = f"is no work model: {str(error)[:200]}".splitlines()[0]
        raise InputError(what, where=where, hint="expected JSON, a service a key") from None
    cells = {name: _cell(value, name, where) for name, value in document.items()}
    if not any(cell.external_services or cell.internal_service for cell in cells.values()):
        raise InputError("is no work model", where=where, hint="expected services by name")
    maker = _Maker(cells, speed, where)
    called = {
        _plain(one)
        for cell in cells.values()
        for g in cell.external_services
        for one in g.services
    }
    entries = [name for name in cells if name not in called] or list(cells)[:1]
    classes = {name: RequestClass(maker.call(name, 1.0, (name,))) for name in entries}
    try:
        app = Application(
            os.path.basename(where).partition(".")[0] or "mubench",
            {name: _service(cell, name, where) for name, cell in cells.items()}, classes,
        )  # fmt: skip
    except InputError as error:
        raise InputError(error.what, where=f"{where} {error.where or ''}".strip(),
                         hint=error.hint) from None  # fmt: skip
    return WorkModel(app, tuple(sorted(maker.notes)))


def _cell(value: Any, name: str, where: str) -> _Cell:
    try:
        return msgspec.convert(value, _Cell)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        place = f"{where} $.{name}{at.rstrip('`')}"
        raise InputError(what.replace("`", "'"), where=place, hint="is it a work model?") from None


def _service(cell: _Cell, name: str, where: str) -> Service:
    limit = _cores(cell.cpu_limits, f"{where} $.{name}.cpu-limits")
    request = _cores(cell.cpu_requests, f"{where} $.{name}.cpu-requests")
    # A Python process computes in one of its threads at a time, and serves others meanwhile.
    return Service(
        replicas=cell.replicas, workers=cell.workers, cpu_limit=limit,
        cpu_request=request or limit or 1.0, cpu_max=max(8.0, limit or 0.0),
    )  # fmt: skip


def _cores(text: str | float | None, where: str) -> float | None:
    """Cores as Kubernetes writes them: 0.5, '2', '500m'."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(m?)", str(text).strip())
    if match is None:
        raise InputError(f"{str(text)[:40]!r} is no number of cores", where=where)
    return float(match[1]) * (1e-3 if match[2] else 1.0)


def _plain(service: str) -> str:
    """Services are called under names with an escape: `s1__3` is `s1`."""
    return service.partition("__")[0]


class _Maker:
    """Services to call trees."""

    def __init__(self, cells: Mapping[str, _Cell], speed: float, where: str) -> None:
        self.cells, self.speed, self.where = cells, speed, where
        self.notes: set[str] = set()
        self.calls = 0

    def call(self, name: str, probability: float, path: tuple[str, ...]) -> Call:
        self.calls += 1
        if self.calls > _MOST_CALLS or len(path) > _DEEPEST:
            raise InputError("a request makes too many calls", where=self.where,
                             hint="services that call each other multiply")  # fmt: skip
        cell = self.cells[name]
        columns = [self._group(group, name, path) for group in cell.external_services]
        if sum(len(column) > 0 for column in columns) > 1 and max(map(len, columns)) > 1:
            self.notes.add("The n-th calls of all groups are made together, and waited for.")
        # Groups run side by side: the n-th calls of all are a stage.
        depth = max(map(len, columns), default=0)
        stages = (tuple(column[i] for column in columns if i < len(column)) for i in range(depth))
        cpu_ms, wait_ms = self._work(cell, name)
        return Call(name, cpu_ms, wait_ms, tuple(stages), probability=probability)

    def _group(self, group: _Group, caller: str, path: tuple[str, ...]) -> list[Call]:
        share = 1.0
        if 0 <= group.seq_len < len(group.services):
            share = group.seq_len / len(group.services)
            self.notes.add("Groups that draw some of their services call each by chance.")
        made = []
        for one in group.services:
            name = _plain(one)
            if name not in self.cells:
                raise InputError(
                    f"{caller!r} calls {name!r}, which is not there", where=self.where
                )
            if name in path:
                self.notes.add("A call back to a service that waits for it is left out.")
                continue
            chance = share * group.probabilities.get(one, 1.0)
            made.append(self.call(name, chance, (*path, name)))
        return made

    def _work(self, cell: _Cell, name: str) -> tuple[Milliseconds, Milliseconds]:
        """CPU time and waiting of one request."""
        try:
            return self._loads(cell)
        except (TypeError, ValueError, KeyError, IndexError, OverflowError, AttributeError):
            where = f"{self.where} $.{name}.internal_service"
            raise InputError("is not as muBench writes it", where=where) from None

    def _loads(self, cell: _Cell) -> tuple[Milliseconds, Milliseconds]:
        internal: Any = cell.internal_service or {}
        if isinstance(internal, str):  # the first version: a name, and its parameters beside
            internal = {internal: cell.params}
        function: str = next(iter(internal), "")
        given: dict[str, Any] = internal.get(function) or {}
        size_kb = float(given.get("mean_response_size", given.get("mean_bandwidth", 11.0)))
        if function == "compute_pi":
            low, high = given.get("range_complexity", (50, 100))
            return self._cpu(_pi_ms(low), _pi_ms((low + high) / 2), _pi_ms(high), 0.0), 0.0
        if function != "loader":
            if function:
                self.notes.add(f"What {function!r} does is not known: it takes no time.")
            return 0.0, 0.0
        loads = {key: {**base, **given.get(key, {})} for key, base in _DEFAULTS.items()}
        cpu, memory, disk, sleep = loads.values()
        base_ms, pi_ms, wait_ms = 0.0, [0.0, 0.0, 0.0], 0.0
        if cpu["run"]:
            low, high = cpu["range_complexity"]
            times = int(cpu["trials"]) * int(cpu["thread_pool_size"])
            pi_ms = [times * _pi_ms(digits) for digits in (low, (low + high) / 2, high)]
        if memory["run"]:
            base_ms += _FILL_MS * float(memory["memory_size"]) + _VISIT_MS * float(
                memory["memory_io"]
            )
        if disk["run"]:
            base_ms += _BLOCK_MS * float(disk["disk_write_block_count"])
            wait_ms += _FSYNC_MS
            self.notes.add(f"Writing to a disk waits for {_FSYNC_MS:g} ms, which is a guess.")
        if sleep["run"]:
            wait_ms += 1e3 * float(sleep["sleep_time"])
        low_ms, middle_ms, high_ms = (base_ms + one for one in pi_ms)
        return self._cpu(low_ms, middle_ms, high_ms, _RESPONSE_MS * size_kb), wait_ms

    def _cpu(self, low: float, middle: float, high: float, response_ms: float) -> Milliseconds:
        """Uniform between two times, and an exponential one for the response."""
        mean = (middle + response_ms) / self.speed
        spread = math.hypot((high - low) / math.sqrt(12), response_ms) / self.speed
        if not math.isfinite(mean) or mean < 0:
            raise ValueError
        return Work(mean=round(mean, 6), cv=round(spread / mean, 6)) if spread else round(mean, 6)


def _pi_ms(digits: float) -> float:
    return _PI_MS * float(digits) + _PI_SQUARED_MS * float(digits) ** 2
