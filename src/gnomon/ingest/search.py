"""Which of many strings appear in a folder of files: what an audit of a copy searches for.

Tens of thousands of strings in some megabytes take a moment: a string can only be there if every
four bytes of it are.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from string import ascii_letters, digits

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError

#: Shorter strings appear everywhere by chance.
SHORTEST = 4
_GRAM = 4
_HASH_BITS = 24
_WORD = {*f"{ascii_letters}{digits}_".encode(), *range(128, 256)}


def read_files(folder: Path, *, what: str) -> Iterator[tuple[str, bytes]]:
    """Names, from the folder on, and contents of all files below it, unpacked.

    Args:
        what: The folder is expected to be, for errors.

    Raises:
        InputError: It is no folder, empty, or a file in it cannot be read.
    """
    hint = f"give {what}"
    if not folder.is_dir():
        raise InputError("is no folder", where=str(folder), hint=hint)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise InputError("the folder is empty", where=str(folder), hint=hint)
    for path in files:
        try:
            content = unpacked(path.read_bytes())
        except OSError as error:
            what = f"cannot be read: {error.strerror or error}"
            raise InputError(what, where=str(path)) from None
        yield path.relative_to(folder).as_posix(), content


def unpacked(content: bytes) -> bytes:
    """Also what is packed twice; what only looks packed stays as it is."""
    while content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            break
    return content


def find_present(strings: Iterable[bytes], whole: bytes) -> set[bytes]:
    """Those of the strings, of four bytes or more, that appear anywhere.

    >>> sorted(find_present([b"needle", b"thread"], b"a needle in a stack"))
    [b'needle']
    """
    long = [one for one in strings if len(one) >= SHORTEST]
    return {one for one in _possible(long, whole) if one in whole}


def _possible(strings: Sequence[bytes], whole: bytes) -> Iterator[bytes]:
    """Strings of which every four bytes in a row appear somewhere: few, so the rest is quick."""
    if not strings:
        return
    seen = np.zeros(1 << _HASH_BITS, np.bool_)
    seen[_grams(whole)] = True
    starts = np.cumsum([0, *(len(one) for one in strings)])
    known = seen[_grams(b"".join(strings))]
    # Four bytes that reach into the next string do not count.
    for one, start, end in zip(strings, starts[:-1], starts[1:] - _GRAM + 1, strict=True):
        if known[start:end].all():
            yield one


def _grams(text: bytes) -> NDArray[np.uint32]:
    """A number for every four bytes in a row, different ones mostly different."""
    letters = np.frombuffer(text, np.uint8).astype(np.uint32)
    size = max(len(letters) - _GRAM + 1, 0)
    grams = np.zeros(size, np.uint32)
    for place in range(_GRAM):
        grams |= letters[place : place + size] << np.uint32(8 * place)
    return (grams * np.uint32(2654435761)) >> np.uint32(32 - _HASH_BITS)


def find_place(sought: bytes, content: bytes, is_public: Callable[[str], bool]) -> int | None:
    """Where it appears other than as a part of a word that is public; None: nowhere.

    >>> find_place(b"graph", b"telegraphs and a graph", {"telegraphs"}.__contains__)
    17
    """
    at = content.find(sought)
    while at >= 0:
        start, end = at, at + len(sought)
        while start > 0 and content[start] in _WORD and content[start - 1] in _WORD:
            start -= 1
        while end < len(content) and content[end - 1] in _WORD and content[end] in _WORD:
            end += 1
        if not is_public(content[start:end].decode(errors="replace")):
            return at
        at = content.find(sought, at + 1)
    return None
