"""Growth: what kernels' sizes stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.recorded.growth import (
    Growth,
    Roles,
    Size,
    attention_sizes,
    gemm_sizes,
    growth_of,
    layer_matrices,
    name_linears,
    symbol_value,
)

BASE = Configuration(layers=2, hidden=64, heads=4, seq=16, batch=2, ffn=256, vocab=1000)
T, H, F = BASE.tokens, BASE.hidden, BASE.ffn
LINEARS = name_linears([(T, 3 * H, H), (T, H, H), (T, F, H), (T, H, F)], 1, H)


def grown(family, operator, shapes, part="layer.forward", base=BASE, linears=LINEARS):
    roles = Roles(linears, base.tokens)
    return growth_of(family, operator, shapes, base, roles, part=part, element_bytes=2)


def values(growth: Growth, **settings):
    target = BASE.changed(settings)
    return tuple(size.under(BASE, target) for size in growth.sizes)


def test_linears_are_named_by_where_they_stand():
    assert [(linear.group, linear.column) for linear in LINEARS] == [
        ("qkv", True), ("proj", False), ("up", True), ("down", False),
    ]  # fmt: skip


def test_separate_queries_and_a_gate_are_named_too():
    rows = [(T, 64, H), (T, 16, H), (T, 16, H), (T, H, 64), (T, F, H), (T, F, H), (T, H, F)]
    linears = name_linears(rows, 3, H)
    assert [linear.group for linear in linears] == ["qkv"] * 3 + ["proj", "up", "up", "down"]
    assert linears[1].out.symbols == ("kv",)


@pytest.mark.parametrize(
    ("operator", "shapes", "sizes"),
    [
        ("aten::mm", ((8, 4), (4, 2)), (8, 2, 4, 1)),
        ("aten::addmm", ((2,), (8, 4), (4, 2)), (8, 2, 4, 1)),
        ("aten::linear", ((2, 4, 4), (6, 4)), (8, 6, 4, 1)),
        ("aten::bmm", ((3, 8, 4), (3, 4, 2)), (8, 2, 4, 3)),
        ("aten::baddbmm", ((3, 8, 2), (3, 8, 4), (3, 4, 2)), (8, 2, 4, 3)),
        ("aten::addmm", ((2,), (8, 4), (4, 2), (8, 2)), (8, 2, 4, 1)),
        ("aten::mm", ((8, 4), (5, 2)), None),
        ("aten::mm", ((8, 4),), None),
    ],
)
def test_sizes_of_gemms(operator, shapes, sizes):
    assert gemm_sizes(operator, shapes) == sizes


def test_a_forward_gemm_grows_with_tokens_and_its_weights():
    up = grown("gemm", "aten::addmm", ((F,), (T, H), (H, F)))
    assert values(up, batch=4) == (2 * T, F, H, 1)
    assert values(up, hidden=128) == (T, 512, 128, 1)
    assert values(up, ffn=300) == (T, 300, H, 1)
    assert values(up, tp=2) == (T, F / 2, H, 1)


def test_tensor_parallelism_splits_columns_then_rows_and_sums_what_follows():
    down = grown("gemm", "aten::addmm", ((H,), (T, F), (F, H)))
    assert values(down, tp=4) == (T, H, F / 4, 1)
    assert (down.all_reduce, down.group) == ("forward", "down")
    back = grown("gemm", "aten::mm", ((T, F), (F, H)), "layer.backward")
    assert (back.all_reduce, back.group) == ("backward", "up")


def test_gradients_of_weights_have_tokens_inside():
    weight = grown("gemm", "aten::mm", ((F, T), (T, H)), "layer.backward")
    assert values(weight, batch=4) == (F, H, 2 * T, 1)


def test_equal_sizes_are_told_apart_by_order():
    # As many tokens as the feed-forward part is wide: both gradients of `up` look the same.
    base = Configuration(layers=2, hidden=64, heads=4, seq=64, batch=4, ffn=256, vocab=1000)
    linears = name_linears([(256, 192, 64), (256, 64, 64), (256, 256, 64), (256, 64, 256)], 1, 64)
    roles = Roles(linears, base.tokens)
    shapes = ((256, 256), (256, 64))
    ask = dict(part="layer.backward", element_bytes=2)
    first = growth_of("gemm", "aten::mm", shapes, base, roles, **ask)
    second = growth_of("gemm", "aten::mm", shapes, base, roles, **ask)
    more = base.changed({"batch": 8})
    assert [s.under(base, more) for s in first.sizes] == [512, 64, 256, 1]
    assert [s.under(base, more) for s in second.sizes] == [256, 64, 512, 1]


def test_a_vocabulary_as_wide_as_the_feed_forward_part_is_told_by_the_part():
    base = BASE.changed({"vocab": 256})
    shape = ((2, 16, 256),)
    in_layer = grown("elementwise", "aten::gelu", shape, base=base)
    in_head = grown("softmax", "aten::_log_softmax", shape, "head.forward", base=base)
    wide = base.changed({"vocab": 512})
    assert in_layer.sizes[0].under(base, wide) == in_layer.sizes[0].value
    assert in_head.sizes[0].under(base, wide) == 2 * in_head.sizes[0].value


def test_attention_grows_with_each_of_its_sizes():
    q = (2, 4, 16, 16)
    attention = grown("attention", "aten::_scaled_dot_product_flash_attention", (q, q, q))
    assert values(attention, seq=32, batch=3) == (3, 4, 32, 32, 16)
    assert values(attention, tp=2) == (2, 2, 16, 16, 16)
    assert attention_sizes("flash_attn::forward", ((2, 16, 4, 8),) * 3) == (2, 4, 16, 16, 8)


def test_scores_without_a_fused_kernel_grow_with_the_square_of_the_sequence():
    softmax = grown("softmax", "aten::_softmax", ((2, 4, 16, 16),))
    before, after = softmax.sizes[0].value, values(softmax, seq=32)[0]
    assert after == 4 * before


def test_a_lookup_does_not_grow_with_its_table():
    lookup = grown("embedding", "aten::gather", ((1000, 64), (T, H)), "embedding.forward")
    assert values(lookup, vocab=2000)[0] == lookup.sizes[0].value
    assert values(lookup, batch=4)[0] == 2 * lookup.sizes[0].value


def test_memsets_and_unknown_shapes_stay():
    assert grown("copy", "aten::addmm", ((F,), (T, H), (H, F))).kind == "fixed"
    assert grown("elementwise", "", ()).kind == "fixed"


@given(
    tp=st.sampled_from([1, 2, 4]), hidden=st.sampled_from([64, 128]), gated=st.booleans(),
)  # fmt: skip
def test_prop_matrices_of_a_layer_are_shared_out(tp, hidden, gated):
    one = BASE.changed({"hidden": hidden, "gated": gated})
    shared = one.changed({"tp": tp})
    assert layer_matrices(shared) * tp == layer_matrices(one)
    assert symbol_value("ffn", shared) * tp == one.ffn
    assert Size(5.0, ("tokens", "ffn")).under(one, one) == 5.0
