import math
import pickle
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.series import Gap, Signal, integrate_product
from gnomon.units import parse

HOUR_NS = 3600 * 10**9
NAN = math.nan


def reference_integral(signal, start_ns, end_ns):
    """Slow and obvious, in exact fractions: value times ns, piece by piece; a gap is None."""
    total = Fraction(0)
    times = [int(t) for t in signal.time_ns] + [signal.end_ns]
    values = [None if math.isnan(v) else Fraction(v) for v in signal.values]
    for k, left in enumerate(values):
        a, b = max(times[k], start_ns), min(times[k + 1], end_ns)
        if a >= b:
            continue
        is_last = k == len(values) - 1
        right = left if signal.shape == "step" or is_last else values[k + 1]
        if left is None or right is None:
            return None
        length = times[k + 1] - times[k]
        at_a = left + (right - left) * Fraction(a - times[k], length)
        at_b = left + (right - left) * Fraction(b - times[k], length)
        total += (at_a + at_b) / 2 * (b - a)
    return total


def reference_at(signal, t_ns):
    times, values = signal.time_ns.tolist(), signal.values.tolist()
    k = max(i for i, t in enumerate(times) if t <= t_ns)
    if signal.shape == "step" or times[k] == t_ns or k == len(times) - 1:
        return values[k]
    share = Fraction(t_ns - times[k], times[k + 1] - times[k])
    if math.isnan(values[k]) or math.isnan(values[k + 1]):
        return NAN
    return float(Fraction(values[k]) * (1 - share) + Fraction(values[k + 1]) * share)


@st.composite
def signals(draw, *, shape=None, sign="any", gaps=False, ranges=False, unit="W", kind="power"):
    steps = draw(st.lists(st.integers(1, 10**15) | st.integers(1, 50), min_size=1, max_size=12))
    start = draw(st.integers(-(10**18), 2 * 10**18))
    bounds = {"any": (-1e6, 1e6), "positive": (0, 1e6), "nonzero": (0.5, 1e6)}[sign]
    number = st.floats(*bounds, allow_subnormal=False)
    number = number | st.just(NAN) if gaps else number
    values = [draw(number) for _ in steps]
    times = start + np.cumsum([0, *steps[:-1]])
    extra = {}
    if ranges:
        spread = draw(st.lists(st.floats(0, 0.4), min_size=len(steps), max_size=len(steps)))
        extra = {
            "low": [v - s * abs(v) for v, s in zip(values, spread)],
            "high": [v + s * abs(v) for v, s in zip(values, spread)],
        }
    return Signal(
        times,
        values,
        end_ns=start + sum(steps),
        unit=unit,
        kind=kind,
        shape=shape or draw(st.sampled_from(["step", "linear"])),
        **extra,
    )


def times_in(draw, signal, count):
    inside = st.integers(signal.start_ns, signal.end_ns)
    near = st.sampled_from([*signal.time_ns.tolist(), signal.end_ns])
    return sorted(draw(inside | near) for _ in range(count))


# --- integrate -----------------------------------------------------------------------------


@given(signals(sign="positive"), st.data())
def test_prop_integrate_equals_the_reference(signal, data):
    a, b = times_in(data.draw, signal, 2)
    expected = float(reference_integral(signal, a, b) / 10**9)
    assert signal.integrate(a, b) == pytest.approx(expected, rel=1e-12, abs=1e-300)


@given(signals(sign="any"), st.data())
def test_prop_integrate_of_either_sign_is_exact_next_to_its_total_variation(signal, data):
    a, b = times_in(data.draw, signal, 2)
    expected = float(reference_integral(signal, a, b) / 10**9)
    size = float(np.abs(signal.values).max()) * (b - a) / 1e9
    assert signal.integrate(a, b) == pytest.approx(expected, rel=1e-12, abs=1e-14 * size)


