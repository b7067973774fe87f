"""Steps put together: closed forms where there are some, the coarse graph against the fine one."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.systems.training.prediction.layout.assemble import assemble
from gnomon.systems.training.prediction.layout.blocks import gradient_buckets
from gnomon.systems.training.prediction.layout.placement import members_per_node, stages_share_node
from gnomon.systems.training.prediction.program import Piece
from tests.systems.training.prediction.programs import (
    configuration,
    even_program,
    machine,
    random_program,
)


def step_ns(assembled):
    return assembled.step_ns(assembled.play())


def test_device_bound_step_is_the_serial_sum():
    program = even_program(configuration(accumulation=3), 1000.0, 10.0, pieces=4)
    once = assemble(program, machine())
    # The first launch comes before the first kernel.
    assert step_ns(once) == 3 * 8 * 4 * 3000 + 10
    assert step_ns(assemble(program, machine(), steps=2)) == 3 * 8 * 4 * 3000


def test_host_bound_step_is_the_sum_of_the_host():
    program = even_program(configuration(accumulation=2), 10.0, 500.0, pieces=4)
    assert step_ns(assemble(program, machine(), steps=2)) == 2 * 8 * 4 * 2 * 500
    # Alone, the last kernel follows its launch.
    assert step_ns(assemble(program, machine())) == 2 * 8 * 4 * 2 * 500 + 20


@pytest.mark.parametrize("fine", [True, False])
def test_host_that_waits_for_the_device_does_not_run_ahead(fine):
    program = even_program(configuration(), 1000.0, 100.0, pieces=2)
    sync = Piece("item", "host", 0.0, 50.0, joins=("compute",))
    parts = dict(program.parts) | {"optimizer.step": (sync,)}
    waits = msgspec.structs.replace(program, parts=parts)
    work = 8 * 2 * 3000
    assert step_ns(assemble(program, machine(), fine=fine, steps=2)) == work
    assert step_ns(assemble(waits, machine(), fine=fine, steps=2)) == work + 100 + 50


@pytest.mark.parametrize("interleave", [1, 2])
@pytest.mark.parametrize("fine", [True, False])
def test_bubble_of_equal_stages(fine, interleave):
    layout = configuration(pp=4, accumulation=8, interleave=interleave)
    step = step_ns(assemble(even_program(layout), machine(), fine=fine))
    work = 8 * 2 * 3 * 3000
    assert step == pytest.approx(work * (1 + 3 / (8 * interleave)))


def test_gpipe_is_another_schedule_with_the_same_bubble():
    layout = configuration(pp=4, accumulation=8)
    usual = assemble(even_program(layout), machine())
    all_first = assemble(even_program(layout), machine(), kind="gpipe")
    assert all_first.step_ms == usual.step_ms
    assert not np.array_equal(all_first.graph.name, usual.graph.name)


def compute_ns(assembled):
    graph = assembled.graph
    return graph.duration_ns[~graph.is_kind("communication", "host", "fence")].sum()


@given(st.integers(0, 10_000), st.sampled_from([2, 4, 16]))
@settings(max_examples=25)
def test_prop_more_data_parallel_ranks_never_change_compute(seed, dp):
    def step(ranks):
        rng = np.random.default_rng(seed)
        return assemble(random_program(configuration(dp=ranks), rng), machine(50.0))

    assert compute_ns(step(dp)) == compute_ns(step(1))
    assert step(dp).step_ms >= step(1).step_ms


@given(
    st.integers(0, 10_000),
    st.sampled_from([(1, 1, 1), (1, 1, 4), (2, 4, 1), (4, 8, 2), (4, 4, 1)]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=60)
def test_prop_coarse_is_close_to_fine(seed, layout, overlap, shard):
    pp, micro_batches, dp = layout
    shape = configuration(layers=12, pp=pp, accumulation=micro_batches, dp=dp)
    program = random_program(
        shape,
        np.random.default_rng(seed),
        overlap_gradients=overlap,
        shard_optimizer=shard,
    )
    fine = assemble(program, machine(100.0), steps=2)
    coarse = assemble(program, machine(100.0), steps=2, fine=False)
    assert coarse.step_ms == pytest.approx(fine.step_ms, rel=0.02)
    assert len(coarse.graph) < len(fine.graph)


@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_prop_coarse_keeps_the_totals(seed):
    shape = configuration(layers=6, pp=2, accumulation=2)
    program = random_program(shape, np.random.default_rng(seed))
    fine = assemble(program, machine(100.0)).graph
    coarse = assemble(program, machine(100.0), fine=False).graph
    for kind in ("host", "communication"):
        totals = [graph.duration_ns[graph.is_kind(kind)].sum() for graph in (fine, coarse)]
        assert totals[1] == pytest.approx(totals[0], rel=1e-6, abs=len(fine))


def test_work_beside_overlaps_until_it_is_joined():
    program = even_program(configuration(layers=1), 1000.0, pieces=1)
    beside = Piece("copy", "copy", 5000.0, lane="side")
    after = Piece("use", "gemm", 1000.0, joins=("side",))
    part = (Piece("a", "gemm", 1000.0), beside, Piece("b", "gemm", 2000.0), after)
    parts = dict(program.parts) | {"layer.forward": part}
    program = msgspec.structs.replace(program, parts=parts)
    for fine in (True, False):
        line = assemble(program, machine(), fine=fine).play()
        # a, then the copy beside b, then use, then the backward pass.
        assert line.makespan_ns == 1000 + 5000 + 1000 + 2000


def test_work_beside_that_nobody_joins_ends_with_the_step():
    program = even_program(configuration(layers=1), 1000.0, pieces=1)
    parts = dict(program.parts)
    parts["layer.backward"] += (Piece("copy", "copy", 9000.0, lane="side"),)
    program = msgspec.structs.replace(program, parts=parts)
    for fine in (True, False):
        # Coarse, it starts with the backward pass rather than after its only kernel.
        assert step_ns(assemble(program, machine(), fine=fine)) == 12_000 - 2000 * (not fine)


def test_gradients_overlap_the_last_backward_pass():
    # 2 MB a layer over four ranks: 3 MB through each link, 300 us at 10 GB/s.
    layout = configuration(layers=4, dp=4, accumulation=2)
    serial = even_program(layout, 1e5, pieces=1, overlap_gradients=False)
    overlapped = msgspec.structs.replace(serial, overlap_gradients=True)
    work, reduction = 2 * 4 * 3e5, 3e5
    assert step_ns(assemble(serial, machine(10.0))) == work + 4 * reduction
    # The first starts when one layer is back; they then take longer than the layers do.
    exposed = 2e5 + 4 * reduction - 4 * 2e5
    assert step_ns(assemble(overlapped, machine(10.0))) == work + exposed
    assert step_ns(assemble(overlapped, machine(1e6))) == pytest.approx(work, rel=1e-4)


def test_sharded_optimizer_scatters_then_gathers():
    layout = configuration(layers=4, dp=4)
    program = even_program(layout, 1e5, overlap_gradients=False, shard_optimizer=True)
    graph = assemble(program, machine(10.0)).graph
    names = {graph.names[code]: ns for code, ns in zip(graph.name, graph.duration_ns)}
    assert names["reduce-scatter of gradients"] == 8e6 * 0.75 / 10.0
    assert names["all-gather of parameters"] == 8e6 * 0.75 / 10.0


def test_buckets_fill_in_backward_order():
    program = even_program(configuration(layers=5), bucket_bytes=4e6)
    kinds = ["head", *["layer"] * 5, "embedding"]
    assert gradient_buckets(program, kinds) == [(3, 4e6), (5, 4e6), (7, 2e6)]
    one_each = msgspec.structs.replace(program, bucket_bytes=0.0)
    assert [done for done, _ in gradient_buckets(one_each, kinds)] == [2, 3, 4, 5, 6]


def with_experts(layout, **more):
    """Four tenths of every layer's parameters are experts'."""
    return even_program(layout, 1e5, pieces=1, expert_parameters={"layer": 4e5}, **more)


def exchanged_ns(graph):
    """Nanoseconds of every kind of communication of gradients and parameters."""
    names = np.asarray(graph.names)[graph.name]
    on_lane = np.asarray([lane.endswith("gradients") for lane in graph.lanes])[graph.lane]
    chosen = on_lane & graph.is_kind("communication")
    return {n: graph.duration_ns[chosen & (names == n)].sum() for n in np.unique(names[chosen])}


@pytest.mark.parametrize(("tp", "copies"), [(1, 2), (2, 4)])
def test_experts_are_reduced_over_the_ranks_that_hold_the_same(tp, copies):
    layout = configuration(layers=4, dp=8, ep=4, tp=tp, experts=8)
    sharded = with_experts(layout, overlap_gradients=False, shard_optimizer=True)
    shared, experts = 4 * 6e5 * 2 * 7 / 8 / 10.0, 4 * 4e5 * 2 * (copies - 1) / copies / 10.0
    assert exchanged_ns(assemble(sharded, machine(10.0)).graph) == {
        "reduce-scatter of gradients": shared,
        "reduce-scatter of experts' gradients": experts,
        "all-gather of parameters": shared,
        "all-gather of experts' parameters": experts,
    }


def test_experts_that_no_other_rank_holds_are_not_reduced():
    layout = configuration(layers=4, dp=4, ep=4, experts=8)
    for overlap in (True, False):
        graph = assemble(with_experts(layout, overlap_gradients=overlap), machine(10.0)).graph
        assert exchanged_ns(graph) == {"all-reduce of gradients": 4 * 6e5 * 2 * 1.5 / 10.0}


def test_experts_of_tensor_parallel_ranks_are_reduced_without_data_parallelism():
    # Tensor parallelism does not split experts: both ranks hold all of them.
    graph = assemble(with_experts(configuration(layers=4, tp=2, experts=8)), machine(10.0)).graph
    assert set(exchanged_ns(graph)) == {"all-reduce of experts' gradients"}


def test_experts_fill_buckets_of_their_own():
    program = with_experts(configuration(layers=5), bucket_bytes=1.5e6)
    kinds = ["head", *["layer"] * 5, "embedding"]
    assert gradient_buckets(program, kinds) == [(3, 2.4e6), (5, 2.4e6), (7, 1.2e6)]
    assert gradient_buckets(program, kinds, experts=True) == [(3, 1.6e6), (5, 1.6e6), (7, 0.8e6)]


def test_copies_of_experts_on_other_nodes_take_longer():
    def experts_ns(**layout):
        program = with_experts(configuration(layers=4, experts=8, **layout))
        graph = assemble(program, machine(100.0, 10.0, node_gpus=8)).graph
        return exchanged_ns(graph)["all-reduce of experts' gradients"]

    # Two copies each: within a node, as tensor-parallel neighbours, and on two nodes.
    within = experts_ns(dp=8, ep=4)
    assert experts_ns(dp=8, ep=8, tp=2) == within
    assert experts_ns(dp=16, ep=8) == 10 * within


@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]),
    st.floats(0.0, 1.0), st.booleans(), st.booleans(),
)  # fmt: skip
@settings(max_examples=40)
def test_prop_sharing_experts_out_never_adds_to_what_is_reduced(dp, tp, ep, share, overlap, shard):
    assume(dp * tp % ep == 0)

    def total(ep):
        layout = configuration(layers=4, dp=dp, tp=tp, ep=ep, experts=8)
        program = even_program(
            layout, expert_parameters={"layer": 1e6 * share / ep} if share else {},
            overlap_gradients=overlap, shard_optimizer=shard,
        )  # fmt: skip
        parameters = dict(program.parameters) | {"layer": 1e6 * (1 - share + share / ep)}
        program = msgspec.structs.replace(program, parameters=parameters)
        times = [
            sum(exchanged_ns(assemble(program, machine(1.0), fine=fine).graph).values())
            for fine in (True, False)
        ]
        assert times[0] == times[1]
        return times[0]

    assert total(ep) <= total(1) + 8  # a nanosecond of rounding a collective


def test_transfers_between_nodes_take_longer():
    def step(node_gpus):
        layout = configuration(pp=4, accumulation=4)
        program = even_program(layout, boundary_bytes=1e4)
        return assemble(program, machine(100.0, 10.0, node_gpus)).graph

    def sends(graph):
        sent = [lane.endswith("send") for lane in graph.lanes]
        return graph.duration_ns[np.asarray(sent)[graph.lane]]

    assert set(sends(step(4))) == {100}
    assert set(sends(step(2))) == {100, 1000}
    assert set(sends(step(1))) == {1000}
    # Each of four micro-batches crosses three borders, there and back.
    assert len(sends(step(4))) == 4 * 3 * 2


def test_blocking_sends_keep_the_stage_from_going_on():
    layout = configuration(layers=2, pp=2, accumulation=2)
    program = even_program(layout, 1000.0, pieces=1, boundary_bytes=5e4)
    # F0 there and back is 1000 + 500 + 1000 + 2000 + 500 + 2000; meanwhile F1 fits in between,
    # and the second micro-batch's 3000 + 500 + ... follow on both ranks.
    free = step_ns(assemble(program, machine(100.0)))
    blocking = step_ns(assemble(program, machine(100.0), blocking_sends=True))
    assert free == 1000 + 500 + 2 * 3000 + 500 + 2000
    assert blocking == free + 500


def test_blocking_sends_stop_the_host_too():
    layout = configuration(layers=2, pp=2, accumulation=1)
    program = even_program(layout, 1000.0, 300.0, pieces=1, boundary_bytes=5e4)
    free = assemble(program, machine(100.0))
    blocking = assemble(program, machine(100.0), blocking_sends=True)
    # Each of the two passes that receive then launches only when it has received.
    assert step_ns(blocking) == step_ns(free) + 2 * 300


def test_slow_down_while_communication_overlaps():
    layout = configuration(layers=4, dp=4)
    program = even_program(layout, 1e5, pieces=1)
    plain = assemble(program, machine(20.0))
    slowed = assemble(program, machine(20.0), slow_down=1.5)
    assert plain.step_ms < slowed.step_ms <= 1.5 * plain.step_ms


def test_names_ranks_and_lanes_can_be_read():
    layout = configuration(layers=4, pp=2, accumulation=2, dp=2)
    graph = assemble(even_program(layout, 10.0, 1.0, boundary_bytes=10.0), machine(1.0)).graph
    assert "layer 3 forward · gemm p0" in graph.names
    assert "layer 0 backward · launch p2" in graph.names
    assert "send activations" in graph.names
    assert "rank 1/gpu compute" in graph.lanes
    of_rank_1 = {graph.names[code] for code in graph.name[graph.rank == 1]}
    assert "layer 2 forward · gemm p0" in of_rank_1
    assert "layer 1 forward · gemm p0" not in of_rank_1
    assert {"host", "gemm", "communication"} <= set(graph.kinds)
    assert graph.native().is_forward()


def test_kernel_names_with_braces_survive():
    program = even_program(configuration(layers=1))
    parts = dict(program.parts) | {"layer.forward": (Piece("k{lambda()}{}", "other", 5.0),)}
    graph = assemble(msgspec.structs.replace(program, parts=parts), machine()).graph
    assert "layer 0 forward · other k{lambda()}{}" in graph.names


def test_optimizer_runs_for_the_layers_of_each_rank():
    program = even_program(configuration(layers=5, pp=2, accumulation=2))
    parts = dict(program.parts)
    parts |= {f"optimizer.{what}": (Piece(what, "optimizer", 7.0),)
              for what in ("embedding", "layer", "head", "step")}  # fmt: skip
    assembled = assemble(msgspec.structs.replace(program, parts=parts), machine())
    graph = assembled.graph
    ran = [graph.names[c] for c, r in zip(graph.name, graph.rank) if r == 0]
    wanted = ["embedding optimizer · optimizer embedding"]
    wanted += [f"layer {i} optimizer · optimizer layer" for i in range(3)]
    wanted += ["step optimizer · optimizer step"]
    assert [name for name in ran if "optimizer" in name] == wanted
    part = assembled.part_names.index("optimizer.layer")
    assert (assembled.part == part).sum() == 5


def test_chunks_of_a_rank_keep_the_numbers_of_their_layers():
    layout = configuration(layers=8, pp=2, interleave=2, accumulation=2)
    parts = dict(even_program(layout).parts)
    parts["optimizer.layer"] = (Piece("u", "optimizer", 7.0),)
    program = msgspec.structs.replace(even_program(layout), parts=parts)
    graph = assemble(program, machine()).graph
    for rank, layers in ((0, (0, 1, 4, 5)), (1, (2, 3, 6, 7))):
        names = {graph.names[code] for code in graph.name[graph.rank == rank]}
        for what in ("forward · gemm p0", "backward · gemm p2", "optimizer · optimizer u"):
            assert {name for name in names if what in name} == {
                f"layer {i} {what}" for i in layers
            }


def test_spread_groups_follow_family_and_model():
    program = even_program(configuration(layers=1))
    parts = dict(program.parts)
    parts["layer.forward"] = (
        Piece("a", "gemm", 5.0, model="table", spread=0.1),
        Piece("b", "gemm", 5.0, model="roofline", spread=0.3),
    )
    assembled = assemble(msgspec.structs.replace(program, parts=parts), machine())
    spread = {
        assembled.group_names[group]: float(s)
        for group, s in zip(assembled.spread_group, assembled.spread)
    }
    assert spread["gemm, table"] == 0.1
    assert spread["gemm, roofline"] == 0.3


def test_samples_of_a_step_lie_about_it():
    program = even_program(configuration(pp=2, accumulation=2))
    parts = {
        name: tuple(msgspec.structs.replace(piece, spread=0.1) for piece in part)
        for name, part in program.parts.items()
    }
    program = msgspec.structs.replace(program, parts=parts)
    for steps in (1, 2):
        assembled = assemble(program, machine(), steps=steps)
        drawn = assembled.sample_step_ms(4000, 1)
        assert np.median(drawn) == pytest.approx(assembled.step_ms, rel=0.01)
        assert np.log(drawn).std() == pytest.approx(0.1, rel=0.05)
    layout = configuration(layers=4, dp=4)
    slowed = assemble(even_program(layout, 1e5, pieces=1), machine(20.0), slow_down=1.5)
    assert np.median(slowed.sample_step_ms(2000, 1)) == pytest.approx(slowed.step_ms, rel=0.02)


def test_missing_part_is_named():
    program = even_program(configuration(layers=1))
    parts = {name: part for name, part in program.parts.items() if name != "head.backward"}
    with pytest.raises(InputError, match=r"no part 'head.backward'"):
        assemble(msgspec.structs.replace(program, parts=parts), machine())


def test_placement_fills_nodes_tensor_parallel_first():
    layout = configuration(tp=2, dp=4, pp=2)
    assert members_per_node(layout, "tp", 8) == 2
    assert members_per_node(layout, "dp", 8) == 4
    assert members_per_node(layout, "gradients", 4) == 2
    assert not stages_share_node(layout, 0, 8)
    assert stages_share_node(layout, 0, 16)
    with pytest.raises(InputError, match="no axis 'zz'"):
        members_per_node(layout, "zz", 8)
