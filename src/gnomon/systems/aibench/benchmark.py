"""One call from files to a benchmark: what `gnomon aibench build` does."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import read_execution_trace
from gnomon.ingest.profiler.kineto import read_kineto
from gnomon.model.accelerator.operator_family import operator_family
from gnomon.report import Figure, InputFile, Manifest, Result, hash_input
from gnomon.systems.aibench.builder.kernels import KernelFiles, find_resources
from gnomon.systems.aibench.folder import describe, memory_and_device, write_bench
from gnomon.systems.aibench.pipeline import Built, Options, build_program
from gnomon.systems.aibench.program import Call
from gnomon.table import Table
from gnomon.version import __version__

_TRACES = ("et.json.gz", "et.json", "et.json.zst")
_PROFILES = ("kineto.json.gz", "kineto.json", "kineto.json.zst")


class Benchmark(msgspec.Struct, frozen=True, eq=False):
    """A benchmark that was written, and what is in it."""

    folder: Path
    built: Built
    nbytes: int
    steps: int
    inputs: tuple[InputFile, ...]

    @property
    def calls(self) -> tuple[Call, ...]:
        """What runs in a step, views that the recording did not need left out."""
        return tuple(call for call in self.built.calls if call.role != "view")

    @property
    def placeholders(self) -> Counter[str]:
        """What cannot be rebuilt, by its name in the trace."""
        return Counter(call.title for call in self.calls if not call.does)

    @property
    def coverage_ops_pct(self) -> float:
        """Share of calls that are replayed as they are."""
        return 100.0 * sum(bool(call.does) for call in self.calls) / max(len(self.calls), 1)

    @property
    def coverage_time_pct(self) -> float | None:
        """Share of the device's recorded time that they take; None without a profiler trace."""
        total = sum(call.device_ns for call in self.calls)
        if self.built.alignment is None or not total:
            return None
        return 100.0 * sum(call.device_ns for call in self.calls if call.does) / total


def find_inputs(path: Path, kineto: Path | None) -> tuple[str, Path | None]:
    """The execution trace and the profiler trace that a path means.

    In a folder they have the names that `training record` and torch's examples give them.
    """
    if not path.is_dir():
        return str(path), kineto
    if not (found := _files(path, _TRACES)):
        hint = "give the execution trace itself"
        raise InputError("no et.json or et.json.gz in this folder", where=str(path), hint=hint)
    return str(found[0]), kineto or next(iter(_files(path, _PROFILES)), None)


def profile_in(path: Path) -> Path:
    """The profiler trace that a path means."""
    if not (found := _files(path, _PROFILES)):
        raise InputError("no kineto.json or kineto.json.gz in this folder", where=str(path))
    return found[0]


def traces_in(path: Path) -> list[Path]:
    """All traces that a path means."""
    if not (found := _files(path, (*_TRACES, *_PROFILES))):
        raise InputError("no trace in this folder", where=str(path))
    return found


def _files(path: Path, names: tuple[str, ...]) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [path / name for name in names if (path / name).is_file()]


def build(
    path: Path, out: Path, *, kineto: Path | None = None, kernels: Path | None = None,
    options: Options | None = None, force: bool = False,
) -> Benchmark:  # fmt: skip
    """Makes a benchmark of a trace.

    Args:
        path: An execution trace, a folder with one, or `ARCHIVE:MEMBER`.
        out: Where the benchmark goes.
        kineto: A profiler trace of the same job.
        kernels: The folder of compiled kernels; beside the trace unless given, `none` for none.
        options: What of the trace, and how.
        force: Whether an older benchmark is replaced.
    """
    source, kineto = find_inputs(path, kineto)
    trace = read_execution_trace(source)
    profile = read_kineto(kineto) if kineto is not None else None
    files = KernelFiles(_kernel_folder(Path(source), kernels))
    built = build_program(trace, profile, kernels=files, options=options)
    if files.sources:
        note = f"{len(files.sources)} compiled kernels go along as files: code that was generated "
        note += "from the model; --kernels none leaves them out"
        built = msgspec.structs.replace(built, notes=(*built.notes, note))
    readme = describe(_facts(built))
    write_bench(
        out, built.program, readme, kernels=files.sources, modules=built.modules, force=force
    )
    nbytes = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    inputs = [hash_input(Path(name)) for name in (source, kineto) if name and Path(name).is_file()]
    return Benchmark(out, built, nbytes, len(built.program.steps), tuple(inputs))


