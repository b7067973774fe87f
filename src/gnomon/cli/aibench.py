"""gnomon aibench: benchmarks from execution traces."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gnomon.cli.output import Output, show
from gnomon.cli.sources import Source
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError
from gnomon.ingest.formats import check_input

app = App(name="aibench", help="Hand over an AI workload as a benchmark, without the model.")


@app.command
def build(
    path: Source,
    *,
    out: Annotated[Path, Parameter(name=("--out", "-o"))],
    kineto: Path | None = None,
    kernels: Path | None = None,
    keep: Annotated[list[str] | None, Parameter(negative=())] = None,
    drop: Annotated[list[str] | None, Parameter(negative=())] = None,
    weight: Annotated[list[str] | None, Parameter(negative=())] = None,
    take: str | None = None,
    repeat: int = 1,
    scale_batch: str | None = None,
    batch: int | None = None,
    emulate_world: int | None = None,
    network: str | None = None,
    constructors: Annotated[list[Path] | None, Parameter(negative=())] = None,
    keep_scalars: Annotated[bool, Parameter(negative=())] = False,
    force: Annotated[bool, Parameter(negative=())] = False,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Make a benchmark of an execution trace: a folder that runs with torch alone.

    Args:
        path: An execution trace (.json, .gz, .zst), ARCHIVE.tar.gz:MEMBER, a folder with et.json
            (and kineto.json), or bundled:h200-gpt-l6.
        out: The folder of the benchmark.
        kineto: A profiler trace of the same job: streams, host time, device time.
        kernels: The folder of compiled kernels, where it does not lie beside the trace. Their
            code goes along; `--kernels none` gives them placeholder kernels instead.
        keep: Only phase:backward, family:gemm,attention, layers:0-3, communication. Repeatable.
        drop: All but these, in the same words. Repeatable.
        weight: FAMILY=N or OPERATOR=N: such calls run N times. Repeatable.
        take: Recorded steps, first:2 or 0,2-4.
        repeat: How often everything runs in a step of the benchmark.
        scale_batch: Multiply the batch, by 2, 0.5 or 3/2.
        batch: The recorded batch, where it cannot be inferred.
        emulate_world: Turn collectives into waits, as in a job of so many ranks.
        network: The network between its nodes, where no kernels show the times (ib-ndr, ...).
        constructors: A file that makes operators torch does not have. Repeatable.
        keep_scalars: Keep floating-point arguments as recorded instead of neutral ones.
        force: Replace a benchmark that is there.
        output: Where the answer goes.
    """
    from gnomon.systems.aibench.benchmark import build as make
    from gnomon.systems.aibench.benchmark import to_result, to_script
    from gnomon.systems.aibench.compose.calls import parse_selection
    from gnomon.systems.aibench.pipeline import Options

    check_input(path, "aibench build")
    check_input(kineto, "aibench build --kineto")
    options = Options(
        selection=parse_selection(keep or (), drop or (), weight or (), take, repeat),
        scale_batch=_factor(scale_batch), batch=batch,
        keep_scalars=keep_scalars, constructors=tuple(constructors or ()),
        emulate_world=emulate_world, network=network,
    )  # fmt: skip
    made = make(path, out, kineto=kineto, kernels=kernels, options=options, force=force)
    show(to_result(made, typed_command()), output, extra=to_script(made))


@app.command
def check(
    bench: Path,
    *,
    trace: Source,
    device: str | None = None,
    steps: int = 30,
    step_ms: float | None = None,
    clone_trace: Path | None = None,
    clone_json: Path | None = None,
    output: Output = Output(),  # noqa: B008
) -> int:
    """Run a benchmark under the profiler and set it beside its original. Exit 3 when it differs.

    Args:
        bench: The benchmark.
        trace: The profiler trace of the original, or a folder with it.
        device: Where the benchmark runs: cuda or cpu.
        steps: Steps to measure.
        step_ms: The original's step without the profiler, where it is not beside the trace.
        clone_trace: What `run.py --profile FILE` wrote elsewhere; then nothing is run here.
        clone_json: What `run.py --json` printed there.
        output: Where the answer goes.
    """
    from gnomon.systems.aibench.benchmark import profile_in
    from gnomon.systems.aibench.verify.check import check_bench
    from gnomon.systems.aibench.verify.check_result import to_result, to_script

    check_input(bench, "aibench check")
    check_input(trace, "aibench check --trace")
    check_input(clone_trace, "aibench check --clone-trace")
    done = check_bench(
        bench, profile_in(trace), clone_trace=clone_trace, clone_json=clone_json, step_ms=step_ms,
        device=device, steps=steps,
    )  # fmt: skip
    show(to_result(done, typed_command()), output, extra=to_script(done))
    return 3 if done.agrees is False else 0


@app.command
def audit(
    bench: Path,
    *,
    against: Annotated[list[Source], Parameter(negative=())],
    output: Output = Output(),  # noqa: B008
) -> int:
    """Search a benchmark for every string of the traces it was made of. Exit 3 when one is found.

    Args:
        bench: The benchmark.
        against: The traces, or folders with them. Repeatable.
        output: Where the answer goes.
    """
    from gnomon.systems.aibench.benchmark import traces_in
    from gnomon.systems.aibench.builder.scalars import COMMON
    from gnomon.systems.aibench.folder import templates
    from gnomon.systems.aibench.stored import read_bench
    from gnomon.systems.aibench.verify.audit import audit as search
    from gnomon.systems.aibench.verify.audit_result import to_result, to_script

    check_input(bench, "aibench audit")
    for path in against:
        check_input(path, "aibench audit --against")
    read_bench(bench)  # what is no benchmark, or a cut one, cannot be judged
    files = [file for path in against for file in traces_in(path)]
    found = search(bench, files, templates=templates(), neutral=COMMON)
    show(to_result(found, typed_command()), output, extra=to_script(found))
    return 0 if found.is_clean else 3


@app.command
def mix(
    benches: list[Path],
    *,
    weights: str,
    out: Annotated[Path, Parameter(name=("--out", "-o"))],
    force: Annotated[bool, Parameter(negative=())] = False,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Make one benchmark of several: each step of it runs each as often as its weight.

    Args:
        benches: The benchmarks.
        weights: One for each, as in 3,1 or 0.7,0.3.
        out: The folder of the mix.
        force: Replace a benchmark that is there.
        output: Where the answer goes.
    """
    from gnomon.systems.aibench.compose.mix import mix as make
    from gnomon.systems.aibench.compose.mix import parse_weights, to_result, to_script

    for bench in benches:
        check_input(bench, "aibench mix")
    made = make(benches, parse_weights(weights, len(benches)), out, force=force)
    show(to_result(made, typed_command()), output, extra=to_script(made))


def _factor(text: str | None) -> Fraction | None:
    if text is None:
        return None
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        hint = "such as 2, 0.5 or 3/2"
        raise InputError(f"--scale-batch {text}: no number", hint=hint) from None