@given(signals(sign="positive"), st.data())
def test_prop_integrals_add_over_any_split(signal, data):
    a, b, c = times_in(data.draw, signal, 3)
    parts = signal.integrate(a, b) + signal.integrate(b, c)
    assert parts == pytest.approx(signal.integrate(a, c), rel=1e-12, abs=1e-300)


@given(signals(gaps=True), st.data())
def test_prop_gaps_raise_exactly_where_the_reference_meets_one(signal, data):
    a, b = times_in(data.draw, signal, 2)
    if reference_integral(signal, a, b) is None:
        with pytest.raises(InputError, match="no value from"):
            signal.integrate(a, b)
    else:
        signal.integrate(a, b)
    # 'skip' is the sum over the known parts.
    known, edge = 0.0, a
    for gap in [*signal.gaps(), Gap(signal.end_ns, signal.end_ns)]:
        if edge < min(gap.start_ns, b):
            known += float(reference_integral(signal, edge, min(gap.start_ns, b)) / 10**9)
        edge = max(edge, gap.end_ns)
    size = 1e6 * (b - a) / 1e9
    assert signal.integrate(a, b, gaps="skip") == pytest.approx(known, rel=1e-9, abs=1e-13 * size)


def test_a_short_interval_does_not_feel_the_years_before_it():
    # Differences of plain float64 prefix sums are off by some 1e-11 here.
    rng = np.random.default_rng(7)
    values = rng.uniform(100, 900, size=200_000)
    signal = Signal.regular(0, HOUR_NS, values, unit="W", kind="power")
    for k in (150_000, 199_998):
        whole = signal.integrate(k * HOUR_NS, (k + 1) * HOUR_NS)
        assert whole == pytest.approx(values[k] * 3600, rel=1e-15)
        split = k * HOUR_NS + 1_234_567
        straddling = signal.integrate(split, split + HOUR_NS)
        expected = reference_integral(signal.slice(split, split + HOUR_NS), split, split + HOUR_NS)
        assert straddling == pytest.approx(float(expected / 10**9), rel=1e-14)


def test_many_intervals_at_once_equal_one_by_one():
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.integers(1, 10**12, size=500))
    for shape in ("step", "linear"):
        signal = Signal.from_samples(
            times, rng.uniform(0, 9, 500), unit="W", kind="power", shape=shape
        )
        ends = np.sort(rng.integers(signal.start_ns, signal.end_ns, size=(200, 2)), axis=1)
        together = signal.integrate(ends[:, 0], ends[:, 1])
        assert together.shape == (200,)
        assert together.tolist() == [signal.integrate(int(a), int(b)) for a, b in ends]
        assert signal.mean(ends[:, 0], ends[:, 1]).shape == (200,)
        assert signal.integrate(signal.start_ns, ends[:, 0]).shape == (200,)


