"""Amounts as Kubernetes writes them: `500m`, `1.5`, `2`, exactly."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from gnomon.errors import InputError

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(\d+\.?\d*|\.\d+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?",
    re.ASCII,
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {f"{letter}i": 10 * (power + 1) for power, letter in enumerate("KMGTPE")}


def parse_quantity(text: str) -> Fraction:
    """An amount, exactly.

    >>> parse_quantity("500m"), parse_quantity("1.5"), parse_quantity("2Ki")
    (Fraction(1, 2), Fraction(3, 2), Fraction(2048, 1))
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > 64:
        raise InputError(f"{text[:64]!r} is no quantity", hint="such as 500m, 1.5 or 2")
    number, suffix = Fraction(Decimal(match["number"])), match["suffix"] or ""
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    power = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:] or 0)
    scale = Fraction(10 ** abs(power))
    return number * scale if power >= 0 else number / scale


def print_cpu(cores: float | Fraction) -> str:
    """Cores as Kubernetes prints them: whole, else in thousandths, to the nearest.

    >>> print_cpu(2.0), print_cpu(0.25), print_cpu(0.1 + 0.2)
    ('2', '250m', '300m')
    """
    thousandths = round(cores * 1000)
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)
