"""Runs of instructions that generated code has in common with an original.

An instruction counts as its name and the kinds of its operands: `mov register, memory`. How much a
run tells is measured in bits: by how unlikely each instruction is after the one before, in
ordinary code. That of this machine's C library is ordinary; what also appears there is nobody's
secret.
Two programs of n and m instructions that have nothing to do with one another are expected to share
a run of about log2(n m) bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import MissingExtra
from gnomon.systems.clone.audit.elf import AARCH64, X86_64, Elf

Ids = NDArray[np.int64]

#: Bits beyond what is expected by chance that are no chance any more: one in a million.
MARGIN_BITS = 20.0
_LONGEST = 128
#: A pair of instructions that a run has had already.
_REPEATED_BITS = 0.25
#: Weight of how often an instruction is anywhere, beside how often it is after the one before.
_PRIOR = 5.0
_CANDIDATES = 500
_HEX = re.compile(r"(?<![\w])-?0x[0-9a-f]+")
_SPLIT = re.compile(r", (?![^\[]*\])")


class Stream(msgspec.Struct, frozen=True):
    """Code as a list of instructions, with where each is, and the numbers in them."""

    names: list[str]
    places: list[int]
    immediates: dict[int, int]  # and where each is first

    def __len__(self) -> int:
        return len(self.names)

    @staticmethod
    def join(streams: Sequence[Stream]) -> Stream:
        """One after the other; no run reaches from one into the next."""
        ends = [name for i, one in enumerate(streams) for name in (*one.names, f"end {i}")]
        places = [place for one in streams for place in (*one.places, -1)]
        return Stream(
            ends, places, {value: at for one in streams for value, at in one.immediates.items()}
        )


class Run(msgspec.Struct, frozen=True):
    """Instructions in a row that appear in both."""

    number: int  # of its first instruction in the clone's code
    place: int
    original: int  # its place there
    instructions: tuple[str, ...]
    bits: float


class Overlap(msgspec.Struct, frozen=True):
    """How much generated code has in common with an original.

    Attributes:
        longest: Instructions of the longest run.
        bits: Of the run that tells the most.
        chance: Bits that are expected of unrelated code.
        runs: Those beyond the limit, the most telling first.
    """

    longest: int
    bits: float
    chance: float
    runs: tuple[Run, ...]

    @property
    def limit(self) -> float:
        return self.chance + MARGIN_BITS


def read_code(elf: Elf) -> Stream:
    """All instructions of a file, without padding."""
    machine = _machine(elf.machine)
    names: list[str] = []
    places: list[int] = []
    immediates: dict[int, int] = {}
    for section in elf.code:
        for at, _, name, operands in machine.disasm_lite(section.data, section.at):
            if _is_padding(name, operands):
                continue
            kinds = ",".join(_kind(one) for one in _SPLIT.split(operands)) if operands else ""
            names.append(f"{name} {kinds}" if kinds else name)
            places.append(at)
            for text in _HEX.findall(operands):
                immediates.setdefault(int(text, 16) & (1 << 64) - 1, at)
    return Stream(names, places, immediates)


def _machine(number: int) -> Any:
    try:
        import capstone
    except ImportError:
        raise MissingExtra("capstone", "clone", "comparing machine code") from None
    kinds = {X86_64: (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
             AARCH64: (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)}  # fmt: skip
    found = capstone.Cs(*kinds[number])
    found.skipdata = True
    return found


def _is_padding(name: str, operands: str) -> bool:
    return (
        name.startswith(("nop", "int3", "endbr", "bti", "udf", ".byte"))
        or (name == "add" and operands == "byte ptr [rax], al")  # two bytes that are zero
        or (name == "xchg" and operands == "ax, ax")
    )


def _kind(operand: str) -> str:
    if "[" in operand:
        return "m"
    return "i" if operand[:1] in "#-" or operand[:1].isdigit() else "r"


def compare(clone: Stream, original: Stream, ordinary: Stream) -> Overlap:
    """Runs of the clone's code that are in the original's, and not in ordinary code."""
    if not len(clone) or not len(original):
        return Overlap(0, 0.0, 0.0, ())
    number: dict[str, int] = {}
    mine, theirs, common = (
        np.array([number.setdefault(name, len(number)) for name in one.names], np.int64)
        for one in (clone, original, ordinary)
    )
    lengths, where = match_lengths(mine, theirs)
    lengths[match_lengths(mine, common)[0] >= lengths] = 0
    chance = float(np.log2(len(clone) * len(original)))
    surprise = _Surprise(common, len(number))
    # A run of which this is a later part begins one place before.
    starts = np.flatnonzero((lengths > 0) & ~np.r_[False, lengths[1:] == lengths[:-1] - 1])
    plain = surprise.of_runs(mine, starts, lengths[starts])
    order = starts[np.argsort(-plain)][:_CANDIDATES]
    runs = sorted(
        (Run(at, clone.places[at], original.places[int(where[at])],
             tuple(clone.names[at : at + int(lengths[at])]),
             surprise.of_run(mine[at : at + int(lengths[at])]))
         for at in order.tolist()),
        key=lambda one: -one.bits,
    )  # fmt: skip
    return Overlap(
        int(lengths.max()), runs[0].bits if runs else 0.0, chance,
        tuple(_apart(one for one in runs if one.bits > chance + MARGIN_BITS)),
    )  # fmt: skip


def _apart(runs: Iterator[Run]) -> Iterator[Run]:
    """Without those that are the same once more."""
    seen: set[tuple[str, ...]] = set()
    for one in runs:
        if one.instructions not in seen:
            seen.add(one.instructions)
            yield one


def match_lengths(mine: Ids, theirs: Ids) -> tuple[Ids, Ids]:
    """For each place of one list: how many numbers from there on appear in the other, and where.

    Places are numbered anew for each length: equal numbers mean equal runs of that length.
    """
    lengths = np.zeros(len(mine), np.int64)
    where = np.zeros(len(mine), np.int64)
    a, b, length = mine, theirs, 1
    while len(a) and len(b):
        known, first = np.unique(b, return_index=True)
        found = np.searchsorted(known, a).clip(max=len(known) - 1)
        is_there = known[found] == a
        if not is_there.any():
            break
        at = np.flatnonzero(is_there)
        lengths[at], where[at] = length, first[found[at]]
        if length == _LONGEST:
            break
        a = _longer(np.where(is_there, found, -1), mine, length)
        b = _longer(np.searchsorted(known, b), theirs, length)
        length += 1
    return lengths, where


def _longer(ids: Ids, last: Ids, length: int) -> Ids:
    """Runs that are one longer; those that were not found stay so."""
    kept = ids[: max(len(last) - length, 0)]
    return np.where(kept < 0, -1, (kept << 20) + last[length:])


class _Surprise:
    """How unlikely instructions are in ordinary code."""

    def __init__(self, ordinary: Ids, kinds: int) -> None:
        counts = np.bincount(ordinary, minlength=kinds) + 0.5
        self._alone = counts / counts.sum()
        self._before = np.bincount(ordinary[:-1], minlength=kinds)
        self._kinds = kinds
        self._pairs, self._seen = np.unique(
            ordinary[:-1] * kinds + ordinary[1:], return_counts=True
        )

    def _bits(self, run: Ids) -> NDArray[np.float64]:
        """Of each but the first, after the one before."""
        pairs = run[:-1] * self._kinds + run[1:]
        if len(self._pairs):
            at = np.searchsorted(self._pairs, pairs).clip(max=len(self._pairs) - 1)
            seen = np.where(self._pairs[at] == pairs, self._seen[at], 0)
        else:
            seen = np.zeros(len(pairs), np.int64)
        chances = (seen + _PRIOR * self._alone[run[1:]]) / (self._before[run[:-1]] + _PRIOR)
        return np.asarray(-np.log2(chances))

    def of_runs(self, stream: Ids, starts: Ids, lengths: Ids) -> NDArray[np.float64]:
        sums = np.r_[0.0, np.cumsum(self._bits(stream))]
        ends = np.minimum(starts + lengths, len(stream)) - 1
        return np.asarray(-np.log2(self._alone[stream[starts]]) + sums[ends] - sums[starts])

    def of_run(self, run: Ids) -> float:
        """The same, but what repeats itself tells little."""
        bits = self._bits(run)
        pairs = (run[:-1] * self._kinds + run[1:]).tolist()
        repeated = np.array([pair in pairs[:i] for i, pair in enumerate(pairs)], bool)
        known = np.where(repeated, np.minimum(bits, _REPEATED_BITS), bits)
        return float(-np.log2(self._alone[run[0]]) + known.sum())
