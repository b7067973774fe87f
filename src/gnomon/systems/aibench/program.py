"""A benchmark's program: what runs on which thread, on which data, in a compact file.

The file is gzipped JSON that `run.py` turns into Python. Arguments are written as they are, or as
a list that begins with a letter: `["r", 5]` a register, `["x", 3]` a tensor made beforehand,
`["L", ...]` a list of such, `["d", "bfloat16"]` a type, and so on (`run.py` has the table).
"""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import msgspec

#: Programs of another number are refused by `run.py`.
FORMAT = 1
Encoded = Any


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """How a tensor looks; `strides` empty for contiguous."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    on_cpu: int


class Storage(msgspec.Struct, array_like=True):
    """Memory that is there before the first step: bytes, where, and what it is filled with.

    `on_cpu` is 0 for the device, 1 for the host, and 2 for host memory that is pinned.
    """

    nbytes: int
    on_cpu: int
    fill: list[Any]


class Made(msgspec.Struct, frozen=True, array_like=True):
    """A tensor on such memory."""

    storage: int
    offset: int
    meta: int


class Call(msgspec.Struct):
    """One call.

    Attributes:
        does: The operator, as in `torch.ops`; "" for a placeholder kernel.
        args: Encoded arguments.
        kwargs: Encoded arguments by name.
        outs: Registers of the results, nested as they come, None for unused ones.
        metas: How each register in `outs` looks, in order: for a placeholder kernel.
        at: The node in the trace.
        thread: The host thread.
        stream: The device's stream, by number; 0 is the default.
        host_ns: Host time from its start to the start of the thread's next call.
        device_ns: Time of its kernels.
        blocks: Whether the host waits in it for the device.
        checks: Arguments that have to be indices: position (or positions in a list), and bound.
        role: As chosen.
        title: What it is called in reports of the build; never written.
        reads: Data it reads, by number; also `writes`.
        frees: Registers that are unused after it.
        times: How often it runs.
    """

    does: str
    args: list[Encoded]
    kwargs: dict[str, Encoded]
    outs: Any
    metas: list[int]
    at: int
    thread: int
    role: str
    title: str
    stream: int = 0
    host_ns: float = 0.0
    device_ns: float = 0.0
    blocks: bool = False
    checks: list[list[Any]] = []
    reads: set[int] = set()
    writes: set[int] = set()
    frees: list[int] = []
    times: int = 1
    extra: dict[str, Any] = {}


class Signal(msgspec.Struct, frozen=True):
    """Between calls: `post`/`need` between threads, `mark`/`hold` between streams."""

    kind: str
    number: int


class Program(msgspec.Struct):
    """Steps of threads of calls, and the data they begin with.

    `order` lists which of the steps make one step of the benchmark, round by round.
    """

    storages: list[Storage]
    made: list[Made]
    metas: list[Meta]
    steps: list[list[list[Call | Signal]]]
    order: list[list[int]]
    settings: dict[str, Any]
    streams: int
    signals: int
    events: int


def encode(program: Program) -> dict[str, Any]:
    """The program as plain data."""
    operators: dict[str, int] = {}
    steps = [
        [[_encode(item, operators) for item in thread] for thread in step]
        for step in program.steps
    ]
    names = ("settings", "metas", "storages", "made", "streams", "signals", "events")
    plain = {name: msgspec.to_builtins(getattr(program, name)) for name in names}
    return {
        "format": FORMAT, **plain, "steps": steps, "order": program.order,
        "operators": list(operators),
    }  # fmt: skip


def _encode(item: Call | Signal, operators: dict[str, int]) -> list[Any]:
    if isinstance(item, Signal):
        return [item.kind, item.number]
    does = operators.setdefault(item.does, len(operators)) if item.does else -1
    row = [does, item.args, item.outs, item.metas, item.frees]
    row += [_tenths(item.host_ns), _tenths(item.device_ns)]
    more = {
        "k": item.kwargs, "s": item.stream, "b": int(item.blocks), "i": item.checks,
        "n": item.times if item.times != 1 else 0, **item.extra,
    }  # fmt: skip
    more = {key: value for key, value in more.items() if value}
    return [*row, more] if more else row


def _tenths(ns: float) -> int:
    """Tenths of a microsecond: the resolution of clocks and spinning."""
    return round(ns / 100.0) if math.isfinite(ns) else 0


def write(program: Program, path: Path) -> None:
    """Writes the file; the same program gives the same bytes."""
    raw = msgspec.json.encode(encode(program))
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(raw)
