"""gnomon inspect: what is this file, and what is in it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gnomon.cli.output import Output, show
from gnomon.cli.sources import Source

if TYPE_CHECKING:
    from gnomon.report import Result

__all__ = ["inspect"]


def inspect(path: Source, *, output: Output = Output()) -> None:  # noqa: B008
    """Say what a file or folder is, and what is in it.

    Args:
        path: A trace, graph, timeline, table, series or saved result.
        output: Where the answer goes.
    """
    show(describe(path), output)


def describe(path: Path) -> Result:
    """A Result about the file itself."""
    from gnomon.ingest.identify import identify
    from gnomon.report import Figure, Manifest, Result, hash_input
    from gnomon.units import format_bytes
    from gnomon.version import __version__

    identity = identify(path)
    if identity.format == "folder":
        first, count, what = _first_in(path)
        result = describe(first)
        more = Figure(f"{what}_in_folder", f"{what} in folder", count)
        return msgspec.structs.replace(result, figures=[*result.figures, more])
    look = _LOOKS.get(identity.format)
    facts: dict[str, Any] = {"format": identity.about, "size": format_bytes(identity.bytes)}
    tables: list[Any] = []
    if look is not None:
        found, tables = look(path)
        facts |= found
    return Result(
        "gnomon",
        "inspect",
        path.name,
        "What is this?",
        figures=[Figure(name, name.replace("_", " "), value) for name, value in facts.items()],
        tables=tables,
        manifest=Manifest("gnomon inspect", version=__version__, inputs=[hash_input(path)]),
    )


def _first_in(folder: Path) -> tuple[Path, int, str]:
    """What a folder holds: profiler traces, else logs of Spark."""
    from gnomon.errors import InputError
    from gnomon.ingest.spark.log_files import find_spark_logs
    from gnomon.systems.training.sources import find_trace

    try:
        trace, others = find_trace(folder)
    except InputError:
        try:
            logs = find_spark_logs(folder)
        except InputError:
            logs = []
        if not logs:
            raise
        return logs[0], len(logs), "logs"
    return trace, others + 1, "traces"


def _look_kineto(path: Path) -> tuple[dict[str, Any], list[Any]]:
    import numpy as np

    from gnomon.ingest.profiler.kineto import read_kineto
    from gnomon.table import Table
    from gnomon.units import format_duration

    trace = read_kineto(path)
    facts: dict[str, Any] = {
        "events": len(trace),
        "span": format_duration(trace.span_ns),
        "gpu": ", ".join(dict.fromkeys(trace.gpus)) or "none",
        "threads": len(trace.threads),
    }
    if trace.rank is not None:
        facts["rank"] = f"{trace.rank} of {trace.world_size or '?'}"
    if trace.dropped:
        facts["left_out"] = "; ".join(f"{count:,} {why}" for why, count in trace.dropped.items())
    time = np.zeros(len(trace.categories), np.int64)
    np.add.at(time, trace.category, trace.duration_ns)
    count = np.bincount(trace.category, minlength=len(trace.categories))
    rows = [
        {"category": name, "events": int(count[i]), "time_ms": round(time[i] / 1e6, 4)}
        for i, name in enumerate(trace.categories)
    ]
    rows.sort(key=lambda row: -int(str(row["events"])))
    return facts, [Table.from_rows("Events by category", rows, units={"time_ms": "ms"})]


def _look_arrow(path: Path) -> tuple[dict[str, Any], list[Any]]:
    from gnomon.table import Dictionary, ListOf, Table, read_arrow

    stored = read_arrow(path)
    rows = []
    for name, column in stored.columns.items():
        if isinstance(column, Dictionary):
            kind = f"text, {len(column.values):,} distinct"
        elif isinstance(column, ListOf):
            kind = f"lists, {int(column.offsets[-1]):,} elements"
        else:
            kind = str(getattr(column, "dtype", "text"))
        rows.append({"column": name, "type": kind})
    what = (
        "work graph" if stored.metadata.get("format", "").startswith("gnomon.graph") else "table"
    )
    if what == "work graph" and "start_ns" in stored.columns:
        what = "timeline"
    facts = {"holds": what, "rows": stored.rows}
    return facts, [Table.from_rows("Columns", rows)]


def _look_csv(path: Path) -> tuple[dict[str, Any], list[Any]]:
    from gnomon.errors import InputError
    from gnomon.ingest.metrics.signal_csv import read_signal_csv

    try:
        read = read_signal_csv(path)
    except InputError as error:
        return {"as_signal": f"no ({error.what})"}, []
    signal = read.signal
    facts = {"rows": read.row_count, "unit": str(signal.unit), "gaps": len(signal.gaps())}
    return facts | ({"zone": signal.zone} if signal.zone else {}), []


def _look_result(path: Path) -> tuple[dict[str, Any], list[Any]]:
    from gnomon import report
    from gnomon.table import Table

    result = report.load(path)
    rows = [{"figure": f.name, "value": f.text} for f in result.figures]
    facts = {
        "result_of": f"{result.system} {result.verb}", "title": result.title,
        "tables": len(result.tables), "version": result.manifest.version or "unknown",
    }  # fmt: skip
    return facts, [Table.from_rows("Figures", rows)] if rows else []


def _look_spark(path: Path) -> tuple[dict[str, Any], list[Any]]:
    from gnomon.ingest.spark.event_log import read_spark_log
    from gnomon.table import Table

    log = read_spark_log(path)
    facts: dict[str, Any] = {
        "application": f"{log.app_name} ({log.app_id})", "spark": log.version,
        "jobs": len(log.jobs), "tasks": len(log.tasks), "executors": len(log.executors),
        "ended": "no" if log.in_progress else "yes",
    }  # fmt: skip
    if log.dropped:
        facts["left_out"] = "; ".join(f"{count:,} {why}" for why, count in log.dropped.items())
    rows = [
        {"job": job.id, "stages": len(job.stages), "succeeded": "yes" if job.succeeded else "no",
         "took_s": (job.ended_ms - job.submitted_ms) / 1e3 if job.ended_ms >= 0 else float("nan")}
        for job in log.jobs
    ]  # fmt: skip
    return facts, [Table.from_rows("Jobs", rows, units={"took_s": "s"})] if rows else []


_LOOKS = {
    "kineto": _look_kineto, "arrow": _look_arrow, "csv": _look_csv, "result": _look_result,
    "spark-log": _look_spark,
}  # fmt: skip
