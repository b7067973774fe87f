from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.graph import Timeline, WorkGraph
from gnomon.model import attribution
from gnomon.model.attribution import Usage, share_idle
from gnomon.model.carbon import (
    YEAR_H,
    Carbon,
    account_timeline,
    carbon_delay,
    cci,
    draw_w,
    embodied_rate_g_h,
    grid_hours,
    osci,
    power_grams,
    rsci,
    sci,
    tsci,
)
from gnomon.model.machines.machine import Machine, find_machine
from gnomon.model.ranges import Ranges
from gnomon.series import Signal

HOUR_NS = 3600 * 10**9
KIND = "carbon-intensity/average/lifecycle"


def exact(value):
    return Estimate.exact(value)


def grid_of(values, low=None, high=None):
    return Signal.regular(0, HOUR_NS, values, unit="gCO2e/kWh", kind=KIND, low=low, high=high)


# The paper -------------------------------------------------------------------------------------


def test_the_worked_example_of_tsci_is_25_grams():
    usage = Usage(
        start_ns=np.array([0, 0]), end_ns=np.array([1, 1]), units=np.array([10.0, 10.0]),
        group=np.array([1, 0]), capacity=np.array([40.0, 10.0]),
    )  # fmt: skip
    idle = share_idle(usage, np.array([400 / 10, 50 / 5])).jobs
    own = exact(50 / 5 * 10 / 10)
    assert tsci(exact(0.0), own, exact(0.0), exact(idle[0]), 1.0).mid == 25.0


def test_the_pair_of_servers_where_sci_picks_the_wrong_one():
    year, grid = 8.76, 14.0
    embodied, operational = {}, {}
    for name in ("E-2286G", "Gold-6538N"):
        machine = find_machine(name)
        embodied[name] = embodied_rate_g_h(machine).mid * YEAR_H / machine.score
        operational[name] = draw_w(machine).mid * year * grid / machine.score
    a, b = "E-2286G", "Gold-6538N"
    assert [round(embodied[n], 2) for n in (a, b)] == [0.11, 0.45]
    assert [round(operational[n], 2) for n in (a, b)] == [0.83, 0.56]
    metrics = {
        n: (
            sci(exact(operational[n]), exact(embodied[n]), 1.0).mid,
            osci(exact(operational[n]), 1.0).mid,
        )
        for n in (a, b)
    }
    assert metrics[a][0] < metrics[b][0], "SCI takes the old server"
    assert metrics[a][1] > metrics[b][1], "oSCI takes the new one"
    printed = {n: (round(embodied[n], 2), round(operational[n], 2)) for n in (a, b)}
    both = printed[a][0] + printed[b][0]
    assert [round(sum(printed[n]), 2) for n in (a, b)] == [0.94, 1.01]
    totals = [round(printed[n][1] + both, 2) for n in (a, b)]
    assert totals == [1.39, 1.12]
    assert 100 * (totals[0] / totals[1] - 1) == pytest.approx(24.1, abs=0.05)
    exactly = [operational[n] + embodied[a] + embodied[b] for n in (a, b)]
    assert 100 * (exactly[0] / exactly[1] - 1) == pytest.approx(24.1, abs=0.2)


# Amortisation ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "bought", "year", "years"),
    [
        ("life", 2016, 2024, 5), ("age", 2016, 2024, 8), ("age", 2022, 2024, 5),
        ("sunk", 2022, 2024, 5), ("sunk", 2019, 2024, 5), ("age", 0, 2024, 5), ("sunk", 0, 2024, 5),
        ("age", 2030, 2024, 5),
    ],
)  # fmt: skip
def test_over_how_many_years(how, bought, year, years):
    machine = find_machine("Silver-4116")
    rate = embodied_rate_g_h(machine, bought=bought, year=year, how=how).mid
    assert rate == pytest.approx(21180 / (years * 8760))


def test_what_is_past_its_life_is_sunk():
    assert embodied_rate_g_h(find_machine("E5310"), bought=2007, year=2024, how="sunk").high == 0
    with pytest.raises(InputError, match="known are life, age, sunk"):
        embodied_rate_g_h(find_machine("E5310"), how="never")


# Power and grid --------------------------------------------------------------------------------


