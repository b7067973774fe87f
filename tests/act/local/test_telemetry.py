"""What Prometheus scrapes and OpenTelemetry collects."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import urllib.error

import pytest
import yaml

from gnomon.act.local.lab import Lab
from gnomon.act.local.telemetry import MetricsServer, send_spans, write_prometheus_config
from gnomon.errors import ActuationError, InputError
from gnomon.graph.application import Call, Service
from tests.act.local.loads import app_of, get, read_spans, send
from tests.waiting import until


def test_the_lab_is_scraped(tmp_path):
    app = app_of(Call("front", cpu_ms=1.0), front=Service(replicas=2, cpu_limit=0.5))
    with Lab(app) as lab, MetricsServer(lab) as server:
        send(lab, 20)
        text = get(f"127.0.0.1:{server.port}", "/metrics")
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        assert float(values['gnomon_lab_cpu_usage_seconds_total{service="front"}']) >= 0.02
        assert values['gnomon_lab_cpu_limit_cores{service="front"}'] == "0.5"
        assert values['gnomon_lab_replicas{service="front"}'] == "2"
        lab.set_limit("front", None)
        assert "limit_cores{" not in get(f"127.0.0.1:{server.port}", "/metrics")

        write_prometheus_config(lab, tmp_path / "prometheus.yml", server.port)
        config = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
        targets = [
            t
            for job in config["scrape_configs"]
            for s in job["static_configs"]
            for t in s["targets"]
        ]
        assert len(targets) == 3
        assert all("# TYPE gnomon_" in get(target, "/metrics") for target in targets)

        victim = lab.tiers["front"].replicas[0]
        victim.process.kill()
        until(victim.has_ended)
        with pytest.raises(urllib.error.HTTPError, match="500"):
            get(f"127.0.0.1:{server.port}", "/metrics")


@pytest.mark.parametrize(
    "url", ["notaurl", "ftp://x", "http://", "http://h:port/v1", "http://a b/v1", "4318"]
)
def test_what_is_no_endpoint_is_refused(url):
    with pytest.raises(InputError, match="takes spans"):
        send_spans([b"{}"], url)


def test_an_endpoint_that_speaks_no_http_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer_nonsense, args=(server,))
        thread.start()
        with pytest.raises(ActuationError, match="does not take spans"):
            send_spans([b"{}"], f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()


def _answer_nonsense(server):
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(b"220 mail\r\n")


def test_spans_are_sent():
    taken = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with Lab(app_of(Call("front", then=((Call("store"),),))), sample_share=1.0) as lab:
            send(lab, 5)
            until(lambda: len(read_spans(lab)) == 15)
            url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
            lines = [line for file in lab.span_files() for line in file.read_bytes().splitlines()]
            count = send_spans(lines, url)
            server.shutdown()
            thread.join()
            server.server_close()
            with pytest.raises(ActuationError, match="does not take spans"):
                send_spans(lines, url)
    assert count == len(taken) >= 2
    assert {(path, kind) for path, kind, _ in taken} == {("/v1/traces", "application/json")}
    assert all(body["resourceSpans"] for _, _, body in taken)
