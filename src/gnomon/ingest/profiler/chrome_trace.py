"""Chrome traces by their writer: PyTorch, JAX and VizTracer mark theirs; and what is in any."""

from __future__ import annotations

import os
import re

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.text import BAD_JSON, read_pieces

_KEYS = (b'"traceEvents"', b'"deviceProperties"', b'"schemaVersion"', b'"displayTimeUnit"')
_KINETO = re.compile(
    rb'"(?:deviceProperties|schemaVersion|distributedInfo|baseTimeNanoseconds)"'
    rb'|"cat"\s*:\s*"(?:cpu_op|[Oo]perator|[Kk]ernel|cuda_runtime|cuda_driver|Runtime|gpu_memcpy'
    rb'|gpu_memset|Memcpy|Memset|python_function|user_annotation|gpu_user_annotation)"'
)
_JAX = re.compile(rb'"(?:/device:[A-Z]+:\d+|/host:[^"]*)[^"]*"|"XLA Ops"|"hlo_(?:op|module)"')
_VIZTRACER = re.compile(rb'"viztracer_metadata"|"cat"\s*:\s*"FEE"')


def is_chrome_trace(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a Chrome trace, whoever wrote it.

    >>> is_chrome_trace(b'{"schemaVersion": 1, "traceEvents": ['), is_chrome_trace(b"hello")
    (True, False)
    """
    text = head.lstrip()
    return (text.startswith(b"{") and any(key in head for key in _KEYS)) or (
        text.startswith(b"[") and b'"ph"' in head
    )


def is_kineto(head: bytes) -> bool:
    """Whether PyTorch's profiler wrote a trace: by its own keys, or the categories of events.

    >>> is_kineto(b'{"schemaVersion": 1, "traceEvents": [')
    True
    """
    return is_chrome_trace(head) and _KINETO.search(head) is not None


def is_jax(head: bytes) -> bool:
    """Whether XLA's profiler wrote a trace: its processes are devices and hosts."""
    return is_chrome_trace(head) and _JAX.search(head) is not None and not is_kineto(head)


def is_viztracer(head: bytes) -> bool:
    """Whether VizTracer wrote a trace: its events are entries and exits of Python functions."""
    return is_chrome_trace(head) and _VIZTRACER.search(head) is not None


class _ChromeEvent(msgspec.Struct, gc=False):
    ph: str = ""
    name: object = ""
    pid: object = 0
    tid: object = 0
    ts: float = 0.0
    dur: float = 0.0
    args: object = None


class _Document(msgspec.Struct):
    traceEvents: list[_ChromeEvent]  # as it is written


class ChromeTrace(msgspec.Struct, frozen=True):
    """What any Chrome trace says: complete events, their span, and the names of processes."""

    events: int
    span_ns: int
    processes: tuple[str, ...]
    threads: int


def read_chrome_trace(path: str | os.PathLike[str]) -> ChromeTrace:
    """Reads a Chrome trace of any writer."""
    raw = b"".join(read_pieces(path)).removeprefix(b"\xef\xbb\xbf")
    try:
        if raw.lstrip()[:1] == b"[":
            events = msgspec.json.decode(raw, type=list[_ChromeEvent], strict=False)
        else:
            events = msgspec.json.decode(raw, type=_Document, strict=False).traceEvents
    except BAD_JSON as error:
        hint = "was the file cut short?" if "truncated" in str(error) else None
        raise InputError(f"is no Chrome trace ({error})", where=str(path), hint=hint) from None
    complete = [event for event in events if event.ph == "X"]
    spans = [(event.ts, event.ts + event.dur) for event in complete]
    names = {
        str(event.args["name"])
        for event in events
        if event.name == "process_name" and isinstance(event.args, dict) and "name" in event.args
    }
    first, last = min((s for s, _ in spans), default=0), max((e for _, e in spans), default=0)
    span_us = last - first
    threads = len({(str(event.pid), str(event.tid)) for event in complete})
    in_range = 0 <= span_us < 2.0**53
    return ChromeTrace(
        len(complete), round(span_us * 1000) if in_range else 0, tuple(sorted(names)), threads
    )
