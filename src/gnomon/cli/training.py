"""gnomon training: traces of training jobs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from gnomon.cli.output import Output, show
from gnomon.cli.sources import Source
from gnomon.cli.training_predict import predict, search
from gnomon.cli.typed import typed_command
from gnomon.ingest.formats import check_input

if TYPE_CHECKING:
    from gnomon.systems.training.whatif import Change

app = App(name="training", help="How long is the step, why, and what if?")


@app.command
def replay(
    path: Source,
    *,
    steps: str | None = None,
    scale: Annotated[list[str] | None, Parameter(negative=())] = None,
    perfetto: Path | None = None,
    profiler_cost: Path | None = None,
    traced_only: Annotated[bool, Parameter(negative=())] = False,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Replay a training job from profiler traces: where the step goes, and a table of what-ifs.

    Args:
        path: A trace (.json, .gz or .zst), a folder of ranks, a pattern in quotes, an operation
            log (.parquet), or bundled:h200-gpt-l6.
        steps: The steps to count, by the numbers of their marks: 12, 12-14 or 12,14.
        scale: Replay with a change, PATTERN=FACTOR, by kind or name: `--scale gemm=0.5`.
            Repeatable; all of them together make the step, and the table shows each alone.
        perfetto: Also write recorded and replayed timelines side by side (.pftrace or .json).
        profiler_cost: What the profiler costs, in place of what comes with gnomon (.toml).
        traced_only: Do not use proxy ranks for those that were not traced.
        output: Where the answer goes.
    """
    from gnomon.systems.training.whatif import parse_scale

    check_input(path, "training replay")
    changes = [parse_scale(text) for text in scale or ()]
    _replay(path, changes, steps, profiler_cost, traced_only, perfetto, output)


