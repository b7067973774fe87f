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


def _result(source: Path, target: Path) -> None:
    from gnomon import report
    from gnomon.cli.sources import load_result
    from gnomon.table import atomic_file

    result = load_result(source)
    if target.suffix == ".prom":
        with atomic_file(target) as file:
            file.write(report.to_prometheus(result).encode())
    elif target.suffix == ".html":
        report.write_html(result, target)
    elif target.suffix == ".json":
        report.write_json(result, target)
    else:
        report.write_csv(result, target)


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


_RESULT = dict.fromkeys((".html", ".json", ".prom", ""), _result)
_TRACES = dict.fromkeys((".pftrace", ".json", ".json.gz"), _trace)
_TIMELINE = {**_TRACES, ".arrow": _arrow, ".parquet": _parquet}
