from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.jobs.jobs import Jobs
from gnomon.ingest.metrics.power_series import PowerSeries, read_power_series
from gnomon.model.machines.machine import Fleet, Machine, MachineGroup, find_machine
from gnomon.series import Signal
from gnomon.systems.carbon import metric
from gnomon.systems.carbon.accounts import holdings
from gnomon.systems.carbon.accounts.account import METRICS, account_jobs
from gnomon.systems.carbon.accounts.account_power import account_power, fill_power
from gnomon.systems.carbon.accounts.account_result import to_result, to_script
from gnomon.systems.carbon.accounts.activity import read_activity

HOUR_NS = 3600 * 10**9
KIND = "carbon-intensity/average/lifecycle"


def a_machine(name="m", **changes):
    fields = dict(
        name=name,
        kind="server",
        cores=8,
        threads=16,
        idle_w=Estimate(90, 100, 110),
        peak_w=Estimate(280, 300, 340),
        embodied_kg=Estimate(500, 1000, 1500),
        life_years=4.0,
    )
    return Machine(**(fields | changes))


def a_fleet(*groups, pue=1.0):
    groups = groups or (MachineGroup(machine=a_machine(), count=2, bought=2020),)
    pue = pue if isinstance(pue, Estimate) else Estimate.exact(pue)
    return Fleet(groups=tuple(groups), pue=pue, name="test")


def jobs_of(*rows, **columns):
    """Rows of start and end in hours and cores; other columns by name."""
    count = len(rows)
    unknown = np.full(count, np.nan)
    fields = dict(
        where="jobs.csv",
        line=np.arange(2, count + 2),
        id=tuple(f"j{i}" for i in range(count)),
        start_ns=np.array([round(start * HOUR_NS) for start, _, _ in rows], dtype=np.int64),
        end_ns=np.array([round(end * HOUR_NS) for _, end, _ in rows], dtype=np.int64),
        cores=np.array([float(cores) for *_, cores in rows]),
        gpus=np.zeros(count),
        utilisation=unknown,
        energy_kwh=unknown,
        work=unknown,
        price_usd_kwh=unknown,
        deadline_ns=np.full(count, -1),
        machine=("",) * count,
        gpu=("",) * count,
    )
    return Jobs(
        **(
            fields
            | {k: np.array(v) if k not in ("machine", "gpu") else v for k, v in columns.items()}
        )
    )


def grid(values=(400, 200, 100, 50), **ends):
    return Signal.regular(0, HOUR_NS, values, unit="gCO2e/kWh", kind=KIND, **ends)


# By hand ---------------------------------------------------------------------------------------


def test_a_job_by_hand():
    found = account_jobs(jobs_of((0.5, 2, 8), utilisation=[0.5]), a_fleet(pue=2.0), grid())
    kilowatts = 8 / 16 * (0.5 * 100 + 0.5 * 300) / 1000
    assert found.energy_kwh[0].mid == pytest.approx(2 * kilowatts * 1.5)
    assert found.operational_g[0].mid == pytest.approx(2 * kilowatts * (0.5 * 400 + 200))
    assert found.embodied_g[0].mid == pytest.approx(1e6 / (4 * 8760) * 8 / 16 * 1.5)
    idle = 2 * (3 / 4) * 0.2 * (0.5 * 400 + 200)  # three quarters of two servers, with PUE
    assert found.idle_operational_g[0].mid == pytest.approx(idle)
    assert found.idle_embodied_g[0].mid == pytest.approx(3 * found.embodied_g[0].mid)
    low, high = found.operational_g[0].low, found.operational_g[0].high
    assert low == pytest.approx(found.operational_g[0].mid * 185 / 200)
    assert high == pytest.approx(found.operational_g[0].mid * 225 / 200)
    assert found.metric("sci")[0].mid == pytest.approx(found.total_g[0].mid)
    assert found.metric("cdp")[0].mid == pytest.approx(found.total_g[0].mid * 1.5 * 3600)


