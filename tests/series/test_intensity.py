import pytest

from gnomon.errors import InputError
from gnomon.series import Signal
from gnomon.series.intensity import (
    IntensityIdentity,
    check_intensity,
    describe_intensity,
    intensity_identity,
    intensity_kind,
)


def constant(value=300.0, unit="gCO2e/kWh", **fields):
    return Signal.constant(value, 0, 10, unit=unit, **({"kind": intensity_kind()} | fields))


@pytest.mark.parametrize("basis", ["average", "marginal"])
@pytest.mark.parametrize("scope", ["lifecycle", "direct"])
def test_a_kind_says_what_it_is_and_is_read_back(basis, scope):
    kind = intensity_kind(basis, scope)
    assert kind == f"carbon-intensity/{basis}/{scope}"
    assert intensity_identity(constant(kind=kind)) == IntensityIdentity(basis, scope)


def test_other_kinds_have_no_identity_and_are_shown_as_they_are():
    signal = constant(kind="carbon", zone=None)
    assert intensity_identity(signal) is None
    assert describe_intensity(signal) == "carbon, gCO2e/kWh"


@pytest.mark.parametrize(("basis", "scope"), [("mean", "direct"), ("average", "total")])
def test_unknown_words_are_refused(basis, scope):
    with pytest.raises(InputError, match="of an intensity is called"):
        intensity_kind(basis, scope)


def test_signals_of_another_identity_do_not_add():
    with pytest.raises(InputError, match="kinds"):
        constant() + constant(kind=intensity_kind("marginal", "direct"))


def test_the_unit_is_checked_and_converted():
    assert check_intensity(constant(0.3, "kgCO2e/kWh")).values.tolist() == [300.0]
    assert check_intensity(constant(300, "kgCO2e/MWh")).values.tolist() == [300.0]
    with pytest.raises(InputError, match="is no unit of an intensity"):
        check_intensity(constant(unit="W"))
    with pytest.raises(InputError, match="value 0 is -1: below zero"):
        check_intensity(constant(-1.0))
    assert check_intensity(constant(float("nan"))).gaps()
