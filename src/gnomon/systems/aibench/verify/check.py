"""Does the clone behave as the original? From a benchmark folder and a trace to a comparison.

Mystique holds a benchmark against its workload by step time, by what the GPU does and by what it
draws (arXiv 2301.04122); here time and number of kernels by family stand beside these.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.profiler.kineto import read_kineto
from gnomon.ingest.profiler.measured import MeasuredRun, read_measured
from gnomon.report import hash_input
from gnomon.sim.trace.graph import build_graph
from gnomon.sim.trace.unprofiled import unprofiled_step
from gnomon.systems.aibench.verify.clone_run import (
    CloneRun,
    clone_run_of,
    read_clone_run,
    run_clone,
)
from gnomon.systems.aibench.verify.comparison import Check, Tolerance, compare_profiles
from gnomon.systems.aibench.verify.profile import Profile, StepSource, profile_of


def original_profile(trace_path: Path, step_ms: float | None = None) -> Profile:
    """The profile of the original, with its step as it is without the profiler.

    That step is the one given, else the one measured beside the trace (`meta.json`), else
    estimated from the trace.
    """
    measured = read_measured(trace_path)
    if step_ms is not None:
        if not (math.isfinite(step_ms) and step_ms > 0):
            raise InputError(f"a step of {step_ms} ms; it has to take some time")
        return _profile(trace_path, Estimate.exact(step_ms), "given", measured)
    step, mid = None, measured.step_ms
    if mid is not None and mid > 0:
        step = Estimate.from_samples(measured.steps_ms or [mid])
        step = Estimate(min(step.low, mid), mid, max(step.high, mid))
    return _profile(trace_path, step, "measured", measured)


def clone_profile(trace_path: Path, run: CloneRun | None) -> Profile:
    """The profile of a clone; its step as the clone measured it, else estimated.

    What lies beside the profile is not read: it may be what was measured of the original.
    """
    if run is None:
        return _profile(trace_path, None, "estimated", MeasuredRun(), cache=False)
    known = MeasuredRun(peak_bytes=run.peak_bytes, power_w=run.median_power_w)
    return _profile(trace_path, run.step, "measured", known, cache=False)


def _profile(
    path: Path,
    step: Estimate | None,
    step_from: StepSource,
    measured: MeasuredRun,
    *,
    cache: bool = True,
) -> Profile:
    trace = read_kineto(path, cache=cache)
    graph = build_graph(trace)
    if step is None:
        step, step_from = unprofiled_step(trace, graph).estimate, "estimated"
    return profile_of(
        trace, graph=graph, step_ms=step, step_from=step_from, peak_bytes=measured.peak_bytes,
        power_w=measured.power_w,
    )  # fmt: skip


def check_bench(
    bench: Path,
    trace_path: Path,
    *,
    clone_trace: Path | None = None,
    clone_json: Path | None = None,
    step_ms: float | None = None,
    device: str | None = None,
    steps: int = 30,
    python: str = sys.executable,
    extra: Sequence[str] = (),
    tolerance: Tolerance = Tolerance(),  # noqa: B008
) -> Check:
    """Runs a benchmark and compares it with the trace that it was built from.

    Args:
        bench: The benchmark's folder.
        trace_path: The original's profiler trace; what was measured of it lies beside it.
        clone_trace: The clone's profile from another machine (`run.py --profile`): then nothing
            is run.
        clone_json: What `run.py --json` printed there.
        step_ms: The original's step without the profiler.
        device: What to run the clone on; what it finds unless given.
        steps: How many steps it measures.
        python: The Python to run it, which has torch.
        extra: Further arguments of `run.py`.
        tolerance: How far it may be off.
    """
    if clone_json is not None and clone_trace is None:
        raise InputError(
            "what the clone printed was given, but not its profile", where=str(clone_json),
            hint="run.py --profile FILE writes one",
        )  # fmt: skip
    # First, so that a wrong trace is reported before the benchmark has run for minutes.
    original = original_profile(trace_path, step_ms)
    inputs = [hash_input(path) for path in (bench, trace_path, clone_trace, clone_json) if path]
    if clone_trace is not None:
        run = None if clone_json is None else read_clone_run(clone_json)
        clone = clone_profile(clone_trace, run)
    else:
        with tempfile.TemporaryDirectory(prefix="gnomon-check-") as folder:
            printed, written = run_clone(
                bench, folder=Path(folder), device=device, steps=steps, python=python, extra=extra
            )
            run = clone_run_of(printed, str(bench / "run.py"))
            clone = clone_profile(written, run)
    check = compare_profiles(original, clone, tolerance=tolerance, run=run)
    return msgspec.structs.replace(check, inputs=tuple(inputs))
