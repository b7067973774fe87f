"""Placements over time: what must hold of any, and small ones against every possible one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.jobs.jobs import Jobs
from gnomon.model.machines.machine import Fleet, Machine, MachineGroup, find_machine
from gnomon.model.machines.machine_file import read_fleet
from gnomon.series import Signal
from gnomon.systems.carbon.metric import METRICS, parse_metrics
from gnomon.systems.carbon.place import Demand, demand_of, place_jobs
from gnomon.systems.carbon.place_result import to_result, to_script

HOUR_NS = 3_600 * 10**9
NEVER = np.iinfo(np.int64).max


def machine(name, threads=2, score=100.0, idle=10.0, peak=100.0, kg=50.0):
    return Machine(
        name=name, kind="cpu", cores=threads, threads=threads, score=score, score_unit="points",
        idle_w=Estimate(0.5 * idle, idle, 1.5 * idle), peak_w=Estimate(0.9 * peak, peak, 1.2 * peak),
        embodied_kg=Estimate(0.5 * kg, kg, 2 * kg), source={"all": "made up"},
    )  # fmt: skip


def fleet(*groups):
    return Fleet(name="test", groups=tuple(groups))


def demand(rows):
    """Rows of arrival, hours, cores and slack, in hours."""
    arrival, hours, cores, slack = np.array(rows, dtype=float).T
    arrival_ns = (arrival * HOUR_NS).astype(np.int64)
    length = (hours * HOUR_NS).astype(np.int64)
    return Demand(
        arrival_ns=arrival_ns, cores=cores.astype(np.int64), duration_ns=length,
        deadline_ns=arrival_ns + length + (slack * HOUR_NS).astype(np.int64),
    )  # fmt: skip


def grid_of(values):
    signal = Signal.regular(
        0, HOUR_NS, values, unit="gCO2e/kWh", kind="carbon-intensity/average/lifecycle",
        low=0.8 * np.asarray(values), high=1.5 * np.asarray(values),
    )  # fmt: skip
    return lambda start_ns, end_ns: signal


@st.composite
def cases(draw):
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    groups = [
        MachineGroup(
            machine=machine(
                name, threads=draw(st.integers(2, 4)), score=draw(st.floats(50, 500)),
                idle=draw(st.floats(0, 40)), peak=draw(st.floats(60, 300)),
                kg=draw(st.floats(0, 200)),
            ),
            count=draw(st.integers(1, 3)), bought=draw(st.integers(2008, 2024)),
        )
        for name in names
    ]  # fmt: skip
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(1, 6), st.integers(1, 2), st.integers(0, 9)),
            min_size=1, max_size=12,
        )
    )  # fmt: skip
    values = draw(st.lists(st.floats(5, 900), min_size=24, max_size=24))
    return fleet(*groups), demand(rows), grid_of(values * 60)


@settings(deadline=None, max_examples=40)
@given(cases(), st.booleans(), st.booleans(), st.sampled_from(["life", "age", "sunk"]))
def test_prop_nothing_is_below_the_bound(case, sleep, shift, amortise):
    servers, jobs, grid = case
    found = place_jobs(
        servers, jobs, grid, parse_metrics("all"), year=2024, amortise=amortise, sleep=sleep,
        shift=shift,
    )  # fmt: skip
    for outcome in (*found.outcomes, *found.compared):
        assert outcome.operational_kg.mid >= found.bound_kg - 1e-9
        assert outcome.operational_kg.low <= outcome.operational_kg.mid
        assert outcome.operational_kg.mid <= outcome.operational_kg.high
        operational, total = found.added_pct(outcome)
        assert total >= -1e-6
        placed = outcome.placed
        assert (placed.start_ns >= jobs.arrival_ns).all()
        assert outcome.jobs.sum() == jobs.arrival_ns.size
    embodied = {round(outcome.embodied_kg.mid, 12) for outcome in found.outcomes}
    assert len(embodied) == 1  # it is there, whatever is sorted by
    assert found.best.total_kg.mid == pytest.approx(
        min(o.total_kg.mid for o in (*found.outcomes, *found.compared)), abs=1e-9
    )


def every_choice(servers, jobs, grid, end_ns, last):
    """The least operational carbon of any choice of machines that begins every job at once.

    Choices that end a job later than `last` are left out.
    """
    groups = servers.groups
    mean = [g.machine.score / g.machine.threads for g in groups]
    known = sum(g.count * g.machine.score for g in groups) / sum(
        g.count * g.machine.threads for g in groups
    )
    signal = grid(0, 0)
    hourly = lambda a, b: signal.mean(a, b) * (b - a) / HOUR_NS  # noqa: E731
    best = float("inf")
    slots = [(k, s) for k, g in enumerate(groups) for s in range(g.count)]
    start = int(jobs.arrival_ns.min())
    idle = sum(g.count * g.machine.idle_w.mid for g in groups) * hourly(start, end_ns)
    for choice in itertools.product(slots, repeat=jobs.arrival_ns.size):
        spans = []
        for job, (k, _) in enumerate(choice):
            begin = int(jobs.arrival_ns[job])
            spans.append((begin, begin + round(jobs.duration_ns[job] / (mean[k] / known))))
        if any(end > until for (_, end), until in zip(spans, last.tolist())) or any(
            sum(
                int(jobs.cores[j])
                for j, where in enumerate(choice)
                if where == slot and spans[j][0] <= at < spans[j][1]
            )
            > groups[slot[0]].machine.threads
            for slot in set(choice)
            for at, _ in spans
        ):
            continue
        grams = idle
        for job, (k, _) in enumerate(choice):
            one = groups[k].machine
            share = jobs.cores[job] / one.threads
            grams += (one.peak_w.mid - one.idle_w.mid) * share * hourly(*spans[job])
        best = min(best, grams / 1e6)
    return best


@settings(deadline=None, max_examples=12)
@given(cases().filter(lambda case: case[1].arrival_ns.size <= 4))
def test_prop_no_choice_is_below_the_bound(case):
    """The bound holds for every placement there is."""
    servers, jobs, grid = case
    found = place_jobs(servers, jobs, grid, parse_metrics("all"), year=2024)
    everybody = (*found.outcomes, *found.compared)
    last = np.maximum.reduce([outcome.placed.end_ns for outcome in everybody])
    if not any(outcome.longest_wait_s for outcome in everybody):
        best = every_choice(servers, jobs, grid, found.end_ns, last)
        assert found.bound_kg <= best + 1e-9
        assert best <= found.best.operational_kg.mid + 1e-9


def test_sci_keeps_the_old_ones_busy():
    """The fallacy, over time: half the fleet's work, on a clean grid."""
    rng = np.random.default_rng(1)
    rows = np.column_stack(
        [rng.integers(0, 300, 4000), rng.integers(50, 150, 4000), rng.integers(1, 5, 4000) * 2,
         np.zeros(4000)]
    )  # fmt: skip
    jobs = demand(rows)
    found = place_jobs(
        read_fleet("bundled:mit-740"), jobs, grid_of([10.0] * 2000), parse_metrics("sci,tsci,osci"),
        year=2024, amortise="age",
    )  # fmt: skip
    sci, tsci, osci = found.outcomes
    assert found.added_pct(sci)[0] > 5.0
    assert found.added_pct(osci) == found.added_pct(tsci) == (0.0, 0.0)
    gold = found.supply.names.index("Gold-6326")
    assert sci.core_hours[gold] < 0.5 * osci.core_hours[gold]
    script = to_script(found)
    assert set(script["metrics"]) == {"sci", "tsci", "osci"}
    told = script["metrics"]["sci"]
    assert told["total_kg"] == pytest.approx(told["operational_kg"] + told["embodied_kg"])
    assert len(told["assignments"]) == 4000
    assert told["assignments"][0].keys() == {"job", "machine", "server", "start_s", "end_s"}
    assert any("You sort by SCI" in note and "sort by" in note for note in to_result(found).notes)