def test_power_on_a_grid_gives_grams_by_hand():
    # 200 W for 1 h at 300 g/kWh, 200 W for 1 h at 500, 100 W for 1 h at 500: 60 + 100 + 50 g.
    power = Signal([0, 2 * HOUR_NS], [200, 100], end_ns=3 * HOUR_NS, unit="W", kind="power")
    grid = Signal(
        [0, HOUR_NS], [300, 500], end_ns=9 * HOUR_NS, unit="gCO2e/kWh", kind="ci", zone="DE"
    )
    emitted = power * grid
    assert emitted.integrate() == 210.0
    assert emitted.integral_unit == parse("gCO2e")
    assert emitted.integrate(unit="kgCO2e") == 0.21
    assert emitted.integrate(HOUR_NS // 2, HOUR_NS) == 30.0
    assert (emitted.zone, emitted.kind) == ("DE", "power * ci")
    assert (emitted.start_ns, emitted.end_ns) == (0, 3 * HOUR_NS)
    assert integrate_product(power, grid) == 210.0


def test_units_of_integrals():
    assert Signal.constant(2, 0, HOUR_NS, unit="kW", kind="power").integrate() == 7.2e6
    assert Signal.constant(2, 0, HOUR_NS, unit="kW", kind="power").integrate(unit="kWh") == 2.0
    assert Signal.constant(60, 0, HOUR_NS, unit="req/min", kind="load").integrate() == 3600.0
    assert Signal.constant(50, 0, HOUR_NS, unit="%", kind="use").integrate(unit="h") == 0.5
    with pytest.raises(InputError, match="cannot be expressed"):
        Signal.constant(2, 0, HOUR_NS, unit="kW", kind="power").integrate(unit="W")


def test_integrate_refuses_the_outside_and_the_backward():
    signal = Signal.regular(0, 10, [1.0, 2.0], unit="W", kind="power")
    with pytest.raises(InputError, match="outside of the signal"):
        signal.integrate(0, 21)
    with pytest.raises(InputError, match="outside of the signal"):
        signal.integrate(-1, 10)
    with pytest.raises(InputError, match="ends before it starts"):
        signal.integrate(10, 5)
    with pytest.raises(InputError, match="unknown rule"):
        signal.integrate(gaps="ignore")
    assert signal.integrate(7, 7) == 0.0


def test_a_gap_is_named_with_its_dates():
    start = int(datetime(2024, 3, 31, tzinfo=UTC).timestamp()) * 10**9
    signal = Signal.regular(start, HOUR_NS, [1, NAN, NAN, 4], unit="W", kind="power")
    with pytest.raises(InputError) as caught:
        signal.integrate()
    assert str(caught.value) == (
        "signal 'power': no value from 2024-03-31T01:00:00Z to 2024-03-31T03:00:00Z (2 h 0 min); "
        "pass gaps='skip', 'hold' or 'interpolate'"
    )
    assert signal.integrate(gaps="skip", unit="Wh") == 5.0
    assert signal.integrate(gaps="hold", unit="Wh") == 7.0
    assert signal.integrate(gaps="interpolate", unit="Wh") == 10.0
    assert signal.mean(gaps="skip") == 2.5
    edge = signal.slice(start + HOUR_NS, signal.end_ns)
    for rule in ("hold", "interpolate"):
        with pytest.raises(InputError, match=f"nothing to {rule}"):
            edge.integrate(gaps=rule)
        assert edge.integrate(start + 3 * HOUR_NS, start + 4 * HOUR_NS, gaps=rule) == 4 * 3600


@given(signals(shape="linear", sign="positive"), signals(sign="positive", kind="ci"), st.data())
def test_prop_integrate_product_is_exact(a, b, data):
    b = b.shift(a.start_ns - b.start_ns)
    start, end = times_in(data.draw, a.slice(a.start_ns, min(a.end_ns, b.end_ns)), 2)
    knots = sorted(
        {start, end, *(t for s in (a, b) for t in s.time_ns.tolist() if start < t < end)}
    )
    total = Fraction(0)
    for left, right in pairwise(knots):
        # Left end by hand, right end from the exact mean of the straight piece.
        ends = []
        for s in (a, b):
            first = reference_integral(s, left, right)
            k = max(i for i, t in enumerate(s.time_ns.tolist()) if t <= left)
            linear = s.shape == "linear" and k < len(s) - 1
            v0 = Fraction(float(s.values[k]))
            if linear:
                v1, span = Fraction(float(s.values[k + 1])), int(s.time_ns[k + 1] - s.time_ns[k])
                v0 = v0 + (v1 - v0) * Fraction(left - int(s.time_ns[k]), span)
            ends.append((v0, 2 * first / (right - left) - v0))
        (p, q), (r, s_) = ends
        total += (2 * p * r + p * s_ + q * r + 2 * q * s_) / 6 * (right - left)
    expected = float(total / 10**9)
    assert integrate_product(a, b, start, end) == pytest.approx(expected, rel=1e-11, abs=1e-300)


@given(signals(gaps=True), st.data())
def test_prop_the_mean_of_what_is_known_divides_by_what_is_known(signal, data):
    a, b = times_in(data.draw, signal, 2)
    unknown_ns = sum(max(0, min(gap.end_ns, b) - max(gap.start_ns, a)) for gap in signal.gaps())
    if b - a == unknown_ns:
        with pytest.raises(InputError, match="no mean"):
            signal.mean(a, b, gaps="skip")
        return
    expected = signal.integrate(a, b, gaps="skip") * 1e9 / (b - a - unknown_ns)
    assert signal.mean(a, b, gaps="skip") == pytest.approx(expected, rel=1e-12)


def test_the_mean_of_an_interval_that_starts_inside_a_gap():
    signal = Signal.regular(0, 10, [1, math.nan, 3, math.nan], unit="W", kind="power")
    assert signal.mean(15, 35, gaps="skip") == 3.0
    assert signal.mean(5, 25, gaps="skip") == 2.0


# --- at, slice, shift, concat, fill, resample ------------------------------------------------


@given(signals(gaps=True), st.data())
def test_prop_at_equals_the_reference(signal, data):
    last = signal.end_ns - (signal.shape == "step")
    t_ns = min(times_in(data.draw, signal, 1)[0], last)
    got, expected = signal.at(t_ns), reference_at(signal, t_ns)
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-9, nan_ok=True)
    assert np.array_equal(signal.at([t_ns, t_ns]), [got, got], equal_nan=True)