def test_power_by_load_keeps_its_range():
    machine = Machine(
        name="m", kind="server", cores=1, threads=2, idle_w=Estimate(80, 100, 120),
        peak_w=Estimate(280, 300, 400), embodied_kg=exact(1),
    )  # fmt: skip
    assert draw_w(machine, 0.0) == machine.idle_w
    assert draw_w(machine, 1.0) == machine.peak_w
    assert draw_w(machine, 0.5) == Estimate(180, 200, 260)
    with pytest.raises(InputError, match="between 0 and 1"):
        draw_w(machine, 1.5)


def test_grid_hours_are_exact_across_hours_and_with_ranges():
    grid = grid_of([400, 200, 100], low=[300, 150, 100], high=[500, 250, 100])
    hours = grid_hours(grid, [0, HOUR_NS // 2], [3 * HOUR_NS, 2 * HOUR_NS])
    assert hours.mid.tolist() == [700, 400]
    assert hours.low.tolist() == [550, 300]
    assert hours.high.tolist() == [850, 500]
    assert grid_hours(Estimate(1, 2, 3), [0], [2 * HOUR_NS])[0] == Estimate(2, 4, 6)
    with pytest.raises(InputError, match="outside of the signal"):
        grid_hours(grid, [0], [4 * HOUR_NS])
    with pytest.raises(InputError, match="no value"):
        grid_hours(grid_of([400, np.nan, 100]), [0], [2 * HOUR_NS])


def test_rounding_below_zero_is_zero_at_every_end(monkeypatch):
    areas = iter([[-1e-9, 2.0], [-2e-9, 2.5], [-3e-9, 1.5]])
    monkeypatch.setattr(Signal, "integrate", lambda *_, **__: np.array(next(areas)))
    hours = grid_hours(grid_of([1], low=[1], high=[1]), [0, 0], [1, 1])
    assert (hours.low.tolist(), hours.mid.tolist()) == ([0, 2.0], [0, 2.0])
    assert hours.high.tolist() == [0, 2.0]


@given(
    st.lists(st.tuples(*[st.floats(0, 1e6)] * 3).map(sorted), min_size=1, max_size=6),
    st.lists(st.tuples(*[st.integers(0, 6 * HOUR_NS)] * 2).map(sorted), min_size=1, max_size=6),
)
def test_prop_grid_hours_keep_their_order(hours, spans):
    low, mid, high = np.array(hours).T
    grid, end_ns = grid_of(mid, low=low, high=high), len(hours) * HOUR_NS
    starts, ends = np.minimum(np.array(spans), end_ns - 1).T
    found = grid_hours(grid, starts, ends)
    assert (found.low >= 0).all()
    assert (found.low <= found.mid).all()
    assert (found.mid <= found.high).all()


def test_grams_of_a_power_signal():
    power = Signal.regular(
        0, HOUR_NS, [200, 100], unit="W", kind="power", low=[100, 100], high=[300, 100]
    )
    grid = grid_of([400, 200], low=[300, 100], high=[500, 300])
    assert power_grams(power, grid, 1.5) == Estimate(1.5 * 40, 1.5 * 100, 1.5 * 180)
    assert power_grams(power, exact(100)) == Estimate(20, 30, 40)
    with pytest.raises(InputError, match="outside of the signal"):
        power_grams(power.shift(HOUR_NS), grid)


# Metrics ---------------------------------------------------------------------------------------


def test_the_other_metrics():
    operational, embodied = Ranges.of([10.0, 30.0]), Ranges.of([5.0, 5.0])
    work = np.array([1.0, 2.0])
    assert cci(operational, embodied, work, network_g=5.0).mid.tolist() == [20, 20]
    assert carbon_delay(operational + embodied, np.array([2.0, 1.0])).mid.tolist() == [30, 35]
    shared = rsci(operational, work, 80.0, 40.0) * work
    assert shared.total().mid == 80
    wide = Ranges(np.array([5.0, 15.0]), np.array([10.0, 30.0]), np.array([99.0, 99.0]))
    ranged = (rsci(wide, work, Estimate(60, 80, 90), wide.total()) * work).total()
    assert (ranged.low, ranged.mid, ranged.high) == pytest.approx((60, 80, 90))
    alone = rsci(Estimate(5, 10, 99), 2.0, 80.0, exact(40.0))
    assert alone == exact(10.0)
    with pytest.raises(InputError, match="needs operational carbon"):
        rsci(Ranges.of([0.0]), 1.0, 80.0, 0.0)
    with pytest.raises(InputError, match="above zero"):
        osci(operational, np.array([1.0, 0.0]))


amounts = st.floats(0, 1e6)


@st.composite
def estimates(draw):
    return Estimate(*sorted(draw(st.tuples(amounts, amounts, amounts))))


@given(estimates(), estimates(), estimates(), estimates(), st.floats(1e-3, 1e3))
def test_prop_osci_sci_tsci_in_this_order(operational, embodied, idle_o, idle_m, work):
    o, s = osci(operational, work), sci(operational, embodied, work)
    t = tsci(operational, embodied, idle_o, idle_m, work)
    for end in ("low", "mid", "high"):
        assert getattr(o, end) <= getattr(s, end) <= getattr(t, end)
    for value in (o, s, t):
        assert value.low <= value.mid <= value.high


@given(st.lists(estimates(), min_size=1, max_size=8), estimates(), st.floats(0.1, 10))
def test_prop_columns_say_what_single_estimates_say(parts, factor, number):
    column = Ranges.gather(parts)
    for ours, theirs in (
        (column * factor, [p * factor for p in parts]),
        (column + number, [p + number for p in parts]),
        (column / number, [p / number for p in parts]),
    ):
        for got, want in zip(ours, theirs):
            assert (got.low, got.mid, got.high) == pytest.approx((want.low, want.mid, want.high))
    total = column.total()
    assert total.mid == pytest.approx(sum(p.mid for p in parts))


def test_columns_refuse_what_they_cannot_hold():
    with pytest.raises(InputError, match="row 1"):
        Ranges.of([1.0, -1.0])
    with pytest.raises(InputError, match="one length"):
        Ranges(np.array([1.0]), np.array([1.0, 2.0]), np.array([1.0]))
    with pytest.raises(InputError, match="zero"):
        Ranges.of([1.0]) / Ranges.of([0.0])


# Idle capacity ---------------------------------------------------------------------------------


@st.composite
def usages(draw):
    count = draw(st.integers(1, 12))
    groups = draw(st.integers(1, 4))
    start = draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    length = draw(st.lists(st.integers(0, 30), min_size=count, max_size=count))
    units = draw(
        st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.0]), min_size=count, max_size=count)
    )
    group = draw(st.lists(st.integers(-1, groups - 1), min_size=count, max_size=count))
    capacity = draw(
        st.lists(st.sampled_from([24.0, 30.0, 100.0]), min_size=groups, max_size=groups)
    )
    begin = np.array(start, dtype=np.int64)
    return Usage(
        begin, begin + np.array(length), np.array(units), np.array(group), np.array(capacity)
    )


