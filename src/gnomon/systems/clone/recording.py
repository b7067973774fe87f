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

#: Of stack distances: 0 is the line of the access before; then 1, 2 to 3, 4 to 7, 8 to 15 lines;
#: from there on four to an octave; the last was never seen.
BUCKETS = 86
#: Bits of an entry of a sample: it is a block; it is an access that stores.
BLOCK, STORE = 1 << 63, 1 << 62
_KIND_SHIFT, _VAIN = 12, 1 << 16
#: Blocks of samples, as far as dependencies are followed.
_FOLLOWED = 60_000
_HEAD_BYTES = 64
#: Distances in instructions from a write of a register to a read: 1, 2 to 3, 4 to 7, ... and from
#: 128 on.
DEPENDENCY_BINS = 8


def bucket_of(distance: int) -> int:
    """Of a line that was touched before so many others."""
    width = distance.bit_length()
    if width < 5:
        return width
    return min(5 + 4 * (width - 5) + (distance >> width - 3 & 3), BUCKETS - 2)


def distance_of(bucket: int) -> float:
    """The middle of a bucket, in lines."""
    if bucket < 5:
        return float(3 << bucket - 2) if bucket > 1 else float(bucket)
    octave, quarter = divmod(bucket - 5, 4)
    return (4.5 + quarter) * (1 << octave + 2)


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
        code_misses, data_misses: Of first-level caches like this machine's.
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
    code_misses: int = 0
    data_misses: int = 0

    @property
    def instructions(self) -> float:
        return sum(self.mix)


class Branches(msgspec.Struct, frozen=True):
    """Conditional branches: executions of each, how often it was taken, how often that changed."""

    block: Ints
    executed: Ints
    taken: Ints
    changed: Ints


class Sample(msgspec.Struct, frozen=True):
    """One execution of an edge, of one thread: blocks, each with the accesses after it.

    Attributes:
        read: The call that read the request before it; -1: none did.
        connection: Of the last call on one; -1: there was none.
        next: That of the call after it; -1: it is on none.
        result: Of the call before it.
        stratum, like_it: Samples of an edge are drawn in strata, and stand for so many executions
            together; those after a wait by how many events there were.
    """

    edge: int
    thread: int
    read: int
    connection: int
    next: int
    result: int
    entries: list[int]
    stratum: int = 0
    like_it: int = 1

    def blocks(self) -> list[int]:
        return [one & 0xFFFFFFFF for one in self.entries if one & BLOCK]

    def lines(self) -> set[int]:
        """Of data, that it touches."""
        return {(one & (1 << 45) - 1) >> 3 for one in self.entries if not one & BLOCK}


class Recording(msgspec.Struct, frozen=True):
    """One process.

    Attributes:
        calls: Rows of thread, key (packed), three arguments and result.
        indirect: Jumps and calls; changed is how often one went elsewhere than before.
        dependencies: Shares of register reads by distance from the write.
        block, code: Blocks as rows of address, bytes, instructions and place in the code.
        executed: How often each block was; `by_edge` has rows of edge, block and how often.
        samples: Executions of edges, kept whole.
        heads: How requests began, each with the number of the call that read it.
    """

    edges: tuple[Edge, ...]
    calls: Ints
    calls_left_out: int
    branches: Branches
    indirect: Branches
    dependencies: tuple[float, ...]
    block: Ints
    code: bytes
    executed: Ints
    by_edge: Ints
    samples: tuple[Sample, ...]
    heads: tuple[tuple[int, bytes], ...]

    def code_of(self, block: int) -> bytes:
        _, size, _, at = self.block[block]
        return self.code[at : at + size]

    def code_lines_of(self, sample: Sample) -> set[int]:
        """Lines of code that it executes."""
        found = set[int]()
        for block in set(sample.blocks()):
            at, size, _, _ = self.block[block].tolist()
            found.update(range(at >> 6, (at + size - 1 >> 6) + 1))
        return found

    def length_of(self, sample: Sample) -> int:
        """In instructions."""
        return int(self.block[sample.blocks(), 2].sum())

    @property
    def instructions(self) -> float:
        return sum(one.instructions for one in self.edges)


