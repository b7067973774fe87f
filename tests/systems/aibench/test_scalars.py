from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.aibench.scalars import NEUTRAL, neutral, plain_equation


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
