"""gnomon services control and decisions: a manager on Kubernetes, and what one decided."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.cli.output import Output, show
from gnomon.cli.services.options import Flag, files_of, load_application, seconds
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.act.kubernetes.controller import Round
    from gnomon.decide.services import Decision, Window


def control(
    *,
    app: str,
    prometheus: str,
    manager: str = "static",
    kube_context: str | None = None,
    kubeconfig: Path | None = None,
    namespace: str = "default",
    deployments: Path | None = None,
    metrics: str = "istio",
    interval: str = "15s",
    window: str = "60s",
    rounds: int | None = None,
    log: Path | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    lease: Flag = False,
    apply: Flag = False,
) -> None:
    """Let a manager watch an application on Kubernetes, and change it with --apply.

    `gnomon services control --app app.yaml --prometheus http://127.0.0.1:9090 --manager hpa`.
    Without --apply every change is printed and none is made. Guard rails are always on: steps are
    limited, bad measurements hold, long violations go to the cap.

    Args:
        app: The application: services are named as their Deployments or by their label `app`.
        prometheus: The address that measurements come from.
        manager: What decides; `gnomon services managers` lists them.
        kube_context: Of the kubeconfig; the current one unless given.
        kubeconfig: The file; KUBECONFIG, ~/.kube/config or the pod's account unless given.
        namespace: Where the Deployments are.
        deployments: A YAML file of Deployments and containers that are named otherwise.
        metrics: What Prometheus has: istio, opentelemetry, kubernetes, lab, or a YAML file.
        interval: From decision to decision.
        window: What each looks back on: two scrapes at least.
        rounds: End after so many decisions.
        log: Append every decision to this file, as JSON lines.
        port: Serve /healthz, /readyz and /metrics there.
        host: Where that port listens.
        lease: Act only while holding a Lease, so that several may run.
        apply: Change Deployments.
    """

    from gnomon.act.kubernetes.controller import on_cluster
    from gnomon.act.kubernetes.health import serving
    from gnomon.act.kubernetes.lease import Lease
    from gnomon.act.kubernetes.places import Places, read_places
    from gnomon.act.kubernetes.quota import find_cluster
    from gnomon.act.metric_profile import read_profile
    from gnomon.act.process import interrupted_by_signals
    from gnomon.decide.services import DecisionLog, Guard, Rails, service_policies
    from gnomon.decide.services.guard import decision_rng
    from gnomon.ingest.metrics.prometheus import Prometheus

    application = load_application(app, "services control --app")
    guard = Guard(application, service_policies.create(manager), decision_rng(0), Rails())
    every_s, back_s = seconds(interval, "--interval"), seconds(window, "--window")
    if not 0.5 <= every_s <= 3600 or not 1 <= back_s <= 3600:
        raise InputError("--interval takes 0.5 s to an hour, --window 1 s to an hour")
    places = Places(namespace) if deployments is None else read_places(deployments)
    profile, client = read_profile(metrics), Prometheus(prometheus)
    cluster = find_cluster(kubeconfig, context=kube_context)
    held = None
    if lease:
        who = f"{socket.gethostname()}_{os.getpid()}"
        held = Lease(cluster, places.namespace, f"gnomon-{application.name}", who)
    with contextlib.ExitStack() as stack:
        kept = None
        if log is not None:
            kept = stack.enter_context(DecisionLog(log, application, manager, rails=Rails()))

        def decide(seen: Window) -> Decision:
            decision = guard.decide(seen)
            if kept is not None:
                kept.write(decision)
            return decision

        controller = on_cluster(
            cluster, application, decide, client, profile, places, name=manager, do_apply=apply,
            lease=held, interval_s=every_s, window_s=back_s, log=_say,
        )  # fmt: skip
        if port is not None:
            found = stack.enter_context(serving(lambda: (controller,), host, port))
            _say(f"/healthz, /readyz and /metrics on {host}:{found}")
        _say("changes are applied" if apply else "dry run: nothing is changed without --apply")
        stack.enter_context(interrupted_by_signals())
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        if rounds is None:
            controller.run(threading.Event())
        else:
            with controller.leading():
                for number in range(rounds):
                    if number:
                        threading.Event().wait(every_s)
                    _tell(controller.step())


def decisions(
    log: Path,
    *,
    app: str | None = None,
    manager: str | None = None,
    top: int = 20,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Explain a decision log, and replay it: the same manager, or another on the same windows.

    `gnomon services decisions log.jsonl` lists what was decided and why. With --app and --manager
    it is a dry run on yesterday's measurements: what another manager would have decided.

    Args:
        log: What --log of simulate, lab or control wrote.
        app: The application, for a replay.
        manager: Who replays; that of the log unless given.
        top: How many decisions the table shows: those that changed most.
        output: Where the answer goes.
    """
    from gnomon.systems.services.log_result import explain, replay

    if app is None:
        if manager is not None:
            raise InputError("--manager replays a log, which needs --app")
        result = explain(log, top=top, command=typed_command())
    else:
        application = load_application(app, "services decisions --app")
        result = replay(
            log, application, manager, top=top, command=typed_command(), sources=files_of(app)
        )
    show(result, output)


def _tell(done: Round) -> None:
    what = f"{len(done.changes)} changes" if done.changes else "no change"
    _say(f"{done.verdict}: {what}{': ' * bool(done.reason)}{done.reason}")


def _say(line: str) -> None:
    print(line, flush=True)
