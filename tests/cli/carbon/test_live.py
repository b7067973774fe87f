"""gnomon carbon with a live service: a real HTTP server on this machine."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta

from tests.cli.refusal import answer, refused
from tests.ingest.intensity.test_files import SDK_FORECAST
from tests.ingest.intensity.test_live import service

from gnomon.cli import main
from gnomon.ingest.intensity.live import ElectricityMaps

__all__ = ["service"]


def five_minutes(count):
    """A forecast of so many steps, each one gram above the one before."""
    points = [
        {
            "timestamp": f"2024-03-01T{n // 12:02}:{n % 12 * 5:02}:00Z",
            "duration": 5,
            "value": 300 + n,
        }
        for n in range(count)
    ]
    return [{**SDK_FORECAST[0], "forecastData": points}]


def test_a_live_forecast_is_shown_and_remembered(service, monkeypatch, capsys):
    monkeypatch.setenv("CARBON_AWARE_URL", service.url)
    service.forecast = five_minutes(40)
    words = ("carbon", "signal", "eastus", "--provider", "carbon-aware-sdk")
    fresh = answer(capsys, *words)
    assert any("A forecast of carbon-aware-sdk" in note for note in fresh["notes"])
    assert not any("did not answer" in note for note in fresh["notes"])
    assert fresh["span"]["start"] == "2024-03-01T00:00Z"
    assert fresh["span"]["values"] == [305.5, 317.5, 329.5]  # of 3 h 20 min, whole hours
    assert fresh["generated"] is False
    service.mode = 404
    assert answer(capsys, *words)["span"] == fresh["span"]


def test_a_forecast_of_less_than_an_hour_says_so(service, monkeypatch, capsys):
    monkeypatch.setenv("CARBON_AWARE_URL", service.url)
    line = refused(capsys, "carbon", "signal", "eastus", "--provider", "carbon-aware-sdk")
    short = "no whole hour lies in what there is, 2024-03-01 00:00 to 2024-03-01 00:15"
    assert f"carbon-aware-sdk: {short}" in line


def test_what_a_provider_has_of_its_own(service, monkeypatch, capsys):
    monkeypatch.setenv("CARBON_AWARE_URL", service.url)
    words = ("carbon", "signal", "eastus", "--provider", "carbon-aware-sdk")
    assert "leave --file" in refused(capsys, *words, "--forecast", "24h")
    assert "no live service" in refused(capsys, "carbon", "signal", "DE", "--provider", "oracle")


def test_a_service_that_fails_is_no_reason_to_wait(service, monkeypatch, capsys):
    monkeypatch.setenv("CARBON_AWARE_URL", service.url)
    service.mode = 404
    told = answer(
        capsys, "carbon", "wait", "--zone", "eastus", "--provider", "carbon-aware-sdk",
        "--within", "5h", "--for", "1h", "--plan",
    )  # fmt: skip
    assert told["delay_s"] == 0
    assert "no forecast" in told["basis"]


def test_what_was_saved_is_what_was_measured(service, monkeypatch, capsys):
    """Afterwards the service is asked for the hours that have passed."""
    now = datetime.now(UTC)

    def hours(values):
        begin = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
        return [
            {"datetime": f"{begin + timedelta(hours=h):%Y-%m-%dT%H:%M:%SZ}", "carbonIntensity": v,
             "zone": "DE", "emissionFactorType": "lifecycle"}
            for h, v in enumerate(values)
        ]  # fmt: skip

    forecast = {"zone": "DE", "forecast": hours([300] * 9)}
    passed = {"zone": "DE", "data": hours([400] * 9)}
    monkeypatch.setattr(
        type(service), "answer",
        lambda self, path, headers: (200, forecast if "forecast" in path.path else passed),
    )  # fmt: skip
    monkeypatch.setenv("ELECTRICITYMAPS_TOKEN", "a key")
    monkeypatch.setattr(ElectricityMaps, "home", service.url)
    words = [
        "carbon", "wait", "--zone", "DE", "--provider", "electricitymaps", "--within", "3s",
        "--for", "1s", "--watts", "100", "--json", "--", sys.executable, "-c", "pass",
    ]  # fmt: skip
    assert main(words) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert "400 g/kWh" in shown.err
    assert "as measured" in shown.err
    assert told["saved_measured"] is True
    assert told["saved_pct"] == 0.0
