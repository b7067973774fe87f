"""The JSON of execution traces, as it is written: two spellings, and what is not quite JSON."""

from __future__ import annotations

import re

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.profiler.chrome_trace import is_chrome_trace

_EXPECTED = "a PyTorch execution trace was expected"


class WrittenSide(msgspec.Struct, gc=False):
    """One side of a node in Chakra's spelling."""

    values: list[object] = []
    shapes: list[object] = []
    types: list[str] = []
    strides: list[object] | None = None


class WrittenAttribute(msgspec.Struct, gc=False):
    """One attribute of a node in Chakra's spelling."""

    name: str
    value: object = None


class WrittenNode(msgspec.Struct, gc=False):
    """A node in either spelling: flat, or Chakra's with its attributes in a list."""

    id: int | None = None
    name: str | None = None
    ctrl_deps: int | list[int] | None = None
    parent: int | None = None
    inputs: WrittenSide | list[object] = []
    input_shapes: list[object] = []
    input_types: list[str] = []
    input_strides: list[object] | None = None
    outputs: WrittenSide | list[object] = []
    output_shapes: list[object] = []
    output_types: list[str] = []
    output_strides: list[object] | None = None
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0
    op_schema: str = ""
    attrs: list[WrittenAttribute] = []


class WrittenTrace(msgspec.Struct, gc=False):
    """What of the whole file is of use."""

    schema: str | None = None
    nodes: list[WrittenNode] | None = None


_DECODER = msgspec.json.Decoder(WrittenTrace)
#: A node's name, which torch writes as it is: marks of users hold quotes and line breaks.
_NAME = re.compile(rb'("id": \d+, "name": ")(.{0,4096}?)(", "ctrl_deps": )', re.DOTALL)
_FLAT_NAME = re.compile(rb'(\{\s*"name": ")(.{0,4096}?)(", "id": \d+, "rf_id": )', re.DOTALL)
#: A string, or a number that JSON does not have; older writers left those bare.
_BARE = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?\b(?:inf(?:inity)?|nan)\b', re.IGNORECASE)


def decode_trace(raw: bytes, where: str) -> WrittenTrace:
    """The file's nodes, as they are written."""
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        written = _decode_or_mend(raw)
    except msgspec.ValidationError as error:
        what = _other_kind(raw) or _lower(str(error))
        raise InputError(what, where=where, hint=_EXPECTED) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_json(raw, error, where) from None
    except RecursionError:
        raise InputError("its JSON nests too deep", where=where, hint=_EXPECTED) from None
    if written.nodes is None:
        what = _other_kind(raw) or "is JSON without 'nodes'"
        raise InputError(what, where=where, hint=_EXPECTED)
    return written


def _decode_or_mend(raw: bytes) -> WrittenTrace:
    """Some traces are not quite JSON, by their writer's fault: these are mended."""
    try:
        return _DECODER.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if "truncated" in str(error):
            raise
        return _DECODER.decode(mend(raw))


def mend(raw: bytes) -> bytes:
    """Escapes what torch leaves bare: the names of marks, and numbers that JSON does not have.

    >>> mend(b'{"id": 7, "name": "say "hi"", "ctrl_deps": 1, "values": [inf]}').decode()
    '{"id": 7, "name": "say \\\\"hi\\\\"", "ctrl_deps": 1, "values": ["inf"]}'
    """
    name = _NAME if b'"ctrl_deps"' in raw else _FLAT_NAME
    return _BARE.sub(_in_quotes, name.sub(_escape_name, raw))


def _escape_name(match: re.Match[bytes]) -> bytes:
    before, name, after = match.groups()
    try:
        msgspec.json.decode(b'"%b"' % name, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        name = msgspec.json.encode(name.decode(errors="replace"))[1:-1]
    return before + name + after


def _in_quotes(match: re.Match[bytes]) -> bytes:
    found = match.group()
    return found if found.startswith(b'"') else b'"%b"' % found


def _lower(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _other_kind(raw: bytes) -> str | None:
    if is_chrome_trace(raw[:4096]) or b'"traceEvents"' in raw[: 1 << 20]:
        return "is a profiler (Kineto) trace"
    return None if raw.lstrip()[:1] == b"{" else "is JSON, but of something else"


def _not_json(raw: bytes, error: Exception, where: str) -> InputError:
    if not raw.strip():
        return InputError("is empty", where=where, hint=_EXPECTED)
    if raw.lstrip()[:1] not in (b"{", b"["):
        return InputError("is not JSON", where=where, hint=_EXPECTED)
    if "truncated" in str(error):
        return InputError("the JSON ends early", where=where, hint="was the file cut short?")
    return InputError(f"is not JSON ({_lower(str(error))})", where=where, hint=_EXPECTED)