def test_amortisation_by_age_and_sunk():
    jobs, fleet = (
        jobs_of((0, 1, 16)),
        a_fleet(MachineGroup(machine=a_machine(), count=1, bought=2016)),
    )
    by = {
        how: account_jobs(jobs, fleet, grid(), amortise=how, year=2024)
        for how in ("life", "age", "sunk")
    }
    assert by["age"].embodied_g[0].mid == pytest.approx(by["life"].embodied_g[0].mid / 2)
    assert by["sunk"].embodied_g[0].high == 0
    unsaid = account_jobs(jobs, fleet, grid(), year=2024)
    assert unsaid.embodied_g[0] == by["age"].embodied_g[0]
    assert unsaid.amortise == "age"
    assert not any("count as new" in note for note in unsaid.notes)
    # These hours are of 1970: whoever gives no year is told that nothing has aged.
    undated = account_jobs(jobs, fleet, grid())
    assert "The year is 1970, and machines were bought in 2016: they count as new" in " ".join(
        undated.notes
    )
    # CCI is about the machine's life, however it is written off.
    assert by["sunk"].metric("cci")[0].mid == pytest.approx(by["life"].metric("sci")[0].mid)


def test_named_machines_and_accelerators():
    fleet = a_fleet(
        MachineGroup(
            machine=a_machine("small", idle_w=Estimate.exact(0), peak_w=Estimate.exact(160)),
            count=1,
        ),
        MachineGroup(
            machine=a_machine("large", idle_w=Estimate.exact(0), peak_w=Estimate.exact(320)),
            count=1,
        ),
        MachineGroup(machine=find_machine("A100"), count=4),
    )
    jobs = jobs_of(
        (0, 1, 1),
        (0, 1, 1),
        (0, 1, 1),
        (0, 1, 1),
        gpus=[0, 0, 0, 2],
        machine=("small", "Large", "", "a100"),
    )
    found = account_jobs(jobs, fleet, grid())
    assert found.energy_kwh.mid[:3] == pytest.approx([0.010, 0.020, 0.015])
    assert found.energy_kwh.mid[3] == pytest.approx(0.015 + 0.8)
    years = 2 * find_machine("A100").embodied_kg.mid * 1000 / 5 / 8760
    assert found.embodied_g.mid[3] == pytest.approx(found.embodied_g.mid[2] + years)


def test_a_model_bought_twice_is_shared_by_size():
    machine = a_machine("twin")
    fleet = a_fleet(
        MachineGroup(machine=machine, count=3, bought=2010),
        MachineGroup(machine=machine, count=1, bought=2024),
    )
    found = account_jobs(
        jobs_of((0, 1, 4), machine=("twin",)), fleet, grid(), amortise="sunk", year=2024
    )
    new = 1e6 / (4 * 8760) / 16
    assert found.embodied_g[0].mid == pytest.approx(new * 1)


def test_measured_energy_goes_before_the_model():
    found = account_jobs(
        jobs_of((0, 2, 16), energy_kwh=[0.5]), a_fleet(pue=Estimate(1, 1.5, 2)), grid()
    )
    assert found.energy_kwh[0] == Estimate(0.5, 0.75, 1.0)
    assert found.operational_g[0].mid == pytest.approx(0.75 * 300)
    alone = account_jobs(jobs_of((0, 2, 0), energy_kwh=[0.5]), None, grid())
    assert alone.operational_g[0].mid == pytest.approx(150)
    assert alone.embodied_g[0].high == 0
    assert alone.fleet_g is None
    assert "embodied carbon and idle capacity are not counted" in alone.notes[-1]


def test_price_work_and_a_report():
    jobs = jobs_of((0, 1, 4), (1, 2, 4), work=[10, 20], price_usd_kwh=[0.5, np.nan])
    found = account_jobs(
        jobs, a_fleet(), grid(), price_usd_kwh=0.1, reported_kg=Estimate.exact(7.0)
    )
    assert found.cost_usd.mid == pytest.approx(found.energy_kwh.mid * [0.5, 0.1])
    assert found.work_unit == "unit of work"
    assert found.metric("osci").mid == pytest.approx(found.operational_g.mid / [10, 20])
    assert (found.metric("rsci") * found.work).total().mid == pytest.approx(7000)
    assert account_jobs(jobs_of((0, 1, 4)), a_fleet(), grid()).cost_usd is None