def slowly(usage, cost, span):
    """Nanosecond by nanosecond."""
    jobs, nobody = np.zeros(usage.units.size), 0.0
    whole = usage.capacity.sum()
    for t in range(*span):
        runs = (usage.start_ns <= t) & (t < usage.end_ns)
        held = np.array([
            usage.units[runs & (usage.group == g)].sum()
            + usage.units[runs & (usage.group < 0)].sum() * c / whole
            for g, c in enumerate(usage.capacity)
        ])  # fmt: skip
        idle = (cost * (1 - held / usage.capacity)).sum()
        if held.sum() > 0:
            jobs += np.where(runs, usage.units * idle / held.sum(), 0.0)
        else:
            nobody += idle
    return jobs, nobody


@given(usages(), st.lists(st.floats(0, 100), min_size=4, max_size=4))
def test_prop_idle_shares_are_those_of_the_slow_way_and_add_up(usage, cost):
    costs = np.array(cost[: usage.capacity.size])
    span = (int(usage.start_ns.min()), int(usage.end_ns.max()))
    if span[0] == span[1]:
        return
    found = share_idle(usage, costs, span_ns=span)
    jobs, nobody = slowly(usage, costs, span)
    assert found.jobs == pytest.approx(jobs, abs=1e-6)
    assert found.nobody[0] == pytest.approx(nobody, abs=1e-6)
    # Shares, and what the jobs hold themselves, are all there is.
    mean = costs.sum() / usage.capacity.sum()
    own = np.where(usage.group < 0, mean, (costs / usage.capacity)[usage.group])
    own = own * usage.units * (usage.end_ns - usage.start_ns)
    everything = costs.sum() * (span[1] - span[0])
    assert own.sum() + found.jobs.sum() + found.nobody[0] == pytest.approx(everything, abs=1e-6)


