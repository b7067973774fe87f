from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.aibench.builder.scalars import (
    GUARD,
    NEUTRAL,
    keeps_from_zero,
    neutral,
    plain_equation,
)


@given(st.floats(allow_nan=False))
def test_a_stand_in_is_of_the_same_sign_and_kind(value):
    stands = neutral(value)
    assert math.copysign(1.0, stands) == math.copysign(1.0, value)
    assert (stands == 0) == (value == 0)
    assert (abs(stands) < 1) == (abs(value) < 1)
    assert neutral(stands) == stands


@given(st.floats(-5, 5, allow_nan=False))
def test_what_is_not_plain_becomes_one_of_few(value):
    stands = neutral(value)
    assert stands == value or abs(stands) in NEUTRAL


def test_equations_lose_their_letters_only():
    assert plain_equation("...ij,kj->...ik") == "...ab,cb->...ac"


def test_what_keeps_from_zero_reads_zero_in_a_trace():
    """Traces print six decimals."""
    assert float(f"{GUARD:f}") == 0.0
    assert GUARD > 0.0


@pytest.mark.parametrize(
    ("does", "argument", "is_guard"),
    [
        ("aten._fused_adamw_.default", "eps", True),
        ("aten._fused_adam_.default", "eps", True),
        ("aten.native_layer_norm.default", "eps", True),
        ("aten._foreach_add_.Scalar", "scalar", True),
        ("aten._foreach_add.Scalar", "scalar", True),
        ("aten._fused_adamw_.default", "weight_decay", False),
        ("aten._foreach_mul_.Scalar", "scalar", False),
        ("aten._foreach_add_.List", "alpha", False),
        ("aten.add_.Scalar", "other", False),
        ("aten.dropout.default", "p", False),
    ],
)
def test_only_what_keeps_from_zero_is_not_zero(does, argument, is_guard):
    assert keeps_from_zero(does, argument) == is_guard