@pytest.mark.parametrize("reported", [None, Estimate(6.0, 7.0, 9.0)], ids=["fleet", "report"])
def test_rsci_adds_up_to_the_report_with_its_range(reported):
    found = account_jobs(
        jobs_of((0, 1, 4), (1, 2, 8), work=[10, 20]), a_fleet(), grid(low=[9] * 4, high=[900] * 4),
        reported_kg=reported,
    )  # fmt: skip
    told = found.fleet_g if reported is None else reported * 1000.0
    total = (found.metric("rsci") * found.work).total()
    assert (total.low, total.mid, total.high) == pytest.approx((told.low, told.mid, told.high))


# What holds always -----------------------------------------------------------------------------

spans = st.tuples(st.integers(0, 30), st.integers(1, 15), st.sampled_from([0.5, 1, 3]))


@given(
    st.lists(spans, min_size=1, max_size=8),
    st.lists(st.floats(0, 800), min_size=4, max_size=4),
    st.booleans(),
)
def test_prop_tsci_over_all_jobs_is_the_fleets_total(rows, values, spread):
    fleet = a_fleet(
        MachineGroup(machine=a_machine("a"), count=2), MachineGroup(machine=a_machine("b", threads=32, embodied_kg=Estimate.exact(300)), count=1),
        pue=1.2,
    )  # fmt: skip
    machine = tuple("" if spread else "ab"[i % 2] for i in range(len(rows)))
    jobs = jobs_of(*((s / 12, (s + n) / 12, c) for s, n, c in rows), machine=machine)
    found = account_jobs(
        jobs, fleet, grid(values, low=[v / 2 for v in values], high=[2 * v for v in values])
    )
    start, end = int(jobs.start_ns.min()), int(jobs.end_ns.max())
    embodied = (2 * 1e6 + 3e5) / (4 * 8760) * (end - start) / HOUR_NS
    idle = 1.2 * 0.3 * found.intensity.integrate(start, end, unit="gCO2e h/kWh")
    # Idle power runs all the time; load comes on top of it: peak 300 W of 16 or 32 threads.
    hours = found.intensity.integrate(jobs.start_ns, jobs.end_ns, unit="gCO2e h/kWh")
    threads = np.array([{"": 64, "a": 16, "b": 32}[m] for m in machine])
    peaks = np.array([{"": 600, "a": 200, "b": 200}[m] for m in machine])
    dynamic = (1.2e-3 * jobs.cores * peaks / threads * hours).sum()
    tsci = (found.metric("tsci") * found.work).total()
    assert tsci.mid + found.nobody_g.mid == pytest.approx(embodied + idle + dynamic, rel=1e-9)
    assert found.fleet_g.mid == pytest.approx(embodied + idle + dynamic, rel=1e-9)
    for name in METRICS:
        if name != "rsci" or found.operational_g.mid.sum() > 0:
            values_of = found.metric(name)
            assert (values_of.low <= values_of.mid).all()
            assert (values_of.mid <= values_of.high).all()
    assert (found.metric("osci").mid <= found.metric("sci").mid).all()
    assert (found.metric("sci").mid <= found.metric("tsci").mid + 1e-12).all()


@given(st.lists(spans, min_size=1, max_size=5), st.floats(0, 500), st.floats(0, 500))
def test_prop_a_dirtier_grid_never_emits_less(rows, first, more):
    jobs = jobs_of(*((s / 12, (s + n) / 12, c) for s, n, c in rows))
    clean, dirty = (account_jobs(jobs, a_fleet(), grid([g] * 4)) for g in (first, first + more))
    assert (clean.operational_g.mid <= dirty.operational_g.mid).all()
    assert (clean.embodied_g.mid == dirty.embodied_g.mid).all()


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        (jobs_of((0, 1, 1), (3, 5, 1)), r"jobs\.csv line 3: the job runs from 1970-01-01 03:00 to 1970-01-01 05:00, and the signal"),
        (jobs_of((0, 1, 1), (-1, 1, 1)), r"jobs\.csv line 3: the job runs from 1969"),
        (jobs_of((0, 2, 16), energy_kwh=[0.1]), r"jobs\.csv line 2: its measured power of 50 W is below the 90 W"),
        (jobs_of((1, 1, 1), energy_kwh=[0.1]), "energy in no time"),
        (jobs_of((0, 1, 1), gpus=[2]), "the job holds 2 accelerators, and the fleet has none"),
        (jobs_of((0, 1, 1), machine=("abacus",)), "no machine of the fleet is called 'abacus'; there are m"),
        (jobs_of((0, 1, 1), (0, 1, 1), work=[1, np.nan]), r"line 3: work is missing"),
    ],
    ids=["late", "early", "below-idle", "no-time", "gpus", "machine", "work"],
)  # fmt: skip
def test_a_row_that_cannot_be_is_named(jobs, words):
    with pytest.raises(InputError, match=words):
        account_jobs(jobs, a_fleet(), grid())


