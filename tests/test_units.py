import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.units import (
    DIMENSIONS,
    Unit,
    choose_si,
    convert,
    format_bytes,
    format_duration,
    format_si,
    parse,
    parse_bytes,
    parse_duration,
    parse_percent,
)

CANONICAL = [
    *("1", "%", "7/3", "s^2", "ms", "Hz", "GHz", "W", "kW", "kW/core", "kWh/d", "mcore"),
    *("gCO2e/kWh", "kgCO2e/kWh", "mgCO2e/h", "tCO2e", "USD/kWh", "USD/MWh", "cent/kWh"),
    *("USD/core/h", "USD/Mtoken", "GiB/s", "GB/s", "Gbit/s", "TFLOP/s", "FLOP/B"),
    *("req/s", "req/min"),
]


@pytest.mark.parametrize("text", CANONICAL)
def test_canonical_text_reads_back_as_itself(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("gCO₂eq/kWh", "gCO2e/kWh"),
        ("g per kWh", "gCO2e/kWh"),
        ("kgCO2e/MWh", "gCO2e/kWh"),
        ("µs", "us"),
        ("J/s", "W"),
        ("kWh/h", "kW"),
        ("USD/(core h)", "USD/core/h"),
        ("USD*core^-1*h^-1", "USD/core/h"),
        ("TFLOPS", "TFLOP/s"),
        ("Gbps", "Gbit/s"),
        ("rps", "req/s"),
        ("B/ns", "GB/s"),
        ("8 bit", "B"),
        ("1e3 W", "kW"),
        ("1/100", "%"),
        ("y", "365 d"),
        ("d", "24 h"),
        ("h", "60 min"),
        ("min", "60 s"),
        ("kWh", "3.6 MJ"),
        ("tCO2e", "1000 kg"),
    ],
)
def test_spellings_of_the_same_unit(text, same):
    assert parse(text) == parse(same)
    assert hash(parse(text)) == hash(parse(same))


def test_countables_are_dimensions_of_their_own():
    assert not parse("req/s").is_convertible(parse("FLOP/s"))
    assert not parse("USD/core/h").is_convertible(parse("USD/gpu/h"))
    assert not parse("req/s").is_convertible(parse("Hz"))


def test_power_times_intensity_times_time_is_carbon():
    unit = parse("W") * parse("gCO2e/kWh") * parse("h")
    assert unit == parse("mgCO2e")
    assert unit.base == parse("gCO2e")


def test_an_unknown_unit_says_what_was_meant():
    with pytest.raises(InputError, match=r"unknown unit 'Kwh'; did you mean 'kWh'\?"):
        parse("USD/Kwh")
    with pytest.raises(InputError, match="'TFLOP'"):
        parse("TFLOPs")
    with pytest.raises(InputError, match="known units are"):
        parse("zzzzzz")


NONSENSE = [
    *("", "  ", "W/", "/W", "(W", "W)", "W^x", "W^1.5", "0 W", "W W^200", "W@s", "*", "W^"),
    *("s" * 500, "(" * 300, "((1e99)^99)^99", "(EFLOP^50)^50", "W^999999999999", "1e99999 s"),
]


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_is_refused_in_one_line(text):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_convert_numbers_and_arrays():
    assert convert(3.0, "ms", "s") == 0.003
    assert convert(1, "kWh", "J") == 3.6e6
    assert convert(400.0, "gCO2e/kWh", "kgCO2e/MWh") == 400.0
    assert convert(50, "%", "1") == 0.5
    np.testing.assert_array_equal(convert(np.array([1.0, 2.0]), "GiB", "MiB"), [1024.0, 2048.0])
    with pytest.raises(InputError, match="'W' cannot be expressed in 'kWh'"):
        convert(1.0, "W", "kWh")


def test_convert_survives_scales_beyond_float():
    huge = parse("EFLOP") ** 8
    assert convert(1.0, huge, huge) == 1.0
    assert convert(1.0, parse("EFLOP") ** 2, parse("PFLOP") ** 2) == 1e6


def test_a_unit_pickles():
    assert pickle.loads(pickle.dumps(parse("gCO2e/kWh"))) == parse("gCO2e/kWh")


exponents = st.tuples(*(st.integers(-2, 2) for _ in DIMENSIONS))
scales = st.fractions(min_value=Fraction(1, 10**9), max_value=10**9).filter(lambda x: x > 0)


