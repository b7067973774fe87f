"""Energy and carbon of a run, by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from gnomon.decide.cluster import simulate
from gnomon.errors import Infeasible, InputError
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.sim.cluster import Executors, GridSteps
from gnomon.systems.batch.bound import cleanest_mean
from gnomon.systems.batch.measure import Power, measure

S = 10**9


def jobs(count=1, apart_s=0, cpu_s=0):
    stage = Stage(4, {2: Waves(first=[30 * S])}, cpu_ns=cpu_s * S)
    kinds = JobKinds.build({"one": [stage]})
    return BatchJobs.of(kinds, [0] * count, np.arange(count) * apart_s * S)


def grid(*values):
    return GridSteps.known(values, 60 * S)


def test_energy_is_power_times_executor_time():
    run = simulate("fifo", jobs(), Executors(count=2, moving_delay_ns=0))
    got = measure(run, grid(100.0, 200.0), Power(busy_w=1000.0), 2)
    # Two rounds of 30 s on two executors: all in the first minute.
    assert run.end_ns == 60 * S
    assert got.work_s == 120.0
    assert got.energy_kwh == pytest.approx(120 / 3600)
    assert got.carbon_g == pytest.approx(120 / 3600 * 100)
    assert got.jct_mean_s == got.ect_s == 60.0


def test_time_that_is_waited_inside_a_task_costs_no_cpu_energy():
    run = simulate("fifo", jobs(cpu_s=10), Executors(count=2, moving_delay_ns=0))
    got = measure(run, grid(100.0), Power(busy_w=1000.0), 2)
    assert got.cpu_energy_kwh == pytest.approx(got.energy_kwh / 3)
    assert got.cpu_carbon_g == pytest.approx(got.carbon_g / 3)


def test_idle_power_pue_and_starts_add_up():
    plain, own = Power(busy_w=1000.0), Power(busy_w=1000.0, idle_w=100.0, pue=1.5)
    run = simulate("fifo", jobs(2, apart_s=90), Executors(count=2, moving_delay_ns=0))
    base, more = (measure(run, grid(100.0, 100.0, 100.0), power, 2) for power in (plain, own))
    idle_s = 2 * 150 - 240  # two executors for 150 s, 240 s of work
    assert more.energy_kwh == pytest.approx(1.5 * (base.energy_kwh + idle_s * 100 / 3.6e6))
    off = Executors(count=2, moving_delay_ns=0, startup_ns=S, off_after_ns=0)
    started = simulate("fifo", jobs(2, apart_s=90), off)
    assert started.starts == 4
    joules = msgspec.structs.replace(plain, startup_j=3.6e6)
    got = measure(started, grid(*[100.0] * 4), joules, 2)
    assert got.energy_kwh == pytest.approx(240 / 3600 + 4)


def test_a_run_has_to_lie_in_the_hours():
    run = simulate("fifo", jobs(9), Executors(count=1, moving_delay_ns=0))
    with pytest.raises(InputError, match="took 18 hours of the grid and there are 2"):
        measure(run, grid(1.0, 2.0), Power(), 1)


@pytest.mark.parametrize(
    "wrong", [{"busy_w": 0}, {"idle_w": 50.0, "busy_w": 20.0}, {"pue": 0.9}, {"startup_j": -1}],
    ids=str,
)  # fmt: skip
def test_power_is_checked(wrong):
    with pytest.raises(InputError):
        Power(**wrong)


def test_no_schedule_is_cleaner_than_the_bound():
    hours = grid(300.0, 100.0, 200.0, 50.0, 400.0)
    three = jobs(3, apart_s=60)
    run = simulate("fifo", three, Executors(count=2, moving_delay_ns=0), grid=hours)
    own = float(run.weighted.sum() / run.busy_ns.sum())
    same = cleanest_mean(run, three, hours, 2, run.end_ns)
    later = cleanest_mean(run, three, hours, 2, 5 * 60 * S)
    assert later < same <= own
    # Four executor minutes fit into two hours of two: the first job's two into 100 g, then
    # two into 50 g, and two are left for 200 g.
    assert later == pytest.approx((100 + 50 + 200) / 3)
    with pytest.raises(Infeasible):
        cleanest_mean(run, three, hours, 1, run.end_ns)


def test_waiting_inside_a_task_draws_what_an_idle_executor_does():
    run = simulate("fifo", jobs(cpu_s=10), Executors(count=2, moving_delay_ns=0))
    got = measure(run, grid(100.0), Power(busy_w=1000.0, idle_w=100.0), 2)
    # Two executors for a minute, all of it in tasks: 40 s of CPU, 80 s of waiting.
    assert got.energy_kwh == pytest.approx(120 / 3600)
    assert got.cpu_energy_kwh == pytest.approx((40 + 8) / 3600)
    assert (got.busy_kwh, got.busy_g) == pytest.approx((got.energy_kwh, got.carbon_g))


def test_a_job_after_another_could_have_come_earlier():
    kinds = jobs().kinds
    chain = BatchJobs.of(kinds, [0, 0], [0, 0], after=[-1, 0])
    hours = grid(10.0, 500.0)
    run = simulate("fifo", chain, Executors(count=2, moving_delay_ns=0), grid=hours)
    # A faster first job would have let the second into the clean hour.
    assert cleanest_mean(run, chain, hours, 4, run.end_ns) == pytest.approx(10.0)