def test_at_the_ends():
    step = Signal.regular(0, 10, [1, 2], unit="W", kind="power")
    line = Signal.regular(0, 10, [1, 2, 4], unit="W", kind="power", shape="linear")
    assert line.end_ns == 20
    assert (line.at(0), line.at(5), line.at(20)) == (1.0, 1.5, 4.0)
    assert step.at(19) == 2.0
    for signal, t_ns in ((step, 20), (step, -1), (line, 21)):
        with pytest.raises(InputError, match="outside of the signal"):
            signal.at(t_ns)
    with pytest.raises(InputError, match="whole nanoseconds"):
        step.at(1.5)


def test_a_missing_breakpoint_of_a_line_hides_both_sides():
    line = Signal.regular(0, 10, [1, NAN, 3, 4], unit="W", kind="power", shape="linear")
    assert line.gaps() == [Gap(0, 20)]
    assert line.at(0) == 1.0
    assert math.isnan(line.at(1))
    assert line.at(20) == 3.0
    assert line.fill("interpolate").values.tolist() == [1, 2, 3, 4]
    assert line.fill("hold").values.tolist() == [1, 1, 3, 4]


def test_interpolated_steps_keep_the_area_of_the_line_whatever_the_breakpoints():
    one = Signal([0, 10, 40], [1, NAN, 7], end_ns=50, unit="W", kind="power")
    two = Signal([0, 10, 15, 40], [1, NAN, NAN, 7], end_ns=50, unit="W", kind="power")
    for signal in (one, two):
        area = signal.integrate(10, 40, gaps="interpolate")
        assert area == pytest.approx(4 * 30 / 1e9, rel=1e-14)
    assert one.fill("interpolate").values.tolist() == [1, 4, 7]


def test_gaps_at_either_end_stay():
    signal = Signal.regular(0, 10, [NAN, 1, NAN], unit="W", kind="power")
    assert signal.gaps() == [Gap(0, 10), Gap(20, 30)]
    assert signal.fill("hold").gaps() == [Gap(0, 10)]
    assert signal.fill("interpolate").gaps() == signal.gaps()
    with pytest.raises(InputError, match="unknown way"):
        signal.fill("zero")


