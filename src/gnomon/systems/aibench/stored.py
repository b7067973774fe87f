"""Benchmarks read back: the program and the sources beside it."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import msgspec

from gnomon.errors import InputError
from gnomon.systems.aibench.program import FORMAT, Call, Made, Meta, Program, Signal, Storage

_PROGRAM = "program.json.gz"
_SIGNALS = ("post", "need", "mark", "hold")
_DAMAGED = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError,
            msgspec.ValidationError)  # fmt: skip
#: What a row has of its own; the rest of its last field goes along as it is.
_OWN = ("k", "s", "b", "i", "n")


class Stored(msgspec.Struct, frozen=True, eq=False):
    """A benchmark.

    Attributes:
        modules: Sources of the modules beside `run.py`, by name, in the order they are loaded.
    """

    program: Program
    modules: dict[str, str]
    kernels: list[str]


def read_bench(folder: Path) -> Stored:
    """Reads a benchmark.

    Raises:
        InputError: The folder is none, or something in it is broken.
    """
    path = folder / _PROGRAM
    if not path.is_file():
        raise InputError(
            f"there is no {_PROGRAM} in it", where=str(folder), hint="is it a benchmark?"
        )
    try:
        plain = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise InputError(f"cannot be read ({error})", where=str(path)) from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        found = plain.get("format") if isinstance(plain, dict) else None
        raise InputError(
            f"its format is {found}, not {FORMAT}", where=str(path),
            hint="build it again with this version",
        )  # fmt: skip
    try:
        program = decode(plain)
        names = [str(name) for name in plain["settings"].get("modules", [])]
    except _DAMAGED as error:
        raise InputError(
            f"is no program of a benchmark ({type(error).__name__}: {error})", where=str(path)
        ) from None
    modules = {name: _source(folder / f"{name}.py") for name in names if name != "kernels"}
    kernels: list[str] = []
    while (path := folder / "compiled" / f"kernel_{len(kernels)}.py").is_file():
        kernels.append(_source(path))
    return Stored(program, modules, kernels)


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(
            f"a part of the benchmark cannot be read ({error})", where=str(path)
        ) from None


def decode(plain: dict[str, Any]) -> Program:
    """A program from plain data: what `program.encode` made."""
    steps = [
        [[_item(row, plain["operators"], at) for row in rows] for at, rows in enumerate(threads)]
        for threads in plain["steps"]
    ]
    types = {"storages": list[Storage], "made": list[Made], "metas": list[Meta],
             "order": list[list[int]], "settings": dict[str, Any],
             **dict.fromkeys(("streams", "signals", "events"), int)}  # fmt: skip
    rest: dict[str, Any] = {
        name: msgspec.convert(plain[name], type) for name, type in types.items()
    }
    return Program(steps=steps, **rest)


def _item(row: list[Any], operators: list[str], thread: int) -> Call | Signal:
    if isinstance(row[0], str):
        if row[0] not in _SIGNALS:
            raise ValueError(f"unknown signal {row[0]!r}")
        return Signal(row[0], int(row[1]))
    does, args, outs, metas, frees, host, device = row[:7]
    more: dict[str, Any] = dict(row[7]) if len(row) > 7 else {}
    call = Call(operators[does] if does >= 0 else "", args, more.get("k", {}), outs, metas, 0,
                thread, "", "", frees=frees)  # fmt: skip
    call.host_ns, call.device_ns = 100.0 * host, 100.0 * device
    call.stream, call.blocks = more.get("s", 0), bool(more.get("b", 0))
    call.checks, call.times = more.get("i", []), more.get("n", 1)
    call.extra = {key: value for key, value in more.items() if key not in _OWN}
    return call
