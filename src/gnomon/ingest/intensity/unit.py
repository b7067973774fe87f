"""The unit of an intensity, as headers of tables write it: gCO₂eq/kWh, lbs CO2 per MWh ..."""

from __future__ import annotations

import re
from fractions import Fraction

from gnomon.errors import InputError
from gnomon.ingest.metrics.signal_csv import unit_in
from gnomon.series.intensity import INTENSITY_UNIT
from gnomon.units import Unit, parse

#: Grams of what headers call a mass. A ton is left out: there are three of them.
_GRAMS = {
    **dict.fromkeys(("mg",), Fraction(1, 1000)),
    **dict.fromkeys(("g", "gram", "grams"), Fraction(1)),
    **dict.fromkeys(("lb", "lbs", "pound", "pounds"), Fraction(45359237, 100000)),
    **dict.fromkeys(("kg", "kilogram", "kilograms"), Fraction(1000)),
    **dict.fromkeys(("t", "tonne", "tonnes"), Fraction(10**6)),
}
_ENERGIES = {name.lower(): name for name in ("kWh", "MWh", "GWh")}
_MASSES = "|".join(sorted(_GRAMS, key=len, reverse=True))
# Runs are bounded: a header may be a megabyte of blanks.
_GAS = r"[\s_-]{0,3}(?:co2[\s_-]{0,3}(?:equivalents?|equiv|eq|e)?\.?)?"
_PER = r"(?:\s{0,3}/\s{0,3}|[\s_-]{1,3}per[\s_-]{1,3}|_)"
_INTENSITY = re.compile(rf"(?<![a-z0-9])({_MASSES}){_GAS}{_PER}(kwh|mwh|gwh)(?![a-z0-9])")
_BRACKETED = re.compile(r"[\[(]([^\])]{0,80})[\])]")
#: What else stands in brackets: which intensity, not in which unit.
_ABOUT = {
    *("direct", "operational", "combustion", "life", "cycle", "lifecycle", "lca"),
    *("average", "avg", "mean", "hourly", "marginal", "moer", "aoer"),
    *("estimated", "estimate", "forecast", "actual", "measured"),
    *("consumption", "production", "generation", "location", "market", "based"),
    *("co2", "co2e", "co2eq", "utc", "and", "or"),
}
#: Words that are part of a unit, which then should have been a whole one. A single letter may be
#: anything.
_PARTS = {name for name in _GRAMS if len(name) > 1} | {*_ENERGIES, "wh", "ton", "tons", "mmbtu"}
_LONGEST = 400


def column_unit(column: str, where: str) -> Unit | None:
    """The unit that a column's name says; None where it says nothing of a unit.

    >>> str(column_unit("Carbon intensity gCO₂eq/kWh (direct)", "a.csv"))
    'gCO2e/kWh'
    >>> column_unit("intensity (lbs CO2/MWh)", "a.csv") == column_unit("lb_per_mwh", "a.csv")
    True
    >>> column_unit("carbon_intensity (LCA)", "a.csv") is None
    True
    """
    column = column[:_LONGEST]
    plain = column.replace("₂", "2").lower()
    if (match := _INTENSITY.search(plain)) is not None:
        per_energy = parse(f"gCO2e/{_ENERGIES[match[2]]}")
        return Unit(per_energy.scale * _GRAMS[match[1]], per_energy.exponents)
    try:
        return unit_in(column, where)
    except InputError:
        pass
    if (unknown := _unknown(plain)) is not None:
        what = f"column {column!r}: {unknown!r} is no unit that is known"
        hint = f"an intensity is measured in {INTENSITY_UNIT}, kg/MWh, lb/MWh ..."
        raise InputError(what, where=where, hint=hint)
    return None


def _unknown(plain: str) -> str | None:
    """What in a name is meant for a unit: in brackets, by a slash, or a word of one."""
    bare = _BRACKETED.sub(" ", plain)
    slashed = [word for word in bare.split() if "/" in word]
    for text in (*_BRACKETED.findall(plain), *slashed):
        if not _ABOUT.issuperset(_words(text)):
            return str(text)
    return next((word for word in _words(bare) if word in _PARTS), None)


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9%$]+", text) if word]