def test_energy_by_hand():
    """One job of two hours on half of one server."""
    found = place_jobs(
        fleet(MachineGroup(machine=machine("a", threads=2, idle=10.0, peak=100.0), count=2)),
        demand([[0, 2, 1, 0]]), grid_of([100.0, 300.0, 999.0]), parse_metrics("osci"), year=2024,
    )  # fmt: skip
    outcome = found.outcomes[0]
    assert outcome.energy_kwh.mid == pytest.approx((2 * 10 + 45) * 2 / 1000)
    assert outcome.operational_kg.mid == pytest.approx((2 * 10 + 45) * 400 / 1e6)
    assert outcome.embodied_kg.mid == pytest.approx(2 * 50 * 2 / (5 * 8760))
    slept = place_jobs(
        fleet(MachineGroup(machine=machine("a", threads=2, idle=10.0, peak=100.0), count=2)),
        demand([[0, 2, 1, 0]]), grid_of([100.0, 300.0, 999.0]), parse_metrics("osci"), year=2024,
        sleep=True,
    )  # fmt: skip
    assert slept.outcomes[0].energy_kwh.mid == pytest.approx((10 + 45) * 2 / 1000)


def test_jobs_wait_for_clean_hours():
    values = [500.0, 500.0, 50.0, 50.0, 500.0, 500.0]
    one = fleet(MachineGroup(machine=machine("a"), count=1))
    shifted = place_jobs(
        one, demand([[0, 2, 1, 3]]), grid_of(values), parse_metrics("osci"), year=2024, shift=True
    )
    assert shifted.outcomes[0].placed.start_ns.tolist() == [2 * HOUR_NS]
    assert shifted.outcomes[0].late == 0
    stayed = place_jobs(
        one, demand([[0, 2, 1, 3]]), grid_of(values), parse_metrics("osci"), year=2024
    )
    assert stayed.outcomes[0].placed.start_ns.tolist() == [0]