def read_recording(path: Path) -> Recording:
    """A file of the profiler's plugin."""
    arrays = _read_arrays(path)
    block = arrays["block"].reshape(-1, 4)
    outcome = arrays["outcome"].reshape(-1, 5)
    code = arrays["code"].tobytes()
    used = np.zeros(len(block), bool)
    executed = arrays["edge_executed"].reshape(-1, 3)
    used[executed[:, 1]] = True
    decoded: list[tuple[Decoded, ...]] = [()] * len(block)
    for i in np.flatnonzero(used):
        _, size, _, at = block[i]
        decoded[i] = tuple(decode(code[at : at + size]))
    samples = _samples(arrays)
    return Recording(
        _edges(arrays, executed, decoded), arrays["call"].reshape(-1, 6),
        int(arrays["left_out"][0]), _branches(outcome, decoded), _indirect(outcome, decoded),
        _dependencies([b for one in samples for b in one.blocks()][:_FOLLOWED], decoded),
        block, code, np.bincount(executed[:, 1], executed[:, 2], len(block)).astype(np.int64),
        executed, samples, _heads(arrays["head"]),
    )  # fmt: skip


def _samples(arrays: dict[str, Ints]) -> tuple[Sample, ...]:
    of = arrays["sample_of"].reshape(-1, 9)
    entries = arrays["sample"].view(np.uint64)
    ends = np.cumsum(of[:, 6])
    return tuple(
        Sample(edge, thread, read, connection, after, result,
               entries[end - count : end].tolist(), stratum, like_it)
        for (edge, thread, read, connection, after, result, count, stratum, like_it), end in zip(
            of.tolist(), ends.tolist(), strict=True)
    )  # fmt: skip


def _heads(data: Ints) -> tuple[tuple[int, bytes], ...]:
    rows = data.tobytes()
    step = 8 + _HEAD_BYTES
    return tuple(
        (int.from_bytes(rows[at : at + 8], "little"), rows[at + 8 : at + step])
        for at in range(0, len(rows), step)
    )


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
    totals = arrays["edge_total"].reshape(-1, 8)
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
             clocks=int(totals[i, 5]), repeats=int(totals[i, 4]),
             code_misses=int(totals[i, 6]), data_misses=int(totals[i, 7]))
        for i in range(len(keys))
    )  # fmt: skip


def _branches(outcome: Ints, decoded: list[tuple[Decoded, ...]]) -> Branches:
    branch = INDEX["branch"]
    mine = np.array([bool(one) and one[-1].kind == branch for one in decoded]) & (
        outcome[:, 0] > 0
    )
    followed, fell, changed = outcome[mine, 0], outcome[mine, 1], outcome[mine, 2]
    return Branches(np.flatnonzero(mine), followed, followed - fell, changed)


def _indirect(outcome: Ints, decoded: list[tuple[Decoded, ...]]) -> Branches:
    kinds = {INDEX["jmp_indirect"], INDEX["call_indirect"]}
    mine = np.array([bool(one) and one[-1].kind in kinds for one in decoded])
    followed, turned = outcome[mine, 0], outcome[mine, 4]
    return Branches(np.flatnonzero(mine), followed, followed, turned)


def _dependencies(sequence: list[int], decoded: list[tuple[Decoded, ...]]) -> tuple[float, ...]:
    written: dict[int, int] = {}
    counts = np.zeros(DEPENDENCY_BINS)
    now = 0
    for block in sequence:
        for one in decoded[block]:
            now += 1
            for register in one.reads:
                if register in written:
                    counts[
                        min((now - written[register]).bit_length() - 1, DEPENDENCY_BINS - 1)
                    ] += 1
            for register in one.writes:
                written[register] = now
    return tuple((counts / max(counts.sum(), 1)).tolist())