def _kernel_folder(source: Path, given: Path | None) -> Path | None:
    if given is None:
        return find_resources(source)
    if str(given) == "none":
        return None
    if not given.is_dir():
        raise InputError("is not a folder", where=str(given))
    return given


def _facts(built: Built) -> dict[str, Any]:
    """The facts of the README: nothing that is not in the program itself."""
    calls = [call for call in built.calls if call.role != "view"]
    return {
        "steps": len(built.program.steps),
        "operators": len(calls),
        "of them placeholder kernels, as far as the build knows": sum(not c.does for c in calls),
        **memory_and_device(built.program),
        "host time": "as recorded" if built.alignment else "not known",
    }


def to_result(made: Benchmark, command: str = "") -> Result:
    """What the owner of the trace wants to know; it names what the benchmark does not."""
    alignment = made.built.alignment
    figures = [
        Figure("ops", "Operators", len(made.calls)),
        Figure("coverage_ops_pct", "Rebuilt, of operators", made.coverage_ops_pct, "%", "higher"),
    ]
    if made.coverage_time_pct is not None:
        figures.append(
            Figure("coverage_time_pct", "Rebuilt, of device time", made.coverage_time_pct, "%",
                   "higher")
        )  # fmt: skip
    figures += [
        Figure(
            "placeholders", "Placeholder kernels", sum(made.placeholders.values()), better="lower"
        ),
        Figure("steps", "Recorded steps", made.steps),
        Figure("size_kb", "Size of the benchmark", made.nbytes / 1e3, "kB", "lower"),
    ]
    if alignment is not None:
        steps = max(made.steps, 1)
        device = sum(call.device_ns for call in made.calls) / 1e6 / steps
        figures.append(Figure("device_ms", "Device time per step", device, "ms"))
        host = sum(call.host_ns for call in made.calls) / 1e6 / steps
        note = "without the profiler, all threads together"
        note += "" if alignment.on_gpu else ", between operators"
        figures.append(Figure("host_ms", "Host time per step", host, "ms", note=note))
    return Result(
        "aibench", "build", f"Benchmark {made.folder.name}",
        "What is in the benchmark, and what could not be rebuilt?",
        figures=figures, tables=_tables(made), how=_HOW, notes=list(made.built.notes),
        manifest=Manifest(command, {}, None, __version__, list(made.inputs)),
    )  # fmt: skip


def to_script(made: Benchmark) -> dict[str, Any]:
    """The figures that scripts ask for."""
    return {
        "bench": str(made.folder), "ops": len(made.calls),
        "placeholders": dict(made.placeholders), "coverage_ops_pct": made.coverage_ops_pct,
        "coverage_time_pct": made.coverage_time_pct, "steps": made.steps, "bytes": made.nbytes,
    }  # fmt: skip


_HOW = [
    "In each subtree of the trace the **highest operator that can stand alone** is kept: one "
    "whose inner results nothing else reads, that autocast did not rewrite, and this torch has.",
    "**Data** comes from outside where no kept operator made it, and is made up; floating-point "
    "arguments are replaced by others of their size. Indices stay in range.",
    "A **placeholder kernel** keeps the device busy for the recorded time. Names here are for "
    "you: the benchmark does not carry them.",
]


def _tables(made: Benchmark) -> list[Table]:
    families: dict[str, list[Call]] = defaultdict(list)
    missing: dict[str, list[Call]] = defaultdict(list)
    for call in made.calls:
        families[_family(call)].append(call)
        if not call.does:
            missing[call.title].append(call)
    rows = [
        {"family": name, "calls": len(own), "device_ms": sum(c.device_ns for c in own) / 1e6,
         "host_ms": sum(c.host_ns for c in own) / 1e6}
        for name, own in sorted(families.items(), key=lambda item: -len(item[1]))
    ]  # fmt: skip
    lost = [
        {"name": name, "calls": len(own), "device_ms": sum(c.device_ns for c in own) / 1e6}
        for name, own in sorted(missing.items(), key=lambda item: -len(item[1]))
    ]
    tables = [Table.from_rows("Calls by family", rows, units={"device_ms": "ms", "host_ms": "ms"})]
    if lost:
        tables.append(Table.from_rows("Placeholder kernels", lost, units={"device_ms": "ms"}))
    return tables


def _family(call: Call) -> str:
    known = {"collective": "communication", "wait": "communication",
             "kernel": "compiled kernel", "missing": "placeholder"}  # fmt: skip
    return known.get(call.role) or operator_family(call.title)
