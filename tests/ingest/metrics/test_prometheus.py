"""The client of Prometheus against a server that answers whatever it is told to."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from gnomon.errors import InputError
from gnomon.ingest.http_json import RequestFailed
from gnomon.ingest.metrics.prometheus import Prometheus, parse_answer

SECRET = "a-secret-nobody-should-see"


def vector(*samples, **more):
    result = [{"metric": labels, "value": [time_s, value]} for labels, time_s, value in samples]
    return {"status": "success", "data": {"resultType": "vector", "result": result}, **more}


@pytest.fixture
def server():
    """Answers `answer`: a status and a body; `asked` holds what came."""

    class Handler(BaseHTTPRequestHandler):
        asked: ClassVar[list] = []
        answer = (200, vector())
        may_answer = threading.Event()

        def log_message(self, *_):
            pass

        def _reply(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            form = parse_qs(body or urlsplit(self.path).query)
            self.asked.append(
                (self.command, urlsplit(self.path).path, form, self.headers["Authorization"])
            )
            self.may_answer.wait()
            code, answer = self.answer
            text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            with contextlib.suppress(ConnectionError):
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        do_GET = do_POST = _reply

    Handler.asked = []
    Handler.may_answer.set()
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Handler.url = f"http://127.0.0.1:{running.server_port}"
    try:
        yield Handler
    finally:
        Handler.may_answer.set()
        running.shutdown()
        thread.join()
        running.server_close()


def test_a_query_now_and_over_time(server):
    server.answer = (
        200,
        vector(
            ({"__name__": "up", "job": "a"}, 12.5, "1"), ({}, 12.5, "NaN"), warnings=["slow store"]
        ),
    )
    found = Prometheus(server.url + "/", environ={}).query("up", 12.5)
    up, other = found.series
    assert (up.metric, up.labels, up.times_s, up.values) == ("up", {"job": "a"}, [12.5], [1.0])
    assert math.isnan(other.values[0])
    assert (found.kind, found.warnings) == ("vector", ("slow store",))
    assert server.asked == [("GET", "/api/v1/query", {"query": ["up"], "time": ["12.500"]}, None)]
    matrix = [{"metric": {"job": "a"}, "values": [[10, "1"], [11, "+Inf"], [14, "3"]]}]
    server.answer = (
        200,
        {"status": "success", "data": {"resultType": "matrix", "result": matrix}},
    )
    (series,) = Prometheus(server.url, environ={}).query_range("x", 10, 14, 1).series
    assert series.signal("1", step_s=1.0).at([10 * 10**9, 14 * 10**9]).tolist() == [1, 3]
    assert len(series.signal("1", step_s=1.0).gaps()) == 1
    assert server.asked[-1][2] == {
        "query": ["x"],
        "start": ["10.000"],
        "end": ["14.000"],
        "step": ["1.000"],
    }


def test_a_scalar_and_a_long_query(server):
    server.answer = (
        200,
        {"status": "success", "data": {"resultType": "scalar", "result": [1.5, "42"]}},
    )
    (one,) = Prometheus(server.url, environ={}).query("1" * 3000).series
    assert (one.times_s, one.values) == ([1.5], [42.0])
    method, path, form, _ = server.asked[0]
    assert (method, path, form) == ("POST", "/api/v1/query", {"query": ["1" * 3000]})


@pytest.mark.parametrize(
    ("environ", "header"),
    [
        ({"PROMETHEUS_TOKEN": SECRET}, f"Bearer {SECRET}"),
        ({"PROMETHEUS_USERNAME": "me", "PROMETHEUS_PASSWORD": "x"}, "Basic bWU6eA=="),
        ({}, None),
    ],
    ids=["token", "password", "none"],
)
def test_credentials_come_from_the_environment(server, environ, header):
    Prometheus(server.url, environ=environ).query("up")
    assert server.asked[0][3] == header


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (400, {"status": "error", "errorType": "bad_data", "error": "parse error\nat char 3"}, r"answered 400 Bad Request: parse error at char 3"),
        (422, {"status": "error", "error": "too many samples", "data": {"resultType": "vector", "result": []}}, "422 .*: too many samples"),
        (503, b"<html>", r"answered 503 Service Unavailable$"),
        (401, b"", "answered 401"),
        (200, {"status": "error", "error": "partial"}, "Prometheus refused: partial"),
        (200, {"status": "success"}, "Prometheus refused"),
        (200, b'{"status": "succ', "is no answer of Prometheus"),
        (200, b"\xff\xfe", "is no answer of Prometheus"),
        (200, b"[" * 100_000, "is no answer of Prometheus"),
        (200, {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "one"]}]}}, r"result\[0\]: a sample is no number"),
        (200, {"status": "success", "data": {"resultType": "string", "result": [1, "one"]}}, "is no answer of Prometheus"),
        (302, b"", "302"),
    ],
    ids=["bad", "many", "down", "who", "error", "no-data", "cut", "bytes", "deep", "text", "string", "redirect"],
)  # fmt: skip
def test_failures_are_one_line_without_the_key(server, code, body, words):
    server.answer = (code, body)
    with pytest.raises(RequestFailed, match=words) as caught:
        Prometheus(server.url, environ={"PROMETHEUS_TOKEN": SECRET}).query("up")
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(server.asked) == 1  # whoever asks in a loop asks again soon enough


def test_a_slow_server(server):
    server.may_answer.clear()
    began_s = time.monotonic()
    with pytest.raises(RequestFailed, match=r"did not answer within 0\.2 s"):
        Prometheus(server.url, environ={}).query("up", timeout_s=0.2)
    assert time.monotonic() - began_s < 60


def test_a_server_that_is_not_there():
    with contextlib.closing(
        ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler).socket
    ) as free:
        port = free.getsockname()[1]
    with pytest.raises(RequestFailed, match="cannot be reached"):
        Prometheus(f"http://127.0.0.1:{port}", environ={}).query("up")


@pytest.mark.parametrize(
    ("url", "environ", "words"),
    [
        ("metrics:9090", {}, "is no address of Prometheus"),
        (f"http://me:{SECRET}@host", {}, "holds a password; set PROMETHEUS_USERNAME"),
        (
            "http://metrics.shop:9090",
            {"PROMETHEUS_TOKEN": SECRET},
            "metrics.shop:9090: .* plain text; use https",
        ),
    ],
)
def test_addresses_that_are_refused(url, environ, words):
    with pytest.raises(InputError, match=words) as caught:
        Prometheus(url, environ=environ)
    assert SECRET not in str(caught.value)


def test_a_key_does_not_pass_a_proxy_in_plain_text(server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://10.0.0.1:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="use https"):
        Prometheus(server.url, environ={"PROMETHEUS_TOKEN": SECRET})
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Prometheus(server.url, environ={"PROMETHEUS_TOKEN": SECRET}).query("up")


def test_a_key_with_odd_characters(server):
    with pytest.raises(RequestFailed, match="odd characters"):
        Prometheus(server.url, environ={"PROMETHEUS_TOKEN": "a\nb"}).query("up")


def test_a_saved_answer_reads_as_one_that_was_asked_for(server):
    answer = vector(({"__name__": "up"}, 1, "1"))
    server.answer = (200, answer)
    assert parse_answer(json.dumps(answer).encode(), "file") == Prometheus(
        server.url, environ={}
    ).query("up")
