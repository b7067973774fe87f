"""Live services, against a real server on this machine that does what it is told to."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from gnomon.errors import InputError
from gnomon.ingest.intensity.live import PROVIDERS, provider
from tests.ingest.intensity.test_files import (
    HOUR_NS,
    LB,
    MAPS_FORECAST,
    MAPS_HISTORY,
    MAPS_LATEST,
    MAPS_RANGE,
    SDK_EMISSIONS,
    SDK_FORECAST,
    START_NS,
    UK,
    UK_REGION,
    WATT_JSON,
)

TOKEN = "secret-token-of-mine"
KEYS = {
    "ELECTRICITYMAPS_TOKEN": TOKEN,
    "WATTTIME_USER": "somebody",
    "WATTTIME_PASSWORD": "secret-password",
}


class Service:
    """What the server does: `mode` is how it fails, `seen` what it was asked."""

    def __init__(self):
        self.mode, self.seen, self.wattage = "well", [], 0
        self.forecast = SDK_FORECAST

    def answer(self, path, headers):
        if path.path == "/login":
            basic = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
            self.wattage += 1
            if basic != "somebody:secret-password":
                return 403, {"error": "no"}
            return 200, {"token": f"login-{self.wattage}"}
        if path.path.startswith("/v3/carbon-intensity/"):
            if headers["auth-token"] != TOKEN:
                return 401, {"error": f"no such token: {headers['auth-token']}"}
            kinds = {
                "latest": MAPS_LATEST,
                "history": MAPS_HISTORY,
                "forecast": MAPS_FORECAST,
                "past-range": MAPS_RANGE,
            }
            return 200, kinds[path.path.rpartition("/")[2]]
        if path.path in ("/v3/forecast", "/v3/historical"):
            if headers["Authorization"] != f"Bearer login-{self.wattage}":
                return 401, {"error": "log in"}
            return 200, WATT_JSON
        if path.path.startswith("/regional"):
            return 200, UK_REGION
        if path.path.startswith("/intensity"):
            return 200, UK
        if path.path == "/emissions/bylocation":
            return 200, SDK_EMISSIONS
        return 200, self.forecast


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        service = self.server.service
        path = urlsplit(self.path)
        service.seen.append((path.path, parse_qs(path.query)))
        mode = service.mode.pop(0) if isinstance(service.mode, list) else service.mode
        if mode == "slow":
            time.sleep(0.6)
        if mode == "cut":
            self.connection.close()
            return
        status, body = service.answer(path, self.headers)
        if isinstance(mode, int):
            status, body = mode, {"error": "busy"}
        raw = json.dumps(body).encode()
        if mode == "garbage":
            raw = b"<html>\xff"
        if mode == "half":
            raw = raw[: len(raw) // 2]
        if mode == "zero":
            raw = b'{"zone": "DE", "history": []}'
        self.send_response(status)
        if mode == 429:
            self.send_header("Retry-After", "7")
        if mode == 302:
            self.send_header("Location", "http://elsewhere.invalid/")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        try:
            if mode == "drip":
                for byte in raw:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(0.05)
            else:
                self.wfile.write(raw)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *words):
        pass


@pytest.fixture
def service(tmp_path, monkeypatch):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.service = Service()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    server.service.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield server.service
    server.shutdown()
    server.server_close()
    thread.join()


class Clock:
    def __init__(self):
        self.ns, self.slept = START_NS, []

    def now(self):
        return self.ns


@pytest.fixture
def clock():
    return Clock()


def ask(service, clock, name, environ=KEYS, **options):
    options = {"fresh_s": 60.0, "timeout_s": 30.0, **options}
    return provider(
        name, base_url=service.url, environ=environ, now_ns=clock.now,
        sleep=clock.slept.append, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "zone", "kind", "first"),
    [
        ("electricitymaps", "DE", "average/lifecycle", (302, 300, 300)),
        ("watttime", "CAISO_NORTH", "marginal/direct", (1000 * LB,) * 3),
        ("uk", "GB", "average/direct", (150, 150, 150)),
        ("uk", "13", "average/direct", (140, 140, 140)),
        ("carbon-aware-sdk", "eastus", "average/lifecycle", (97, 97, 380.99)),
    ],
    ids=["maps", "watt", "uk", "uk-region", "sdk"],
)
def test_latest_history_and_forecast(service, clock, name, zone, kind, first):
    live = ask(service, clock, name)
    for answer, value in zip(
        (live.latest(zone), live.history(zone), live.forecast(zone)), first, strict=True
    ):
        assert answer.signal.kind == f"carbon-intensity/{kind}"
        assert answer.signal.values[0] == pytest.approx(value)
        assert (answer.age_s, answer.is_stale, answer.reason) == (0.0, False, "")


def test_what_is_asked(service, clock):
    maps = ask(service, clock, "electricitymaps", scope="direct")
    maps.history("DE", START_NS, START_NS + HOUR_NS)
    assert service.seen[-1] == (
        "/v3/carbon-intensity/past-range",
        {
            "zone": ["DE"],
            "emissionFactorType": ["direct"],
            "start": ["2024-03-01T00:00:00Z"],
            "end": ["2024-03-01T01:00:00Z"],
        },
    )
    clock.ns += 1000 * 10**9
    ask(service, clock, "uk").forecast("13")
    assert service.seen[-1][0] == "/regional/intensity/2024-03-01T00:00Z/fw48h/regionid/13"
    ask(service, clock, "watttime").history("CAISO_NORTH")
    assert service.seen[-1][1]["start"] == ["2024-02-29T00:16:40Z"]


def test_fresh_answers_are_not_asked_for_again(service, clock):
    live = ask(service, clock, "electricitymaps")
    live.forecast("DE")
    clock.ns += 59 * 10**9
    again = ask(service, clock, "electricitymaps").forecast("DE")
    assert len(service.seen) == 1
    assert (again.age_s, again.is_stale) == (59.0, False)
    clock.ns += 2 * 10**9
    assert live.forecast("DE").age_s == 0.0
    assert len(service.seen) == 2


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (500, "answered 500 Internal Server Error (3 attempts)"),
        (401, "answered 401 Unauthorized"),
        (302, "redirects to elsewhere.invalid"),
        ("slow", "did not answer within 0.3 s"),
        ("drip", "did not answer within 0.3 s"),
        ("garbage", "the answer is no text"),
        ("half", "not JSON"),
        ("cut", "broke off"),
        ("zero", "there is no value in it"),
    ],
    ids=str,
)
def test_failure_gives_the_last_good_value_with_its_age_or_an_error(service, clock, mode, words):
    impatient = {"timeout_s": 0.3} if mode in ("slow", "drip") else {}
    live = ask(service, clock, "electricitymaps", **impatient)
    patient = ask(service, clock, "electricitymaps")  # with the same cache
    service.mode = mode
    with pytest.raises(InputError) as caught:
        live.history("DE")
    said = str(caught.value)
    assert said.startswith("electricitymaps: ")
    assert words in said
    assert "set ELECTRICITYMAPS_TOKEN" in said
    assert TOKEN not in said
    assert "\n" not in said
    service.mode = "well"
    good = patient.history("DE")
    service.mode = mode
    clock.ns += 7200 * 10**9
    stale = live.history("DE")
    assert stale.signal == good.signal
    assert (stale.age_s, stale.is_stale) == (7200.0, True)
    assert words in stale.reason
    service.mode = "well"
    assert not patient.history("DE").is_stale


def test_the_forecast_of_an_hour_ago_is_still_found(service, clock):
    live = ask(service, clock, "uk")
    live.forecast("GB")
    service.mode = 503
    clock.ns += HOUR_NS
    stale = live.forecast("GB")
    assert (stale.age_s, stale.is_stale) == (3600.0, True)


def test_busy_services_are_asked_again_with_pauses(service, clock):
    live = ask(service, clock, "electricitymaps")
    service.mode = [429, 503, "well"]
    assert not live.latest("DE").is_stale
    assert clock.slept == [7.0, 1.0]
    assert len(service.seen) == 3


def test_a_wrong_key_is_not_repeated(service, clock):
    wrong = {"ELECTRICITYMAPS_TOKEN": "another-secret\n"}
    with pytest.raises(InputError) as caught:
        ask(service, clock, "electricitymaps", wrong).latest("DE")
    assert "401" in str(caught.value)
    assert "another-secret" not in str(caught.value)
    assert len(service.seen) == 1
    odd = {"ELECTRICITYMAPS_TOKEN": "another\nsecret"}
    with pytest.raises(InputError, match="odd characters") as caught:
        ask(service, clock, "electricitymaps", odd).latest("DE")
    assert "another" not in str(caught.value)
    assert "secret" not in str(caught.value)
    kept = list(service_files())
    assert all(b"secret" not in text for text in kept)


def service_files():
    from gnomon.ingest.cache import cache_folder

    folder = cache_folder()
    assert folder is not None
    return (path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_watttime_logs_in_once_and_again_when_thrown_out(service, clock):
    live = ask(service, clock, "watttime")
    live.forecast("CAISO_NORTH")
    live.history("CAISO_NORTH")
    assert service.wattage == 1
    service.wattage = 5  # tokens of before no longer count
    clock.ns += 120 * 10**9
    assert not live.forecast("CAISO_NORTH").is_stale
    assert service.wattage == 6
    clock.ns += 3600 * 10**9
    live.forecast("CAISO_NORTH")
    assert service.wattage == 7
    with pytest.raises(InputError, match="answered 403"):
        ask(service, clock, "watttime", {**KEYS, "WATTTIME_PASSWORD": "wrong"}).forecast("PJM")
    assert all(b"login-" not in text for text in service_files())


@pytest.mark.parametrize(
    ("name", "zone", "words"),
    [
        ("electricitymaps", "DE", "ELECTRICITYMAPS_TOKEN is not set"),
        ("watttime", "CAISO_NORTH", "WATTTIME_USER is not set"),
        ("carbon-aware-sdk", "eastus", "CARBON_AWARE_URL is not set"),
    ],
    ids=["maps", "watt", "sdk"],
)
def test_a_missing_key_is_named(service, name, zone, words):
    with pytest.raises(InputError, match=words):
        provider(name, environ={}).forecast(zone)


def test_no_cache_means_no_last_value(service, clock, monkeypatch):
    monkeypatch.setenv("GNOMON_CACHE", "off")
    live = ask(service, clock, "electricitymaps")
    live.latest("DE")
    service.mode = 500
    with pytest.raises(InputError, match="answered 500"):
        live.latest("DE")


def test_nobody_there(clock, monkeypatch, tmp_path):
    monkeypatch.setenv("GNOMON_CACHE", str(tmp_path))
    monkeypatch.setenv("no_proxy", "*")
    live = provider("uk", base_url="http://127.0.0.1:9", sleep=clock.slept.append)
    with pytest.raises(InputError, match=r"127.0.0.1:9 cannot be reached: Connection refused"):
        live.latest("GB")
    with pytest.raises(InputError, match="is no address"):
        provider("uk", base_url="file:///etc/hostname").latest("GB")


def test_names():
    assert set(PROVIDERS) == {"electricitymaps", "watttime", "uk", "carbon-aware-sdk"}
    with pytest.raises(InputError, match="one of electricitymaps, watttime, uk"):
        provider("nobody")
    with pytest.raises(InputError, match="no part of Great Britain"):
        provider("uk").forecast("DE")
