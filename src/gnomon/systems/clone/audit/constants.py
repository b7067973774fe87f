"""Numbers that nobody writes twice by chance: keys, seeds, magic numbers of an original."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from gnomon.systems.clone.audit.elf import Elf

Words = NDArray[np.uint64]

_LEAST_BITS = 29
#: Bits between the highest and the lowest that is set: fewer make sizes and alignments.
_LEAST_SPAN = 20
#: Of eight bytes of data, as many differ from one another and from zero.
_LEAST_BYTES = 6
_SMALL = 1 << 24
_LITERAL = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d{6,20})[uUlL]*(?![\w.])")
#: Compilers write how to unwind the stack: equal frames have equal bytes, whoever's they are.
_UNWIND = (".eh_frame", ".eh_frame_hdr", ".gcc_except_table")
#: Where programs, libraries, heaps and stacks lie.
_ADDRESSES = range(1 << 36, 1 << 47)


def is_rare(value: int) -> bool:
    """Whether a number of code is one of a kind: no size, mask, address or small negative one.

    >>> [is_rare(n) for n in (0x5bd1e995, 0x7fe00000, 0xffffffff, 1 << 40, 1234, 0x01010101)]
    [True, False, False, False, False, False]
    """
    for wide in (1 << 32, 1 << 64):
        if wide - _SMALL <= value < wide:
            return False
    if value.bit_length() < _LEAST_BITS:
        return False
    odd = value // (value & -value)
    is_mask = odd & (odd + 1) == 0
    text = value.to_bytes(8, "little").rstrip(b"\0")
    return odd.bit_length() >= _LEAST_SPAN and not is_mask and len(set(text)) > 2


def is_address(value: int) -> bool:
    """Whether a number of a text or a table looks like an address of a running program."""
    return value in _ADDRESSES


def literals_of(texts: Iterable[str]) -> set[int]:
    """Numbers that are written in sources."""
    return {int(one, 0) if one[:2] in ("0x", "0X") else int(one)
            for text in texts for one in _LITERAL.findall(text)}  # fmt: skip


def data_words(elf: Elf) -> Words:
    """Every eight bytes of the data, from every fourth on, that are not mostly zero."""
    found = [_words(one.data) for one in elf.data if one.is_loaded and one.name not in _UNWIND]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.uint64)


def _words(data: bytes) -> Words:
    halves = np.frombuffer(data[: len(data) // 4 * 4], "<u4").astype(np.uint64)
    if len(halves) < 2:
        return np.zeros(0, np.uint64)
    words = np.unique(halves[:-1] | halves[1:] << np.uint64(32))
    letters = np.sort(words.view(np.uint8).reshape(-1, 8), axis=1)
    kinds = (np.diff(letters.astype(np.int16), axis=1) != 0).sum(axis=1) + (letters[:, 0] != 0)
    return np.asarray(words[kinds >= _LEAST_BYTES])


def shared_words(mine: Words, theirs: Words, public: Words) -> Iterator[int]:
    """Of data: in both, and not in what every program has."""
    both = np.intersect1d(mine, theirs)
    yield from both[~np.isin(both, public)].tolist()


def shared_immediates(
    mine: Iterable[int], theirs: Collection[int], public: Collection[int]
) -> Iterator[int]:
    """Of code: rare ones in both."""
    for value in mine:
        if value in theirs and value not in public and is_rare(value):
            yield value
