"""Purchases: by hand, and what must hold of any."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.machines.machine import Fleet, Machine, MachineGroup, find_machine
from gnomon.model.machines.machine_file import read_fleet
from gnomon.systems.carbon.buy import weigh_purchase, years_to_pay_back
from gnomon.systems.carbon.buy_result import to_result, to_script, verdict


def machine(name, score=100.0, peak=100.0, kg=50.0, idle=0.0):
    exact = Estimate.exact
    return Machine(
        name=name, kind="server", cores=8, threads=16, score=score, score_unit="points",
        idle_w=exact(idle), peak_w=exact(peak), embodied_kg=Estimate(0.5 * kg, kg, 2 * kg),
        life_years=5.0, source={"all": "made up"},
    )  # fmt: skip


def two(old_watts=200.0, count=10):
    return Fleet(
        name="old", groups=(MachineGroup(machine=machine("old", peak=old_watts), count=count),)
    )


def test_by_hand():
    """Ten servers of 100 points at 200 W, by five of 200 points at 100 W, half in use."""
    new = machine("new", score=200.0, peak=100.0, kg=1000.0)
    found = weigh_purchase(two(), new, Estimate.exact(100.0), utilisation=0.5)
    offer = found.ladder[0]
    assert (offer.servers_out, offer.servers_in) == (10, 5)
    # 500 points of work: 1000 W before, 250 W after.
    assert found.kept_kwh_y.mid == pytest.approx(8760.0)
    assert offer.saved_kwh_y.mid == pytest.approx(0.75 * 8760)
    assert offer.saved_kg_y.mid == pytest.approx(657.0)
    assert offer.embodied_kg.mid == 5000.0
    assert offer.years == pytest.approx(5000 / 657)
    assert offer.years_best == pytest.approx(2500 / 657)
    assert offer.breakeven_g_kwh == pytest.approx(5000e3 / (0.75 * 8760 * 5))
    assert offer.net_kg.mid == pytest.approx(5000 - 5 * 657)
    assert found.best is None
    assert verdict(found).startswith("Keep all")
    dirtier = weigh_purchase(two(), new, Estimate.exact(200.0), utilisation=0.5)
    assert dirtier.best is not None
    assert to_script(dirtier)["answer"] == "replace"
    assert to_result(dirtier, price_usd_kwh=0.2).figures[0].value == "replace"


@given(st.floats(1.0, 1e4), st.floats(0.1, 1e4), st.floats(-30.0, 30.0))
def test_prop_savings_add_up_to_what_was_emitted(embodied, saved, change):
    years = years_to_pay_back(embodied, saved, change)
    rate = math.log1p(change / 100)
    if years is None:
        assert saved / -rate <= embodied * (1 + 1e-9)  # all there will ever be is not enough
    else:
        summed = saved * (years if abs(rate) < 1e-8 else math.expm1(rate * years) / rate)
        assert summed == pytest.approx(embodied, rel=1e-6)


@settings(max_examples=20)
@given(st.floats(1.0, 900.0), st.floats(1.0, 900.0))
def test_prop_a_dirtier_grid_pays_sooner(one, other):
    new = find_machine("EPYC 9334")
    fleet = read_fleet("bundled:mit-740")
    clean, dirty = (
        weigh_purchase(fleet, new, Estimate.exact(grid), utilisation=0.58)
        for grid in sorted((one, other))
    )
    for a, b in zip(clean.ladder, dirty.ladder):
        assert b.years is not None
        assert a.years is None or b.years <= a.years + 1e-9
        assert a.pays == (a.breakeven_g_kwh is not None and min(one, other) > a.breakeven_g_kwh)


def test_a_grid_that_gets_cleaner_pays_later():
    new = machine("new", score=200.0, peak=100.0, kg=600.0)
    steady, cleaner = (
        weigh_purchase(two(), new, Estimate.exact(100.0), change_pct_y=change).ladder[0]
        for change in (0.0, -8.0)
    )
    assert cleaner.years > steady.years
    assert cleaner.net_kg.mid > steady.net_kg.mid


def test_idle_servers_that_stay_on_make_replacing_worth_more():
    idling = msgspec.structs.replace(
        two(), groups=(MachineGroup(machine=machine("old", peak=200.0, idle=120.0), count=10),)
    )
    new = machine("new", score=1000.0, peak=500.0, idle=100.0, kg=1000.0)
    kept = weigh_purchase(idling, new, Estimate.exact(100.0), utilisation=0.2)
    slept = weigh_purchase(idling, new, Estimate.exact(100.0), utilisation=0.2, sleep=True)
    assert kept.ladder[0].saved_kwh_y.mid > slept.ladder[0].saved_kwh_y.mid


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"years": 0.0}, "years of use"), ({"change_pct_y": -100.0}, "a grid that changes")],
    ids=["no-years", "no-grid"],
)
def test_wrong_input(changes, what):
    with pytest.raises(InputError, match=what):
        weigh_purchase(two(), machine("new"), Estimate.exact(10.0), **changes)


def test_a_candidate_without_the_same_score():
    with pytest.raises(InputError, match="no score that the others have"):
        weigh_purchase(two(), machine("new", score=0.0), Estimate.exact(10.0))


def test_one_group_alone_may_be_worth_it():
    """The hungriest group is large and hardly hungrier than the candidate; the other one pays."""
    fleet = Fleet(
        name="mixed",
        groups=(
            MachineGroup(machine=machine("many", peak=110.0), count=1000),
            MachineGroup(machine=machine("few", peak=100.0), count=10),
        ),
    )
    new = machine("new", peak=10.0, kg=50.0)
    found = weigh_purchase(fleet, new, Estimate.exact(400.0), utilisation=0.0099)
    assert not any(offer.pays for offer in found.ladder)
    assert found.best is not None
    tried = (*found.ladder, *found.singles)
    assert found.best.net_kg.mid <= min(offer.net_kg.mid for offer in tried) + 1e-9


@given(st.integers(0, 2**16))
def test_prop_the_best_is_the_best_of_what_is_shown(seed):
    import random

    rng = random.Random(seed)
    groups = tuple(
        MachineGroup(
            machine=machine(f"m{i}", score=rng.uniform(50, 500), peak=rng.uniform(50, 500)),
            count=rng.randint(1, 30),
        )
        for i in range(rng.randint(1, 4))
    )
    new = machine("new", score=rng.uniform(100, 900), peak=rng.uniform(50, 300), kg=500.0)
    found = weigh_purchase(
        Fleet(name="x", groups=groups), new, Estimate.exact(rng.uniform(1, 500)), utilisation=0.6
    )
    least = min(offer.net_kg.mid for offer in (*found.ladder, *found.singles))
    if found.best is None:
        assert least >= 0
    else:
        assert found.best.net_kg.mid <= least + 1e-9


def test_the_worst_case_takes_the_far_ends_together():
    """Old ones may draw as little as new ones at most: then nothing is saved, ever."""
    old = msgspec.structs.replace(machine("old"), peak_w=Estimate(100.0, 150.0, 200.0))
    new = msgspec.structs.replace(machine("new", kg=10.0), peak_w=Estimate(50.0, 100.0, 150.0))
    fleet = Fleet(name="x", groups=(MachineGroup(machine=old, count=1),))
    offer = weigh_purchase(fleet, new, Estimate.exact(100.0), utilisation=1.0).ladder[0]
    hours = 8760 / 1000
    assert offer.saved_kwh_y.low == pytest.approx(-50 * hours)
    assert offer.saved_kwh_y.mid == pytest.approx(50 * hours)
    assert offer.saved_kwh_y.high == pytest.approx(150 * hours)
    assert offer.years_worst is None
    assert offer.years_best == pytest.approx(5.0 / (150 * hours * 0.1))
