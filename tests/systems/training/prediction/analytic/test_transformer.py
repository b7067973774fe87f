from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.training.prediction.analytic.style import (
    MEGATRON,
    MEGATRON_2022,
    STYLES,
    TORCH,
)
from gnomon.systems.training.prediction.analytic.transformer import list_work
from gnomon.systems.training.prediction.analytic.work import TENSOR_LANE
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.program import PARTS

BASE = Configuration(layers=6, hidden=512, heads=8, seq=256, batch=2, vocab=2048)


def flops(works) -> float:
    """Operations of GEMMs, attention as if nothing were masked."""
    total = 0.0
    for work in works:
        if work.family == "gemm":
            m, n, k, batch = work.sizes
            total += 2 * m * n * k * batch
        elif work.family == "attention":
            batch, heads, rows, columns, inner, values, _ = work.sizes
            factor = 2.5 if work.detail == "backward" else 1.0
            total += factor * 2 * batch * heads * rows * columns * (inner + values)
    return total


def step_flops(c: Configuration, style) -> float:
    work = list_work(c, style)
    layers = flops(work["layer.forward"]) + flops(work["layer.backward"])
    return c.layers * layers + flops(work["head.forward"]) + flops(work["head.backward"])


def collectives(works) -> list[str]:
    return [work.detail for work in works if work.family == "communication"]


@pytest.mark.parametrize(("recompute", "factor"), [("none", 72), ("full", 96)])
def test_operations_are_those_of_the_closed_form(recompute, factor):
    """Narayanan et al. 2021, equation 3, with and without recomputation."""
    c, style = BASE, MEGATRON_2022.changed(recompute=recompute)
    b, s, n, h, v = c.batch, c.seq, c.layers, c.hidden, c.vocab
    layers = factor * b * s * n * h * h * (1 + s / (6 * h))
    assert step_flops(c, style) == pytest.approx(layers + 6 * b * s * h * v)


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_every_part_is_there(style):
    assert set(PARTS) <= set(list_work(BASE, style))


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallelism_divides_gemms(tp):
    shared = BASE.changed({"tp": tp})
    assert step_flops(shared, MEGATRON_2022) == pytest.approx(step_flops(BASE, MEGATRON_2022) / tp)


def test_a_layer_reduces_twice_in_each_direction():
    work = list_work(BASE.changed({"tp": 2}), MEGATRON_2022.changed(recompute="none"))
    assert collectives(work["layer.forward"]) == ["all-reduce"] * 2
    assert collectives(work["layer.backward"]) == ["all-reduce"] * 2
    again = list_work(BASE.changed({"tp": 2}), MEGATRON_2022)
    assert collectives(again["layer.backward"]) == ["all-reduce"] * 4


def test_sequence_parallelism_gathers_and_scatters_the_same_bytes():
    work = list_work(BASE.changed({"tp": 2}), MEGATRON)
    forward = [w for w in work["layer.forward"] if w.family == "communication"]
    assert sorted(w.detail for w in forward) == ["all-gather"] * 2 + ["reduce-scatter"] * 2
    assert {w.sizes for w in forward} == {(2.0 * 512 * 512, 2, 1)}
    assert collectives(list_work(BASE, MEGATRON)["layer.forward"]) == []


def test_communications_beside_gemms_are_waited_for():
    style = MEGATRON_2022.changed(recompute="none", overlap_tensor=True)
    backward = list_work(BASE.changed({"tp": 2}), style)["layer.backward"]
    beside = [i for i, work in enumerate(backward) if work.lane == TENSOR_LANE]
    joins = [i for i, work in enumerate(backward) if TENSOR_LANE in work.joins]
    assert len(beside) == len(joins) == 2
    assert all(one < other for one, other in zip(beside, joins, strict=True))


def test_only_the_inside_of_attention_is_recomputed_when_asked():
    selective = list_work(BASE, MEGATRON_2022.changed(recompute="selective"))["layer.backward"]
    again = [work.name for work in selective if work.name.startswith("recomputed")]
    assert "recomputed softmax" in again
    assert "recomputed qkv" not in again


