"""gnomon services explore and plan: what a replica carries, and the least CPU for SLAs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from gnomon.cli.output import Output, check_output, show
from gnomon.cli.services.options import Flag, files_of, load_application
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.decide.services.ursa import Explored
    from gnomon.decide.services.ursa.joint import Ranks
    from gnomon.graph.application import Application


def explore(
    application: str,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    lab: Flag = False,
    rps: float | None = None,
    levels: str = "0.5,1.25",
    only: str = "",
    seed: int = 0,
    output: Output = Output(),  # noqa: B008
) -> int:
    """Find how much load a replica of each service carries, and how fast it is then.

    `gnomon services explore app.yaml -o explored.json`, then `--manager ursa?explored=...` or
    `gnomon services plan`. Goes on where an earlier call stopped: services that have not changed
    are not explored again. Exit code 3: a service has no operating point that keeps the SLAs.

    Args:
        application: app.yaml, or bundled:NAME.
        out: Where what is found goes.
        lab: With real processes instead of the simulator; takes minutes a service.
        rps: Requests per second; that of the application unless given.
        levels: Loads to explore at, as shares of that.
        only: Services to explore again, with commas.
        seed: Of arrivals and work.
        output: Where the answer goes.
    """
    from gnomon.decide.services.ursa import Exploration
    from gnomon.systems.services.trial import check_seed
    from gnomon.systems.services.ursa import explore as run
    from gnomon.systems.services.ursa import in_lab, in_simulator
    from gnomon.systems.services.ursa.explore import LAB_PACE, Pace
    from gnomon.systems.services.ursa.result import explored_to_result

    app = load_application(application, "services explore")
    check_output(output, out)
    check_seed(seed)
    again = tuple(name.strip() for name in only.split(",") if name.strip())
    for name in again:
        if name not in app.services:
            raise InputError(f"there is no service {name!r}",
                             hint=f"there are: {', '.join(list(app.services)[:20])}")  # fmt: skip
    if rps is not None and not 0 < rps <= 1e7:
        raise InputError(f"--rps {rps:g}: requests per second, over 0 and at most ten million")

    def report_service(name: str, one: Explored, done: int, total: int) -> None:
        print(f"{done} of {total}: {name}: {len(one.options)} operating points; {one.ended}",
              file=sys.stderr, flush=True)  # fmt: skip

    known = Exploration.read(out) if out.exists() else None
    if known is not None and known.application != app.name:
        raise InputError(f"{out} is of {known.application}, not of {app.name}",
                         hint="give another -o")  # fmt: skip
    found = run(
        app, in_lab(seed) if lab else in_simulator(seed), rate=rps, levels=_levels(levels),
        pace=LAB_PACE if lab else Pace(), known=known, only=again, on_service=report_service,
        keep=lambda so_far: so_far.write(out),
    )  # fmt: skip
    print(f"wrote {out}", file=sys.stderr)
    result = explored_to_result(
        app, found, where="lab" if lab else "simulator", command=typed_command(),
        sources=files_of(application), seed=seed, application=application, out=str(out),
    )  # fmt: skip
    show(result, output)
    return 0 if all(one.options for one in found.services.values()) else 3


def plan(
    application: str,
    explored: Path,
    *,
    rps: float | None = None,
    decomposition: Literal["joint", "union"] = "joint",
    traces: str | None = None,
    output: Output = Output(),  # noqa: B008
) -> None:
    """The least CPU that keeps every SLA, and why.

    `gnomon services plan app.yaml explored.json --rps 200`. Exit code 3: no operating points keep
    every SLA.

    Args:
        application: app.yaml, or bundled:NAME.
        explored: What `gnomon services explore` wrote.
        rps: Requests per second; that of the application unless given.
        decomposition: Of end-to-end latency: from joint samples, or by the union bound.
        traces: Spans of the same application: the dependence of a request's times is theirs.
        output: Where the answer goes.
    """
    from gnomon.decide.services.ursa import Exploration, make_plan
    from gnomon.systems.services.ursa.result import plan_to_result, plan_to_script

    app = load_application(application, "services plan")
    check_output(output)
    rate = app.rate if rps is None else rps
    if not 0 < rate <= 1e7:
        raise InputError(f"--rps {rate:g}: requests per second, over 0 and at most ten million")
    ranks, notes = ({}, []) if traces is None else _ranks(app, traces)
    known = Exploration.read(explored)
    if all(one.sla is None for one in app.classes.values()):
        raise InputError(f"{application}: no class has an SLA",
                         hint="add `sla: {bound_ms: 100}` to a class")  # fmt: skip
    known.check(app)
    if changed := known.changed(app):
        raise InputError(f"{', '.join(changed[:3])} changed since {explored} was made",
                         hint=f"gnomon services explore {application} -o {explored}")  # fmt: skip
    class_rate = {name: rate * share for name, share in app.shares().items()}
    made = make_plan(app, known, class_rate, decomposition=decomposition, ranks=ranks)
    result = plan_to_result(
        app, made, command=typed_command(), sources=files_of(application, str(explored)),
        notes=notes,
    )  # fmt: skip
    show(result, output, extra=plan_to_script(made) if output.json else None)


def _levels(text: str) -> list[float]:
    try:
        levels = [float(one) for one in text.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(0 < one <= 100 for one in levels):
        raise InputError(f"--levels {text}", hint="shares of the rate: 0.5,1.25")
    return levels


def _ranks(app: Application, traces: str) -> tuple[dict[str, Ranks], list[str]]:
    """By class: how the times of a request stand together in recorded spans."""
    from gnomon.decide.services.ursa.joint import ranks_of_samples
    from gnomon.ingest.formats import check_input
    from gnomon.ingest.spans.infer import infer_application
    from gnomon.ingest.spans.read import read_spans

    check_input(traces, "services plan --traces")
    inferred = infer_application(read_spans([traces]))
    found, notes = {}, []
    for name, one in app.classes.items():
        mine = inferred.app.classes.get(name)
        calls = [call.service for call in one.call.walk()]
        if mine is None or [call.service for call in mine.call.walk()] != calls:
            notes.append(f"{name} is not in the traces with these calls: a copula instead.")
            continue
        found[name] = ranks_of_samples(inferred.joint_ms[name])
        notes.append(f"{name}: joint samples of {len(inferred.joint_ms[name]):,} requests.")
    return found, notes
