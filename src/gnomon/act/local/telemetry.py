"""What a lab shows to Prometheus and OpenTelemetry."""

from __future__ import annotations

import http.client
import http.server
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import yaml

from gnomon.act.local.lab import Lab
from gnomon.errors import ActuationError, InputError


def format_metrics(lab: Lab) -> str:
    """The readings of the control groups of all services, as Prometheus text."""
    now = lab.read()
    limits = [limit if limit < float("inf") else None for limit in now.cpu_limit.tolist()]
    families: list[tuple[str, str, str, Iterable[float | None]]] = [
        ("cpu_usage_seconds_total", "counter", "CPU time.", now.usage_ns / 1e9),
        ("cpu_periods_total", "counter", "CFS periods with a limit in force.", now.periods),
        ("cpu_throttled_periods_total", "counter", "Periods at the limit.", now.throttled),
        ("cpu_throttled_seconds_total", "counter", "Time throttled.", now.throttled_ns / 1e9),
        ("cpu_limit_cores", "gauge", "Limit of one replica, absent without one.", limits),
        ("replicas", "gauge", "Replicas that answer.", now.replicas),
    ]
    lines = []
    for name, kind, about, values in families:
        lines += [f"# HELP gnomon_lab_{name} {about}", f"# TYPE gnomon_lab_{name} {kind}"]
        lines += [
            f'gnomon_lab_{name}{{service="{service}"}} {value}'
            for service, value in zip(lab.app.services, values)
            if value is not None
        ]
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Serves `format_metrics` on a loopback port until it is closed.

    Attributes:
        port: The one it got.
    """

    def __init__(self, lab: Lab) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                try:
                    status, body = 200, format_metrics(lab).encode()
                except ActuationError as error:  # a replica died: the scrape fails and says why
                    status, body = 500, f"{error}\n".encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def write_prometheus_config(lab: Lab, path: Path, metrics_port: int) -> None:
    """A `prometheus.yml` that scrapes the lab and every cell; replicas as they are now."""
    cells = [
        {"targets": lab.addresses(name), "labels": {"service": name}}
        for name, about in lab.app.services.items()
        if about.server == "cell"
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": "gnomon-lab",
                "static_configs": [{"targets": [f"127.0.0.1:{metrics_port}"]}],
            },
            {"job_name": "gnomon-cell", "static_configs": cells},
        ],
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))


def check_endpoint(url: str) -> None:
    """Refuses what is no address of an OTLP/HTTP endpoint."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_address = is_address and parts.port != 0 and url.isprintable() and " " not in url
    except ValueError:  # a port that is no number
        is_address = False
    if not is_address:
        raise InputError(f"{url!r} is no address that takes spans",
                         hint="write --otlp http://127.0.0.1:4318/v1/traces")  # fmt: skip


def send_spans(lines: Iterable[bytes], url: str) -> int:
    """Posts spans to an OTLP/HTTP endpoint such as `http://127.0.0.1:4318/v1/traces`.

    Args:
        lines: Of `Lab.span_files`: an export request each.

    Returns:
        How many were taken.
    """
    check_endpoint(url)
    count = 0
    for line in lines:
        request = urllib.request.Request(
            url, data=line, headers={"Content-Type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=30):
                count += 1
        except (OSError, http.client.HTTPException) as error:
            raise ActuationError(f"{url} does not take spans: {error}") from error
    return count