def test_a_queue_and_late_jobs_are_told():
    one = fleet(MachineGroup(machine=machine("a", threads=2), count=1))
    found = place_jobs(
        one, demand([[0, 2, 2, 0], [0, 2, 2, 0]]), grid_of([100.0] * 9), parse_metrics("osci"),
        year=2024,
    )  # fmt: skip
    outcome = found.outcomes[0]
    assert outcome.late == 1
    assert outcome.longest_wait_s == 7200.0
    assert any("after their deadline" in note for note in to_result(found).notes)


def test_scores_of_one_kind_are_needed():
    mixed = fleet(
        MachineGroup(machine=machine("a"), count=1),
        MachineGroup(machine=machine("b", score=0.0), count=1),
    )
    with pytest.raises(InputError, match="b has no score that the others have"):
        place_jobs(mixed, demand([[0, 1, 1, 0]]), grid_of([1.0] * 9), [METRICS["sci"]], year=2024)


def test_a_job_that_fits_nowhere():
    one = fleet(MachineGroup(machine=machine("a", threads=2), count=1))
    with pytest.raises(InputError, match="takes 3 cores, the largest server has 2"):
        place_jobs(one, demand([[0, 1, 3, 0]]), grid_of([1.0] * 9), [METRICS["sci"]], year=2024)


def one_fleet(pue=1.0, **changes):
    group = MachineGroup(machine=machine("a", threads=2, **changes), count=1, bought=2020)
    return Fleet(name="one", groups=(group,), pue=Estimate.exact(pue))


@pytest.mark.parametrize("sleep", [False, True])
def test_the_bound_is_met_where_there_is_no_choice(sleep):
    """One server, full all the time, on a grid that does not change."""
    found = place_jobs(
        one_fleet(1.5), demand([[0, 4, 2, 0]]), grid_of([200.0] * 9), parse_metrics("osci"),
        year=2024, sleep=sleep,
    )  # fmt: skip
    assert found.outcomes[0].operational_kg.mid == pytest.approx(100 * 4 * 0.2 * 1.5 / 1e3)
    assert found.bound_kg == pytest.approx(found.outcomes[0].operational_kg.mid)
    assert found.utilisation == pytest.approx(1.0)


def test_utilisation_counts_points():
    """A reference thread twice as fast: half of the fleet's points are in use."""
    found = place_jobs(
        one_fleet(), demand([[0, 4, 1, 0]]), grid_of([200.0] * 99), parse_metrics("osci"),
        year=2024, reference=100.0,
    )  # fmt: skip
    outcome = found.outcomes[0]
    assert (outcome.placed.end_ns - outcome.placed.start_ns).tolist() == [8 * HOUR_NS]
    assert found.utilisation == pytest.approx(0.5)


def test_a_job_is_shifted_by_what_it_fits_on():
    """The best machine is too small for it: the one it runs on is slower."""
    groups = (
        MachineGroup(machine=machine("small", threads=2, score=400.0, peak=50.0), count=1),
        MachineGroup(machine=machine("large", threads=8, score=400.0, peak=500.0), count=1),
    )
    found = place_jobs(
        fleet(*groups), demand([[0, 3, 8, 4.0]]), grid_of([500.0] * 6 + [10.0] * 30),
        parse_metrics("osci"), year=2024, shift=True, reference=50.0,
    )  # fmt: skip
    assert found.outcomes[0].late == 0
    assert found.outcomes[0].shifted


