"""gnomon carbon with a live service: a real HTTP server on this machine."""

from __future__ import annotations

from tests.cli.refusal import answer, refused
from tests.ingest.test_intensity_live import service

__all__ = ["service"]


def test_a_live_forecast_is_shown_and_remembered(service, monkeypatch, capsys):
    monkeypatch.setenv("CARBON_AWARE_URL", service.url)
    words = ("carbon", "signal", "eastus", "--provider", "carbon-aware-sdk")
    fresh = answer(capsys, *words)
    assert any("A forecast of carbon-aware-sdk" in note for note in fresh["notes"])
    assert not any("did not answer" in note for note in fresh["notes"])


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
