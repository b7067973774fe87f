"""What the profiler recorded of a process: blocks of code, system calls, and what lies between."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.systems.clone.instructions import CLASSES, INDEX, Decoded, decode

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Of stack distances: 0 is the line of the access before, b is 2^(b-1) to 2^b - 1 lines, the last
#: was never seen.
BUCKETS = 26
_KIND_SHIFT, _VAIN = 12, 1 << 16
#: Of the sequence of blocks, as far as dependencies are followed.
_FOLLOWED = 60_000
#: Distances in instructions from a write of a register to a read: 1, 2 to 3, 4 to 7, ... and from
#: 128 on.
DEPENDENCY_BINS = 8


class Key(msgspec.Struct, frozen=True, order=True):
    """A system call by what it does.

    Its number, what its descriptor is, and whether it came back empty-handed.
    """

    number: int
    target: int = 0
    is_vain: bool = False

    @classmethod
    def of(cls, packed: int) -> Key:
        return cls(packed & 0xFFF, packed >> _KIND_SHIFT & 0xF, bool(packed & _VAIN))


class Edge(msgspec.Struct, frozen=True):
    """What a thread executes from the end of one system call to the next, over `count` times.

    Attributes:
        mix: Instructions by class.
        code, load, store: Accesses by stack distance of their cache line.
        clocks: Reads of the clock, which enter no kernel natively.
        repeats: Iterations of repeated string instructions, the first ones apart.
    """

    before: Key
    after: Key
    count: int
    mix: tuple[float, ...]
    code: tuple[int, ...]
    load: tuple[int, ...]
    store: tuple[int, ...]
    clocks: int = 0
    repeats: int = 0

    @property
    def instructions(self) -> float:
        return sum(self.mix)


class Branches(msgspec.Struct, frozen=True):
    """Conditional branches: executions of each, how often it was taken, how often that changed."""

    executed: Ints
    taken: Ints
    changed: Ints


class Recording(msgspec.Struct, frozen=True):
    """One process.

    Attributes:
        calls: Rows of thread, key (packed), three arguments and result.
        dependencies: Shares of register reads by distance from the write.
    """

    edges: tuple[Edge, ...]
    calls: Ints
    calls_left_out: int
    branches: Branches
    dependencies: tuple[float, ...]

    @property
    def instructions(self) -> float:
        return sum(one.instructions for one in self.edges)


def read_recording(path: Path) -> Recording:
    """A file of the profiler's plugin."""
    arrays = _read_arrays(path)
    block = arrays["block"].reshape(-1, 4)
    outcome = arrays["outcome"].reshape(-1, 4)
    code = arrays["code"].tobytes()
    used = np.zeros(len(block), bool)
    executed = arrays["edge_executed"].reshape(-1, 3)
    used[executed[:, 1]] = True
    decoded: list[tuple[Decoded, ...]] = [()] * len(block)
    for i in np.flatnonzero(used):
        _, size, _, at = block[i]
        decoded[i] = tuple(decode(code[at : at + size]))
    return Recording(
        _edges(arrays, executed, decoded), arrays["call"].reshape(-1, 6),
        int(arrays["left_out"][0]), _branches(outcome, decoded),
        _dependencies(arrays["sequence"][:_FOLLOWED], decoded),
    )  # fmt: skip


def _read_arrays(path: Path) -> dict[str, Ints]:
    data = path.read_bytes()
    if data[:8] != b"GNPROF01":
        raise InputError("not a recording of the profiler", where=str(path))
    at, found = 8, {}
    kinds = {8: np.int64, 4: np.uint32, 1: np.uint8}
    while at + 32 <= len(data):
        name = data[at : at + 16].rstrip(b"\0").decode()
        size, count = (int(one) for one in np.frombuffer(data, np.uint64, 2, at + 16))
        if at + 32 + size * count > len(data):
            raise InputError(f"the recording is cut short in {name!r}", where=str(path))
        found[name] = np.frombuffer(data, kinds[size], count, at + 32)
        at += 32 + size * count
    return found


def _edges(
    arrays: dict[str, Ints], executed: Ints, decoded: list[tuple[Decoded, ...]]
) -> tuple[Edge, ...]:
    keys = arrays["edge_key"].reshape(-1, 2)
    totals = arrays["edge_total"].reshape(-1, 6)
    by_block = {
        int(i): np.bincount([one.kind for one in decoded[i]], minlength=len(CLASSES))
        for i in np.unique(executed[:, 1])
    }
    mixes = np.zeros((len(keys), len(CLASSES)))
    for number, block, times in executed:
        mixes[number] += times * by_block[int(block)]
    code, load, store = (
        arrays[f"edge_{what}"].reshape(-1, BUCKETS) for what in ("code", "load", "store")
    )
    return tuple(
        Edge(Key.of(int(keys[i, 0])), Key.of(int(keys[i, 1])), int(totals[i, 0]),
             mix=tuple(mixes[i].tolist()), code=tuple(code[i].tolist()),
             load=tuple(load[i].tolist()), store=tuple(store[i].tolist()),
             clocks=int(totals[i, 5]), repeats=int(totals[i, 4]))
        for i in range(len(keys))
    )  # fmt: skip


def _branches(outcome: Ints, decoded: list[tuple[Decoded, ...]]) -> Branches:
    branch = INDEX["branch"]
    mine = np.array([bool(one) and one[-1].kind == branch for one in decoded]) & (
        outcome[:, 0] > 0
    )
    followed, fell, changed = outcome[mine, 0], outcome[mine, 1], outcome[mine, 2]
    return Branches(followed, followed - fell, changed)


def _dependencies(sequence: Ints, decoded: list[tuple[Decoded, ...]]) -> tuple[float, ...]:
    written: dict[int, int] = {}
    counts = np.zeros(DEPENDENCY_BINS)
    now = 0
    for block in sequence:
        for one in decoded[int(block)]:
            now += 1
            for register in one.reads:
                if register in written:
                    counts[
                        min((now - written[register]).bit_length() - 1, DEPENDENCY_BINS - 1)
                    ] += 1
            for register in one.writes:
                written[register] = now
    return tuple((counts / max(counts.sum(), 1)).tolist())