@given(usages(), st.integers(1, 5))
def test_prop_blocks_do_not_show(usage, edges):
    costs = np.arange(2 * usage.capacity.size).reshape(2, -1) + 1.0
    whole = share_idle(usage, costs, lambda starts, ends: (ends - starts) * (starts + 1.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attribution, "_BLOCK", 1)
        patch.setattr(attribution, "_LEAST_EDGES", edges)
        parts = share_idle(usage, costs, lambda starts, ends: (ends - starts) * (starts + 1.0))
    assert parts.jobs.ravel() == pytest.approx(whole.jobs.ravel(), abs=1e-6)
    assert parts.nobody == pytest.approx(whole.nobody, abs=1e-6)
    assert parts.overfull_ns == whole.overfull_ns


def test_idle_capacity_is_looked_at_in_blocks():
    """A million jobs on many groups would not fit into memory at once."""
    rng = np.random.default_rng(0)
    start = rng.integers(0, 10**12, 4000)
    group = rng.integers(0, 1000, 4000)
    usage = Usage(start, start + 10**9, np.ones(4000), group, np.full(1000, 8.0))
    widths = []
    share_idle(
        usage, np.ones(1000), lambda starts, ends: widths.append(starts.size) or (ends - starts)
    )
    assert max(widths) * np.unique(group).size < 2 * 2**20
    assert sum(widths) == np.unique([start, start + 10**9]).size - 1


def test_more_than_there_is_is_told():
    usage = Usage(
        np.array([0, 5]),
        np.array([10, 8]),
        np.array([6.0, 6.0]),
        np.array([0, 0]),
        np.array([8.0]),
    )
    assert share_idle(usage, np.array([1.0])).overfull_ns == 3
    with pytest.raises(InputError, match="capacity"):
        Usage(np.array([0]), np.array([1]), np.array([1.0]), np.array([0]), np.array([0.0]))
    with pytest.raises(InputError, match="ends before"):
        Usage(np.array([2]), np.array([1]), np.array([1.0]), np.array([0]), np.array([1.0]))


# Timelines -------------------------------------------------------------------------------------


def test_a_timeline_by_device():
    graph = WorkGraph.from_columns(
        ["rank 0/a", "rank 0/b", "rank 1/a", "host"],
        [HOUR_NS, HOUR_NS, HOUR_NS, 2 * HOUR_NS], kind=["kernel", "kernel", "copy", "host"],
    )  # fmt: skip
    # On rank 0 the second half of the first hour is busy twice: it counts once.
    line = Timeline(graph, np.array([0, HOUR_NS // 2, 0, 0]) + 7)
    grid = grid_of([400, 200, 100])
    h100 = find_machine("H100")
    device = lambda lane: None if lane == "host" else lane.partition("/")[0]  # noqa: E731
    answer = account_timeline(line, h100, grid, start_ns=0, device_of=device, pue=2.0)
    assert list(answer) == ["rank 0", "rank 1"]
    zero = answer["rank 0"]
    assert zero.energy_kwh.mid == pytest.approx(2 * (0.7 * 1.5 + 0.07 * 0.5))
    assert zero.operational_g.mid == pytest.approx(2 * (0.7 * (400 + 100) + 0.07 * 100))
    assert zero.embodied_g.mid == pytest.approx(h100.embodied_kg.mid * 1000 / 5 / 8760 * 2)
    assert (zero + answer["rank 1"]).total_g.mid == pytest.approx(
        zero.total_g.mid + answer["rank 1"].total_g.mid
    )
    kernels = account_timeline(line, h100, grid, device_of=device, kinds=["kernel"])
    assert kernels["rank 1"].energy_kwh.mid == pytest.approx(0.07 * 2)
    assert account_timeline(line, h100, exact(0.0))["host"].operational_g.high == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 2 * HOUR_NS), st.integers(0, HOUR_NS)), min_size=1, max_size=6
    ),
    st.floats(0, 500),
)
def test_prop_more_intensity_never_emits_less(spans, grams):
    graph = WorkGraph.from_columns(["gpu"] * len(spans), [length for _, length in spans])
    line = Timeline(graph, np.array([start for start, _ in spans]))
    machine = find_machine("A100")
    first, second = (
        account_timeline(
            line, machine, grid_of([g, 2 * g, g], low=[g / 2, g, g / 2], high=[3 * g] * 3)
        )["gpu"]
        for g in (grams, grams + 1)
    )
    assert isinstance(first, Carbon)
    assert first.operational_g.mid <= second.operational_g.mid
    assert first.operational_g.low <= first.operational_g.mid <= first.operational_g.high
    assert first.embodied_g == second.embodied_g
    whole = line.makespan_ns / HOUR_NS
    assert 0.055 * whole - 1e-9 <= first.energy_kwh.mid <= 0.4 * whole + 1e-9
