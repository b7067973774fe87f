"""Is anything of the original in its benchmark? Every string of the trace is looked for.

What is searched for are the distinct strings of the trace files, wherever in their JSON they
stand, paths taken apart too; where, is every file of the benchmark, unpacked, and its name. Words
that reveal nothing about a job (`vocabulary`) are let through and counted.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_letters, digits

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.systems.aibench.verify.trace_strings import (
    TraceStrings,
    floats_in,
    json_strings,
    read_strings,
)
from gnomon.systems.aibench.verify.vocabulary import Vocabulary

#: Shorter strings stand everywhere by chance; they are compared with whole strings of a program.
_SHORTEST = 4
_GRAM = 4
_HASH_BITS = 24
#: Numbers that anybody would write.
_PLAIN = frozenset({0.0, 0.5, 1.0, 2.0})
_WORD = {*f"{ascii_letters}{digits}_".encode(), *range(128, 256)}


class Finding(msgspec.Struct, frozen=True):
    """Something of the trace that appears in the benchmark.

    `kind` is one of name, annotation, path, kernel, group and value.
    """

    string: str
    file: str
    kind: str

    @property
    def text(self) -> str:
        """In words.

        >>> Finding("SecretNet", "README.md", "annotation").text
        "annotation 'SecretNet' appears in README.md"
        """
        return f"{self.kind} {self.string!r} appears in {self.file}"


class Audit(msgspec.Struct, frozen=True):
    """What was searched, and what was found.

    `searched` counts distinct strings and numbers of the trace, `allowed` those that appear in
    the benchmark and are public; `bytes` are of the unpacked files.
    """

    searched: int
    files: int
    bytes: int
    allowed: int
    found: tuple[Finding, ...]

    @property
    def is_clean(self) -> bool:
        """Nothing was found."""
        return not self.found


class _Text(msgspec.Struct, frozen=True):
    """One file of a benchmark: its name, its content, and for JSON its strings and numbers."""

    file: str
    content: bytes
    size: int
    strings: frozenset[str] = frozenset()
    numbers: frozenset[float] = frozenset()


def audit(
    bench: Path,
    traces: Sequence[str | os.PathLike[str]],
    *,
    templates: Mapping[str, str] = {},
    neutral: Collection[float] = (),
) -> Audit:
    """Searches a benchmark for every string of the traces it was made from.

    Args:
        bench: The benchmark's folder.
        traces: Execution or Kineto traces.
        templates: Files every benchmark has, as they are before anything is filled in.
        neutral: Numbers the builder puts in the place of the original's.

    Raises:
        InputError: The folder or a trace cannot be read.
    """
    texts = list(_read_bench(bench))
    original = read_strings(traces)
    vocabulary = Vocabulary(templates, original.texts)
    present = _present(original.texts, texts)
    public = {text for text in present if vocabulary.has(text)}
    found = [
        *_find_strings(sorted(present - public), texts, original, vocabulary),
        *_find_numbers(original, texts, neutral),
    ]
    return Audit(
        len(original.texts) + len(original.numbers), len(texts),
        sum(text.size for text in texts), len(public), tuple(found),
    )  # fmt: skip


def _read_bench(bench: Path) -> Iterator[_Text]:
    if not bench.is_dir():
        raise InputError("is no folder", where=str(bench), hint="give a benchmark's folder")
    files = sorted(path for path in bench.rglob("*") if path.is_file())
    if not files:
        raise InputError("the folder is empty", where=str(bench), hint="give a benchmark's folder")
    for path in files:
        try:
            content = _unpacked(path.read_bytes())
        except OSError as error:
            what = f"cannot be read: {error.strerror or error}"
            raise InputError(what, where=str(path)) from None
        yield _text(path.relative_to(bench).as_posix(), content)


def _unpacked(content: bytes) -> bytes:
    """Also what is packed twice; what only looks packed stays as it is."""
    while content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            break
    return content


def _text(file: str, content: bytes) -> _Text:
    try:
        data = msgspec.json.decode(content) if ".json" in file else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        data = None
    if data is None:
        return _Text(file, content, len(content))
    strings = frozenset(json_strings(content))
    # Escapes hide a string from a search in what is written.
    both = content + b"\n" + "\n".join(sorted(strings)).encode(errors="replace")
    return _Text(file, both, len(content), strings, frozenset(floats_in(data)))


def _present(strings: Collection[str], texts: Sequence[_Text]) -> set[str]:
    """Which of the strings stand anywhere in the files, or in their names."""
    whole = b"\0".join(each for text in texts for each in (text.file.encode(), text.content))
    long = [text for text in strings if len(text.encode(errors="replace")) >= _SHORTEST]
    written = frozenset[str]().union(*(text.strings for text in texts))
    short = written.intersection(strings).difference(long)
    return {
        *short,
        *(text for text in _possible(long, whole) if text.encode(errors="replace") in whole),
    }


def _possible(strings: Sequence[str], whole: bytes) -> Iterator[str]:
    """Strings of which every four letters in a row stand somewhere: few, so the rest is quick."""
    if not strings:
        return
    seen = np.zeros(1 << _HASH_BITS, np.bool_)
    seen[_grams(whole)] = True
    encoded = [text.encode(errors="replace") for text in strings]
    starts = np.cumsum([0, *(len(text) for text in encoded)])
    known = seen[_grams(b"".join(encoded))]
    # Four letters that reach into the next string do not count.
    for text, start, end in zip(strings, starts[:-1], starts[1:] - _GRAM + 1, strict=True):
        if known[start:end].all():
            yield text


def _grams(text: bytes) -> NDArray[np.uint32]:
    """A number for every four letters in a row, different ones mostly different."""
    letters = np.frombuffer(text, np.uint8).astype(np.uint32)
    size = max(len(letters) - _GRAM + 1, 0)
    grams = np.zeros(size, np.uint32)
    for place in range(_GRAM):
        grams |= letters[place : place + size] << np.uint32(8 * place)
    return (grams * np.uint32(2654435761)) >> np.uint32(32 - _HASH_BITS)


def _find_strings(
    strings: Iterable[str], texts: Sequence[_Text], original: TraceStrings, vocabulary: Vocabulary
) -> Iterator[Finding]:
    for string in strings:
        sought = string.encode(errors="replace")
        for text in texts:
            if len(sought) < _SHORTEST:
                is_there = string in text.strings
            else:
                places = (text.file.encode(), text.content)
                is_there = any(_stands(sought, place, vocabulary) for place in places)
            if is_there:
                yield Finding(string, text.file, original.kind_of(string))


def _stands(sought: bytes, content: bytes, vocabulary: Vocabulary) -> bool:
    """Whether it appears there other than as a part of something public."""
    at = content.find(sought)
    while at >= 0:
        start, end = at, at + len(sought)
        while start > 0 and content[start] in _WORD and content[start - 1] in _WORD:
            start -= 1
        while end < len(content) and content[end - 1] in _WORD and content[end] in _WORD:
            end += 1
        if not vocabulary.has(content[start:end].decode(errors="replace")):
            return True
        at = content.find(sought, at + 1)
    return False


def _find_numbers(
    original: TraceStrings, texts: Sequence[_Text], neutral: Collection[float]
) -> Iterator[Finding]:
    usual = {abs(number) for number in (*_PLAIN, *neutral)}
    for text in texts:
        for number in sorted(original.numbers & text.numbers):
            if math.isfinite(number) and abs(number) not in usual:
                yield Finding(repr(number), text.file, "value")
