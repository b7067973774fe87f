"""Reading spans: a file of any known kind, several, a folder or a pattern, as one set."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.ingest.spans.jaeger import add_jaeger, is_jaeger
from gnomon.ingest.spans.json_lines import read_documents
from gnomon.ingest.spans.otlp import add_otlp, is_otlp
from gnomon.ingest.spans.otlp_protobuf import add_otlp_protobuf, is_otlp_protobuf
from gnomon.ingest.spans.span_table import add_span_table, is_span_table
from gnomon.ingest.spans.spans import SpanRows, Spans
from gnomon.ingest.spans.zipkin import add_zipkin, is_zipkin
from gnomon.ingest.text import read_head

_HEAD = 1 << 20
_Add = Callable[[SpanRows, Any], None]


def _of_documents(add: _Add) -> _Add:
    def add_file(rows: SpanRows, path: Path) -> None:
        for document in read_documents(path):
            add(rows, document)

    return add_file


_READERS: tuple[tuple[Callable[[bytes], bool], _Add], ...] = (
    (is_otlp, _of_documents(add_otlp)),
    (is_jaeger, _of_documents(add_jaeger)),
    (is_zipkin, _of_documents(add_zipkin)),
    (is_otlp_protobuf, add_otlp_protobuf),
    (is_span_table, add_span_table),
)


def read_spans(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Spans:
    """Spans of a file, of the files of a folder, of a pattern (`traces/*.json`), or of several.

    A trace may be spread over files. In a folder or a pattern, files that hold no spans are
    counted and left out; a file that is named itself has to hold some.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    rows = SpanRows()
    for one in sources:
        files = _files(one)
        is_named = files == [Path(one)]
        for file in files:
            head = read_head(file, _HEAD).removeprefix(b"\xef\xbb\xbf")
            add = next((add for fits, add in _READERS if fits(head)), None)
            if add is not None:
                add(rows, file)
            elif is_named:
                hint = "expected Jaeger, Zipkin or OpenTelemetry, or a table of spans"
                raise InputError("holds no spans of a known kind", where=os.fspath(one), hint=hint)
            else:
                rows.counts["files without spans"] += 1
    return rows.build(", ".join(os.fspath(one) for one in sources))


def _files(source: str | os.PathLike[str]) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)
    elif not path.exists() and glob.has_magic(os.fspath(source)):
        names = sorted(glob.glob(os.fspath(source), recursive=True))
        found = [Path(name) for name in names if os.path.isfile(name)]
    else:
        return [path]
    if not found:
        raise InputError("names no file", where=os.fspath(source), hint="check the path")
    return found
