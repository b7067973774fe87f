"""What is in a file, by its format: the facts and tables that `gnomon inspect` shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.series import Signal

Contents = tuple[dict[str, Any], list[Any]]


def contents_of(path: Path, format: str) -> Contents:
    """Facts by name, and tables; empty for a format of which nothing more is known.

    A table that cannot be read as a whole is a table still: the fact `problem` says what is wrong.
    """
    look = _LOOKS.get(format)
    if look is None:
        return {}, []
    try:
        return look(path)
    except InputError as error:
        if format in _TABLES:
            return {"problem": error.what}, []
        raise


def _kineto(path: Path) -> Contents:
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


def _chrome(path: Path) -> Contents:
    from gnomon.ingest.profiler.chrome_trace import read_chrome_trace
    from gnomon.units import format_duration

    trace = read_chrome_trace(path)
    facts: dict[str, Any] = {"events": trace.events, "span": format_duration(trace.span_ns)}
    facts |= {"threads": trace.threads}
    return facts | ({"processes": ", ".join(trace.processes)} if trace.processes else {}), []


def _execution(path: Path) -> Contents:
    from gnomon.ingest.execution.trace import read_execution_trace

    trace = read_execution_trace(path)
    return {"schema": trace.schema, "nodes": len(trace.nodes), "groups": len(trace.groups)}, []


def _operation_log(path: Path) -> Contents:
    import numpy as np

    from gnomon.ingest.profiler.operation_log import read_operation_log
    from gnomon.table import Table
    from gnomon.units import format_duration

    log = read_operation_log(path)
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


def _spark(path: Path) -> Contents:
    from gnomon.ingest.spark.event_log import read_spark_log
    from gnomon.table import Table

    log = read_spark_log(path)
    facts: dict[str, Any] = {
        "application": f"{log.app_name} ({log.app_id})", "spark": log.version,
        "jobs": len(log.jobs), "tasks": len(log.tasks), "executors": len(log.executors),
        "ended": "no" if log.in_progress else "yes",
    }  # fmt: skip
    facts |= _left_out(log.dropped)
    rows = [
        {"job": job.id, "stages": len(job.stages), "succeeded": "yes" if job.succeeded else "no",
         "took_s": (job.ended_ms - job.submitted_ms) / 1e3 if job.ended_ms >= 0 else float("nan")}
        for job in log.jobs
    ]  # fmt: skip
    return facts, [Table.from_rows("Jobs", rows, units={"took_s": "s"})] if rows else []


def _jobs(path: Path) -> Contents:
    from gnomon.ingest.intensity.grid import day_of
    from gnomon.systems.carbon.accounts.activity import read_activity

    jobs = read_activity(path)
    if isinstance(jobs, list):
        facts: dict[str, Any] = {"series": len(jobs), "metric": jobs[0].metric}
        start = min(one.signal.start_ns for one in jobs)
        end = max(one.signal.end_ns for one in jobs)
        return facts | {"from": day_of(start), "to": day_of(end)}, []
    facts = {"jobs": len(jobs), "from": day_of(int(jobs.start_ns.min()))}
    facts |= {"to": day_of(int(jobs.end_ns.max())), "most_cores": float(jobs.cores.max())}
    return facts | ({"notes": " ".join(jobs.notes)} if jobs.notes else {}), []


def _alibaba(path: Path) -> Contents:
    from gnomon.ingest.stages.alibaba_dag import read_alibaba

    trace = read_alibaba(path)
    facts = {"jobs": len(trace.jobs), "stages": len(trace.kinds.tasks)}
    return facts | {"tasks": trace.jobs.task_count} | _left_out(trace.left_out), []


def _tpch(path: Path) -> Contents:
    from gnomon.ingest.stages.decima_tpch import read_tpch

    kinds = read_tpch(path)
    return {"queries": len(kinds), "stages": len(kinds.tasks)}, []


def _intensity(path: Path) -> Contents:
    from gnomon.ingest.intensity.files import read_intensity

    found = read_intensity(path)
    facts = {"written_by": found.format, **_signal_facts(found.signal)}
    return facts | ({"notes": " ".join(found.notes)} if found.notes else {}), []


def _signal(path: Path) -> Contents:
    from gnomon.ingest.metrics.signal_csv import read_signal_csv

    read = read_signal_csv(path)
    return {"rows": read.row_count, **_signal_facts(read.signal)}, []


def _signal_facts(signal: Signal) -> dict[str, Any]:
    from gnomon.ingest.intensity.grid import day_of

    facts: dict[str, Any] = {
        "unit": str(signal.unit), "gaps": len(signal.gaps()), "from": day_of(signal.start_ns),
        "to": day_of(signal.end_ns),
    }  # fmt: skip
    return facts | ({"zone": signal.zone} if signal.zone else {})


def _boavizta(path: Path) -> Contents:
    from gnomon.ingest.boavizta import read_boavizta

    products = read_boavizta(path)
    makers = len({product.manufacturer for product in products})
    return {"products": len(products), "manufacturers": makers}, []


def _fleet(path: Path) -> Contents:
    from gnomon.model.machines.machine_file import read_fleet

    fleet = read_fleet(path)
    facts = {"servers": fleet.servers, "threads": fleet.threads, "groups": len(fleet.groups)}
    return ({"name": fleet.name} if fleet.name else {}) | facts, []


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


def _result(path: Path) -> Contents:
    from gnomon import report
    from gnomon.table import Table

    result = report.load(path)
    rows = [{"figure": f.name, "value": f.text} for f in result.figures]
    facts = {
        "result_of": f"{result.system} {result.verb}", "title": result.title,
        "tables": len(result.tables), "version": result.manifest.version or "unknown",
    }  # fmt: skip
    return facts, [Table.from_rows("Figures", rows)] if rows else []


def _benchmark(path: Path) -> Contents:
    from gnomon.systems.aibench.stored import read_bench

    program = read_bench(path).program
    calls = sum(len(thread) for step in program.steps for thread in step)
    return {"steps": len(program.steps), "calls": calls, "streams": program.streams}, []


def _left_out(counts: Any) -> dict[str, str]:
    text = "; ".join(f"{count:,} {why}" for why, count in counts.items())
    return {"left_out": text} if text else {}


_LOOKS: dict[str, Callable[[Path], Contents]] = {
    "kineto": _kineto, "jax-trace": _chrome, "viztracer": _chrome, "chrome-trace": _chrome,
    "execution-trace": _execution, "operation-log": _operation_log, "spark-log": _spark,
    "sacct": _jobs, "job-table": _jobs, "power-series": _jobs, "alibaba": _alibaba,
    "tpch": _tpch, "intensity-json": _intensity, "intensity-csv": _intensity,
    "signal-csv": _signal, "boavizta": _boavizta, "fleet": _fleet, "graph": _arrow,
    "timeline": _arrow, "arrow": _arrow, "result": _result, "benchmark": _benchmark,
}  # fmt: skip
_TABLES = ("sacct", "job-table", "power-series", "intensity-json", "intensity-csv", "signal-csv")
