"""What gnomon reads: one list, from which `inspect`, refusals, docs and fuzz tests are made.

A format is recognised by its content, never by its name alone. Recognisers and readers are named,
not imported: the list costs nothing to load.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.text import read_head, read_pieces

#: Marks may come late in a file: so many bytes are looked at before it counts as unknown.
_FAR = 4 << 20


class Format(msgspec.Struct, frozen=True):
    """One format.

    Attributes:
        recognise: The function, `module:name`, that says whether a file is one; empty for those
            of this module.
        reader: The function, `module:name`, that reads one; empty where none does.
        commands: The commands that take one, the most useful first; `inspect` takes all.
        files: How such files are called, as a rule.
        sees: What the recogniser is given: the first bytes of a file, or the path.
        is_vague: Too little to refuse a file by: its reader says what is wrong.
    """

    name: str
    title: str
    recognise: str
    reader: str = ""
    commands: tuple[str, ...] = ()
    files: str = ""
    sees: Literal["head", "path"] = "head"
    is_vague: bool = False

    @property
    def about(self) -> str:
        return f"{'an' if self.title[0] in 'aeioAEIO' else 'a'} {self.title}"

    @property
    def used_by(self) -> str:
        verb = f"`gnomon {self.commands[0]}` reads it" if self.commands else ""
        return verb or "`gnomon inspect` describes it"

    def recognises(self, seen: bytes | Path) -> bool:
        """Whether a file is one, by its first bytes or its path, as `sees` says."""
        known = _load(self.recognise) if self.recognise else _RECOGNISERS[self.name]
        return bool(known(seen))

    def load_reader(self) -> Callable[..., Any]:
        reader: Callable[..., Any] = _load(self.reader)
        return reader


_INGEST = "gnomon.ingest."
_CHROME = f"{_INGEST}profiler.chrome_trace:"
_TRACE = ("training replay", "training whatif", "training sweep", "report", "compare", "export",
          "carbon account")  # fmt: skip
_PREDICT = ("training predict", "training search")
_JOBS = ("batch run --jobs", "batch train-decima --jobs")
_GRID = ("carbon signal --file", "carbon account --signal", "carbon place --signal",
         "carbon wait --signal", "batch run --signal", "batch whatif --signal",
         "batch spark-agent --signal")  # fmt: skip
_FLEET = ("carbon place --fleet", "carbon account --machines", "carbon buy --fleet",
          "carbon buy --candidate")  # fmt: skip
_ARROW = ("report", "compare", "export", "carbon account")
_TIMES = ("threads simulate --samples",)
_SERVICES = ("services import", "services plan --traces", "clone topology", *_TIMES)
_APPLICATION = ("services simulate", "services compare", "services lab", "services explore",
                "services plan", "services collect", "services control --app",
                "services decisions --app")  # fmt: skip
_SPANS = f"{_INGEST}spans."
_SAMPLES = f"{_INGEST}samples."

#: In the order in which they are tried; of two that fit, the first counts.
FORMATS: tuple[Format, ...] = (
    Format(
        "kineto", "PyTorch profiler trace", f"{_CHROME}is_kineto",
        f"{_INGEST}profiler.kineto:read_kineto",
        (*_TRACE, *_PREDICT, "aibench check --trace", "aibench check --clone-trace",
         "aibench build --kineto", "aibench audit --against"), "*.pt.trace.json, .gz, .zst",
    ),
    Format(
        "viztracer", "VizTracer trace", f"{_CHROME}is_viztracer", f"{_CHROME}read_chrome_trace",
        files="result.json",
    ),
    Format(
        "jax-trace", "JAX profiler trace", f"{_CHROME}is_jax", f"{_CHROME}read_chrome_trace",
        files="*.trace.json.gz",
    ),
    Format(
        "execution-trace", "PyTorch execution trace",
        f"{_INGEST}execution.trace:looks_like_execution_trace",
        f"{_INGEST}execution.trace:read_execution_trace",
        ("aibench build", "aibench audit --against"), "et.json, .gz, .zst, .tar.gz",
    ),
    Format(
        "otlp", "OpenTelemetry trace (OTLP JSON)", f"{_SPANS}otlp:is_otlp",
        f"{_SPANS}read:read_spans", _SERVICES,
        "*.json, .jsonl of a collector, Jaeger's API v3, Tempo; .gz, .zst",
    ),
    Format(
        "jaeger", "Jaeger trace", f"{_SPANS}jaeger:is_jaeger", f"{_SPANS}read:read_spans",
        _SERVICES, "*.json of its page or API, .gz, .zst",
    ),
    Format(
        "zipkin", "Zipkin trace (version 2)", f"{_SPANS}zipkin:is_zipkin",
        f"{_SPANS}read:read_spans", _SERVICES, "*.json of its page or API, .gz, .zst",
    ),
    Format(
        "mubench", "muBench work model", f"{_INGEST}services.mubench:is_mubench",
        f"{_INGEST}services.mubench:read_mubench", ("services import",), "workmodel*.json",
    ),
    Format(
        "application", "application of services (YAML)",
        f"{_INGEST}services.application_file:looks_like_application",
        f"{_INGEST}services.application_file:read_application", _APPLICATION,
        files="*.yaml with `services:` and `classes:`",
    ),
    Format(
        "tpch", "table of TPC-H stages (Decima)", f"{_INGEST}stages.decima_tpch:looks_like_tpch",
        f"{_INGEST}stages.decima_tpch:read_tpch", _JOBS, "*.json, .gz, .zst",
    ),
    Format(
        "intensity-json", "carbon intensity answer (JSON)",
        f"{_INGEST}intensity.answers:looks_like_intensity",
        f"{_INGEST}intensity.files:read_intensity", _GRID,
        "*.json of Electricity Maps, WattTime, Great Britain, Carbon Aware SDK",
    ),
    Format(
        "hdr-log", "HdrHistogram log", f"{_SAMPLES}hdr_log:is_hdr_log",
        f"{_SAMPLES}read:read_samples", _TIMES, "*.hlog of jHiccup, YCSB, cassandra-stress",
    ),
    Format(
        "percentiles", "HdrHistogram percentile distribution",
        f"{_SAMPLES}percentiles:is_percentiles", f"{_SAMPLES}read:read_samples", _TIMES,
        "*.hgrm, the output of wrk2 --latency",
    ),
    Format(
        "load-test", "table of a load test", f"{_SAMPLES}table:is_load_test",
        f"{_SAMPLES}read:read_samples", _TIMES,
        "*.jtl of JMeter, *.csv of k6, hey and vegeta, ab -g",
    ),
    Format(
        "fleet", "fleet of machines (YAML)", "",
        "gnomon.model.machines.machine_file:read_fleet", _FLEET, "*.yaml with `fleet:`",
    ),
    Format(
        "power-series", "Prometheus range answer",
        f"{_INGEST}metrics.power_series:is_power_series",
        f"{_INGEST}metrics.power_series:read_power_series", ("carbon account",),
        "*.json of query_range, OpenMetrics text",
    ),
    Format(
        "sacct", "Slurm accounting table (sacct)", f"{_INGEST}jobs.sacct:is_sacct",
        f"{_INGEST}jobs.sacct:read_sacct", ("carbon account",), "the output of sacct -P",
    ),
    Format(
        "alibaba", "table of Alibaba batch tasks (2018)",
        f"{_INGEST}stages.alibaba_dag:looks_like_alibaba",
        f"{_INGEST}stages.alibaba_dag:read_alibaba", _JOBS, "batch_task.csv",
    ),
    Format(
        "boavizta", "Boavizta footprint table", f"{_INGEST}boavizta:looks_like_boavizta",
        f"{_INGEST}boavizta:read_boavizta", files="boavizta-data-us.csv",
    ),
    Format(
        "span-table", "table of spans (CSV)", f"{_SPANS}span_table:is_span_table",
        f"{_SPANS}read:read_spans", _SERVICES, "*.csv with TraceID, SpanID, ParentID, a start",
    ),
    Format(
        "cilantro", "Cilantro log of a client", f"{_INGEST}services.cilantro:is_cilantro",
        f"{_INGEST}services.cilantro:read_cilantro", files="*-hr-client.csv",
    ),
    Format(
        "pod-metrics", "table of a pod's metrics (Nezha)",
        f"{_INGEST}services.pod_metrics:is_pod_metrics",
        f"{_INGEST}services.pod_metrics:read_pod_metrics", ("services import --pod-metrics",),
        "*_metric.csv",
    ),
    Format(
        "operation-log", "operation log of a training job",
        f"{_INGEST}profiler.operation_log:looks_like_operation_log",
        f"{_INGEST}profiler.operation_log:read_operation_log",
        ("training stragglers", *_TRACE), "trace-*.parquet, .csv", sees="path",
    ),
    Format(
        "job-table", "job table (CSV)", f"{_INGEST}jobs.jobs_csv:looks_like_jobs",
        f"{_INGEST}jobs.jobs_csv:read_jobs_csv", ("carbon account", "carbon place --jobs"),
        "*.csv with start, end or duration, cores",
    ),
    Format(
        "intensity-csv", "carbon intensity table (CSV)",
        f"{_INGEST}intensity.tables:looks_like_intensity",
        f"{_INGEST}intensity.files:read_intensity", _GRID,
        "*.csv of Electricity Maps, WattTime, CarbonCast, or with a column of gCO2/kWh",
    ),
    Format(
        "timeline", "gnomon timeline", "", "gnomon.graph:Timeline.load",
        _ARROW, "*.arrow",
    ),
    Format(
        "graph", "gnomon work graph", "", "gnomon.graph:WorkGraph.load",
        _ARROW, "*.arrow",
    ),
    Format(
        "otlp-protobuf", "OpenTelemetry trace (OTLP protobuf)",
        f"{_SPANS}otlp_protobuf:is_otlp_protobuf", f"{_SPANS}read:read_spans", _SERVICES,
        "a request of OTLP, or several with their lengths",
    ),
    Format(
        "result", "saved gnomon result", "", "gnomon.report:load",
        ("report", "compare", "export"), "a folder with manifest.json", sees="path",
    ),
    Format(
        "benchmark", "gnomon benchmark", "",
        "gnomon.systems.aibench.stored:read_bench",
        ("aibench check", "aibench audit", "aibench mix"), "a folder with program.json.gz",
        sees="path",
    ),
    Format(
        "spark-log", "Spark event log", f"{_INGEST}spark.log_files:looks_like_spark_log",
        f"{_INGEST}spark.event_log:read_spark_log", ("batch whatif", *_JOBS),
        "a file, plain or compressed; a rolling folder", sees="path",
    ),
    Format(
        "recording", "folder of recordings", "",
        commands=(*_TRACE, *_PREDICT, "aibench build", "aibench check --trace",
                  "aibench audit --against"),
        files="kineto.json.gz, rank0.json.gz, et.json, meta.json", sees="path",
    ),
    # What follows says too little: it is inspected, and refused by the reader that gets it.
    Format(
        "folder", "folder", "", files="anything inside", sees="path",
        is_vague=True,
    ),
    Format(
        "signal-csv", "table of values over time (CSV)",
        f"{_INGEST}metrics.signal_csv:looks_like_signal",
        f"{_INGEST}metrics.signal_csv:read_signal_csv", files="*.csv", is_vague=True,
    ),
    Format(
        "chrome-trace", "Chrome trace", f"{_CHROME}is_chrome_trace",
        f"{_CHROME}read_chrome_trace", files="*.json, .gz, .zst", is_vague=True,
    ),
    Format("arrow", "Arrow file", "", files="*.arrow", is_vague=True),
    Format("parquet", "Parquet file", "", files="*.parquet", is_vague=True),
    Format(
        "perfetto", "Perfetto trace (protobuf)", "", files="*.pftrace",
        is_vague=True,
    ),
    Format("json", "JSON file of no known kind", "", is_vague=True),
    Format(
        "sample-table", "table of measured times (CSV)", f"{_SAMPLES}table:looks_like_samples",
        f"{_SAMPLES}read:read_samples", _TIMES, "*.csv with a column such as service_us",
        is_vague=True,
    ),
    Format("csv", "table of no known kind (CSV)", "", is_vague=True),
)  # fmt: skip
_UNKNOWN = Format("unknown", "file of no known kind", "", is_vague=True)


class FileIdentity(msgspec.Struct, frozen=True):
    """A format, and the size on disk."""

    kind: Format
    bytes: int

    @property
    def format(self) -> str:
        return self.kind.name


def format_of(name: str) -> Format:
    """The format of this name."""
    return next(format for format in FORMATS if format.name == name)


def with_command(command: str) -> tuple[Format, ...]:
    """The formats that a command takes.

    >>> [format.name for format in with_command("training stragglers")]
    ['operation-log']
    """
    return tuple(format for format in FORMATS if command in format.commands)


def identify(path: str | os.PathLike[str]) -> FileIdentity:
    """Looks at a file or folder.

    >>> from gnomon.datasets import bundled
    >>> identify(bundled("h200-gpt-l6") / "kineto.json.gz").kind.title
    'PyTorch profiler trace'
    """
    if not os.fspath(path):
        raise InputError("an empty path names nothing")
    place = Path(path)
    try:
        files = place.rglob("*") if place.is_dir() else [place]
        return FileIdentity(_look(place), sum(p.stat().st_size for p in files if p.is_file()))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def check_input(path: str | os.PathLike[str] | None, command: str) -> None:
    """Refuse a file that is clearly for another command, naming what it is.

    What is not there, or of no known kind, is left to the reader: it knows better what is wrong.

    Args:
        command: The command, with its option where it is not its argument.
    """
    if not path:
        return
    place = Path(path)
    try:
        kind = _look(place)
    except (InputError, OSError):
        return
    if kind.is_vague or command in kind.commands:
        return
    # A table may pass for two kinds: one that the command takes is enough.
    clear = (one for one in with_command(command) if not one.is_vague)
    if not any(_recognises(one, place) for one in clear):
        raise InputError(f"this is {kind.about}", where=str(path), hint=kind.used_by)


def _look(place: Path) -> Format:
    if place.is_dir():
        return _first(place, b"", lambda f: f.sees == "path")
    if place.exists() and not place.is_file():  # a pipe can be read but once
        raise InputError("is neither a file nor a folder", where=str(place))
    head = _text(read_head(place))
    if not head:
        # Not even a byte: what the archive says is wrong is the better reason.
        if any(map(_text, read_pieces(place))):
            return _first(place, b"", lambda f: f.sees == "path")
        raise InputError("is empty", where=str(place))
    clear = _first(place, head, lambda f: not f.is_vague)
    if clear is not _UNKNOWN:
        return clear
    far = _text(read_head(place, _FAR))
    return _first(place, far, lambda f: f.is_vague or f.sees == "head")


def _recognises(format: Format, place: Path) -> bool:
    if place.is_dir() and format.sees == "head":
        return False
    return format.recognises(_text(read_head(place)) if format.sees == "head" else place)


def _text(head: bytes) -> bytes:
    return head.removeprefix(b"\xef\xbb\xbf")


def _first(place: Path, head: bytes, is_tried: Callable[[Format], bool]) -> Format:
    for format in FORMATS:
        if is_tried(format) and format.recognises(head if format.sees == "head" else place):
            return format
    return _UNKNOWN


def _load(target: str) -> Any:
    module, _, names = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


# -- recognisers of what other layers read ---------------------------------------------------

_ARROW_MAGIC, _PARQUET_MAGIC = b"ARROW1", b"PAR1"
_FLEET_KEY = re.compile(rb"^[\"']?fleet[\"']?\s*:", re.MULTILINE)
_TRACE_NAME = re.compile(r"(?!meta).*\.json(\.gz|\.zst)?")


def _is_recording(path: Path) -> bool:
    """A folder with a profiler trace or an execution trace in it."""
    if not path.is_dir():
        return False
    traces = sorted(file for file in path.iterdir() if _TRACE_NAME.fullmatch(file.name))
    known = ("kineto", "execution-trace", "chrome-trace")
    for file in traces[:8]:
        try:
            if identify(file).format in known:
                return True
        except InputError:
            continue
    return False


def _is_text(head: bytes) -> bool:
    return b"\0" not in head and all(byte >= 9 for byte in head[:512])


def _is_graph(head: bytes) -> bool:
    return head.startswith(_ARROW_MAGIC) and b"gnomon.graph" in head


#: Formats that are recognised here, by name; the others name their recogniser.
_RECOGNISERS: dict[str, Callable[[Any], bool]] = {
    "fleet": lambda head: (
        head.lstrip()[:1] not in (b"{", b"[") and _FLEET_KEY.search(head) is not None
    ),
    "graph": _is_graph,
    "timeline": lambda head: _is_graph(head) and b"start_ns" in head,
    "result": lambda path: (path / "manifest.json").is_file() and (path / "result.json").is_file(),
    "benchmark": lambda path: (path / "program.json.gz").is_file(),
    "recording": _is_recording,
    "folder": Path.is_dir,
    "arrow": lambda head: head.startswith(_ARROW_MAGIC),
    "parquet": lambda head: head.startswith(_PARQUET_MAGIC),
    "perfetto": lambda head: head[:1] == b"\x0a" and not _is_text(head),
    "json": lambda head: head.lstrip()[:1] in (b"{", b"["),
    "csv": lambda head: _is_text(head) and b"," in head.split(b"\n", 1)[0],
}
