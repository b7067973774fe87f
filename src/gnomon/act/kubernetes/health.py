"""What controllers show: /healthz, /readyz and /metrics on one port."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gnomon.act.kubernetes.controller import Controller
from gnomon.errors import InputError

_PREFIX = "gnomon_controller_"
#: Name, kind, what it is.
_FAMILIES = {
    "decisions_total": ("counter", "Decisions made."),
    "holds_total": ("counter", "Rounds that left everything as it was, by reason."),
    "changes_total": ("counter", "Changes of the cluster, by result."),
    "apply_errors_total": ("counter", "Changes that were refused or not answered."),
    "last_decision_age_seconds": ("gauge", "Since the last decision."),
    "observe_seconds": ("gauge", "How long the last observation took."),
    "missing_figures": ("gauge", "Figures of the last window that could not be measured."),
    "allocated_cores": ("gauge", "CPU limit times replicas, as last decided."),
    "trust": ("gauge", "Trust in the manager, 0 to 1."),
    "is_leader": ("gauge", "Whether this controller may act."),
}


def metric_names() -> tuple[str, ...]:
    """All metrics of a controller.

    >>> metric_names()[0]
    'gnomon_controller_decisions_total'
    """
    return tuple(_PREFIX + name for name in _FAMILIES)


def to_metrics(controllers: Iterable[Controller]) -> str:
    """The metrics of controllers as Prometheus text."""
    lines: dict[str, list[str]] = {name: [] for name in _FAMILIES}
    for controller in controllers:
        manager = {"manager": controller.name}
        for name, labels, value in _samples(controller):
            lines[name].append(f"{_PREFIX}{name}{_labels(manager | labels)} {_number(value)}")
    return "".join(
        f"# HELP {_PREFIX}{name} {text}\n# TYPE {_PREFIX}{name} {kind}\n"
        + "".join(f"{line}\n" for line in lines[name])
        for name, (kind, text) in _FAMILIES.items()
    )


def _samples(one: Controller) -> Iterator[tuple[str, dict[str, str], float]]:
    yield "decisions_total", {}, one.decisions
    for reason, count in one.holds.copy().items():
        yield "holds_total", {"reason": reason}, count
    for result, count in one.outcomes.copy().items():
        yield "changes_total", {"result": result}, count
    yield "apply_errors_total", {}, one.outcomes["refused"] + one.outcomes["failed"]
    yield "last_decision_age_seconds", {}, one.decision_age_s
    yield "observe_seconds", {}, one.observe_s
    yield "missing_figures", {}, one.missing
    for service, cores in one.allocated_cores.copy().items():
        yield "allocated_cores", {"service": service}, cores
    yield "trust", {}, one.trust
    yield "is_leader", {}, one.is_leader


def _labels(labels: Mapping[str, str]) -> str:
    pairs = (
        (name, text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, text in labels.items()
    )
    return "{" + ",".join(f'{name}="{text}"' for name, text in pairs) + "}"


def _number(value: float) -> str:
    text = f"{float(value):.9g}"
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text, text)


@contextlib.contextmanager
def serving(
    controllers: Callable[[], Iterable[Controller]], host: str = "127.0.0.1", port: int = 9095
) -> Iterator[int]:
    """Serves the state of controllers inside; the port, which the system chooses for 0.

    Raises:
        InputError: The port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            now = tuple(controllers())
            if self.path == "/metrics":
                self._reply(200, to_metrics(now), "text/plain; version=0.0.4")
            elif self.path == "/healthz":
                self._tell(one.name for one in now if not one.is_healthy)
            elif self.path == "/readyz":
                self._tell(one.name for one in now if not one.is_ready)
            else:
                self._reply(404, "there are /healthz, /readyz and /metrics\n")

        def _tell(self, wrong: Iterable[str]) -> None:
            names = ", ".join(wrong)
            self._reply(503 if names else 200, f"not {names}\n" if names else "ok\n")

        def _reply(self, code: int, text: str, kind: str = "text/plain") -> None:
            body = text.encode()
            with contextlib.suppress(ConnectionError):  # who asked may be gone
                self.send_response(code)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds: they are not news."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise InputError(error.strerror or str(error), where=f"{host}:{port}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
