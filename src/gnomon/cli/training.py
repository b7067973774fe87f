"""gnomon training: traces of training jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gnomon.cli.output import Output, show
from gnomon.cli.sources import Source, spell

__all__ = ["app"]

app = App(name="training", help="How long is the step, why, and what if?")


@app.command
def replay(
    path: Source,
    *,
    scale: Annotated[list[str] | None, Parameter(negative=())] = None,
    perfetto: Path | None = None,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Replay a PyTorch profiler trace: where the step goes, and a table of what-ifs.

    Args:
        path: A trace (.json, .gz or .zst), a folder that holds one, or bundled:h200-gpt-l6.
        scale: Replay with a change, KIND=FACTOR: `--scale product=0.5`. Repeatable; all of them
            together make the step, and the table shows each alone.
        perfetto: Also write recorded and replayed timelines side by side (.pftrace or .json).
        output: Where the answer goes.
    """
    from gnomon.systems.training import replay_trace, to_result
    from gnomon.systems.training.whatif import parse_scale

    changes = [parse_scale(text) for text in scale or ()]
    run = replay_trace(path, changes=changes)
    options = [f"--scale {text}" for text in scale or ()]
    result = to_result(run, spell("gnomon training replay", path, *options))
    timelines = {"recorded": run.training.recorded, "replayed": run.timeline}
    show(result, output, perfetto=perfetto, timelines=timelines)


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

    options = [f"--kind {k}" for k in kind or ()] + [f"--factor {f:g}" for f in factor or ()]
    try:
        result = sweep_trace(
            path, kind, factor, on=on, resume=resume, progress=RichProgress("replaying"),
            command=spell("gnomon training sweep", path, *options),
        )  # fmt: skip
    except KeyboardInterrupt:
        if resume is not None:
            print(
                f"finished points are kept in {resume}; the same command goes on", file=sys.stderr
            )
        raise
    show(result, output)