def test_fused_attention_leaves_nothing_of_the_scores():
    names = {work.name for work in list_work(BASE, TORCH)["layer.forward"]}
    assert "attention" in names
    assert "softmax" not in names


def test_experts_compute_for_the_tokens_they_get():
    c = BASE.changed({"experts": 8, "top_k": 2, "expert_ffn": 1024, "ep": 4, "dp": 4})
    style = MEGATRON
    work = list_work(c, style)["layer.forward"]
    expert = [w for w in work if w.name.startswith("expert") and w.family == "gemm"]
    assert flops(expert) == pytest.approx(2 * c.tokens * 2 * (2 * c.hidden * 1024))
    assert collectives(work) == ["all-to-all"] * 2
    routed = [w.sizes[0] for w in work if w.family == "communication"]
    assert routed == [2.0 * c.tokens * 2 * c.hidden] * 2


def test_dense_layers_before_experts_are_a_kind_of_their_own():
    c = BASE.changed({"experts": 8, "expert_ffn": 1024, "dense_layers": 2})
    parts = list_work(c, MEGATRON)
    assert {"dense.forward", "dense.backward", "optimizer.dense"} <= set(parts)
    assert not any("expert" in work.name for work in parts["dense.forward"])


def test_experts_are_updated_by_the_ranks_that_hold_the_same():
    def updated(**layout):
        c = BASE.changed({"experts": 8, "expert_ffn": 1024, "dp": 4, **layout})
        return next(
            w.sizes[0] for w in list_work(c, MEGATRON)["optimizer.layer"] if "update" in w.name
        )

    # Eight experts over four ranks or two of them on each: every rank updates two either way.
    assert updated(ep=4) == pytest.approx(updated(ep=1))
    assert updated(ep=4, tp=2) < 0.6 * updated(ep=4)


def test_latent_attention_goes_through_its_ranks():
    c = BASE.changed({"q_rank": 96, "kv_rank": 64, "rope_dim": 32})
    work = {w.name: w.sizes for w in list_work(c, MEGATRON)["layer.forward"]}
    assert work["query up"] == (512.0, 8 * (64 + 32), 96, 1.0)
    assert work["latent down"] == (512.0, 64 + 32, 512, 1.0)
    assert work["attention"][4:6] == (96, 64)


def test_context_parallelism_changes_sequences_for_heads():
    c = BASE.changed({"cp": 2})
    work = list_work(c, MEGATRON)["layer.forward"]
    assert collectives(work) == ["all-to-all"] * 2
    (attention,) = (w for w in work if w.family == "attention")
    assert attention.sizes[1:4] == (4, 256, 256)
    assert flops(work) == pytest.approx(flops(list_work(BASE, MEGATRON)["layer.forward"]) / 2)


def test_an_odd_vocabulary_is_marked():
    odd = BASE.changed({"vocab": 2047})
    (head,) = (w for w in list_work(odd, TORCH)["head.forward"] if w.name == "head")
    assert head.detail == "1"
    (padded,) = (w for w in list_work(odd, MEGATRON)["head.forward"] if w.name == "head")
    assert padded.detail == ""
    wide = odd.changed({"dtype": "fp32"})
    (float_head,) = (w for w in list_work(wide, TORCH)["head.forward"] if w.name == "head")
    assert float_head.detail == ""


@given(
    style=st.sampled_from(sorted(STYLES)),
    tp=st.sampled_from([1, 2, 4]),
    experts=st.sampled_from([0, 4]),
    gated=st.booleans(),
)
def test_prop_sizes_are_above_zero(style, tp, experts, gated):
    c = BASE.changed({"tp": tp, "experts": experts, "expert_ffn": 256, "gated": gated})
    for works in list_work(c, STYLES[style]).values():
        for work in works:
            needed = work.sizes if work.family in {"gemm", "attention"} else work.sizes[:1]
            assert all(size > 0 for size in needed), work
