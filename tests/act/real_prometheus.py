"""A Prometheus on loopback that scrapes an exporter of the test."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.waiting import until


class Exporter:
    """Serves `text`: what a scrape gets; None: the scrape fails."""

    def __init__(self, text=""):
        self.text = text
        self.scrapes = 0


@contextlib.contextmanager
def exporting(exporter):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            text = exporter.text() if callable(exporter.text) else exporter.text
            exporter.scrapes += 1
            with contextlib.suppress(ConnectionError):
                self.send_response(200 if text is not None else 503)
                self.end_headers()
                self.wfile.write((text or "").encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def scraping(folder, *targets, **cells):
    """The address of a Prometheus that scrapes targets every 200 ms; cells by their service."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed")
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    groups = [{"targets": list(targets)}]
    groups += [{"targets": found, "labels": {"service": name}} for name, found in cells.items()]
    job = {
        "job_name": "lab",
        "scrape_interval": "200ms",
        "scrape_timeout": "200ms",
        "static_configs": groups,
    }
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
            stdout=log, stderr=log, env={"GOMAXPROCS": "1"},
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _is_ready(url, process, folder / "log"), "Prometheus", 60)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url, process, log):
    assert process.poll() is None, log.read_text()
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
