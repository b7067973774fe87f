"""Is anything of the original in its benchmark? Every string of the trace is looked for.

What is searched for are the distinct strings of the trace files, wherever in their JSON they
stand, paths taken apart too; where, is every file of the benchmark, unpacked, and its name. Words
that reveal nothing about a job (`vocabulary`) are let through and counted.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gnomon.ingest.search import SHORTEST, find_place, find_present, read_files
from gnomon.systems.aibench.verify.trace_strings import (
    TraceStrings,
    floats_in,
    json_strings,
    read_strings,
)
from gnomon.systems.aibench.verify.vocabulary import Vocabulary

#: Numbers that anybody would write.
_PLAIN = frozenset({0.0, 0.5, 1.0, 2.0})


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
    texts = [_text(*each) for each in read_files(bench, what="a benchmark's folder")]
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
    long = {sought: text for text in strings if len(sought := _encoded(text)) >= SHORTEST}
    written = frozenset[str]().union(*(text.strings for text in texts))
    short = written.intersection(strings).difference(long.values())
    return {*short, *(long[sought] for sought in find_present(long, whole))}


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")


def _find_strings(
    strings: Iterable[str], texts: Sequence[_Text], original: TraceStrings, vocabulary: Vocabulary
) -> Iterator[Finding]:
    for string in strings:
        sought = _encoded(string)
        for text in texts:
            if len(sought) < SHORTEST:
                is_there = string in text.strings
            else:
                places = (text.file.encode(), text.content)
                is_there = any(
                    find_place(sought, place, vocabulary.has) is not None for place in places
                )
            if is_there:
                yield Finding(string, text.file, original.kind_of(string))


def _find_numbers(
    original: TraceStrings, texts: Sequence[_Text], neutral: Collection[float]
) -> Iterator[Finding]:
    usual = {abs(number) for number in (*_PLAIN, *neutral)}
    for text in texts:
        for number in sorted(original.numbers & text.numbers):
            if math.isfinite(number) and abs(number) not in usual:
                yield Finding(repr(number), text.file, "value")
