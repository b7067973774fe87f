"""OpenTelemetry's spans in protobuf: an ExportTraceServiceRequest, or several with their lengths.

Only the fields that are used are decoded, by their numbers in opentelemetry-proto 1.x.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

from gnomon.errors import InputError
from gnomon.ingest.spans.otlp import add_span, kind_of
from gnomon.ingest.spans.spans import SpanRows
from gnomon.ingest.text import read_whole

_MOST_BYTES = 2 << 30
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ERROR = 2


def is_otlp_protobuf(head: bytes) -> bool:
    """Whether a file begins as a message of resources with attributes and spans does.

    >>> is_otlp_protobuf(b"\\x0a\\x0e\\x0a\\x0c\\x0a\\x0a\\x0a\\x04name\\x12\\x02\\x0a\\x00")
    True
    """
    return any(_has_attribute(part) for part in (head, _after_length(head)))


def _after_length(content: bytes) -> bytes:
    """What follows a length at the begin; nothing where there is none."""
    try:
        return content[_varint(content, 0)[1] :]
    except ValueError:
        return b""


def _has_attribute(head: bytes) -> bool:
    """Follows field 1 four times: resource spans, resource, attribute, its name."""
    at = 0
    try:
        for _ in range(4):
            if head[at : at + 1] != b"\x0a":
                return False
            size, at = _varint(head, at + 1)
    except ValueError:
        return False
    name = head[at : at + size]
    return len(name) == size > 0 and name.isascii() and name.decode().isprintable()


def add_otlp_protobuf(rows: SpanRows, path: str | os.PathLike[str]) -> None:
    """Add the spans of a file."""
    content = read_whole(path, _MOST_BYTES, "split it")
    try:
        for message in _messages(content):
            for resource in _parts(message, 1):
                _add_resource(rows, resource)
    except (ValueError, struct.error) as error:
        raise InputError(f"is no OpenTelemetry protobuf: {error}", where=os.fspath(path),
                         hint="was the file cut short?") from None  # fmt: skip


def _messages(content: bytes) -> Iterator[memoryview]:
    """The only message of a file, or those that their lengths delimit."""
    view = memoryview(content)
    if _has_attribute(content[:4096]) or not _has_attribute(_after_length(content[:4096])):
        yield view
        return
    at = 0
    while at < len(view):
        size, at = _varint(view, at)
        if at + size > len(view):
            raise ValueError("the last message ends early")
        yield view[at : at + size]
        at += size


def _add_resource(rows: SpanRows, resource: memoryview) -> None:
    attributes: dict[str, Any] = {}
    for part in _parts(resource, 1):
        attributes |= _attributes(part, 1)
    for scope in _parts(resource, 2):
        for span in _parts(scope, 2):
            _add_span(rows, span, attributes.get("service.name"))


def _add_span(rows: SpanRows, span: memoryview, service: Any) -> None:
    fields: dict[int, Any] = dict(_fields(span))
    status = dict(_fields(fields.get(15, memoryview(b"")))) if _is_bytes(fields.get(15)) else {}
    add_span(
        rows, service=service, name=_text(fields.get(5)), trace=_hex(fields.get(1)),
        span=_hex(fields.get(2)), parent=_hex(fields.get(4)), kind=kind_of(fields.get(6, 0)),
        start_ns=_number(fields.get(7)), end_ns=_number(fields.get(8)),
        is_error=status.get(3) == _ERROR, attributes=_attributes(span, 9),
    )  # fmt: skip


def _attributes(message: memoryview, field: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in _parts(message, field):
        fields = dict(_fields(pair))
        if not _is_bytes(fields.get(1)) or not _is_bytes(fields.get(2)):
            continue
        for number, value in _fields(fields[2]):
            if number in (1, 2, 3):  # text, truth, number
                found[_text(fields[1])] = _text(value) if _is_bytes(value) else value
    return found


def _parts(message: memoryview, field: int) -> Iterator[memoryview]:
    return (value for number, value in _fields(message) if number == field and _is_bytes(value))


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Numbers of fields and their values: integers, or the bytes of what is inside."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif wire == _BYTES:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("a field ends early")
            yield number, message[at : at + size]
            at += size
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            if at + size > len(message):
                raise ValueError("a field ends early")
            yield number, int.from_bytes(message[at : at + size], "little")
            at += size
        else:
            raise ValueError(f"a field has the wire type {wire}")


def _varint(message: bytes | memoryview, at: int) -> tuple[int, int]:
    """An integer and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("a number ends early")
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")


def _is_bytes(value: Any) -> bool:
    return isinstance(value, memoryview)


def _text(value: Any) -> str:
    return bytes(value).decode("utf-8", "replace") if _is_bytes(value) else ""


def _hex(value: Any) -> str:
    return bytes(value).hex() if _is_bytes(value) else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
