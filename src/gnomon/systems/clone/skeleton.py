"""The shape of the paths that a service takes: blocks without their instructions.

A block keeps its place, its length, what it does to the stack, how many loads and stores it has,
and how it ends. Where an access goes is said by kind: to the stack, to a line that is always the
same, near to what was touched before, or as far away as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.table import Dictionary, ListOf, read_arrow, write_arrow

PAGE, LINE = 4096, 64
#: Pages keep their number modulo this: caches of up to this many pages a way see the same
#: conflicts.
PAGE_COLOURS = 16
#: Lines: nearer ones are in every cache.
NEAR = 16

#: Places of an access. The last two are lines that each connection has of its own: the one of
#: the call before, and the one of the call that follows.
STACK, CONSTANT, CLOSE, AWAY, CONNECTION, NEXT = range(6)
FILLER, PUSH, POP, MOVE, LOAD, SAVE, MODIFY, REPEAT = range(8)  # what an operation does


class Op(msgspec.Struct):
    """One instruction of a block, but for the last: what it does, and where.

    Attributes:
        value: Of a move of the stack pointer, the bytes; of an access to the stack, from the
            stack pointer at
            the begin of the block; of one to a line of its own, its number; of one far away, the
            bucket.
    """

    does: int
    place: int = CLOSE
    value: int = 0

    @property
    def moves(self) -> int:
        """The stack pointer, by so many bytes."""
        return {PUSH: -8, POP: 8, MOVE: self.value}.get(self.does, 0)


class Block(msgspec.Struct):
    """Straight code.

    Attributes:
        at: Where it begins, in bytes.
        ends: `fall`, or the class of its last instruction.
        target, next: Of a jump and of what comes after it in memory; -1: never executed.
        chance: That it jumps, of a branch to what comes after it.
    """

    at: int
    bytes: int
    ops: list[Op]
    ends: str
    target: int = -1
    next: int = -1
    chance: float | None = None


class Path(msgspec.Struct):
    """One way through an edge: blocks, one after the other.

    Attributes:
        kind: Of the request that was read before.
        depth: Of the stack pointer at its begin, below the highest of all paths.
        returns: For each return that the path has no call for: where in the stack, from its
            begin, and the block that follows.
        lines: Different lines of data that it touches.
    """

    edge: int
    kind: int
    weight: float
    depth: int
    blocks: list[int]
    returns: list[tuple[int, int]]
    lines: int = 0


class Skeleton(msgspec.Struct):
    """Blocks, paths through them, and the lines of data that are touched in the same place each
    time.

    Attributes:
        lines: By number: where, in lines; below 0: so many below the highest stack pointer.
        left_out: Share of the work in samples that could not be followed.
        connection_lines: That each connection has of its own.
    """

    blocks: list[Block]
    paths: list[Path]
    lines: list[int]
    left_out: float = 0.0
    connection_lines: int = 0


# --- on disk -------------------------------------------------------------------------------------


FILES = ("blocks.arrow", "paths.arrow", "lines.arrow")


def write_skeleton(skeleton: Skeleton, folder: FilePath) -> list[str]:
    """Arrow files; returns their names."""
    blocks, paths = skeleton.blocks, skeleton.paths
    write_arrow(folder / "blocks.arrow", {
        "at": np.array([one.at for one in blocks], np.int64),
        "bytes": np.array([one.bytes for one in blocks], np.int32),
        "ends": Dictionary.of([one.ends for one in blocks]),
        "target": np.array([one.target for one in blocks], np.int32),
        "next": np.array([one.next for one in blocks], np.int32),
        "operations": _lists([one.ops for one in blocks], {
            "does": lambda op: op.does, "place": lambda op: op.place,
            "value": lambda op: op.value}),
    }, {"left_out": repr(skeleton.left_out),
        "connection_lines": str(skeleton.connection_lines)})  # fmt: skip
    write_arrow(folder / "paths.arrow", {
        "edge": np.array([one.edge for one in paths], np.int32),
        "kind": np.array([one.kind for one in paths], np.int32),
        "weight": np.array([one.weight for one in paths], np.float64),
        "depth": np.array([one.depth for one in paths], np.int64),
        "lines": np.array([one.lines for one in paths], np.int32),
        "blocks": _lists([one.blocks for one in paths], {"block": lambda one: one}),
        "returns": _lists([one.returns for one in paths], {
            "place": lambda one: one[0], "block": lambda one: one[1]}),
    })  # fmt: skip
    write_arrow(folder / "lines.arrow", {"line": np.array(skeleton.lines, np.int64)})
    return list(FILES)


def _lists(rows: Sequence[Sequence[Any]], parts: dict[str, Callable[[Any], int]]) -> ListOf:
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = [one for row in rows for one in row]
    return ListOf(offsets, {name: np.array([of(one) for one in flat], np.int64)
                            for name, of in parts.items()})  # fmt: skip


def read_skeleton(folder: FilePath) -> Skeleton:
    """What `write_skeleton` wrote."""
    blocks, paths, lines = (
        read_arrow(folder / f"{name}.arrow") for name in ("blocks", "paths", "lines")
    )
    try:
        ops = _rows(blocks["operations"], "does", "place", "value")
        made = [
            Block(at, size, [Op(*one) for one in mine], ends, target, after)
            for at, size, ends, target, after, mine in zip(
                blocks["at"].tolist(), blocks["bytes"].tolist(), blocks["ends"],
                blocks["target"].tolist(), blocks["next"].tolist(), ops, strict=True)
        ]  # fmt: skip
        walks = [
            Path(edge, kind, weight, depth, [one for one, in mine], returns, touched)
            for edge, kind, weight, depth, touched, mine, returns in zip(
                *(paths[name].tolist() for name in ("edge", "kind", "weight", "depth", "lines")),
                _rows(paths["blocks"], "block"), _rows(paths["returns"], "place", "block"),
                strict=True)
        ]  # fmt: skip
        return Skeleton(
            made, walks, lines["line"].tolist(), float(blocks.metadata["left_out"]),
            int(blocks.metadata["connection_lines"]),
        )  # fmt: skip
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"its paths cannot be read: {error}", where=str(folder)) from None


def _rows(lists: ListOf, *names: str) -> list[list[Any]]:
    assert isinstance(lists.child, Mapping)
    parts = [np.asarray(lists.child[name]).tolist() for name in names]
    flat = list(zip(*parts, strict=True))
    return [
        flat[a:b] for a, b in zip(lists.offsets.tolist(), lists.offsets[1:].tolist(), strict=False)
    ]
