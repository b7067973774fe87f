"""gnomon services import: an application from spans or a work model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gnomon.cli.output import Output, check_output, show
from gnomon.cli.services.options import files_of
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError


def import_(
    *traces: str,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    name: str | None = None,
    cpu_share: float = 0.0,
    pod_metrics: Path | None = None,
    sampling: float = 1.0,
    seed: int = 0,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Make an application file from traces, and play it back beside them.

    `gnomon services import traces.json -o app.yaml`. Reads spans of Jaeger, Zipkin and
    OpenTelemetry (JSON and protobuf), and muBench work models. Who calls whom, in sequence or in
    parallel, how often, own times, errors and the mix of classes are inferred; CPU limits are
    suggested where CPU times are known.

    Args:
        traces: Files, folders or patterns.
        out: Where the application goes: app.yaml.
        name: What it is called.
        cpu_share: How much of a service's own time is CPU time; spans do not say it. The rest is
            waiting, which no CPU limit changes.
        pod_metrics: A folder of per-pod CPU metrics: gives the CPU time of services in it.
        sampling: Share of requests that were traced.
        seed: Of the play-back.
        output: Where the answer goes.
    """
    from gnomon.ingest.formats import check_input, identify
    from gnomon.ingest.services.application_file import write_application
    from gnomon.systems.services.import_result import to_result
    from gnomon.systems.services.imported import assumptions, play_back, with_limits
    from gnomon.systems.services.trial import check_seed

    if not traces:
        raise InputError("which traces?", hint="gnomon services import traces.json -o app.yaml")
    for path in traces:
        check_input(path, "services import")
    check_input(pod_metrics, "services import --pod-metrics")
    check_output(output, out)
    check_seed(seed)
    title = name or (out.stem if out is not None else Path(traces[0]).stem.partition(".")[0])
    first = Path(traces[0])
    if len(traces) == 1 and first.is_file() and identify(first).format == "mubench":
        from gnomon.ingest.services.mubench import read_mubench

        model = read_mubench(first)
        app, notes, played = model.app, list(model.notes), []
    else:
        from gnomon.ingest.services.pod_metrics import read_pod_metrics
        from gnomon.ingest.spans.infer import infer_application
        from gnomon.ingest.spans.read import read_spans

        cores = None if pod_metrics is None else read_pod_metrics(pod_metrics).cores
        inferred = infer_application(
            read_spans(list(traces)), name=title, cpu_share=cpu_share, cores=cores,
            sampling=sampling,
        )  # fmt: skip
        app, limits = with_limits(inferred)
        notes = [*inferred.notes, *assumptions(inferred), *limits]
        played = play_back(inferred, seed=seed)
    if out is not None:
        write_application(app, out)
        print(f"wrote {out}", file=sys.stderr)
    result = to_result(
        app, played, notes, command=typed_command(), sources=files_of(*traces), seed=seed,
        out=None if out is None else str(out),
    )  # fmt: skip
    show(result, output)
