"""What a carbon guard saves: parts that add up, and a study of a day."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla
from gnomon.systems.services import Rate, Setup, simulate
from gnomon.systems.services.relaxed import day_rate, split_saving, study
from gnomon.systems.services.trial import Outcome, Series

APP = Application(
    "one", {"web": Service(cpu_limit=0.6, cpu_min=0.05, workers=4)},
    {"get": RequestClass(Call("web", cpu_ms=4.0), sla=Sla(100.0))}, rate=25.0,
)  # fmt: skip
SCORE = simulate(Setup(APP), "static", Rate("low", np.full(5, 10.0))).score
DAY = np.linspace(100.0, 400.0, 24)


def outcome(allocated, hour_s=3600.0):
    cores = np.asarray(allocated, float)
    end_s = hour_s * np.arange(1, len(cores) + 1)
    return Outcome(
        SCORE, Series(end_s, cores, cores, cores / 2, cores[None], cores[:, None]), None
    )


CORES = st.lists(st.floats(0.01, 100.0), min_size=24, max_size=24)


@given(base=CORES, relaxed=CORES, hour=st.floats(0, 24),
       day=st.lists(st.floats(1.0, 1000.0), min_size=24, max_size=24))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_prop_parts_add_up_to_the_total(base, relaxed, hour, day):
    found = split_saving(outcome(base), outcome(relaxed), np.array(day), hour=hour)
    at = (hour + np.arange(24) + 0.5).astype(int) % 24
    grams = [float(np.array(cores) @ np.array(day)[at]) for cores in (base, relaxed)]
    assert found.total_pct == pytest.approx(100 * (1 - grams[1] / grams[0]), rel=1e-6, abs=1e-6)
    assert found.less_cpu_pct + found.cleaner_hours_pct == pytest.approx(found.total_pct)
    assert found.used_pct == pytest.approx(found.total_pct, rel=1e-6, abs=1e-6)


@given(base=CORES, share=st.floats(0.1, 2.0))
@settings(max_examples=50, deadline=None)
def test_prop_the_same_share_at_all_hours_is_all_less_cpu(base, share):
    found = split_saving(outcome(base), outcome(share * np.array(base)), DAY)
    assert found.less_cpu_pct == pytest.approx(100 * (1 - share), abs=1e-6)
    assert found.cleaner_hours_pct == pytest.approx(0.0, abs=1e-6)


def test_the_same_energy_at_other_hours_is_all_cleaner_hours():
    base = np.r_[np.ones(12), np.full(12, 2.0)]
    found = split_saving(outcome(base), outcome(base[::-1]), DAY)
    assert found.less_cpu_pct == pytest.approx(0.0, abs=1e-9)
    assert found.cleaner_hours_pct == found.total_pct > 10.0


def test_no_change_is_no_saving():
    found = split_saving(outcome(np.ones(24)), outcome(np.ones(24)), DAY)
    assert (found.total_pct, found.less_cpu_pct, found.cleaner_hours_pct) == (0.0, 0.0, 0.0)
    assert found.base_violation_pct == found.violation_pct == SCORE.violation_pct


def test_runs_that_do_not_compare_are_refused():
    one = outcome(np.ones(24))
    with pytest.raises(InputError, match="same windows"):
        split_saving(one, outcome(np.ones(12)), DAY)
    with pytest.raises(InputError, match="24 values"):
        split_saving(one, one, DAY[:5])
    with pytest.raises(InputError, match="without allocated cores"):
        split_saving(one, outcome(np.zeros(24)), DAY)


def test_a_day_of_requests_is_least_at_its_start():
    rate = day_rate(APP, hour_s=60.0).per_s
    assert len(rate) == 24 * 60
    assert rate.mean() == pytest.approx(APP.rate)
    assert rate[:60].mean() < 0.8 * APP.rate < 1.2 * APP.rate < rate[690:750].mean()


def test_a_study_saves_by_less_cpu_what_its_placebo_does_and_more_by_hours():
    found = study(APP, "static", "CAISO", hour=11.0, hour_s=150.0)
    assert found.base.score.violation_pct == 0.0
    assert found.saving.violation_pct == found.placebo_saving.violation_pct == 0.0
    assert found.saving.total_pct > 5.0
    assert found.saving.less_cpu_pct == pytest.approx(found.placebo_saving.less_cpu_pct, abs=2.5)
    assert found.saving.cleaner_hours_pct > 1.0 > abs(found.placebo_saving.cleaner_hours_pct)
    # A limit that does not bind saves no CPU time.
    assert abs(found.saving.used_pct) < 0.5
    assert not math.isnan(found.saving.used_pct)
    assert np.all(found.relaxed.series.allocated <= found.base.series.allocated + 1e-12)


def test_a_base_is_not_run_again():
    first = study(APP, "static", "DE", hour_s=20.0)
    again = study(APP, "static", "ON", hour_s=20.0, base=first.base)
    assert again.base is first.base
    assert again.saving != first.saving
