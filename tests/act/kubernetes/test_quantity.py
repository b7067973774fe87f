"""Amounts are read and written exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.act.kubernetes.quantity import parse_quantity, print_cpu
from gnomon.errors import InputError


@pytest.mark.parametrize(
    ("text", "amount"),
    [("500m", Fraction(1, 2)), ("1.5", Fraction(3, 2)), ("2", 2), ("0", 0), (".5", Fraction(1, 2)),
     ("100u", Fraction(1, 10**4)), ("250000000n", Fraction(1, 4)), ("1e3", 1000), ("1E-3", Fraction(1, 1000)),
     ("2k", 2000), ("1Ki", 1024), ("3Mi", 3 << 20), ("1E", 10**18), ("+1", 1), ("0.1", Fraction(1, 10))],
)  # fmt: skip
def test_what_kubernetes_writes(text, amount):
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    "text", ["", "m", "1 m", "1mm", "one", "1.2.3", "0x1", "NaN", "1ki", "٣", "1" * 65]
)
def test_what_is_none(text):
    with pytest.raises(InputError, match="is no quantity"):
        parse_quantity(text)


@given(st.integers(0, 10**9))
def test_prop_thousandths_are_kept(thousandths):
    text = print_cpu(Fraction(thousandths, 1000))
    assert parse_quantity(text) == Fraction(thousandths, 1000)
    assert print_cpu(parse_quantity(text)) == text
    assert print_cpu(thousandths / 1000) == text  # a float is the nearest thousandth
