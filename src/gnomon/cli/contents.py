"""What is in a file, by its format: the facts and tables that `gnomon inspect` shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.series import Signal

Facts = dict[str, Any]
Contents = tuple[Facts, list[Any]]


def contents_of(path: Path, format: str) -> Contents:
    """Facts by name, and tables; empty for a format of which nothing more is known.

    A table that cannot be read as a whole is a table still: the fact `problem` says what is wrong.
    """
    from gnomon.ingest.formats import format_of

    try:
        if format in ("graph", "timeline", "arrow"):
            return _arrow(path)
        if format in ("sacct", "job-table", "power-series"):
            return _jobs(path), []
        if format in _FACTS:
            return _FACTS[format](format_of(format).load_reader()(path)), []
        if format in _TABLES:
            return _TABLES[format](format_of(format).load_reader()(path))
    except InputError as error:
        if format in _PARTLY_READ:
            return {"problem": error.what}, []
        raise
    return {}, []


def _kineto(trace: Any) -> Contents:
    import numpy as np

    from gnomon.table import Table
    from gnomon.units import format_duration

    facts: Facts = {
        "events": len(trace),
        "span": format_duration(trace.span_ns),
        "gpu": ", ".join(dict.fromkeys(trace.gpus)) or "none",
        "threads": len(trace.threads),
    }
    if trace.rank is not None:
        facts["rank"] = f"{trace.rank} of {trace.world_size or '?'}"
    facts |= _left_out(trace.dropped)
    time = np.zeros(len(trace.categories), np.int64)
    np.add.at(time, trace.category, trace.duration_ns)
    count = np.bincount(trace.category, minlength=len(trace.categories))
    rows = [
        {"category": name, "events": int(count[i]), "time_ms": round(time[i] / 1e6, 4)}
        for i, name in enumerate(trace.categories)
    ]
    rows.sort(key=lambda row: -int(str(row["events"])))
    return facts, [Table.from_rows("Events by category", rows, units={"time_ms": "ms"})]


def _chrome(trace: Any) -> Facts:
    from gnomon.units import format_duration

    facts = {"events": trace.events, "span": format_duration(trace.span_ns)}
    facts |= {"threads": trace.threads}
    return facts | ({"processes": ", ".join(trace.processes)} if trace.processes else {})


def _operation_log(log: Any) -> Contents:
    import numpy as np

    from gnomon.table import Table
    from gnomon.units import format_duration

    layout = log.layout
    facts = {
        "job": layout.name, "ranks": len(np.unique(log.rank)), "steps": len(log.steps),
        "operations": len(log), "span": format_duration(int(log.step_ns.sum())),
        "layout": f"dp {layout.dp_size}, pp {layout.pp_size}, tp {layout.tp_size}, "
                  f"{layout.world_size} ranks in all",
    }  # fmt: skip
    rows = [
        {"operation": name, "count": int((of := log.operation == code).sum()),
         "time_ms": round(float(log.duration_ns[of].sum()) / 1e6, 4)}
        for code, name in enumerate(log.operations)
    ]  # fmt: skip
    return facts, [Table.from_rows("Operations", rows, units={"time_ms": "ms"})]


def _spark(log: Any) -> Contents:
    from gnomon.table import Table

    facts: Facts = {
        "application": f"{log.app_name} ({log.app_id})", "spark": log.version,
        "jobs": len(log.jobs), "tasks": len(log.tasks), "executors": len(log.executors),
        "ended": "no" if log.in_progress else "yes",
    }  # fmt: skip
    rows = [
        {"job": job.id, "stages": len(job.stages), "succeeded": "yes" if job.succeeded else "no",
         "took_s": (job.ended_ms - job.submitted_ms) / 1e3 if job.ended_ms >= 0 else float("nan")}
        for job in log.jobs
    ]  # fmt: skip
    tables = [Table.from_rows("Jobs", rows, units={"took_s": "s"})] if rows else []
    return facts | _left_out(log.dropped), tables


def _jobs(path: Path) -> Facts:
    from gnomon.ingest.intensity.grid import day_of
    from gnomon.systems.carbon.accounts.activity import read_activity

    jobs = read_activity(path)
    if isinstance(jobs, list):
        facts: Facts = {"series": len(jobs), "metric": jobs[0].metric}
        start = min(one.signal.start_ns for one in jobs)
        end = max(one.signal.end_ns for one in jobs)
        return facts | {"from": day_of(start), "to": day_of(end)}
    facts = {"jobs": len(jobs), "from": day_of(int(jobs.start_ns.min()))}
    facts |= {"to": day_of(int(jobs.end_ns.max())), "most_cores": float(jobs.cores.max())}
    return facts | ({"notes": " ".join(jobs.notes)} if jobs.notes else {})


def _alibaba(trace: Any) -> Facts:
    facts = {"jobs": len(trace.jobs), "stages": len(trace.kinds.tasks)}
    return facts | {"tasks": trace.jobs.task_count} | _left_out(trace.left_out)


def _intensity(found: Any) -> Facts:
    facts = {"written_by": found.format, **_signal_facts(found.signal)}
    return facts | ({"notes": " ".join(found.notes)} if found.notes else {})


def _signal_facts(signal: Signal) -> Facts:
    from gnomon.ingest.intensity.grid import day_of

    facts: Facts = {
        "unit": str(signal.unit), "gaps": len(signal.gaps()), "from": day_of(signal.start_ns),
        "to": day_of(signal.end_ns),
    }  # fmt: skip
    return facts | ({"zone": signal.zone} if signal.zone else {})


def _boavizta(products: Any) -> Facts:
    makers = len({product.manufacturer for product in products})
    return {"products": len(products), "manufacturers": makers}


def _fleet(fleet: Any) -> Facts:
    facts = {"servers": fleet.servers, "threads": fleet.threads, "groups": len(fleet.groups)}
    return ({"name": fleet.name} if fleet.name else {}) | facts


def _benchmark(bench: Any) -> Facts:
    program = bench.program
    calls = sum(len(thread) for step in program.steps for thread in step)
    return {"steps": len(program.steps), "calls": calls, "streams": program.streams}


def _spans(spans: Any) -> Contents:
    import numpy as np

    from gnomon.ingest.intensity.grid import day_of
    from gnomon.table import Table

    took_ns = spans.end_ns - spans.start_ns
    rows = [
        {"service": name, "spans": int((of := spans.service == code).sum()),
         "median_ms": float(np.median(took_ns[of])) / 1e6, "errors": int(spans.is_error[of].sum())}
        for code, name in enumerate(spans.services)
    ]  # fmt: skip
    rows.sort(key=lambda row: -int(str(row["spans"])))
    facts: Facts = {"traces": spans.traces, "spans": len(spans), "services": len(spans.services)}
    facts |= {"from": day_of(int(spans.start_ns.min()))}
    return facts | _left_out(spans.counts), [
        Table.from_rows("Spans by service", rows, units={"median_ms": "ms"})
    ]


def _samples(samples: Any) -> Facts:
    import numpy as np

    from gnomon.units import format_duration

    order = np.argsort(samples.time_ns)
    reached = np.cumsum(samples.counts[order]) / len(samples)
    facts: Facts = {"samples": len(samples)}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("longest", 1.0)):
        at = min(int(np.searchsorted(reached, share)), len(order) - 1)
        facts[name] = format_duration(int(samples.time_ns[order[at]]))
    if len(samples.kinds) > 1:
        facts["classes"] = ", ".join(samples.kinds)
    return facts | {"notes": " ".join(samples.notes)}


def _application(app: Any) -> Facts:
    calls = sum(1 for one in app.classes.values() for _ in one.call.walk())
    return {
        "name": app.name, "services": len(app.services), "classes": ", ".join(app.classes),
        "calls": calls, "rate": app.rate,
    }  # fmt: skip


def _cilantro(log: Any) -> Facts:
    import numpy as np

    facts: Facts = {"intervals": len(log), "services": len(log.services)}
    for name, values in (("median_rate", log.rate), ("median_p99_ms", log.p99_ms)):
        if (measured := values[np.isfinite(values)]).size:
            facts[name] = round(float(np.median(measured)), 1)
    return facts


def _arrow(path: Path) -> Contents:
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
    return {"rows": stored.rows}, [Table.from_rows("Columns", rows)]


def _result(result: Any) -> Contents:
    from gnomon.table import Table

    rows = [{"figure": f.name, "value": f.text} for f in result.figures]
    facts = {
        "result_of": f"{result.system} {result.verb}", "title": result.title,
        "tables": len(result.tables), "version": result.manifest.version or "unknown",
    }  # fmt: skip
    return facts, [Table.from_rows("Figures", rows)] if rows else []


def _left_out(counts: Any) -> dict[str, str]:
    text = "; ".join(f"{count:,} {why}" for why, count in counts.items())
    return {"left_out": text} if text else {}


#: What is shown of what a format's reader gives.
_FACTS: dict[str, Callable[[Any], Facts]] = {
    **dict.fromkeys(("jax-trace", "viztracer", "chrome-trace"), _chrome),
    **dict.fromkeys(("intensity-json", "intensity-csv"), _intensity),
    **dict.fromkeys(("hdr-log", "percentiles", "load-test", "sample-table"), _samples),
    "execution-trace": lambda trace: {
        "schema": trace.schema, "nodes": len(trace.nodes), "groups": len(trace.groups),
    },
    "tpch": lambda kinds: {"queries": len(kinds), "stages": len(kinds.tasks)},
    "signal-csv": lambda read: {"rows": read.row_count, **_signal_facts(read.signal)},
    "alibaba": _alibaba, "boavizta": _boavizta, "fleet": _fleet, "benchmark": _benchmark,
    "application": _application, "cilantro": _cilantro,
    "mubench": lambda model: _application(model.app) | (
        {"notes": " ".join(model.notes)} if model.notes else {}
    ),
    "pod-metrics": lambda read: {
        "pods": read.pods, "rows": read.rows, "cores": round(sum(read.cores.values()), 4),
    },
}  # fmt: skip
_TABLES: dict[str, Callable[[Any], Contents]] = {
    **dict.fromkeys(("jaeger", "zipkin", "otlp", "otlp-protobuf", "span-table"), _spans),
    "kineto": _kineto, "operation-log": _operation_log, "spark-log": _spark, "result": _result,
}  # fmt: skip
_PARTLY_READ = (
    "sacct", "job-table", "power-series", "intensity-json", "intensity-csv", "signal-csv",
    "hdr-log", "percentiles", "load-test", "sample-table",
)  # fmt: skip
