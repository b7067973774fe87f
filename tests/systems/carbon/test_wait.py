"""Waiting for clean hours: plans, what they saved, and functions that wait."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.intensity.outlook import Outlook, expected_grid
from gnomon.series import Signal
from gnomon.systems.carbon.wait import plan_wait, saved_by, start_clean

HOUR_NS = 3_600 * 10**9
KIND = "carbon-intensity/average/lifecycle"


def outlook_of(values):
    signal = Signal.regular(
        0, HOUR_NS, values, unit="gCO2e/kWh", kind=KIND, zone="XX",
        low=0.9 * np.asarray(values, dtype=float), high=1.1 * np.asarray(values, dtype=float),
    )  # fmt: skip
    return Outlook(signal, "made up")


def test_the_cleanest_stretch_before_the_deadline():
    plan = plan_wait(
        outlook_of([400, 300, 100, 100, 50]), 0, within_ns=4 * HOUR_NS, length_ns=2 * HOUR_NS
    )
    assert plan.start_ns == 2 * HOUR_NS  # the last hour lies beyond the deadline
    assert plan.at_once.mid == pytest.approx(350.0)
    assert plan.then.mid == pytest.approx(100.0)
    assert plan.then.low == pytest.approx(90.0)
    assert plan.saved_pct == pytest.approx(100 * 250 / 350)
    assert "starting at 1970-01-01 02:00:00 UTC, in 2 h" in plan.describe()
    assert "500 g at 1000 W" in plan.describe(1000.0)


def test_already_the_best():
    plan = plan_wait(outlook_of([10, 20, 30]), 0, within_ns=3 * HOUR_NS, length_ns=HOUR_NS)
    assert plan.delay_ns == 0
    assert "no start before the deadline is cleaner" in plan.describe()


@pytest.mark.parametrize(
    "outlook",
    [Outlook(None, "no forecast: it rains"), outlook_of([5.0])],
    ids=["none", "short"],
)
def test_without_a_forecast_it_starts_at_once(outlook):
    plan = plan_wait(outlook, 0, within_ns=9 * HOUR_NS, length_ns=2 * HOUR_NS)
    assert plan.start_ns == 0
    assert plan.at_once is None
    assert plan.describe().startswith("starting at once: ")


def test_too_little_time():
    with pytest.raises(InputError, match="do not fit into 1 h"):
        plan_wait(outlook_of([1, 2]), 0, within_ns=HOUR_NS, length_ns=2 * HOUR_NS)


@given(
    st.lists(st.floats(1, 900), min_size=6, max_size=48),
    st.integers(0, 3 * 3600),
    st.integers(1, 3 * 3600),
    st.integers(0, 3600 * 30),
)
def test_prop_waiting_never_costs(values, now_s, length_s, more_s):
    plan = plan_wait(
        outlook_of(values), now_s * 10**9, within_ns=(length_s + more_s) * 10**9,
        length_ns=length_s * 10**9,
    )  # fmt: skip
    assert plan.now_ns <= plan.start_ns
    assert plan.start_ns + plan.length_ns <= plan.deadline_ns
    assert plan.saved_pct >= -1e-6


def test_what_it_saved():
    outlook = outlook_of([400, 300, 100, 100])
    plan = plan_wait(outlook, 0, within_ns=4 * HOUR_NS, length_ns=HOUR_NS)
    saved = saved_by(plan, outlook.signal, 2 * HOUR_NS, 3 * HOUR_NS, watts=500.0)
    assert (saved.at_once, saved.then, saved.saved_pct) == (400.0, 100.0, 75.0)
    assert saved.saved_g == pytest.approx(150.0)
    assert "75 % saved, 150 g (by the forecast)" in saved.describe()
    assert saved_by(plan, outlook.signal, 3 * HOUR_NS, 9 * HOUR_NS) is None


def test_usual_hours_have_a_daily_shape():
    outlook = expected_grid("CAISO", 0, 48 * HOUR_NS)
    signal = outlook.signal
    assert (signal.low <= signal.values).all()
    assert (signal.values <= signal.high).all()
    days = signal.values.reshape(2, 24)
    assert days[:, 20:23].mean() < days[:, 4:7].mean()  # UTC: noon in California, its evening


class Clock:
    def __init__(self):
        self.now_ns, self.slept = 0, []

    def read(self):
        return self.now_ns

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_ns += int(seconds * 1e9)


def test_a_function_waits():
    clock, said = Clock(), []

    @start_clean(
        "DE", within="4h", length="1h", outlook=lambda *_: outlook_of([300, 200, 50, 400, 400, 1]),
        now_ns=clock.read, sleep=clock.sleep, log=said.append,
    )  # fmt: skip
    def train(size, *, layers):
        """Trains."""
        clock.now_ns += HOUR_NS
        return size * layers

    assert train(3, layers=4) == 12
    assert sum(clock.slept) == pytest.approx(7200.0)
    assert max(clock.slept) <= 30.0  # a clock may jump while it sleeps
    assert train.__doc__ == "Trains."
    assert "83 % less" in said[0]
    assert "83 % saved" in said[1]


def test_a_function_whose_forecast_fails_starts_at_once():
    clock, said = Clock(), []

    def broken(*_):
        raise RuntimeError("the provider is down")

    @start_clean("DE", within="4h", length="1h", outlook=broken, now_ns=clock.read,
                 sleep=clock.sleep, log=said.append)  # fmt: skip
    def train():
        return "done"

    assert train() == "done"
    assert clock.slept == []
    assert said == ["starting at once: no forecast: the provider is down"]
