"""What a carbon intensity means: its basis and its scope are part of a signal's identity.

Average and marginal intensity answer different questions, and so do direct and life-cycle ones.
The kind of a signal says which it is, so that two that differ never add, and it is printed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

from gnomon.errors import InputError
from gnomon.series.signal import Signal
from gnomon.units import parse

Basis: TypeAlias = Literal["average", "marginal"]
Scope: TypeAlias = Literal["lifecycle", "direct"]

INTENSITY_UNIT = "gCO2e/kWh"
_ROOT = "carbon-intensity"
_SCOPE_WORDS = {"lifecycle": "life-cycle", "direct": "direct"}


class IntensityIdentity(NamedTuple):
    """Which intensity a signal is."""

    basis: Basis
    scope: Scope


def intensity_kind(basis: Basis = "average", scope: Scope = "lifecycle") -> str:
    """The kind of a signal of grid intensity.

    Args:
        basis: 'average': all that is generated in an hour; 'marginal': what one more kilowatt-hour
            would make run.
        scope: 'direct': what leaves the chimney; 'lifecycle': fuel, plant and waste as well.

    >>> intensity_kind("average", "direct")
    'carbon-intensity/average/direct'
    """
    for name, value, known in (("basis", basis, Basis), ("scope", scope, Scope)):
        if value not in get_args(known):
            hint = f"one of {', '.join(get_args(known))}"
            raise InputError(f"no {name} of an intensity is called {value!r}", hint=hint)
    return f"{_ROOT}/{basis}/{scope}"


def intensity_identity(signal: Signal) -> IntensityIdentity | None:
    """Basis and scope of a signal, or None where its kind does not say them.

    >>> s = Signal.constant(300.0, 0, 10, unit="gCO2e/kWh", kind=intensity_kind("marginal"))
    >>> intensity_identity(s)
    IntensityIdentity(basis='marginal', scope='lifecycle')
    """
    for basis in get_args(Basis):
        for scope in get_args(Scope):
            if signal.kind == intensity_kind(basis, scope):
                return IntensityIdentity(basis, scope)
    return None


def check_intensity(signal: Signal) -> Signal:
    """The signal in gCO2e/kWh; refuses what cannot be a grid's intensity.

    >>> s = Signal.constant(0.3, 0, 10, unit="kgCO2e/kWh", kind=intensity_kind())
    >>> check_intensity(s).values
    array([300.])
    """
    where = f"signal {signal.kind!r}"
    if not signal.unit.is_convertible(parse(INTENSITY_UNIT)):
        hint = f"carbon intensity is measured in {INTENSITY_UNIT}"
        raise InputError(f"{signal.unit} is no unit of an intensity", where=where, hint=hint)
    grams = signal.to(INTENSITY_UNIT)
    negative = (grams.values < 0).nonzero()[0]
    if negative.size:
        at = int(negative[0])
        hint = "a net export is no negative emission of those who stay"
        raise InputError(f"value {at} is {grams.values[at]:g}: below zero", where=where, hint=hint)
    return grams


def describe_intensity(signal: Signal) -> str:
    """The identity of a signal in words: basis, scope, unit, zone, and whom to thank.

    >>> s = Signal.constant(300.0, 0, 10, unit="gCO2e/kWh", kind=intensity_kind(), zone="DE",
    ...                     attribution="Electricity Maps, ODbL 1.0")
    >>> describe_intensity(s)
    'average, life-cycle, gCO2e/kWh, DE; Electricity Maps, ODbL 1.0'
    """
    identity = intensity_identity(signal)
    words = [signal.kind] if identity is None else [identity.basis, _SCOPE_WORDS[identity.scope]]
    words.append(str(signal.unit))
    if signal.zone:
        words.append(signal.zone)
    text = ", ".join(words)
    return f"{text}; {signal.attribution}" if signal.attribution else text
