"""gnomon export: from one format to another, chosen by the ending of the target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from gnomon.cli.sources import Source
from gnomon.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from gnomon.graph import Timeline


def export(
    source: Source, target: Path, *, json: Annotated[bool, Parameter(negative=())] = False
) -> None:
    """Turn a result, trace, graph or timeline into another format.

    The ending of the target decides: .html, .prom, and a folder of .csv (give a name without
    ending) for results; .json for results, or a Chrome trace for anything with a timeline;
    .pftrace, .json.gz, .arrow and .parquet for anything with a timeline.

    Args:
        source: What to read.
        target: What to write; overwritten when it is there.
        json: Say what was written as JSON.
    """
    from gnomon.ingest.formats import check_input, identify

    check_input(source, "export")
    is_result = identify(source).format == "result"
    ending = "".join(target.suffixes[-2:]) if target.suffix == ".gz" else target.suffix
    writers = _RESULT if is_result or ending in (".html", ".prom") else _TIMELINE
    if ending not in writers:
        known = ", ".join(e or "a folder of .csv" for e in writers)
        what = f"cannot write {ending or 'a folder'} from this source"
        raise InputError(what, where=str(target), hint=f"possible are {known}")
    writers[ending](source, target)
    if json:
        print(msgspec.json.encode({"wrote": str(target)}).decode())
    else:
        print(f"wrote {target}", file=sys.stderr)


def _html(source: Path, target: Path) -> None:
    from gnomon import report
    from gnomon.cli.sources import load_result

    report.write_html(load_result(source), target)


def _json(source: Path, target: Path) -> None:
    from gnomon import report
    from gnomon.cli.sources import load_result

    report.write_json(load_result(source), target)


def _prometheus(source: Path, target: Path) -> None:
    from gnomon import report
    from gnomon.cli.sources import load_result
    from gnomon.table import atomic_file

    with atomic_file(target) as file:
        file.write(report.to_prometheus(load_result(source)).encode())


def _csv(source: Path, target: Path) -> None:
    from gnomon import report
    from gnomon.cli.sources import load_result

    report.write_csv(load_result(source), target)


def _trace(source: Path, target: Path) -> None:
    from gnomon.cli.sources import load_timelines
    from gnomon.report.perfetto import write_trace

    write_trace(target, load_timelines(source))


def _last(source: Path) -> Timeline:
    from gnomon.cli.sources import load_timelines

    return list(load_timelines(source).values())[-1]


def _arrow(source: Path, target: Path) -> None:
    _last(source).save(target)


def _parquet(source: Path, target: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "tables", "writing Parquet") from None
    from gnomon.graph.store import task_table
    from gnomon.table import atomic_file

    timeline = _last(source)
    table = task_table(timeline.graph, start_ns=timeline.start_ns, end_ns=timeline.end_ns)
    with atomic_file(target) as file:
        pq.write_table(pa.table(table), file)


_RESULT = {".html": _html, ".json": _json, ".prom": _prometheus, "": _csv}
_TIMELINE = {
    ".pftrace": _trace,
    ".json": _trace,
    ".json.gz": _trace,
    ".arrow": _arrow,
    ".parquet": _parquet,
}
