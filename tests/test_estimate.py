import operator
import pickle

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.estimate import Estimate

finite = st.floats(-1e6, 1e6)
estimates = st.lists(finite, min_size=3, max_size=3).map(lambda x: Estimate(*sorted(x)))
shares = st.floats(0, 1)


def inside(estimate: Estimate, share: float) -> float:
    return min(max(estimate.low + share * estimate.width, estimate.low), estimate.high)


@given(estimates, estimates, shares, shares, st.sampled_from("+-*/"))
def test_prop_the_range_holds_every_combination(a, b, at_a, at_b, symbol):
    operation = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
    }[symbol]
    assume(symbol != "/" or min(abs(b.low), abs(b.high)) > 1e-6)
    if symbol == "/" and b.contains(0):
        with pytest.raises(InputError, match="zero"):
            operation(a, b)
        return
    result = operation(a, b)
    assert result.contains(operation(inside(a, at_a), inside(b, at_b)))
    assert result.mid == operation(a.mid, b.mid)
    # With a number on either side the same holds.
    number = inside(b, at_b)
    assert operation(a, number).contains(operation(inside(a, at_a), number))
    assert operation(number, b).contains(operation(number, b.mid))


def test_arithmetic_by_hand():
    a, b = Estimate(1, 2, 4), Estimate(-1, 1, 3)
    assert a + b == Estimate(0, 3, 7)
    assert a - b == Estimate(-2, 1, 5)
    assert a * b == Estimate(-4, 2, 12)
    assert 12 / a == Estimate(3, 6, 12)
    assert -a == Estimate(-4, -2, -1) == a.scale(-1)
    assert sum([a, b]) == Estimate(0, 3, 7)
    assert a - a == Estimate(-3, 0, 3)


def test_numpy_numbers_do_not_swallow_an_estimate():
    result = np.float64(2) * Estimate(1, 2, 3)
    assert isinstance(result, Estimate)
    assert result == Estimate(2, 4, 6)


@pytest.mark.parametrize(
    "ends",
    [(2, 1, 3), (1, 4, 3), (float("nan"), 1, 2), (0, 1, float("inf")), ("1", 2, 3)],
)
def test_a_range_out_of_order_is_refused(ends):
    with pytest.raises(InputError):
        Estimate(*ends)


def test_other_types_are_refused():
    with pytest.raises(TypeError):
        Estimate(1, 2, 3) + "1"
    with pytest.raises(TypeError):
        Estimate(1, 2, 3) < Estimate(4, 5, 6)  # noqa: B015
    with pytest.raises(AttributeError):
        Estimate(1, 2, 3).mid = 4


def test_json_and_pickle():
    estimate = Estimate(1, 2, 3)
    assert msgspec.json.encode(estimate) == b'{"low":1.0,"mid":2.0,"high":3.0}'
    assert msgspec.json.decode(b'{"low":1,"mid":2,"high":3}', type=Estimate) == estimate
    assert pickle.loads(pickle.dumps(estimate)) == estimate
    with pytest.raises(msgspec.ValidationError, match="low <= mid <= high"):
        msgspec.json.decode(b'{"low":9,"mid":2,"high":3}', type=Estimate)


def test_comparisons():
    a, b, c = Estimate(1, 2, 3), Estimate(3, 4, 5), Estimate(3.5, 4, 5)
    assert a.overlaps(b)
    assert b.overlaps(a)
    assert not a.overlaps(c)
    assert not a.is_surely_below(b)
    assert a.is_surely_below(c)
    assert c.is_surely_above(a)
    assert c.is_surely_above(3)
    assert not c.is_surely_above(3.5)
    assert a.contains(1)
    assert not a.contains(3.01)


def test_exactness():
    assert Estimate.exact(3).is_exact
    assert (Estimate.exact(3) * 2 + 1).is_exact
    assert not Estimate(1, 1, 2).is_exact


def test_from_samples():
    assert Estimate.from_samples(range(101), coverage=0.5) == Estimate(25, 50, 75)
    assert Estimate.from_samples([7.0]) == Estimate.exact(7)
    for samples, coverage in (([], 0.8), ([1, float("nan")], 0.8), ([1], 1.1)):
        with pytest.raises(InputError):
            Estimate.from_samples(samples, coverage)


@given(st.lists(finite, min_size=1, max_size=30), st.floats(0, 1))
def test_prop_quantiles_lie_within_the_samples(samples, coverage):
    estimate = Estimate.from_samples(samples, coverage)
    assert min(samples) <= estimate.low <= estimate.high <= max(samples)


def test_sum_independent_by_hand():
    total = Estimate.sum_independent([Estimate(7, 10, 22), Estimate(6, 10, 15)])
    assert total == Estimate(15, 20, 33)
    assert Estimate.sum_independent([]) == Estimate.exact(0)


@given(st.lists(estimates, min_size=1, max_size=8))
def test_prop_independent_sums_are_no_wider_than_interval_sums(terms):
    independent, interval = Estimate.sum_independent(terms), sum(terms)
    slack = 1e-9 * (1 + abs(interval.low) + abs(interval.high))
    assert interval.low - slack <= independent.low
    assert independent.high <= interval.high + slack
    widest = max(term.width for term in terms)
    assert independent.width >= widest - slack


def test_format():
    assert Estimate(180, 200, 260).format("W") == "200 W (180 to 260)"
    assert Estimate(900, 1200, 1500).format("W") == "1.2 kW (0.9 to 1.5)"
    assert Estimate(-2000, 0, 1000).format("W") == "0 kW (-2 to 1)"
    assert Estimate.exact(1200).format("W") == "1.2 kW"
    assert str(Estimate(1, 2, 3)) == "2 (1 to 3)"
