"""The strings of a trace: each distinct string, and the numbers that are arguments."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.archive import read_document
from gnomon.ingest.execution.json_text import mend
from gnomon.ingest.execution.trace import looks_like_execution_trace
from gnomon.ingest.profiler.chrome_trace import is_chrome_trace

_PIECE = 1 << 20
#: Stand for an escaped backslash and quote while the text is cut at the quotes. JSON has no
#: control characters but in escapes.
_BACKSLASH, _QUOTE = b"\x00\x01", b"\x00\x02"
_NUMBER = r"[-+]?(?:(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d++)?+|inf|nan|True|False|None)"
_NUMBERS = re.compile(rf"[\[\]()\s,]*+(?:{_NUMBER}(?:[\[\]()\s,]++{_NUMBER})*+[\[\]()\s,]*+)?+")
_ONE_NUMBER = re.compile(_NUMBER)
_CUTS = re.compile(r"[/\\]")
#: After a path: where in the file, and what is there.
_PLACE = re.compile(r"[(:,]")
_GROUP_KEYS = ("pg_name", "pg_desc")
_KERNELS = ("kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
_MARKS = ("user_annotation", "gpu_user_annotation", "python_function", "User Annotation")
#: Scope of a node that a user marked, in execution traces.
_USER_SCOPE = 7


class TraceStrings(msgspec.Struct, frozen=True):
    """Distinct strings of traces; what some of them are; numbers that operators were given."""

    texts: frozenset[str]
    kinds: dict[str, str]
    numbers: frozenset[float]

    def kind_of(self, text: str) -> str:
        """What a string is: a path, kernel, annotation, group, value, or else a name."""
        return self.kinds.get(text) or ("path" if _CUTS.search(text) else "name")


def read_strings(paths: Iterable[str | os.PathLike[str]]) -> TraceStrings:
    """Reads traces, execution or Kineto, as plain JSON.

    Paths are also taken apart, JSON in strings too. Strings that are only numbers are none.

    Raises:
        InputError: One cannot be read, or is not JSON.
    """
    texts: set[str] = set()
    kinds: dict[str, str] = {}
    numbers: set[float] = set()
    for path in paths:
        raw, source = read_document(
            path, None, "trace", lambda head: looks_like_execution_trace(head)
            or is_chrome_trace(head),
        )  # fmt: skip
        raw = _sound(raw, source)
        found = set(json_strings(raw))
        # JSON that is itself in a string, such as process groups.
        nested = [text.encode(errors="replace") for text in found if text[:1] in ("[", "{")]
        inner = {t for text in nested if _why_not_json(text) is None for t in json_strings(text)}
        trace = _decode(raw)
        kinds |= dict.fromkeys(inner, "group") | _kinds(trace)
        names = {Path(part).name for part in (source, source.rpartition(":")[2])}
        names |= {name.split(".")[0] for name in names}
        kinds |= dict.fromkeys(names, "path")
        numbers |= _doubles(trace)
        for text in found | inner | names:
            if not _NUMBERS.fullmatch(text):
                texts.add(text)
                continue
            written = (n for n in _ONE_NUMBER.findall(text) if re.search(r"\d[.eE]|\.\d", n))
            numbers |= {number for number in map(float, written) if math.isfinite(number)}
    for text in tuple(texts):
        for part in _parts(text):
            if not _NUMBERS.fullmatch(part):
                texts.add(part)
                kinds.setdefault(part, "path")
    return TraceStrings(frozenset(texts), kinds, frozenset(numbers))


def _sound(raw: bytes, where: str) -> bytes:
    """The text as JSON that can be cut at its quotes."""
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if _why_not_json(raw) is None:
        return raw
    mended = mend(raw)
    if (reason := _why_not_json(mended)) is None:
        return mended
    hint = "was the file cut short?" if "truncated" in reason else "a trace was expected"
    raise InputError(f"is not JSON ({reason})", where=where, hint=hint)


def _why_not_json(raw: bytes) -> str | None:
    try:
        msgspec.json.decode(raw, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return None


def json_strings(raw: bytes) -> Iterator[str]:
    """Each distinct string in JSON, keys too.

    Cutting at the quotes takes a tenth of the time of making objects of it all.

    >>> sorted(json_strings(b'{"a": ["b", "c\\\\"d"], "e": "b"}'))
    ['a', 'b', 'c"d', 'e']
    """
    plain = raw.replace(b"\\\\", _BACKSLASH).replace(b'\\"', _QUOTE)
    found: set[bytes] = set()
    inside, rest = False, b""
    for start in range(0, len(plain), _PIECE):
        *parts, rest = (rest + plain[start : start + _PIECE]).split(b'"')
        found.update(parts[0 if inside else 1 :: 2])
        inside ^= bool(len(parts) & 1)
    for text in found:
        written = text.replace(_QUOTE, b'\\"').replace(_BACKSLASH, b"\\\\")
        plain_text = written.decode(errors="replace")
        if b"\\" in written:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                plain_text = msgspec.json.decode(b'"%b"' % written, type=str)
        yield plain_text


def _parts(text: str) -> Iterator[str]:
    """Components of a path, and of a place in a file: `a/model.py(12): forward`."""
    pieces = _CUTS.split(text)
    if len(pieces) < 2:
        return
    for piece in pieces:
        yield piece.strip()
    for word in _PLACE.split(pieces[-1]):
        yield word.strip(" )")
    yield _PLACE.split(pieces[-1])[0].rpartition(".")[0]


class _Side(msgspec.Struct, gc=False):
    values: list[object] = []
    types: list[str] = []


class _Attribute(msgspec.Struct, gc=False):
    name: str = ""
    value: object = None


class _Node(msgspec.Struct, gc=False):
    name: str = ""
    scope: int = 0
    inputs: _Side | list[object] = []
    input_types: list[str] = []
    attrs: list[_Attribute] = []


class _Arguments(msgspec.Struct, gc=False):
    group: object = msgspec.field(default="", name="Process Group Name")
    about: object = msgspec.field(default="", name="Process Group Description")


class _Event(msgspec.Struct, gc=False):
    name: object = ""
    cat: object = ""
    args: _Arguments | list[object] | int | float | str | None = None


class _Trace(msgspec.Struct, gc=False):
    nodes: list[_Node] = []
    traceEvents: list[_Event] = []


def _decode(raw: bytes) -> _Trace:
    # Kinds are known as far as the file is of a known shape; strings are searched in any case.
    try:
        if raw.lstrip()[:1] == b"[":
            return _Trace(traceEvents=msgspec.json.decode(raw, type=list[_Event]))
        return msgspec.json.decode(raw, type=_Trace)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Trace()


def _kinds(trace: _Trace) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for node in trace.nodes:
        given = {each.name: each.value for each in node.attrs}
        if given.get("scope", node.scope) == _USER_SCOPE:
            kinds[node.name] = "annotation"
        values, types = _inputs(node)
        for value, type in zip(values, types, strict=False):
            if type == "String" and isinstance(value, str):
                kinds.setdefault(value, "value")
        for key in _GROUP_KEYS:
            if isinstance(group := given.get(key), str):
                kinds[group] = "group"
    for event in trace.traceEvents:
        if isinstance(event.name, str):
            if event.cat in _KERNELS:
                kinds[event.name] = "kernel"
            elif event.cat in _MARKS:
                kinds[event.name] = "annotation"
        if isinstance(event.args, _Arguments):
            named = (event.args.group, event.args.about)
            kinds |= {group: "group" for group in named if isinstance(group, str) and group}
    return kinds


def _inputs(node: _Node) -> tuple[list[object], list[str]]:
    side = node.inputs
    return (side.values, side.types) if isinstance(side, _Side) else (side, node.input_types)


def _doubles(trace: _Trace) -> set[float]:
    """Floating-point numbers that operators of an execution trace were given."""
    found: set[float] = set()
    for node in trace.nodes:
        for value, type in zip(*_inputs(node), strict=False):
            if "Double" in type:
                found.update(floats_in(value))
    return {number for number in found if math.isfinite(number)}


def floats_in(data: object) -> Iterator[float]:
    """All floating-point numbers in decoded JSON."""
    waiting = [data]
    while waiting:
        each = waiting.pop()
        if isinstance(each, float):
            yield each
        elif isinstance(each, list | dict):
            waiting += each.values() if isinstance(each, dict) else each