@given(scales, exponents)
def test_prop_any_unit_reads_back_from_its_own_text(scale, exponents):
    unit = Unit(scale, exponents)
    assert parse(str(unit)) == unit


@given(st.lists(st.sampled_from(CANONICAL), min_size=1, max_size=3), st.integers(-2, 2))
def test_prop_products_of_real_units_read_back(texts, power):
    unit = parse("1")
    for text in texts:
        unit = unit * parse(text) ** power
    assert parse(str(unit)) == unit
    assert unit / unit == parse("1")


@given(
    st.floats(1e-12, 1e12),
    st.sampled_from(["kWh", "MJ", "J", "Wh"]),
    st.sampled_from(["J", "TWh"]),
)
def test_prop_convert_there_and_back(value, source, target):
    assert convert(convert(value, source, target), target, source) == pytest.approx(
        value, rel=1e-15
    )


@pytest.mark.parametrize(
    ("dur_ns", "text"),
    [
        (0, "0 s"),
        (853, "853 ns"),
        (78_600_000, "78.6 ms"),
        (999_960, "1 ms"),
        (59_970_000_000, "1 min 0 s"),
        (3_599_900_000_000, "1 h 0 min"),
        (86_399_900_000_000, "1 d 0 h 0 min"),
        (-1_500_000, "-1.5 ms"),
        (400 * 86_400 * 10**9, "400 d 0 h 0 min"),
    ],
)
def test_format_duration(dur_ns, text):
    assert format_duration(dur_ns) == text


def test_format_duration_refuses_what_is_no_number():
    with pytest.raises(InputError):
        format_duration(float("nan"))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1234.5, "W", "1.23 kW"),
        (1234.5, "kW", "1.23 MW"),
        (999.6, "W", "1 kW"),
        (0.0, "kW", "0 kW"),
        (-2500, "req/s", "-2.5 kreq/s"),
        (0.5, "gCO2e/kWh", "500 mgCO2e/kWh"),
        (2048, "MiB/s", "2 GiB/s"),
        (12_000, "USD", "12,000 USD"),
        (3.2, "%", "3.2 %"),
        (0.25, "1", "0.25"),
        (5, "s^2", "5 s^2"),
        (1e-12, "s", "0.001 ns"),
    ],
)
def test_format_si(value, unit, text):
    assert format_si(value, unit) == text


@given(st.floats(1e-8, 1e8), st.sampled_from(["W", "J", "FLOP/s", "gCO2e", "B/s", "h", "%"]))
def test_prop_choose_si_keeps_the_value(value, unit):
    factor, label = choose_si(value, unit)
    assert convert(value * factor, label, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (2**34, "16 GiB"), (2**30 - 1, "1 GiB")],
)
def test_format_bytes(size_bytes, text):
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("text", "dur_ns"),
    [
        ("1.5ms", 1_500_000),
        ("0s", 0),
        ("250us", 250_000),
        ("250 µs", 250_000),
        ("1h30m", 5_400 * 10**9),
        ("1h 30min", 5_400 * 10**9),
        ("0.4ns", 0),
        ("2d", 172_800 * 10**9),
        ("1e3 s", 10**12),
    ],
)
def test_parse_duration(text, dur_ns):
    assert parse_duration(text) == dur_ns


@pytest.mark.parametrize(
    "text", ["", "12", "ms", "-1s", "1 kWh", "1h!", "1e99y", "1.2.3s", "nan s", "1 fortnight"]
)
def test_parse_duration_refuses(text):
    with pytest.raises(InputError):
        parse_duration(text)


@given(st.integers(0, 2**62))
def test_prop_durations_in_ns_read_back(dur_ns):
    assert parse_duration(f"{dur_ns}ns") == dur_ns


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("16GiB", 2**34),
        ("16Gi", 2**34),
        ("16G", 16 * 10**9),
        ("512", 512),
        ("1.5 kB", 1500),
        ("1K", 1000),
        ("1Ki", 1024),
        ("8 bit", 1),
        ("0", 0),
    ],
)
def test_parse_bytes(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1", "0.3B", "3 W", "1e30 GB", "16 gib"])
def test_parse_bytes_refuses(text):
    with pytest.raises(InputError):
        parse_bytes(text)


def test_parse_percent():
    assert parse_percent("3%") == 0.03
    assert parse_percent(" 150 % ") == 1.5
    assert parse_percent("0.25") == 0.25
    for wrong in ("3", "x%", "", "%"):
        with pytest.raises(InputError):
            parse_percent(wrong)
