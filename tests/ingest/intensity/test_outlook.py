"""What is known of the hours to come, from files and from a service on this machine."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.ingest.intensity.outlook import file_outlook, live_outlook
from gnomon.ingest.metrics.signal_csv import write_signal_csv
from gnomon.series import Signal
from gnomon.series.intensity import intensity_kind
from gnomon.systems.carbon.wait import plan_wait
from tests.ingest.intensity.test_live import service

__all__ = ["service"]

HOUR_NS = 3600 * 10**9
START_NS = 1709251200 * 10**9
MINUTE_NS = 60 * 10**9


@pytest.fixture
def file(tmp_path):
    """Ten days of a plain day and night, up to `START_NS`."""
    values = 300 + 100 * np.cos(2 * np.pi * np.arange(240) / 24)
    signal = Signal.regular(
        START_NS - 240 * HOUR_NS, HOUR_NS, values, unit="gCO2e/kWh", kind=intensity_kind()
    )
    write_signal_csv(signal, tmp_path / "grid.csv")
    return tmp_path / "grid.csv"


def test_hours_that_are_in_the_file_are_taken_as_they_are(file):
    outlook = file_outlook(file, START_NS - 24 * HOUR_NS, START_NS - HOUR_NS)
    assert not outlook.signal.has_range
    assert outlook.signal.end_ns == START_NS
    assert outlook.basis == "grid.csv: average, life-cycle, gCO2e/kWh"


def test_hours_after_it_are_forecast_with_a_range(file):
    now = START_NS + 3 * HOUR_NS
    outlook = file_outlook(file, now, now + 24 * HOUR_NS)
    assert outlook.signal.has_range
    assert outlook.signal.start_ns <= now
    assert outlook.signal.end_ns == now + 24 * HOUR_NS
    plan = plan_wait(outlook, now, within_ns=24 * HOUR_NS, length_ns=HOUR_NS)
    assert plan.then.mid == pytest.approx(200, abs=15)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (START_NS + 49 * HOUR_NS, "ends 2 d 1 h 0 min ago, too long to go by"),
        (START_NS - 300 * HOUR_NS, "begins only at"),
    ],
    ids=["old", "later"],
)
def test_where_nobody_knows_it_says_why(file, now, words):
    outlook = file_outlook(file, now, now + HOUR_NS)
    assert outlook.signal is None
    assert words in outlook.basis


def test_an_unreadable_file_is_an_error(tmp_path):
    (tmp_path / "bad.csv").write_text("hello")
    with pytest.raises(InputError, match=r"bad.csv"):
        file_outlook(tmp_path / "bad.csv", 0, HOUR_NS)


def test_a_service_that_answers_fails_and_gets_old(service, tmp_path, monkeypatch):
    monkeypatch.setenv("CARBON_AWARE_URL", service.url)

    def ask(now=START_NS):
        return live_outlook("carbon-aware-sdk", "eastus", now, now + HOUR_NS)

    service.mode = 404
    assert ask().signal is None
    assert "no forecast: carbon-aware-sdk: 127.0.0.1" in ask().basis
    assert "answered 404" in ask().basis
    service.mode = "well"
    good = ask()
    assert good.signal.values.tolist() == [380.99, 381.99, 382.99]
    early = ask(START_NS - 10 * MINUTE_NS)
    assert early.signal.start_ns == START_NS - 10 * MINUTE_NS
    assert early.signal.gaps() == []
    assert "its first value is taken to hold until it begins" in early.basis
    assert ask(START_NS + HOUR_NS).signal is None
    assert "ends before now" in ask(START_NS + HOUR_NS).basis
    kept = next((tmp_path / "cache").rglob("*.json"))
    told = json.loads(kept.read_text())
    kept.write_text(json.dumps({**told, "fetched_ns": told["fetched_ns"] - 2 * HOUR_NS}))
    service.mode = 404
    stale = ask()
    assert stale.signal == good.signal
    assert "2 h 0 min old, as 127.0.0.1" in stale.basis
