"""The figures of the Sunk Carbon Fallacy (arXiv 2410.15087), and what must hold of any fleet."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.estimate import Estimate
from gnomon.model.machines.machine import Fleet, Machine, MachineGroup, find_machine
from gnomon.model.machines.machine_file import read_fleet
from gnomon.systems.carbon.curves import (
    added_by_grid,
    added_by_idle,
    added_by_life,
    added_by_share,
    added_by_utilisation,
    filled_g_h,
    largest,
)
from gnomon.systems.carbon.curves_result import curves_of
from gnomon.systems.carbon.metric import METRICS, candidates_of, order_of, parse_metrics
from gnomon.systems.carbon.supply import Supply, supply_of

SCI, OSCI, TSCI = METRICS["sci"], METRICS["osci"], METRICS["tsci"]
#: The case study's grid: so that embodied carbon is a fifth.
MIT_GRID = 10.0


def two_servers() -> Supply:
    """Section 4.1: a point of each, in grams a score-hour on a grid of 1000 g/kWh."""
    return Supply(
        names=("E-2286G", "Gold 6538N"),
        servers=np.array([1, 1]), threads=np.array([1, 1]), points=np.ones(2),
        idle_w=np.zeros(2), peak_w=np.array([0.83, 0.56]), embodied_g_h=np.array([0.11, 0.45]),
    )  # fmt: skip


def lived(supply: Supply):
    """The pair, had it another life than five years."""
    return lambda years: msgspec.structs.replace(
        supply, embodied_g_h=supply.embodied_g_h * 5.0 / years
    )


def mit(amortise) -> Supply:
    return supply_of(read_fleet("bundled:mit-740"), year=2024, amortise=amortise)


def test_two_servers_sci_picks_the_old_one():
    supply = two_servers()
    assert order_of(SCI, supply, 1000.0) == [0, 1]
    assert order_of(OSCI, supply, 1000.0) == order_of(TSCI, supply, 1000.0) == [1, 0]
    embodied = supply.embodied_total_g_h
    one = [0.5]  # one of the two points is in use
    assert filled_g_h(supply, [0, 1], one, 1000.0)[0] + embodied == pytest.approx(1.39)
    assert filled_g_h(supply, [1, 0], one, 1000.0)[0] + embodied == pytest.approx(1.12)
    assert largest(supply, [0, 1], 1000.0)[1] == pytest.approx(24.1, abs=0.05)


def test_embodied_share_as_digitised():
    shares = np.arange(11) / 10
    paper = [48.2, 37.8, 29.7, 23.3, 18.2, 13.8, 10.2, 7.1, 4.4, 2.1, 0.0]
    added = added_by_share(two_servers(), SCI, shares, 1000.0)
    assert np.abs(added.total_pct - paper).max() < 0.3


def test_life_as_digitised():
    paper = [8.0, 13.8, 18.1, 21.4, 24.1, 26.3, 28.1, 29.7, 31.0, 32.1]
    pair = two_servers()
    added = added_by_life(lived(pair), SCI, np.arange(1, 11), 1000.0, today=pair)
    assert np.abs(added.total_pct - paper).max() < 0.3


def test_sorted_anew_the_choice_turns_by_itself():
    """On a dirty grid SCI sees power too, and nothing is added: the paper keeps the choice."""
    added = added_by_share(two_servers(), SCI, [0.05, 0.25, 0.4], 1000.0, sort_anew=True)
    assert added.total_pct[0] == 0.0
    assert added.total_pct[2] == pytest.approx(18.2, abs=0.3)
    anew = added_by_life(lived(two_servers()), SCI, [5, 10], 1000.0)
    assert anew.total_pct.tolist() == [pytest.approx(24.1, abs=0.05), 0.0]


def test_the_740_servers():
    supply = mit("age")
    assert supply.servers.sum() == 740
    assert (supply.servers * supply.threads).sum() == 11_956
    operational, total, at = largest(supply, order_of(SCI, supply, MIT_GRID), MIT_GRID)
    assert operational == pytest.approx(24.4, abs=0.05)
    assert at == pytest.approx(0.585, abs=0.002)
    assert total == pytest.approx(10.9, abs=0.05)
    curve = added_by_utilisation(supply, SCI, MIT_GRID)
    busy = curve.at[curve.operational_pct > 1e-9]
    assert busy.min() >= 0.145
    assert busy.max() <= 0.88
    assert np.isclose(curve.operational_pct[[0, 28, 176, 200]], 0.0).all()  # 0, 14, 88, 100 %


def test_the_740_servers_written_off():
    """Amortisation B: nothing after five years."""
    supply = mit("sunk")
    _, total, _ = largest(supply, order_of(SCI, mit("age"), MIT_GRID), MIT_GRID)
    assert total == pytest.approx(12.5, abs=0.06)


def test_gold_is_second_and_seventh():
    supply = mit("age")
    names = [supply.names[group] for group in order_of(OSCI, supply, MIT_GRID)]
    assert names[1] == "Gold-6326"
    names = [supply.names[group] for group in order_of(SCI, supply, MIT_GRID)]
    assert names[6] == "Gold-6326"


@st.composite
def supplies(draw):
    count = draw(st.integers(1, 6))
    column = lambda low, high: np.array(  # noqa: E731
        draw(st.lists(st.floats(low, high), min_size=count, max_size=count))
    )
    peak = column(10.0, 500.0)
    return Supply(
        names=tuple(f"m{i}" for i in range(count)),
        servers=np.array(draw(st.lists(st.integers(1, 50), min_size=count, max_size=count))),
        threads=np.array(draw(st.lists(st.integers(1, 64), min_size=count, max_size=count))),
        points=column(100.0, 5e4), idle_w=peak * column(0.0, 1.0), peak_w=peak,
        embodied_g_h=column(0.0, 10.0), pue=draw(st.floats(1.0, 2.0)),
    )  # fmt: skip


@given(supplies(), st.sampled_from(sorted(METRICS)), st.floats(1.0, 900.0), st.booleans())
def test_prop_nothing_beats_the_best(supply, name, g_kwh, sleep):
    added = added_by_utilisation(supply, METRICS[name], g_kwh, sleep=sleep)
    assert (added.operational_pct >= -1e-6).all()
    assert (added.total_pct <= added.operational_pct + 1e-6).all()
    ends = added.operational_pct[[0, -1]]
    assert np.allclose(ends, 0.0, atol=1e-6)  # nothing to choose when empty or full


@given(supplies(), st.floats(1.0, 900.0))
def test_prop_the_largest_is_on_the_curve(supply, g_kwh):
    order = order_of(SCI, supply, g_kwh)
    operational, total, at = largest(supply, order, g_kwh)
    curve = added_by_utilisation(supply, SCI, g_kwh)
    assert (curve.operational_pct <= operational + 1e-6).all()
    assert (curve.total_pct <= total + 1e-6).all()
    there = added_by_utilisation(supply, SCI, g_kwh, utilisation=[at])
    assert there.operational_pct[0] == pytest.approx(operational, abs=1e-6)


def test_a_dirty_grid_and_idle_power_take_the_fallacy_away():
    supply = mit("age")
    by_grid = added_by_grid(supply, SCI, [5.0, 10.0, 400.0])
    assert by_grid.operational_pct[0] > by_grid.operational_pct[2]
    by_idle = added_by_idle(supply, SCI, [0.0, 0.5, 1.0], MIT_GRID)
    assert (np.diff(by_idle.operational_pct) < 0).all()
    assert by_idle.operational_pct[2] == 0.0


def test_share_of_the_case_study():
    pair = two_servers()
    embodied = pair.embodied_g().sum()
    share = embodied / (embodied + pair.operational_g(1000.0).sum())
    assert share == pytest.approx(0.287, abs=0.001)


def test_sleepers_are_woken_after_the_efficient_are_full():
    supply = Supply(
        names=("lean", "hungry"), servers=np.array([1, 1]), threads=np.array([4, 4]),
        points=np.array([4.0, 4.0]), idle_w=np.array([10.0, 10.0]),
        peak_w=np.array([20.0, 60.0]), embodied_g_h=np.array([9.0, 0.0]),
    )  # fmt: skip
    orders = [
        [tuple(c) for c in order] for order in candidates_of(TSCI, supply, 100.0, sleep=True)
    ]
    assert [(0, "awake"), (0, "asleep"), (1, "awake"), (1, "asleep")] in orders
    assert [(0, "awake"), (1, "awake"), (0, "asleep"), (1, "asleep")] in orders
    (order,) = candidates_of(SCI, supply, 100.0, sleep=True)
    assert [tuple(c) for c in order] == [(1, "any"), (0, "any")]


@pytest.mark.parametrize("amortise", ["life", "age", "sunk"])
def test_a_life_is_that_of_the_machines(amortise):
    """Another life changes what `age` and `sunk` charge, group by group."""
    fleet = read_fleet("bundled:mit-740")
    curves = curves_of(
        fleet, MIT_GRID, [SCI], year=2024, amortise=amortise, rng=np.random.default_rng(0)
    )
    order = order_of(SCI, mit(amortise), MIT_GRID)
    for years, total in zip(curves.by["life"]["sci"].at, curves.by["life"]["sci"].total_pct):
        groups = tuple(
            msgspec.structs.replace(
                g, machine=msgspec.structs.replace(g.machine, life_years=float(years))
            )
            for g in fleet.groups
        )
        other = supply_of(
            msgspec.structs.replace(fleet, groups=groups), year=2024, amortise=amortise
        )
        assert total == pytest.approx(largest(other, order, MIT_GRID)[1])


@given(supplies(), st.floats(1.0, 900.0))
def test_prop_the_best_metric_adds_nothing_when_servers_sleep(supply, g_kwh):
    added = added_by_utilisation(supply, TSCI, g_kwh, sleep=True)
    assert np.allclose(added.operational_pct, 0.0, atol=1e-9)


@pytest.mark.parametrize("sleep", [False, True])
def test_ranges_hold_what_they_are_of(sleep):
    """Embodied figures with wide, lopsided ranges."""
    groups = tuple(
        MachineGroup(
            machine=Machine(
                name=name, kind="cpu", cores=4, threads=4, score=100.0, score_unit="points",
                idle_w=Estimate.exact(idle), peak_w=Estimate.exact(peak),
                embodied_kg=Estimate(*kg), source={"all": "made up"},
            ),
            count=2, bought=2023,
        )
        for name, idle, peak, kg in (("a", 5.0, 60.0, (14, 15, 400)), ("b", 30.0, 50.0, (1, 30, 31)))
    )  # fmt: skip
    curves = curves_of(
        Fleet(name="x", groups=groups), 20.0, parse_metrics("all"), year=2024, utilisation=0.4,
        sleep=sleep, rng=np.random.default_rng(1),
    )  # fmt: skip
    for name, (operational, _) in curves.at_utilisation.items():
        spread = curves.uncertain[name]
        assert spread.low <= operational <= spread.high
        assert spread.mid == operational
        assert max(curves.by["utilisation"][name].operational_pct) <= curves.worst[name][0] + 1e-9
    assert curves.uncertain["sci"].width > 0


def test_accelerators_stand_in_nodes():
    """Of the usual size, and what is left over in one more."""
    groups = tuple(
        MachineGroup(machine=find_machine(name), count=count, bought=2023)
        for name, count in (("H100", 19), ("A100", 2))
    )
    supply = supply_of(Fleet(name="gpus", groups=groups), year=2024)
    assert supply.names == ("8 x H100", "3 x H100", "2 x A100")
    assert supply.servers.tolist() == [2, 1, 1]
    assert supply.threads.tolist() == [8, 3, 2]
    one = find_machine("H100")
    assert supply.peak_w[0] == 8 * one.peak_w.mid
    assert supply.capacity[:2].sum() == pytest.approx(19 * one.score)
    assert supply.servers[:2] @ supply.embodied_g_h[:2] == pytest.approx(
        19 * one.embodied_kg.mid * 1000 / (5 * 8760)
    )


def test_metrics_by_name():
    assert [metric.name for metric in parse_metrics("sci, oSCI,sci")] == ["sci", "osci"]
    assert len(parse_metrics("all")) == len(METRICS)
    with pytest.raises(ValueError, match="no metric is called 'foo'"):
        parse_metrics("foo")
