from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.machines.embodied import (
    fab_grid,
    logic_kg,
    package_kg,
    storage_kg,
)


def test_a_die_by_hand():
    # 6.98 cm2 x (820 g/kWh x 0.9 kWh/cm2 + 175 g/cm2 + 500 g/cm2) / 0.875
    die = logic_kg(698, 28, fab_g_per_kwh=fab_grid("coal"), fab_yield=0.875, abated=0.95)
    assert die.mid == pytest.approx(6.98 * (820 * 0.9 + 175 + 500) / 0.875 / 1000)
    assert die.is_exact


def test_the_range_is_made_of_grid_gases_and_yield():
    die = logic_kg(100, 7)
    assert die.low == pytest.approx((301 * 2.15 + 200 + 500) / 0.95 / 1000)
    assert die.mid == pytest.approx((583 * 2.15 + 275 + 500) / 0.875 / 1000)
    assert die.high == pytest.approx((820 * 2.15 + 350 + 500) / 0.75 / 1000)


def test_between_nodes_lies_a_straight_line():
    ends = [
        logic_kg(100, node, fab_g_per_kwh=500, fab_yield=1, abated=0.95).mid
        for node in (10, 12, 14)
    ]
    assert ends[1] == pytest.approx((ends[0] + ends[2]) / 2)


def test_memory_and_packages():
    assert storage_kg(36, "ddr3_50nm").mid == pytest.approx(36 * 0.6 / 0.875)
    assert package_kg(19).mid == pytest.approx(19 * 0.15)
    assert storage_kg(1, "nand_10nm").mid > 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: logic_kg(0, 7), "above zero"),
        (lambda: logic_kg(100, 65), "outside of ACT's table"),
        (lambda: logic_kg(100, 7, fab_yield=0), "yield"),
        (lambda: logic_kg(100, 7, fab_yield=1.2), "yield"),
        (lambda: logic_kg(100, 7, fab_g_per_kwh=-1), "zero or more"),
        (lambda: logic_kg(100, 7, abated=0.5), "0.95 to 0.99"),
        (lambda: storage_kg(1, "ddr4_10mm"), "ddr4_10nm"),
        (lambda: storage_kg(-1), "negative"),
        (lambda: fab_grid("atlantis"), "taiwan"),
    ],
    ids=["area", "node", "no-yield", "yield", "grid", "abated", "process", "capacity", "place"],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()


@given(st.floats(1, 1000), st.floats(3, 28), st.floats(0.1, 1.0), st.floats(0, 1000))
def test_prop_more_area_and_a_dirtier_grid_emit_more(area, node, good, grid):
    least = logic_kg(area, node, fab_g_per_kwh=grid, fab_yield=good)
    assert 0 < least.low <= least.mid <= least.high
    assert logic_kg(2 * area, node, fab_g_per_kwh=grid, fab_yield=good).mid == pytest.approx(
        2 * least.mid
    )
    assert logic_kg(area, node, fab_g_per_kwh=grid + 1, fab_yield=good).mid > least.mid
    wide = logic_kg(area, node, fab_g_per_kwh=Estimate(0, grid, 2000), fab_yield=good)
    assert wide.low <= least.low
    assert wide.high >= least.high


@pytest.mark.data
def test_the_bill_of_a_dell_r740(public_data):
    """ACT's own totals for its bill of materials, part by part."""
    bill = public_data / "carbon" / "act-models" / "act" / "boms" / "dellr740.yaml"
    totals: dict[str, float] = {}
    for name, part in yaml.safe_load(bill.read_text())["silicon"].items():
        kind = ".".join(name.split(".")[:2]).rstrip("0123456789")
        packed = package_kg(part.get("n_ics", 0)).mid
        good = part.get("fab_yield", 0.875)
        if "area" in part:
            area = float(part["area"].split()[0]) * 100
            node = float(part["process"].removesuffix("nm"))
            made = logic_kg(
                area,
                node,
                fab_g_per_kwh=fab_grid(part["fab_ci"]),
                fab_yield=good,
                abated=part["gpa"] / 100,
            ).mid
        else:
            made = storage_kg(
                float(part["capacity"].split()[0]), part["process"], fab_yield=good
            ).mid
        totals[kind] = totals.get(kind, 0.0) + made + packed
    assert totals["dram.main"] == pytest.approx(330.4285714285714)
    assert totals["ssd.main"] == pytest.approx(8 * (136.0457142857143 + 1.95))
    assert totals["ssd.secondary"] == pytest.approx(62.75 + 19 * 0.15, abs=0.01)
    assert totals["cpu.main"] == pytest.approx(23.143405714285716, abs=0.5)


@pytest.mark.data
def test_the_tables_are_those_of_act(public_data):
    models = public_data / "carbon" / "act-models" / "act" / "models"
    energy = yaml.safe_load((models / "logic" / "epa.yaml").read_text())
    for node, text in energy.items():
        at = float(node.removesuffix("nm"))
        step = (
            logic_kg(100, at, fab_g_per_kwh=1000, fab_yield=1).mid
            - logic_kg(100, at, fab_g_per_kwh=0, fab_yield=1).mid
        )
        assert step == pytest.approx(float(text.split()[0])), node
    for process, text in yaml.safe_load((models / "dram" / "dram_hynix.yaml").read_text()).items():
        assert storage_kg(1, process, fab_yield=1).mid == pytest.approx(
            float(text.split()[0]) / 1000
        )
