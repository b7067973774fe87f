"""Searches over layouts: complete, the same anywhere, ranked by what was asked."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import Infeasible, InputError
from gnomon.model.accelerator.gpu import Gpu
from gnomon.systems.training.prediction.analytic.style import find_style
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.assemble import assemble
from gnomon.systems.training.prediction.memory import Memory, stage_memory
from gnomon.systems.training.prediction.program import Piece, Program
from gnomon.systems.training.prediction.search import (
    Space,
    enumerate_layouts,
    pareto_front,
    quick_step,
    search,
)
from gnomon.systems.training.prediction.source import Modelled
from tests.systems.training.prediction.programs import (
    Machine,
    configuration,
    even_program,
    machine,
    random_program,
)

GPU = Gpu(
    name="test", memory_gib=10.0, memory_gb_s=2000.0, tflops={"bf16": 300.0}, sms=100,
    power_w=400.0, idle_w=100.0, link="wire", node_gpus=8, source="made up", price_usd_h=2.0,
)  # fmt: skip
MODEL = configuration(layers=8, heads=8, hidden=64)


class Even:
    """Layers that take a fixed time over tp, and memory that grows with what a rank holds."""

    style = find_style("torch")

    def collectives(self, c: Configuration) -> Machine:
        return machine(100.0, 10.0)

    def program(self, c: Configuration) -> Program:
        program = even_program(c, 1e6 * c.batch / c.tp, 1e3, boundary_bytes=1e6 * c.batch)
        talk = Piece("sum", "communication", 2e5 * c.batch * (c.tp > 1))
        forward = (*program.parts["layer.forward"], talk)
        return msgspec.structs.replace(
            program, parts=dict(program.parts) | {"layer.forward": forward}
        )

    def memory(self, c: Configuration) -> Memory:
        return Memory(2.0**30 * (16.0 / (c.tp * c.pp) + c.batch), 0, 0, 0, 0, 0, 0)


SPACE = Space(gpus=(16,), global_batch=32, micro_batch=(1, 2, 4), interleave=(1, 2))


def test_every_layout_is_a_whole_one():
    layouts, impossible = enumerate_layouts(MODEL, SPACE)
    assert len(layouts) == len(set(layouts))
    assert all(c.world == 16 and c.global_batch == 32 for c in layouts)
    assert all(c.tp <= 8 for c in layouts)
    assert {c.pp for c in layouts} == {1, 2, 4, 8}
    assert {(c.tp, c.pp) for c in layouts} >= {(1, 8), (8, 2), (8, 1), (2, 4)}
    assert all(c.accumulation % c.pp == 0 for c in layouts if c.interleave > 1)
    # A chunk of an interleaved pipeline needs a layer: 8 x 2 chunks of 8 layers do not exist.
    assert impossible["chunks of an interleaved pipeline would not be equal"] > 0


def test_the_space_can_be_narrowed():
    layouts, _ = enumerate_layouts(MODEL, msgspec.structs.replace(SPACE, tp=(2,), pp=(4,)))
    assert {(c.tp, c.pp, c.dp) for c in layouts} == {(2, 4, 2)}


def test_what_does_not_fit_is_dropped_by_how_much():
    found = search(Even(), MODEL, SPACE, gpu=GPU)
    layouts, _ = enumerate_layouts(MODEL, SPACE)
    assert found.evaluated == len(found.rows)
    assert found.evaluated + len(found.dropped) == len(layouts)
    for one in found.dropped:
        needs = Even().memory(one.configuration).total
        assert one.over_bytes == needs - 10 * 2.0**30 > 0
        assert f"needs {needs / 2.0**30:.1f} GiB" in one.reason
    assert all(row.memory_bytes <= 10 * 2.0**30 for row in found.rows)
    roomy = search(Even(), MODEL, SPACE, gpu=GPU, memory_gib=100.0)
    assert not roomy.dropped


def test_nothing_fits():
    found = search(Even(), MODEL, SPACE, gpu=GPU, memory_gib=0.5)
    with pytest.raises(Infeasible, match=r"nearest is over by 1\.5 GiB"):
        _ = found.best
    nothing = search(Even(), MODEL, msgspec.structs.replace(SPACE, gpus=(7,), tp=(2,)), gpu=GPU)
    with pytest.raises(Infeasible, match="no layout divides"):
        _ = nothing.best


def test_rows_say_what_a_step_costs():
    found = search(Even(), MODEL, SPACE, gpu=GPU, carbon_g_per_kwh=300.0)
    assert [row.step_ms for row in found.rows] == sorted(row.step_ms for row in found.rows)
    for row in found.rows:
        seconds = row.step_ms / 1e3
        assert row.tokens_s == pytest.approx(32 * 32 / seconds)
        assert row.cost_usd == pytest.approx(16 * 2.0 * seconds / 3600)
        power = 100.0 + 300.0 * row.utilisation
        assert 0 < row.utilisation <= 1
        assert row.energy_j == pytest.approx(16 * power * seconds)
        assert row.carbon_g == pytest.approx(row.energy_j / 3.6e6 * 300.0)
    assert found.best is found.rows[0]


def test_a_row_is_the_step_of_its_layout():
    found = search(Even(), MODEL, SPACE, gpu=GPU)
    for row in found.rows:
        whole = assemble(Even().program(row.configuration), machine(100.0, 10.0), fine=False)
        assert row.step_ms == pytest.approx(whole.step_ms, rel=0.015)


@pytest.mark.parametrize("rank_by", ["tokens_s", "cost_usd", "energy_j", "carbon_g"])
def test_rows_can_be_ranked_otherwise(rank_by):
    space = msgspec.structs.replace(SPACE, gpus=(8, 16))
    found = search(Even(), MODEL, space, gpu=GPU, rank_by=rank_by, carbon_g_per_kwh=100.0)
    values = [getattr(row, rank_by) for row in found.rows]
    assert values == sorted(values, reverse=rank_by == "tokens_s")


def test_front_holds_what_nobody_beats():
    space = msgspec.structs.replace(SPACE, gpus=(8, 16, 32))
    found = search(Even(), MODEL, space, gpu=GPU)
    front = [found.rows[i] for i in found.pareto]
    assert found.best in front
    assert min(found.rows, key=lambda row: row.energy_j) in front
    for row in found.rows:
        beaten = any(
            other.step_ms <= row.step_ms
            and other.cost_usd <= row.cost_usd
            and other.energy_j <= row.energy_j
            and (other.step_ms, other.cost_usd, other.energy_j)
            != (row.step_ms, row.cost_usd, row.energy_j)
            for other in found.rows
        )
        assert (row in front) is not beaten


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=30))
def test_prop_front(costs):
    front = pareto_front(costs)
    for at, row in enumerate(costs):
        beaten = any(all(a <= b for a, b in zip(o, row)) and o != row for o in costs)
        assert (at in front) is not beaten


SMALL = Configuration(layers=8, hidden=1024, heads=16, seq=512, batch=1, gpu="H100")
MODELLED = Modelled(SMALL, find_style("megatron"))


def test_same_rows_in_other_processes():
    space = Space(gpus=(16,), global_batch=64, micro_batch=(1, 2), interleave=(1, 2))
    here = search(MODELLED, SMALL, space, on="serial")
    assert here.evaluated > 20
    assert search(MODELLED, SMALL, space, on="local:2") == here


@pytest.mark.ray
def test_same_rows_through_ray():
    pytest.importorskip("ray")
    space = Space(gpus=(16,), global_batch=64, micro_batch=(1, 2))
    here = search(MODELLED, SMALL, space, on="serial")
    assert search(MODELLED, SMALL, space, on="ray") == here


def test_steps_are_brought_to_a_measured_base():
    played = {row.configuration: row for row in search(Even(), MODEL, SPACE, gpu=GPU).rows}
    for row in search(Even(), MODEL, SPACE, gpu=GPU, factor=1.5).rows:
        same = played[row.configuration]
        assert row.step_ms == pytest.approx(1.5 * same.step_ms)
        assert row.utilisation == pytest.approx(same.utilisation / 1.5)


def test_blocking_sends_reach_the_graph():
    shape = configuration(layers=8, pp=4, accumulation=64)
    program = even_program(shape, boundary_bytes=1e5)
    blocking = quick_step(program, machine(100.0), blocking_sends=True)
    whole = assemble(program, machine(100.0), fine=False, blocking_sends=True)
    assert blocking.step_ms == pytest.approx(whole.step_ms, rel=0.01)
    assert blocking.step_ms > quick_step(program, machine(100.0)).step_ms


def test_models_of_the_catalogue_plan_a_real_model():
    found = search(MODELLED, SMALL, Space(gpus=(16,), global_batch=64))
    assert found.evaluated > 20
    # So small a model is not worth cutting.
    assert found.best.configuration.tp == found.best.configuration.pp == 1


@pytest.mark.parametrize("interleave", [1, 2])
@pytest.mark.parametrize("layers", [8, 10, 16])
def test_the_fullest_stage_is_found(layers, interleave):
    for batch in (1, 4):
        c = configuration(
            layers=layers, hidden=512, seq=256, batch=batch, pp=4, accumulation=8,
            interleave=interleave,
        )  # fmt: skip
        fullest = max(
            stage_memory(c, find_style("megatron"), stage).total for stage in range(c.pp)
        )
        assert stage_memory(c, find_style("megatron")).total == pytest.approx(fullest)


@given(
    st.integers(0, 10_000),
    st.sampled_from([(1, 1), (2, 1), (4, 1), (2, 2), (4, 2)]),
    st.sampled_from([5, 8, 16]),
)
@settings(max_examples=40)
def test_prop_long_accumulations_are_told_from_short_ones(seed, pipeline, rounds):
    pp, interleave = pipeline
    shape = configuration(layers=12, pp=pp, interleave=interleave, accumulation=pp * rounds, dp=2)
    program = random_program(shape, np.random.default_rng(seed))
    whole = assemble(program, machine(100.0), fine=False).step_ms
    assert quick_step(program, machine(100.0)).step_ms == pytest.approx(whole, rel=0.03)


def test_wrong_questions_are_named():
    with pytest.raises(InputError, match="cannot rank by 'speed'"):
        search(Even(), MODEL, SPACE, gpu=GPU, rank_by="speed")
    with pytest.raises(InputError, match="0 GPUs"):
        search(Even(), MODEL, msgspec.structs.replace(SPACE, gpus=(0,)), gpu=GPU)