@given(signals(gaps=True, ranges=True), st.data())
def test_prop_a_slice_is_the_signal_inside(signal, data):
    a, b = times_in(data.draw, signal, 2)
    assume(a < b)
    part = signal.slice(a, b)
    assert (part.start_ns, part.end_ns) == (a, b)
    inside = [t for t in times_in(data.draw, signal, 5) if a <= t < b]
    for t_ns in inside:
        assert part.at(t_ns) == pytest.approx(signal.at(t_ns), rel=1e-9, abs=1e-6, nan_ok=True)
    size = 1e6 * (b - a) / 1e9
    got, expected = part.integrate(gaps="skip"), signal.integrate(a, b, gaps="skip")
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12 * size)


@given(signals(gaps=True, ranges=True), st.data())
def test_prop_cut_and_joined_again(signal, data):
    a, b, c = signal.start_ns, times_in(data.draw, signal, 1)[0], signal.end_ns
    assume(a < b < c)
    joined = Signal.concat([signal.slice(a, b), signal.slice(b, c)])
    size = 1e6 * (c - a) / 1e9
    assert joined.gaps() == signal.gaps()
    assert joined.integrate(gaps="skip") == pytest.approx(
        signal.integrate(gaps="skip"), rel=1e-9, abs=1e-12 * size
    )


def test_concat_leaves_gaps_and_refuses_what_does_not_fit():
    a = Signal.regular(0, 10, [1, 2], unit="kW", kind="power", attribution="A")
    b = Signal.regular(25, 10, [3000], unit="W", kind="power", attribution="B")
    joined = Signal.concat([a, b])
    assert joined.time_ns.tolist() == [0, 10, 20, 25]
    assert joined.at([0, 10, 25]).tolist() == [1, 2, 3]
    assert joined.gaps() == [Gap(20, 25)]
    assert joined.attribution == "A; B"
    line = Signal.regular(0, 10, [1, 2], unit="W", kind="power", shape="linear")
    assert Signal.concat([line, line.shift(30)]).gaps() == [Gap(10, 30)]
    with pytest.raises(InputError, match="cannot jump"):
        Signal.concat([line, line.shift(10)])
    with pytest.raises(InputError, match="starts before"):
        Signal.concat([b, a])
    with pytest.raises(InputError, match="whose kind differs"):
        Signal.concat([a, b.replace(kind="load")])
    with pytest.raises(InputError, match="empty"):
        Signal.concat([])


