"""Changes against the first policy, on made-up figures."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.batch.compare import FIELDS, compare
from gnomon.systems.batch.measure import PolicyMeasures
from gnomon.systems.batch.trial import PolicyOutcome, TrialOutcome

positive = st.floats(1e-3, 1e3)


def measured(carbon_g, energy_kwh, jct_s=1.0):
    return PolicyMeasures(
        carbon_g, energy_kwh, carbon_g / 2, energy_kwh / 2, 1.0, jct_s, jct_s, 2 * jct_s, 1.0, 0, 0,
        energy_kwh, carbon_g,
    )  # fmt: skip


def trials(*rows):
    """Of each trial: (carbon, energy) of the first policy and of the other."""
    return [
        TrialOutcome(
            "DE", 0,
            {
                "fifo": PolicyOutcome(measured(*first), 1.0),
                "cap:fifo": PolicyOutcome(measured(*other), 10.0),
            },
            1.0, {},
        )
        for first, other in rows
    ]  # fmt: skip


def test_changes_are_of_each_trial():
    first, other = compare(trials(((100, 2), (60, 2)), ((300, 4), (180, 2))), "DE")
    assert (first.policy, other.policy, other.grid, other.trials) == ("fifo", "cap:fifo", "DE", 2)
    assert first.figures["carbon_pct"].mid == 0.0
    assert other.figures["carbon_pct"].mid == pytest.approx(-40.0)
    assert other.figures["work_pct"].mid == pytest.approx(100 * (0.5**0.5 - 1))
    assert other.figures["intensity_pct"].mid == pytest.approx(100 * (0.6 / 0.5**0.5 - 1))
    # A bound of 10 g a kWh, against 50 and 75.
    assert other.figures["oracle_pct"].mid == pytest.approx(100 * (10 / (50 * 75) ** 0.5 - 1))
    assert other.figures["carbon_kg"].mid == pytest.approx(0.12)
    assert "placebo_pct" not in other.figures
    assert other.quota_share is None
    assert set(other.figures) <= set(FIELDS)


def test_less_work_in_dirty_trials_is_no_cleaner_hour():
    _, other = compare(trials(((1000, 2), (500, 1)), ((10, 2), (10, 2))), "DE")
    assert other.figures["intensity_pct"].mid == pytest.approx(0.0, abs=1e-9)


def test_hours_that_emit_nothing_change_nothing():
    _, other = compare(trials(((0, 2), (0, 1))), "DE")
    assert other.figures["carbon_pct"].mid == 0.0


def test_the_same_grid_under_other_names_is_no_surer():
    rows = [((100, 2), (60 + 7 * i, 2)) for i in range(8)]
    one = compare(trials(*rows), "DE")[1].figures["carbon_pct"]
    named = [
        msgspec.structs.replace(outcome, grid=name)
        for name in ("DE", "AT", "CH")
        for outcome in trials(*rows)
    ]
    three = compare(named, "all")[1].figures["carbon_pct"]
    assert three.mid == pytest.approx(one.mid)
    assert three.width == pytest.approx(one.width, rel=0.15)


pairs = st.tuples(positive, positive)


@given(st.lists(st.tuples(pairs, pairs), min_size=1, max_size=6))
def test_prop_work_times_hours_is_carbon(rows):
    for one in compare(trials(*rows), "DE"):
        carbon, work, hours = (
            1 + one.figures[f"{name}_pct"].mid / 100 for name in ("carbon", "work", "intensity")
        )
        assert work * hours == pytest.approx(carbon)
        for estimate in one.figures.values():
            assert estimate.low <= estimate.mid <= estimate.high


@given(st.lists(st.tuples(pairs, pairs), min_size=2, max_size=6), st.integers(0, 9))
def test_prop_same_seed_same_range(rows, seed):
    one, two = (compare(trials(*rows), "DE", seed=seed) for _ in range(2))
    assert one == two


def test_one_trial_has_no_range():
    (_, other) = compare(trials(((100, 2), (60, 2))), "DE")
    estimate = other.figures["carbon_pct"]
    assert estimate.low == estimate.mid == estimate.high == pytest.approx(-40.0)


def test_controls_have_figures_of_their_own():
    outcomes = [
        TrialOutcome(
            "DE", 0,
            {
                "fifo": PolicyOutcome(measured(100, 2), 1.0),
                "cap:fifo": PolicyOutcome(
                    measured(60, 2), 10.0, measured(90, 1.8), measured(95, 1.9), 0.5
                ),
            },
            1.0, {},
        )
    ] * 3  # fmt: skip
    figures = compare(outcomes, "DE")[1]
    assert figures.figures["placebo_pct"].mid == pytest.approx(-10.0)
    assert figures.figures["placebo_intensity_pct"].mid == pytest.approx(0.0)
    assert figures.figures["quota_pct"].mid == pytest.approx(-5.0)
    assert figures.quota_share == 0.5


def test_grids_count_alike_and_work_that_moves_between_them_is_no_cleaner_hour():
    dirty = trials(((1000, 2), (500, 1)))
    clean = [msgspec.structs.replace(one, grid="ON") for one in trials(((10, 2), (10, 2)))]
    _, other = compare([*dirty, *clean], "all")
    # Half of the work is gone where the grid is dirty; no hour is cleaner anywhere.
    assert other.figures["intensity_pct"].mid == pytest.approx(0.0, abs=1e-9)
    assert other.figures["work_pct"].mid == pytest.approx(100 * (0.5**0.5 - 1))
    assert other.figures["carbon_pct"].is_exact
