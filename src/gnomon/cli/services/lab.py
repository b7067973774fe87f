"""gnomon services lab: an application as real processes, managed or swept over limits."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.cli.output import Output, check_output, show
from gnomon.cli.services.options import (
    RunOptions,
    files_of,
    load_application,
    make_setup,
    only_one,
    prepared_for,
    seconds,
)
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.act.local import Lab
    from gnomon.decide.services import Decision
    from gnomon.systems.services.sweep import Row

#: Of a shape in the lab, where a second takes a second.
_SHAPE_S = 60.0


def lab(
    application: str,
    *,
    rate: str = "constant",
    manager: str = "static",
    sweep: str | None = None,
    row: str = "12s",
    repeats: int = 1,
    log: Path | None = None,
    spans: Path | None = None,
    otlp: str | None = None,
    prometheus: Path | None = None,
    run: RunOptions = RunOptions(),  # noqa: B008
    output: Output = Output(),  # noqa: B008
) -> None:
    """Run an application as real processes: each replica in its own control group, under load.

    `gnomon services lab bundled:starter --manager autothrottle --minutes 3`. Limits need root and
    a cpu controller; without, services run as plain processes. `--sweep logic=none,0.6,0.4`
    measures each limit and has the simulator predict it.

    Args:
        application: app.yaml, or bundled:NAME.
        rate: constant, diurnal, bursty, noisy, surge, or a file of requests per second.
        manager: What sets limits and replicas.
        sweep: SERVICE=LIMIT,LIMIT,... in cores or none: one row for each, the first calibrates.
            Takes --row, --repeats, --rps, --scale and --seed.
        row: How long a limit of the sweep is measured.
        repeats: Passes over the sweep; rows are medians.
        log: Append every decision to this file, as JSON lines.
        spans: Write spans of a tenth of the requests to this file, as OTLP JSON lines.
        otlp: Send them, after the answer, to this OTLP/HTTP address too: `http://127.0.0.1:4318/v1/traces`.
        prometheus: Write a prometheus.yml here that scrapes every service of this lab.
        run: How long; a shape runs for 1m.
        output: Where the answer goes.
    """
    given = {"--log": log, "--spans": spans, "--otlp": otlp, "--prometheus": prometheus}
    if sweep is not None:
        given |= {"--rate": None if rate == "constant" else rate,
                  "--manager": None if manager == "static" else manager}  # fmt: skip
        _refuse_with_sweep(given, run)
        _sweep(application, sweep, row, repeats, run, output)
        return
    if (row, repeats) != ("12s", 1):
        raise InputError("--row and --repeats are of a --sweep")
    from gnomon.act.local.telemetry import (
        MetricsServer,
        check_endpoint,
        send_spans,
        write_prometheus_config,
    )
    from gnomon.act.process import interrupted_by_signals
    from gnomon.decide.services import DecisionLog, Rails
    from gnomon.systems.services.lab import FOREIGN_CORES, run_lab
    from gnomon.systems.services.lab_result import run_to_result
    from gnomon.systems.services.run_result import to_script
    from gnomon.systems.services.trial import parse_managers

    setup = make_setup(application, run, "services lab")
    name = only_one(parse_managers(manager), "--manager")
    chosen = only_one(run.find_rates(rate, setup.app, shape_s=_SHAPE_S), "--rate")
    setup.check_rate(chosen)
    check_output(output, spans, prometheus, log)
    if otlp is not None:
        check_endpoint(otlp)
    setup = prepared_for(setup, [name])
    rails = Rails(foreign_cores=FOREIGN_CORES) if run.guard else run.rails
    samples = spans is not None or otlp is not None
    taken: list[bytes] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupted_by_signals())
        kept = None
        if log is not None:
            kept = stack.enter_context(
                DecisionLog(
                    log, setup.app, setup.prepared.get(name, name), seed=run.seed, rails=rails
                )
            )

        def begin(running: Lab) -> None:
            if prometheus is not None:
                server = stack.enter_context(MetricsServer(running))
                write_prometheus_config(running, prometheus, server.port)
                print(f"wrote {prometheus}", file=sys.stderr)

        def end(running: Lab) -> None:
            for file in running.span_files():
                taken.extend(file.read_bytes().splitlines())

        answer = run_lab(
            setup, name, chosen, rails=rails, log=kept, on_start=begin, on_end=end,
            sample_share=0.1 if samples else 0.0,
            on_window=_progress if sys.stderr.isatty() else None,
        )  # fmt: skip
    result = run_to_result(
        setup, answer, command=typed_command(), sources=files_of(application, rate)
    )
    show(result, output, extra=to_script([answer.outcome]) if output.json else None)
    # After the answer: a file or a collector that fails must not take it along.
    if spans is not None:
        spans.write_bytes(b"".join(line + b"\n" for line in taken))
        print(f"wrote {spans}", file=sys.stderr)
    if otlp is not None:
        send_spans(taken, otlp)


def _refuse_with_sweep(given: Mapping[str, object], run: RunOptions) -> None:
    """A sweep has its own rows and no manager: other options would be ignored."""
    mine, unset = dataclasses.asdict(run), dataclasses.asdict(RunOptions())
    options = dict(given) | {
        f"--{name}": None if mine[name] == unset[name] else mine[name]
        for name in ("duration", "minutes", "interval", "guard", "zone", "watts")
    }
    wrong = [name for name, value in options.items() if value is not None]
    if wrong:
        raise InputError(f"{', '.join(wrong)} mean nothing in a --sweep",
                         hint="it takes --row, --repeats, --rps, --scale and --seed")  # fmt: skip


def _progress(decision: Decision) -> None:
    window = decision.window
    p99 = max((ms for ms in window.class_ms[4] if ms == ms), default=0.0)
    print(
        f"\r{window.now_s:5.0f} s  {window.class_rate.sum():6.0f}/s  p99 {p99:7.1f} ms  "
        f"{window.allocated.sum():5.2f} cores allocated, {window.usage.sum():5.2f} used  ",
        end="", file=sys.stderr, flush=True,
    )  # fmt: skip


def _sweep(
    application: str, text: str, row: str, repeats: int, run: RunOptions, output: Output
) -> None:
    from gnomon.act.process import interrupted_by_signals
    from gnomon.systems.services.lab_result import sweep_to_result, sweep_to_script
    from gnomon.systems.services.sweep import sweep
    from gnomon.systems.services.trial import check_seed

    app = load_application(application, "services lab")
    service, limits = parse_sweep(text)
    row_s = seconds(row, "--row")
    if not 2 <= row_s <= 3600 or not 1 <= repeats <= 100:
        raise InputError("--row takes 2 s to an hour, --repeats 1 to 100")
    check_seed(run.seed)
    check_output(output)
    with interrupted_by_signals():
        answer = sweep(
            app, service, limits, row_s=row_s, rate=run.mean_rate(app) * run.scale,
            cores=os.cpu_count() or 1, seed=run.seed, repeats=repeats,
            on_row=_show_row if sys.stderr.isatty() else None,
        )  # fmt: skip
    result = sweep_to_result(
        answer, command=typed_command(), sources=files_of(application), seed=run.seed
    )
    show(result, output, extra=sweep_to_script(answer) if output.json else None)


def parse_sweep(text: str) -> tuple[str, list[float | None]]:
    """A service and its limits.

    >>> parse_sweep("logic=none,0.5")
    ('logic', [None, 0.5])
    """
    service, equals, listed = text.partition("=")
    limits: list[float | None] = []
    if not equals or not service.strip():
        raise InputError(f"--sweep {text}", hint="SERVICE=LIMIT,LIMIT,... such as logic=none,0.5")
    for word in listed.split(","):
        try:
            limits.append(None if word.strip() == "none" else float(word))
        except ValueError:
            raise InputError(f"--sweep {text}: {word.strip()!r} is no limit",
                             hint="write --sweep logic=none,0.6,0.4") from None  # fmt: skip
    if any(limit is not None and not 0.01 <= limit <= 1e4 for limit in limits):
        raise InputError(f"--sweep {text}: a limit is 0.01 cores or more")
    return service.strip(), limits


def _show_row(row: Row) -> None:
    limit = "none" if row.limit is None else f"{row.limit:g}"
    print(
        f"limit {limit}: p50 {row.p50_ms:.1f} ms, p99 {row.p99_ms:.1f} ms, throttled in "
        f"{row.throttled_pct:.0f} % of periods, attempt {row.attempts}",
        file=sys.stderr, flush=True,
    )  # fmt: skip