@given(signals(sign="positive"), st.integers(-(10**6), 10**6), st.integers(1, 40))
def test_prop_resample_preserves_the_integral(signal, origin_offset, bins):
    step_ns = max(1, signal.duration_ns // bins)
    grid = signal.resample(step_ns, signal.start_ns + origin_offset)
    assert (grid.start_ns, grid.end_ns, grid.shape) == (signal.start_ns, signal.end_ns, "step")
    inner = grid.time_ns[1:]
    assert ((inner - signal.start_ns - origin_offset) % step_ns == 0).all()
    assert grid.integrate() == pytest.approx(signal.integrate(), rel=1e-12, abs=1e-300)
    middle = int(grid.time_ns[len(grid) // 2])
    assert grid.integrate(grid.start_ns, middle) == pytest.approx(
        signal.integrate(signal.start_ns, middle), rel=1e-12, abs=1e-300
    )


def test_resample_with_gaps():
    signal = Signal.regular(0, 10, [1, 3, NAN, 5, NAN, NAN], unit="W", kind="power")
    with pytest.raises(InputError, match="no value from"):
        signal.resample(20)
    np.testing.assert_array_equal(signal.resample(20, gaps="keep").values, [2, NAN, NAN])
    np.testing.assert_array_equal(signal.resample(20, gaps="skip").values, [2, 5, NAN])
    np.testing.assert_array_equal(signal.resample(20, gaps="hold").values, [2, 4, 5])
    with pytest.raises(InputError, match="bins"):
        Signal.constant(1, 0, 10**18, unit="W", kind="power").resample(1)
    with pytest.raises(InputError, match="above zero"):
        signal.resample(0)


# --- arithmetic ------------------------------------------------------------------------------


@given(
    signals(shape="step", gaps=True, ranges=True),
    signals(shape="step", sign="nonzero", ranges=True, gaps=True),
    st.sampled_from("+-*/"),
    st.data(),
)
def test_prop_steps_combine_as_their_values_do(a, b, symbol, data):
    b = b.shift(a.start_ns - b.start_ns)
    result = {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__}[symbol](b)
    assert result.end_ns == min(a.end_ns, b.end_ns)
    t_ns = min(times_in(data.draw, result, 1)[0], result.end_ns - 1)
    x, y = a.at(t_ns), b.at(t_ns)
    expected = {"+": x + y, "-": x - y, "*": x * y, "/": x / y}[symbol]
    assert result.at(t_ns) == pytest.approx(expected, rel=1e-15, nan_ok=True)
    known = ~np.isnan(result.values)
    assert (result.low[known] <= result.values[known]).all()
    assert (result.values[known] <= result.high[known]).all()
    # The range holds the combination of the operands' own ends.
    k = int(np.searchsorted(result.time_ns, t_ns, side="right")) - 1
    if not math.isnan(expected):
        i = int(np.searchsorted(a.time_ns, t_ns, side="right")) - 1
        j = int(np.searchsorted(b.time_ns, t_ns, side="right")) - 1
        for u in (a.low[i], a.high[i]):
            for v in (b.low[j], b.high[j]):
                corner = {"+": u + v, "-": u - v, "*": u * v, "/": u / v}[symbol]
                assert result.low[k] <= corner <= result.high[k]


@given(signals(shape="linear", gaps=True), signals(shape="linear", gaps=True), st.data())
def test_prop_lines_add_as_their_values_do(a, b, data):
    b = b.shift(a.start_ns - b.start_ns)
    t_ns = min(times_in(data.draw, a, 1)[0], b.end_ns)
    for result, expected in ((a + b, a.at(t_ns) + b.at(t_ns)), (a - b, a.at(t_ns) - b.at(t_ns))):
        assert result.at(t_ns) == pytest.approx(expected, rel=1e-9, abs=1e-8, nan_ok=True)


@given(
    signals(gaps=True, ranges=True),
    st.floats(-1e3, 1e3).filter(lambda x: abs(x) > 1e-3),
    st.data(),
)
def test_prop_numbers_combine_as_with_values(signal, number, data):
    t_ns = min(times_in(data.draw, signal, 1)[0], signal.end_ns - 1)
    value = signal.at(t_ns)
    pairs = [
        (signal + number, value + number),
        (number + signal, value + number),
        (signal - number, value - number),
        (number - signal, number - value),
        (signal * number, value * number),
        (np.float64(number) * signal, value * number),
        (signal / number, value / number),
        (-signal, -value),
    ]
    for result, expected in pairs:
        assert isinstance(result, Signal)
        assert result.at(t_ns) == pytest.approx(expected, rel=1e-9, abs=1e-6, nan_ok=True)
        assert (result.kind, result.unit) == (signal.kind, signal.unit)


def test_kinds_units_and_zones():
    a = Signal.constant(1, 0, 10, unit="kW", kind="power", zone="DE", attribution="A")
    b = Signal.constant(500, 0, 10, unit="W", kind="power", zone="DE", attribution="B")
    assert (a + b).at(0) == 1.5
    assert (a + b).unit == parse("kW")
    assert ((a + b).zone, (a + b).attribution) == ("DE", "A; B")
    assert (a + b.replace(zone="FR")).zone is None
    assert (a + b.replace(zone=None)).zone is None
    assert (a * b.replace(zone=None)).zone == "DE"
    assert (a * b.replace(zone="FR")).zone is None
    with pytest.raises(InputError, match="kinds 'power' and 'load'"):
        a + b.replace(kind="load")
    with pytest.raises(InputError, match="dimensions differ"):
        a + Signal.constant(1, 0, 10, unit="J", kind="power")
    assert (a / b).unit == parse("1000")
    with pytest.raises(InputError, match="do not overlap"):
        a + b.shift(10)


def test_curves_and_jumps_are_refused():
    line = Signal.regular(0, 10, [1, 2, 3], unit="W", kind="power", shape="linear")
    step = Signal.regular(0, 10, [1, 2], unit="W", kind="power")
    flat = Signal.constant(3, 0, 20, unit="W", kind="power")
    for make in (
        lambda: line * line,
        lambda: line * step,
        lambda: line + step,
        lambda: flat / line,
    ):
        with pytest.raises(InputError, match="neither a step nor a linear"):
            make()
    for result in (line * flat, flat * line):
        assert (result.shape, result.at(5)) == ("linear", 4.5)
    assert (line / flat).at(15) == pytest.approx(2.5 / 3)
    assert (line + flat).at(20) == 6.0
    assert integrate_product(line, line, unit="W^2 ns") == pytest.approx(26 / 3 * 10)


def test_division_by_zero_is_refused():
    a = Signal.constant(1, 0, 10, unit="W", kind="power")
    zero = Signal.regular(0, 5, [1, 0], unit="W", kind="power")
    wide = Signal.constant(1, 0, 10, unit="W", kind="power", low=[-1], high=[2])
    for divisor in (zero, wide):
        with pytest.raises(InputError, match="holds zero"):
            a / divisor
    with pytest.raises(InputError):
        a / 0
    with pytest.raises(InputError):
        a * math.nan


def test_estimates_and_strings_do_not_multiply():
    signal = Signal.constant(1, 0, 10, unit="W", kind="power")
    for other in (Estimate(1, 2, 3), "2", None):
        with pytest.raises(TypeError):
            signal * other


def test_ranges_by_hand():
    a = Signal.constant(2, 0, 10**9, unit="W", kind="power", low=[1], high=[4])
    b = Signal.constant(3, 0, 10**9, unit="W", kind="power")
    assert (a - b).integrate_estimate() == Estimate(-2, -1, 1)
    assert (b - a).integrate_estimate() == Estimate(-1, 1, 2)
    assert (a * -1).integrate_estimate() == Estimate(-4, -2, -1)
    assert (a * a).integrate_estimate() == Estimate(1, 4, 16)
    assert b.integrate_estimate() == Estimate.exact(3)
    assert not (b + b).has_range


@given(signals(ranges=True), st.data())
def test_prop_integrated_ranges_hold_the_middle(signal, data):
    a, b = times_in(data.draw, signal, 2)
    estimate = signal.integrate_estimate(a, b)
    assert estimate.mid == signal.integrate(a, b)
    grid = signal.resample(max(1, signal.duration_ns // 3))
    assert (grid.low <= grid.values).all()
    assert (grid.values <= grid.high).all()


# --- construction and identity ---------------------------------------------------------------


def test_from_datetimes_wants_an_offset():
    berlin_winter = timezone(timedelta(hours=1))
    moments = [
        datetime(2024, 1, 1, 1, tzinfo=berlin_winter),
        datetime(2024, 1, 1, 1, tzinfo=UTC),
    ]
    signal = Signal.from_datetimes(moments, [1, 2], unit="W", kind="power")
    assert signal.time_ns.tolist() == [1704067200 * 10**9, 1704070800 * 10**9]
    assert signal.end_ns == 1704074400 * 10**9
    with pytest.raises(InputError, match="offset from UTC"):
        Signal.from_datetimes([datetime(2024, 1, 1)], [1], unit="W", kind="power")


def test_from_samples_ends_and_gaps():
    with pytest.raises(InputError, match="how long it holds"):
        Signal.from_samples([5], [1.0], unit="W", kind="power")
    with pytest.raises(InputError, match="two samples at"):
        Signal.from_samples([5, 5], [1.0, 1.0], unit="W", kind="power")
    with pytest.raises(InputError, match="one length"):
        Signal.from_samples([5, 6], [1.0], unit="W", kind="power")
    shuffled = Signal.from_samples(
        [20, 0, 10], [3, 1, 2], unit="W", kind="power", low=[2, 0, 1], high=[4, 2, 3], step_ns=10
    )
    assert shuffled.values.tolist() == [1, 2, 3]
    assert shuffled.low.tolist() == [0, 1, 2]
    assert shuffled.end_ns == 30
    assert not shuffled.gaps()


GOOD = {"time_ns": [0, 10], "values": [1.0, 2.0], "end_ns": 20, "unit": "W", "kind": "power"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_ns": [10, 10]}, "does not come after"),
        ({"time_ns": [10, 0]}, "does not come after"),
        ({"time_ns": [0.0, 1.0]}, "whole nanoseconds"),
        ({"time_ns": [0, 2**62 + 1]}, "146 years"),
        ({"time_ns": [], "values": []}, "as many values"),
        ({"values": [1.0]}, "as many values"),
        ({"values": [1.0, math.inf]}, "infinite"),
        ({"end_ns": 10}, "after the last"),
        ({"end_ns": 2**63}, "146 years"),
        ({"shape": "spline"}, "'step' or 'linear'"),
        ({"kind": ""}, "needs a kind"),
        ({"unit": "Watt"}, "unknown unit"),
        ({"low": [0.0, 0.0]}, "both low and high"),
        ({"low": [0.0, 0.0], "high": [0.5, 3.0]}, "not between"),
        ({"low": [0.0, NAN], "high": [2.0, NAN]}, "not between"),
        ({"low": [0.0], "high": [2.0]}, "one number per breakpoint"),
    ],
)
def test_what_makes_no_signal(changes, message):
    with pytest.raises(InputError, match=message):
        Signal(**(GOOD | changes))


def test_regular_refuses_to_overflow():
    with pytest.raises(InputError, match="range of times"):
        Signal.regular(0, 2**61, [1, 2, 3], unit="W", kind="power")
    with pytest.raises(InputError, match="range of times"):
        Signal(**GOOD).shift(2**62)


def test_frozen_all_the_way_down():
    source = np.array([1.0, 2.0])
    signal = Signal(**(GOOD | {"values": source}))
    source[0] = 99.0
    assert signal.at(0) == 1.0
    for copy in (signal, pickle.loads(pickle.dumps(signal)), signal.slice(0, 15)):
        with pytest.raises(ValueError, match="read-only"):
            copy.values[0] = 5.0
    with pytest.raises(AttributeError):
        signal.kind = "load"
    window = source[:]
    window.flags.writeable = False
    aliased = Signal(**(GOOD | {"values": window}))
    source[0] = 7.0
    assert aliased.at(0) == 99.0


def test_equality_and_hash():
    signal = Signal(**(GOOD | {"values": [1.0, NAN]}))
    same = pickle.loads(pickle.dumps(signal))
    assert signal == same
    assert hash(signal) == hash(same)
    others = [
        {"kind": "load"},
        {"zone": "DE"},
        {"unit": "kW"},
        {"end_ns": 21},
        {"values": [1.0, 2.0]},
    ]
    others += [{"shape": "linear"}, {"low": [1.0, NAN], "high": [1.0, NAN]}, {"attribution": "x"}]
    for changes in others:
        assert signal != signal.replace(**changes)
    assert signal != "signal"


def test_repr_tells_the_story():
    start = 1704067200 * 10**9
    values = np.ones(24)
    values[3] = NAN
    signal = Signal.regular(start, HOUR_NS, values, unit="gCO2e/kWh", kind="ci", zone="DE")
    assert repr(signal) == (
        "Signal('ci', gCO2e/kWh, zone 'DE', step, 24 breakpoints "
        "from 2024-01-01T00:00:00Z to 2024-01-02T00:00:00Z, 1 gap)"
    )
