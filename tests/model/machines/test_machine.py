from __future__ import annotations

import statistics

import pytest

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.boavizta import read_boavizta
from gnomon.model.accelerator.gpu import find_gpu, gpu_names
from gnomon.model.machines.embodied import logic_kg
from gnomon.model.machines.machine import (
    Fleet,
    Machine,
    MachineGroup,
    as_figure,
    find_machine,
    machine_names,
)


def a_machine(**changes):
    fields = dict(
        name="m",
        kind="server",
        cores=4,
        threads=8,
        idle_w=Estimate.exact(50),
        peak_w=Estimate.exact(100),
        embodied_kg=Estimate(100, 200, 400),
    )
    return Machine(**(fields | changes))


@pytest.mark.parametrize("name", machine_names())
def test_every_machine_is_found_and_says_where_its_figures_come_from(name):
    machine = find_machine(name)
    assert machine.name == name
    for field in ("idle_w", "peak_w", "embodied_kg"):
        assert machine.source_of(field), field
    assert machine.embodied_kg.low > 0
    assert machine.score == 0 or machine.score_unit
    for alias in machine.aliases:
        assert find_machine(alias) is machine


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Intel(R) Xeon(R) Silver 4216 CPU @ 2.10GHz", "Silver-4216"),
        ("silver 4216", "Silver-4216"),
        ("Intel Xeon E5-2640 v4", "E5-2640v4"),
        ("AMD EPYC 9334 32-Core Processor", "EPYC-9334"),
        ("EPYC 9334", "EPYC-9334"),
        ("AMD Ryzen Threadripper PRO 5965WX 24-Cores", "5965WX"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("rack server", "server"),
    ],
)
def test_names_as_people_and_machines_write_them(text, name):
    assert find_machine(text).name == name


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(InputError, match="did you mean EPYC-9334"):
        find_machine("EPYC 9343")
    with pytest.raises(InputError, match="known are Silver-4216"):
        find_machine("abacus")


def test_the_papers_power_model_is_said():
    silver = find_machine("Silver-4216")
    assert silver.kind == "cpu"
    assert silver.idle_w.mid == 0
    assert "nothing at idle" in silver.source_of("idle_w")
    assert find_machine("E-2286G").peak_w.mid == 95
    assert "90 W" in find_machine("E-2286G").source_of("peak_w")


@pytest.mark.parametrize(
    ("name", "embodied", "operational"),
    [
        ("E-2486", 0.08, 0.47),
        ("EPYC-9334", 0.23, 0.39),
        ("5965WX", 0.15, 0.51),
        ("W9-3495X", 0.25, 0.46),
    ],
)
def test_derived_machines_give_back_what_they_were_derived_from(name, embodied, operational):
    machine = find_machine(name)
    assert machine.peak_w.mid * 8.76 * 14 / machine.score == pytest.approx(operational, abs=5e-5)
    assert machine.embodied_kg.mid * 1000 / 5 / machine.score == pytest.approx(embodied, rel=0.01)
    assert "derived" in machine.source_of("embodied_kg")
    assert not machine.embodied_kg.is_exact


def test_accelerators_have_the_power_of_their_catalogue_and_the_carbon_of_their_dies():
    h100 = find_machine("H100")
    assert h100.peak_w.mid == find_gpu("H100").power_w
    assert h100.kind == "accelerator"
    memory = 80 * 1.073741824 * 0.065 / 0.875
    assert h100.embodied_kg.mid == pytest.approx(logic_kg(814, 5).mid + memory + 6 * 0.15)
    assert "Silicon only" in h100.source_of("embodied_kg")
    assert {name for name in gpu_names() if name != "cpu"} <= set(machine_names())


@pytest.mark.data
def test_the_class_of_servers_is_that_of_the_sheets(public_data):
    products = read_boavizta(public_data / "carbon" / "boavizta-embodied" / "boavizta-data-us.csv")
    servers = [p for p in products if p.subcategory == "Server"]
    making = [p.embodied_kg.mid for p in servers if p.embodied_kg is not None]
    power = [p.mean_w for p in servers if p.mean_w]
    known = find_machine("server")
    for figure, values in ((known.embodied_kg, making), (known.peak_w, power)):
        ends = (min(values), statistics.median(values), max(values))
        assert (figure.low, figure.mid, figure.high) == pytest.approx(ends, abs=0.06)
    assert len(making) == 48


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peak_w": Estimate.exact(40)}, "peak_w of 40 W is below idle_w of 50 W"),
        ({"peak_w": Estimate(45, 60, 70)}, "at the low end"),
        ({"embodied_kg": Estimate(-1, 0, 1)}, "embodied_kg cannot be negative"),
        ({"threads": -1}, "threads"),
        ({"score": float("nan")}, "score"),
        ({"life_years": 0}, "life_years"),
        ({"life_years": float("inf")}, "life_years"),
    ],
    ids=["peak", "peak-low", "embodied", "threads", "score", "life", "endless"],
)
def test_what_cannot_be_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        a_machine(**changes)


def test_a_fleet_adds_up():
    fleet = Fleet(
        groups=(
            MachineGroup(machine=a_machine(score=10.0), count=3, bought=2020),
            MachineGroup(machine=find_machine("A100"), count=2),
        ),
        pue=Estimate(1.1, 1.2, 1.3),
    )
    assert (fleet.servers, fleet.threads, fleet.cores, fleet.accelerators) == (5, 24, 12, 2)
    assert fleet.embodied_kg.high == pytest.approx(
        3 * 400 + 2 * find_machine("A100").embodied_kg.high
    )
    assert a_machine(score=10.0).points_per_thread == 1.25
    with pytest.raises(InputError, match="at least one group"):
        Fleet(groups=())
    with pytest.raises(InputError, match="PUE"):
        Fleet(groups=fleet.groups, pue=Estimate.exact(0.9))
    with pytest.raises(InputError, match="1 or more"):
        MachineGroup(machine=a_machine(), count=0)


@pytest.mark.parametrize(
    "value", ["120", None, [1, 2], [3, 2, 1], True, [1, "2", 3], float("nan")]
)
def test_what_is_no_figure(value):
    with pytest.raises(InputError, match="idle"):
        as_figure(value, "idle")
