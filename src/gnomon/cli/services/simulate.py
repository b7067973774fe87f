"""gnomon services simulate and compare: managers on an application in the simulator."""

from __future__ import annotations

import sys
from pathlib import Path

from gnomon.cli.listing import print_registry
from gnomon.cli.output import Output, check_output, show
from gnomon.cli.services.options import (
    Flag,
    RunOptions,
    files_of,
    make_setup,
    only_one,
    prepared_for,
)
from gnomon.cli.typed import typed_command


def simulate(
    application: str,
    *,
    rate: str = "constant",
    manager: str = "static",
    log: Path | None = None,
    run: RunOptions = RunOptions(),  # noqa: B008
    output: Output = Output(),  # noqa: B008
) -> None:
    """Simulate an application under a manager: latency, SLA, CPU, and where the time goes.

    `gnomon services simulate bundled:social-network --rate diurnal --manager hpa`.

    Args:
        application: app.yaml, or bundled:NAME.
        rate: constant, diurnal, bursty, noisy, surge, or a file of requests per second.
        manager: What sets limits and replicas; `gnomon services managers` lists them.
        log: Append every decision to this file, as JSON lines.
        run: How long.
        output: Where the answer goes.
    """
    from gnomon.systems.services import trial
    from gnomon.systems.services.run_result import to_result, to_script

    setup = make_setup(application, run, "services simulate")
    check_output(output)
    chosen = only_one(run.find_rates(rate, setup.app), "--rate")
    name = only_one(trial.parse_managers(manager), "--manager")
    setup = prepared_for(setup, [name])
    outcome = trial.simulate(setup, name, chosen, log=log)
    result = to_result(
        setup, [outcome], verb="simulate", command=typed_command(),
        sources=files_of(application, rate),
    )  # fmt: skip
    show(result, output, extra=to_script([outcome]) if output.json else None)


def compare(
    application: str,
    *,
    managers: str = "static,hpa,vpa,autoscale-opt,autoscale-cons,autothrottle,powerchief",
    rates: str = "diurnal,bursty",
    on: str | None = None,
    resume: Path | None = None,
    run: RunOptions = RunOptions(),  # noqa: B008
    output: Output = Output(),  # noqa: B008
) -> int:
    """Compare managers on an application: SLA violations, CPU, energy and carbon of each.

    `gnomon services compare app.yaml --managers static,hpa,autothrottle --rates diurnal,bursty`.
    All managers get the same requests. Exit code 3: at some rate no manager is within the SLA.

    Args:
        application: app.yaml, or bundled:NAME.
        managers: Names with commas: static,hpa?target=0.7,autothrottle.
        rates: Shapes or files with commas: diurnal,bursty,own.txt.
        on: Where to run: serial, local, local:4, ray, ray://host:port.
        resume: A folder that keeps finished runs; a later call goes on from there.
        run: How long.
        output: Where the answer goes.
    """
    from gnomon.parallel import RichProgress
    from gnomon.systems.services import trial
    from gnomon.systems.services.run_result import meets_sla, to_result, to_script

    setup = make_setup(application, run, "services compare")
    check_output(output)
    names, chosen = trial.parse_managers(managers), run.find_rates(rates, setup.app)
    setup = prepared_for(setup, names)
    progress = RichProgress("runs") if sys.stderr.isatty() else None
    outcomes = trial.compare(setup, names, chosen, on=on, resume=resume, progress=progress)
    result = to_result(
        setup, outcomes, verb="compare", command=typed_command(),
        sources=files_of(application, *(name.strip() for name in rates.split(","))),
    )  # fmt: skip
    show(result, output, extra=to_script(outcomes) if output.json else None)
    return 0 if meets_sla(outcomes) else 3


def managers(*, json: Flag = False) -> None:
    """List the managers with their parameters.

    Args:
        json: As JSON, with a schema of each one's parameters.
    """
    from gnomon.decide.services import service_policies

    print_registry(service_policies, json=json)