@app.command
def whatif(
    path: Source,
    *,
    scale: Annotated[list[str] | None, Parameter(negative=())] = None,
    remove: Annotated[list[str] | None, Parameter(negative=())] = None,
    no_host_overhead: Annotated[bool, Parameter(negative=())] = False,
    ideal_network: Annotated[bool, Parameter(negative=())] = False,
    no_overlap: Annotated[bool, Parameter(negative=())] = False,
    full_overlap: Annotated[bool, Parameter(negative=())] = False,
    no_stragglers: Annotated[bool, Parameter(negative=())] = False,
    delay_rank: Annotated[list[str] | None, Parameter(negative=())] = None,
    slow_rank: Annotated[list[str] | None, Parameter(negative=())] = None,
    steps: str | None = None,
    perfetto: Path | None = None,
    profiler_cost: Path | None = None,
    traced_only: Annotated[bool, Parameter(negative=())] = False,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Ask what the step would take: each change on its own, and all of them together.

    Answers are without the profiler's own time, and scaled to unprofiled steps where these were
    measured. Without any option the questions worth asking of any trace are asked.

    Args:
        path: A trace, a folder of ranks, a pattern in quotes, or bundled:h200-gpt-l6.
        scale: PATTERN=FACTOR, by name or kind: `--scale 'nccl*=0.5'`. Repeatable.
        remove: PATTERN: as if these took no time. Repeatable.
        no_host_overhead: The step captured as a CUDA graph.
        ideal_network: Transfers take no time; ranks still wait for one another.
        no_overlap: Communication and computation take turns.
        full_overlap: Computation never waits for communication.
        no_stragglers: Every operation takes what its kind usually takes (operation logs).
        delay_rank: RANK=MS: this rank begins each step later. Repeatable.
        slow_rank: RANK=FACTOR: all that this rank computes takes longer. Repeatable.
        steps: The steps to count, by the numbers of their marks.
        perfetto: Also write recorded and changed timelines side by side (.pftrace or .json).
        profiler_cost: What the profiler costs, in place of what comes with gnomon (.toml).
        traced_only: Do not use proxy ranks for those that were not traced.
        output: Where the answer goes.
    """
    from gnomon.systems.training import whatif as ask
    from gnomon.systems.training.straggler import NoStragglers

    check_input(path, "training whatif")
    changes: list[ask.Change] = [
        *(ask.parse_scale(text) for text in scale or ()),
        *(ask.ScaleNamed(text, 0.0) for text in remove or ()),
    ]
    switches: list[tuple[bool, ask.Change]] = [
        (no_host_overhead, ask.NoHostOverhead()),
        (ideal_network, ask.IdealNetwork()),
        (no_overlap, ask.NoOverlap()),
        (full_overlap, ask.FullOverlap()),
        (no_stragglers, NoStragglers()),
    ]
    changes += [change for is_on, change in switches if is_on]
    # Last, since a delay is host time, which other changes may take away.
    changes += [ask.DelayRank(*ask.parse_rank(text)) for text in delay_rank or ()]
    changes += [ask.SlowRank(*ask.parse_rank(text)) for text in slow_rank or ()]
    _replay(path, changes, steps, profiler_cost, traced_only, perfetto, output)


def _replay(
    path: Path,
    changes: Sequence[Change],
    steps: str | None,
    profiler_cost: Path | None,
    traced_only: bool,
    perfetto: Path | None,
    output: Output,
) -> None:
    """Replays a job under changes, and shows the answer."""
    import resource

    from gnomon.model.accelerator.profiler_cost import load_profiler_cost
    from gnomon.systems.training import replay_trace, to_result
    from gnomon.systems.training.replay_result import to_script

    cost = load_profiler_cost(profiler_cost) if profiler_cost else None
    run = replay_trace(path, None, changes, cost=cost, complete=not traced_only, steps=steps)
    result = to_result(run, typed_command(), settings=profiler_cost)
    timelines = {"recorded": run.training.recorded, "replayed": run.timeline}
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    extra = to_script(run) | {"peak_mb": round(peak_mb, 1)} if output.json else None
    show(result, output, perfetto=perfetto, timelines=timelines, extra=extra)


@app.command
def record(
    *command: Annotated[str, Parameter(required=True, help="What to run, after `--`.")],
    out: Path = Path("run"),
    unprofiled: int = 10,
    steps: int = 3,
    warmup: int = 2,
    skip: int = 3,
    shapes: Annotated[bool, Parameter(negative=())] = False,
    sync_events: Annotated[bool, Parameter(negative=())] = False,
    stack: Annotated[bool, Parameter(negative=())] = False,
    overwrite: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Run a training command unchanged; time some steps, then take a profiler trace of a few.

    `gnomon training record --out run -- python train.py --lr 3e-4`. Everything after `--` is the
    command, which may be torchrun. A step is a step of the first PyTorch optimizer in it. The exit
    code is the command's own; 2 when that was 0 but there is no trace.

    Args:
        command: What to run, after `--`.
        out: Folder for the trace and `meta.json`.
        unprofiled: Steps to time without the profiler.
        steps: Steps to trace.
        warmup: Steps for the profiler to warm up.
        skip: First steps to leave alone.
        shapes: Also note the shapes of tensors.
        sync_events: Also note what each CUDA synchronisation waited for.
        stack: Also note Python's call stacks; this slows the host most.
        overwrite: Replace a recording that is there.
    """
    from gnomon.errors import InputError
    from gnomon.systems.training.recording.launch import record_command
    from gnomon.systems.training.recording.recorder import RecordOptions

    options = RecordOptions(
        skip, unprofiled, warmup, steps, shapes=shapes, sync_events=sync_events, stack=stack
    )
    done = record_command(command, out, options, overwrite=overwrite)
    if done.has_stepped:
        print(done.recording.summary(), file=sys.stderr)
    elif done.exit_code == 0:
        raise InputError(
            "no step of a PyTorch optimizer was seen", where=shlex.join(command),
            hint="call gnomon.systems.training.record in its loop instead",
        )  # fmt: skip
    if done.recording.traces:
        print(f"next: gnomon training replay {shlex.quote(str(out))}", file=sys.stderr)
    return done.exit_code or (0 if done.recording.traces else 2)


@app.command
def stragglers(path: Source, *, output: Output = Output()) -> None:  # noqa: B008
    """What stragglers cost a job, and which ranks, stages and operations they are.

    Args:
        path: An operation log (.parquet or .csv) with its layout (meta-NAME.yaml) beside it.
        output: Where the answer goes.
    """
    from gnomon.ingest.profiler.operation_log import read_operation_log
    from gnomon.systems.training.straggler import straggler_report, to_result

    check_input(path, "training stragglers")
    report = straggler_report(read_operation_log(path))
    show(to_result(report, typed_command()), output)


@app.command
def sweep(
    path: Source,
    *,
    kind: Annotated[list[str] | None, Parameter(negative=())] = None,
    factor: Annotated[list[float] | None, Parameter(negative=())] = None,
    on: str = "local",
    resume: Path | None = None,
    output: Output = Output(),  # noqa: B008
) -> None:
    """How the step answers when kinds of task become faster or slower: one replay a point.

    Args:
        path: A trace or a folder that holds one.
        kind: Kinds to vary, each on its own; the heaviest ones unless given. Repeatable.
        factor: Durations are multiplied by these; 0.25 to 2 unless given. Repeatable.
        on: Where to run: serial, local, local:4, ray, ray://host:port.
        resume: A folder that keeps finished points, so that a broken-off sweep goes on.
        output: Where the answer goes.
    """
    from gnomon.parallel import RichProgress
    from gnomon.systems.training.sweep import sweep_trace

    check_input(path, "training sweep")
    try:
        result = sweep_trace(
            path, kind, factor, on=on, resume=resume, progress=RichProgress("replaying"),
            command=typed_command(),
        )  # fmt: skip
    except KeyboardInterrupt:
        if resume is not None:
            print(
                f"finished points are kept in {resume}; the same command goes on", file=sys.stderr
            )
        raise
    show(result, output)


app.command(predict)
app.command(search)