def test_a_gap_in_the_signal_names_the_row():
    with pytest.raises(
        InputError, match=r"line 3: the job runs while the signal has no value: .*--fill hold"
    ):
        account_jobs(jobs_of((0, 1, 1), (0.5, 2, 1)), a_fleet(), grid([400, np.nan, 100]))
    assert (
        account_jobs(jobs_of((0, 1, 1)), a_fleet(), grid([400, np.nan, 100])).operational_g[0].mid
        > 0
    )


def test_no_jobs():
    with pytest.raises(InputError, match=r"jobs\.csv: there is no job"):
        account_jobs(jobs_of(), a_fleet(), grid())
    with pytest.raises(InputError, match="there is no power"):
        account_power([], a_fleet(), grid())


def test_names_are_looked_up_once(monkeypatch):
    """Many models in many groups: the work grows with names and groups, not with their product."""
    asked = []
    plain = holdings._plain
    monkeypatch.setattr(holdings, "_plain", lambda name: asked.append(name) or plain(name))
    fleet = a_fleet(*(MachineGroup(machine=a_machine(f"m{i}"), count=1) for i in range(40)))
    names = tuple(f"M-{i % 40}" for i in range(200))
    found = account_jobs(jobs_of(*[(0, 1, 1)] * 200, machine=names), fleet, grid())
    assert found.energy_kwh.mid == pytest.approx(np.full(200, 300 / 16 / 1000))
    assert len(asked) <= 4 * 40


def test_no_machines_and_no_energy():
    with pytest.raises(
        InputError, match="line 2: the job has no measured energy, and no machines"
    ):
        account_jobs(jobs_of((0, 1, 1)), None, grid())
    with pytest.raises(InputError, match="between 0 and 1"):
        account_jobs(jobs_of((0, 1, 1)), a_fleet(), grid(), utilisation=2)


def test_more_than_the_fleet_has_is_said():
    found = account_jobs(jobs_of((0, 1, 40), (1, 2, 1)), a_fleet(), grid())
    assert any(
        "50 % of the time jobs held more than the fleet has" in note for note in found.notes
    )


# Power series ----------------------------------------------------------------------------------


def power_file(
    tmp_path, metric="kepler_container_joules_total", values=(0, 36000, 72000), step=1800, **labels
):
    rows = [
        {
            "metric": {"__name__": metric, "pod_name": pod, **labels},
            "values": [[i * step, str(v * scale)] for i, v in enumerate(values)],
        }
        for pod, scale in (("a", 1), ("b", 3))
    ]
    file = tmp_path / "power.json"
    file.write_text(
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}})
    )
    return file


def test_measured_power(tmp_path):
    series = read_power_series(power_file(tmp_path))
    found = account_power(series, a_fleet(pue=2.0), grid(), "power.json")
    assert found.names == ("a", "b")
    assert found.energy_kwh.mid == pytest.approx([0.04, 0.12])
    assert found.operational_g.mid == pytest.approx([16, 48])
    assert found.embodied_g.total().mid == pytest.approx(2 * 1e6 / (4 * 8760))
    assert found.embodied_g.mid[1] == pytest.approx(3 * found.embodied_g.mid[0])
    assert account_power(series, None, grid()).embodied_g.total().high == 0
    with pytest.raises(InputError, match=r"power\.json a: the job runs from"):
        account_power(series, None, grid().shift(HOUR_NS), "power.json")


def test_series_of_one_name_add_up_and_are_named_once(monkeypatch):
    asked = []
    name = PowerSeries.name.fget
    monkeypatch.setattr(PowerSeries, "name", property(lambda one: asked.append(0) or name(one)))
    series = [
        PowerSeries(
            "x_watts", {"pod": f"p{i % 20}"},
            Signal.constant(1000.0, i * 60 * 10**9, HOUR_NS + i * 60 * 10**9, unit="W", kind="power"),
            0, False,
        )
        for i in range(40)
    ]  # fmt: skip
    found = account_power(series, None, grid())
    assert found.names == tuple(f"p{i}" for i in range(20))
    assert found.energy_kwh.mid == pytest.approx(np.full(20, 2.0))
    assert found.start_ns.tolist() == [i * 60 * 10**9 for i in range(20)]
    assert found.end_ns.tolist() == [HOUR_NS + (i + 20) * 60 * 10**9 for i in range(20)]
    assert len(asked) == len(series)