def test_a_crowd_is_not_shifted_into_one_hour():
    """Six jobs want the one clean hour of one server: shifted, they would be late."""
    values = [100.0] * 5 + [10.0] + [300.0] * 40
    found = place_jobs(
        one_fleet(), demand([[0, 1, 2, 6.5]] * 6), grid_of(values), parse_metrics("osci"),
        year=2024, shift=True,
    )  # fmt: skip
    alone = place_jobs(
        one_fleet(), demand([[0, 1, 2, 6.5]] * 6), grid_of(values), parse_metrics("osci"),
        year=2024,
    )  # fmt: skip
    assert found.outcomes[0].late <= alone.outcomes[0].late
    assert found.outcomes[0].operational_kg.mid <= alone.outcomes[0].operational_kg.mid + 1e-12
    assert any("were not shifted" in note for note in to_result(found).notes)


def test_a_job_beyond_the_hours_is_named():
    jobs = demand([[0, 1, 1, 0], [1, 30, 1, 2]])
    for shift in (False, True):
        with pytest.raises(InputError, match="job 1 runs beyond the grid's hours"):
            place_jobs(
                one_fleet(), jobs, grid_of([100.0] * 9), parse_metrics("osci"), year=2024,
                shift=shift,
            )  # fmt: skip


def test_a_small_job_does_not_wake_a_large_server():
    groups = (
        MachineGroup(
            machine=machine("large", threads=4, score=800.0, idle=60.0, peak=110.0), count=1
        ),
        MachineGroup(
            machine=machine("small", threads=1, score=100.0, idle=1.0, peak=20.0), count=1
        ),
    )
    found = place_jobs(
        fleet(*groups), demand([[0, 2, 1, 0]]), grid_of([200.0] * 30), parse_metrics("sci,tsci"),
        year=2024, sleep=True,
    )  # fmt: skip
    tsci = found.outcomes[1]
    assert tsci.core_hours.tolist()[0] == 0.0
    assert found.added_pct(found.outcomes[0])[0] > 50.0


def test_where_the_best_emits_nothing():
    groups = (
        MachineGroup(machine=machine("free", idle=0.0, peak=0.0, kg=5e5), count=1),
        MachineGroup(machine=machine("hungry", idle=0.0, peak=100.0, kg=0.0), count=1),
    )
    found = place_jobs(
        fleet(*groups), demand([[0, 2, 1, 0]]), grid_of([200.0] * 9), parse_metrics("sci"),
        year=2024,
    )  # fmt: skip
    assert found.added_pct(found.outcomes[0])[0] == float("inf")
    assert to_script(found)["metrics"]["sci"]["added_operational_pct"] is None
    assert "where none is needed" in to_result(found).notes[0]


def test_threads_in_use_over_time():
    found = place_jobs(
        one_fleet(), demand([[0, 2, 1, 0], [1, 2, 1, 0]]), grid_of([100.0] * 9),
        parse_metrics("osci"), year=2024,
    )  # fmt: skip
    chart = next(chart for chart in to_result(found).charts if chart.title == "Threads in use")
    busy = chart.lines[0]
    shown = {round(x, 2): y for x, y in zip(busy.x, busy.y)}
    assert [y for x, y in shown.items() if x < 0.9] == [50.0] * sum(x < 0.9 for x in shown)
    assert {y for x, y in shown.items() if 1.1 < x < 1.9} == {100.0}
    assert {y for x, y in shown.items() if x > 2.1} == {50.0}


def test_jobs_with_accelerators_need_some():
    with pytest.raises(InputError, match="accelerators, the fleet none"):
        demand_of(gpu_jobs(1), one_fleet())
    boards = Fleet(name="gpus", groups=(MachineGroup(machine=find_machine("H100"), count=8),))
    assert demand_of(gpu_jobs(4), boards).cores.tolist() == [4]


def gpu_jobs(gpus):
    nan = np.array([np.nan])
    return Jobs(
        where="jobs.csv", line=np.array([2]), id=("a",), start_ns=np.array([10**18]),
        end_ns=np.array([10**18 + HOUR_NS]), cores=np.array([4.0]), gpus=np.array([float(gpus)]),
        utilisation=nan, energy_kwh=nan, work=nan, price_usd_kwh=nan,
        deadline_ns=np.array([-1]), machine=("",), gpu=("",),
    )  # fmt: skip