def test_a_host_below_idle_and_a_gap(tmp_path):
    hosts = read_power_series(
        power_file(tmp_path, "scaph_host_power_microwatts", (1e8, 8e7, 1e8), 60)
    )
    with pytest.raises(InputError, match="h a: 80 W at 1970-01-01 00:01 is below the 90 W"):
        account_power(hosts, a_fleet(), grid(), "h")
    file = tmp_path / "g"
    file.write_text("\n".join(f"x_watts 100 {t}" for t in (0, 60, 120, 240)))
    broken = read_power_series(file)
    with pytest.raises(InputError, match="no power from"):
        account_power(broken, None, grid())
    filled, notes = fill_power(broken, "hold")
    assert account_power(filled, None, grid()).energy_kwh[0].mid == pytest.approx(
        100 * 300 / 3.6e6
    )
    assert "Filled 1 gaps" in notes[0]


# Files and results -----------------------------------------------------------------------------


def test_files_are_told_apart(tmp_path):
    slurm = tmp_path / "a.txt"
    slurm.write_text("JobID|Start|End|NCPUS\n1|2024-01-05|2024-01-06|4\n")
    table = tmp_path / "b.txt"
    table.write_text("start,duration,cores\n0,1,1\n")
    assert read_activity(slurm).id == ("1",)
    assert read_activity(table).id == ("2",)
    assert isinstance(read_activity(power_file(tmp_path)), list)


def test_a_result_has_what_was_promised():
    found = account_jobs(jobs_of((0, 1, 4), (1, 2, 4)), a_fleet(), grid(), price_usd_kwh=0.2)
    names = metric.parse_names("all", METRICS)
    result = to_result(found, names, "gnomon carbon account jobs.csv", top=1)
    assert result.figure("total_kg").number == pytest.approx(found.total_g.total().mid / 1000)
    assert result.figure("cost_usd").number == pytest.approx(found.energy_kwh.total().mid * 0.2)
    assert len(result.table("Jobs")) == 1
    assert len(result.table("Metrics")) == len(METRICS)
    told = to_script(found, names)
    assert [job["id"] for job in told["jobs"]] == ["j0", "j1"]
    for name in (*names, "energy_kwh", "operational_g", "embodied_g", "total_g"):
        value = told["jobs"][0][name]
        assert value["low"] <= value["mid"] <= value["high"]
    with pytest.raises(InputError, match="known are sci"):
        metric.parse_names("sci,foo", METRICS)


def test_every_metric_has_one_title_wherever_it_is_shown():
    assert set(METRICS) | set(metric.METRICS) == set(metric.TITLES)
    assert [one.title for one in metric.METRICS.values()] == [
        metric.TITLES[name] for name in metric.METRICS
    ]
    shown = to_result(account_jobs(jobs_of((0, 1, 4)), a_fleet(), grid()), ["rsci", "cci"])
    assert list(shown.table("Metrics")["metric"]) == ["rSCI", "CCI"]
    with pytest.raises(InputError, match="fastest is no metric of this command; known are sci"):
        metric.parse_names("fastest", METRICS)
    with pytest.raises(InputError, match="CCI is no metric of this command; known are sci"):
        metric.parse_metrics("cci")


def test_rsci_is_left_out_where_there_is_nothing_to_share_by():
    found = account_jobs(jobs_of((0, 1, 4)), a_fleet(), grid([0, 0, 0, 0]))
    shown = to_result(found, metric.parse_names("all", METRICS))
    assert "rSCI" not in list(shown.table("Metrics")["metric"])
    assert any("rSCI is left out" in note for note in shown.notes)
    assert "rsci" not in to_script(found, metric.parse_names("all", METRICS))["jobs"][0]
    with pytest.raises(InputError, match="rSCI needs operational carbon"):
        to_result(found, ["rsci"])
