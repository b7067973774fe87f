"""Units that multiply, divide, convert and print, and the way people write durations and sizes.

A unit is an exact rational scale and whole exponents over a few dimensions. Countable things
(cores, GPUs, requests, FLOPs, tokens) are dimensions of their own, not plain numbers: adding
requests per second to FLOPs per second, or reading USD/core/h as USD/gpu/h, is a mistake that
dimensionless counts would let through. Carbon is the only mass here, so `kg` reads as `kgCO2e`.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, overload

from gnomon.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MILLISECOND_NS = 10**6
SECOND_NS = 10**9
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS

DIMENSIONS = (
    *("time", "energy", "carbon", "money", "data"),
    *("core", "gpu", "request", "flop", "token"),
)
"""Order of `Unit.exponents`; the base units are s, J, gCO2e, USD, B and one of each countable."""

# Units come from files and command lines: these keep (1e99)^99 from eating the machine.
_MAX_TEXT, _MAX_DEPTH, _MAX_EXPONENT, _MAX_SCALE_BITS = 400, 20, 99, 512


@dataclass(frozen=True, slots=True, repr=False)
class Unit:
    """A scale to the base units and exponents over `DIMENSIONS`; equal units compare equal.

    >>> parse("W") * parse("h") == parse("Wh")
    True
    >>> str(parse("gCO2e/kWh") * parse("kWh"))
    'gCO2e'
    >>> parse("kW").is_convertible(parse("kWh/d")), parse("kW").is_convertible(parse("kWh"))
    (True, False)
    """

    scale: Fraction
    exponents: tuple[int, ...]

    def __post_init__(self) -> None:
        too_wide = max(self.scale.numerator, self.scale.denominator).bit_length() > _MAX_SCALE_BITS
        if self.scale <= 0 or too_wide or any(abs(e) > _MAX_EXPONENT for e in self.exponents):
            raise InputError("the scale or an exponent of this unit is out of all proportion")

    def __mul__(self, other: Unit) -> Unit:
        exponents = tuple(a + b for a, b in zip(self.exponents, other.exponents, strict=True))
        return Unit(self.scale * other.scale, exponents)

    def __truediv__(self, other: Unit) -> Unit:
        return self * other**-1

    def __pow__(self, exponent: int) -> Unit:
        if abs(exponent) > _MAX_EXPONENT:
            raise InputError(f"a unit to the power {exponent} is out of all proportion")
        return Unit(self.scale**exponent, tuple(e * exponent for e in self.exponents))

    def __str__(self) -> str:
        return _spell(self)

    def __repr__(self) -> str:
        return f"parse({str(self)!r})"

    @property
    def is_dimensionless(self) -> bool:
        return not any(self.exponents)

    @property
    def base(self) -> Unit:
        return Unit(Fraction(1), self.exponents)

    def is_convertible(self, other: Unit) -> bool:
        return self.exponents == other.exponents


def _unit(scale: Fraction | int, **exponents: int) -> Unit:
    return Unit(Fraction(scale), tuple(exponents.get(name, 0) for name in DIMENSIONS))


_ONE = _unit(1)
_SI = {p: Fraction(10) ** e for p, e in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18))}
_SI[""] = Fraction(1)
_BINARY = {"": Fraction(1)} | {f"{p}i": Fraction(1024) ** (i + 1) for i, p in enumerate("KMGTP")}

# A family is what format_si may move a number along: stem, unit of the stem, prefixes it takes.
_FAMILIES: tuple[tuple[str, Unit, str], ...] = (
    ("s", _unit(1, time=1), "n u m"),
    ("Hz", _unit(1, time=-1), "k M G"),
    ("J", _unit(1, energy=1), "n u m k M G T"),
    ("Wh", _unit(3600, energy=1), "k M G T"),
    ("W", _unit(1, energy=1, time=-1), "u m k M G"),
    ("gCO2e", _unit(1, carbon=1), "u m k"),
    ("tCO2e", _unit(10**6, carbon=1), "k M"),
    ("B", _unit(1, data=1), "k M G T P"),
    ("bit", _unit(Fraction(1, 8), data=1), "k M G T"),
    ("core", _unit(1, core=1), "m"),
    ("req", _unit(1, request=1), "k M"),
    ("FLOP", _unit(1, flop=1), "k M G T P E"),
    ("token", _unit(1, token=1), "k M G T"),
)
_LONERS = {
    "min": _unit(60, time=1),
    "h": _unit(3600, time=1),
    "d": _unit(86_400, time=1),
    "y": _unit(365 * 86_400, time=1),  # 365 days: what amortisation tables mean by a year
    # Money takes no part in format_si: 12,000 USD reads better than 12 kUSD.
    "USD": _unit(1, money=1),
    "cent": _unit(Fraction(1, 100), money=1),
    "mUSD": _unit(Fraction(1, 1000), money=1),
    "kUSD": _unit(1000, money=1),
    "MUSD": _unit(10**6, money=1),
    "gpu": _unit(1, gpu=1),
    "%": _unit(Fraction(1, 100)),
}
# 'TFLOPs' is absent on purpose: half of the world means a count by it, the other half a rate.
_ALIASES = (
    ("s", "sec second seconds"),
    ("min", "minute minutes"),
    ("h", "hr hour hours"),
    ("d", "day days"),
    ("y", "yr year years"),
    ("gCO2e", "g gCO2 gCO2eq"),
    ("mgCO2e", "mg mgCO2 mgCO2eq"),
    ("kgCO2e", "kg kgCO2 kgCO2eq"),
    ("tCO2e", "t tCO2 tCO2eq"),
    ("USD", "usd $"),
    ("B", "byte bytes"),
    ("core", "cores cpu vCPU"),
    ("gpu", "gpus GPU"),
    ("req", "request requests"),
    ("FLOP", "flop"),
    ("token", "tok tokens"),
    ("%", "percent pct"),
)


def _build_symbols() -> tuple[dict[str, Unit], dict[str, tuple[str, dict[str, Fraction]]]]:
    symbols = dict(_LONERS)
    families: dict[str, tuple[str, dict[str, Fraction]]] = {}
    for stem, unit, prefixes in _FAMILIES:
        si = {p: _SI[p] for p in ("", *prefixes.split())}
        for ladder in (si, _BINARY) if stem == "B" else (si,):
            for prefix, factor in ladder.items():
                symbols[prefix + stem] = Unit(unit.scale * factor, unit.exponents)
                families.setdefault(prefix + stem, (stem, ladder))
    symbols |= {alias: symbols[name] for name, aliases in _ALIASES for alias in aliases.split()}
    symbols["rps"] = symbols["req"] / symbols["s"]
    for p in ("", "k", "M", "G", "T", "P", "E"):
        symbols[f"{p}FLOPS"] = symbols[f"{p}FLOP"] / symbols["s"]
    for p in ("k", "M", "G", "T"):
        symbols[f"{p}bps"] = symbols[f"{p}bit"] / symbols["s"]
    return symbols, families


_SYMBOLS, _FAMILY_OF = _build_symbols()

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?(?![\d.]))"
    r"|(?P<symbol>[A-Za-z%$][A-Za-z0-9]*)|(?P<mark>\*\*|[*/^()-]))"
)


@lru_cache(maxsize=1024)
def parse(text: str) -> Unit:
    """Read a unit: symbols joined by `*`, a space or `/`, with `^` powers, brackets and factors.

    >>> parse("USD/(core h)") == parse("USD/core/h")
    True
    >>> str(parse("kgCO2e/MWh")), str(parse("TFLOPS")), str(parse("1/7 J/s"))
    ('gCO2e/kWh', 'TFLOP/s', '1/7 W')
    >>> parse("kwh")
    Traceback (most recent call last):
    gnomon.errors.InputError: unit 'kwh': unknown unit 'kwh'; did you mean 'kWh'?
    """
    plain = text.replace("µ", "u").replace("μ", "u").replace("₂", "2").replace("·", "*")
    plain = plain.replace(" per ", "/").strip()
    if not plain or len(plain) > _MAX_TEXT:
        raise InputError(
            "a unit cannot be empty" if not plain else "a unit this long is no unit",
            hint="write '1' for a plain number" if not plain else None,
        )
    tokens, position = [], 0
    while position < len(plain):
        match = _TOKEN.match(plain, position)
        if match is None:
            raise InputError(f"cannot read {plain[position:].strip()!r}", where=f"unit {text!r}")
        tokens.append((str(match.lastgroup), match[match.lastgroup or 0]))
        position = match.end()
    reader = _Reader(text, tokens)
    unit = reader.product(0)
    if reader.tokens:
        raise reader.error(f"cannot place {reader.tokens[0][1]!r}")
    return unit


class _Reader:
    """Recursive descent over the tokens of one unit text."""

    def __init__(self, text: str, tokens: list[tuple[str, str]]) -> None:
        self.text, self.tokens = text, tokens

    def error(self, what: str, hint: str | None = None) -> InputError:
        return InputError(what, where=f"unit {self.text!r}", hint=hint)

    def take(self, *marks: str) -> str | None:
        if self.tokens and self.tokens[0] in {("mark", mark) for mark in marks}:
            return self.tokens.pop(0)[1]
        return None

    def product(self, depth: int) -> Unit:
        if depth > _MAX_DEPTH:
            raise self.error("too many brackets")
        unit = self.power(depth)
        while self.tokens and self.tokens[0] != ("mark", ")"):
            divides = self.take("*", "/") == "/"
            factor = self.power(depth)
            unit = unit / factor if divides else unit * factor
        return unit

    def power(self, depth: int) -> Unit:
        unit = self.atom(depth)
        if self.take("^", "**") is None:
            return unit
        sign = -1 if self.take("-") else 1
        group, value = self.tokens.pop(0) if self.tokens else ("", "nothing")
        if group != "number" or not value.isdecimal():
            raise self.error(f"a power has to be a whole number, not {value!r}")
        return unit ** (sign * int(value[:4]))

    def atom(self, depth: int) -> Unit:
        if self.take("("):
            unit = self.product(depth + 1)
            if self.take(")") is None:
                raise self.error("a bracket is not closed")
            return unit
        group, value = self.tokens.pop(0) if self.tokens else ("", "")
        if group == "number" and Fraction(value) > 0:
            return Unit(Fraction(value), _ONE.exponents)
        if group != "symbol":
            raise self.error(f"expected a unit, found {value!r}" if value else "ends too early")
        if value not in _SYMBOLS:
            raise self.error(f"unknown unit {value!r}", _did_you_mean(value))
        return _SYMBOLS[value]


def _did_you_mean(symbol: str) -> str:
    same_letters = [name for name in _SYMBOLS if name.lower() == symbol.lower()]
    almost = difflib.get_close_matches(symbol, _SYMBOLS, n=2, cutoff=0.9)
    close = list(dict.fromkeys(same_letters + almost)) or difflib.get_close_matches(
        symbol, _SYMBOLS, n=3, cutoff=0.6
    )
    if not close:
        return "known units are such as W, kWh, gCO2e, USD, GiB, ms, core, req, TFLOP, %"
    return f"did you mean {' or '.join(repr(name) for name in close)}?"


# Spellings tried by str(), best first; the first that meets the scale exactly is canonical.
_RANKED = {
    "power": "W kW MW GW mW uW",
    "frequency": "Hz kHz MHz GHz",
    "carbon": "gCO2e kgCO2e tCO2e mgCO2e ugCO2e ktCO2e MtCO2e",
    "money": "USD cent mUSD kUSD MUSD",
    "data": "B GiB MiB KiB TiB PiB GB MB kB TB PB bit Gbit Mbit kbit Tbit",
    "request": "req kreq Mreq",
    "flop": "FLOP TFLOP GFLOP PFLOP MFLOP kFLOP EFLOP",
    "token": "token Mtoken ktoken Gtoken Ttoken",
    "energy": "J kWh MWh Wh GWh TWh MJ kJ GJ TJ mJ uJ nJ",
    "core": "core mcore",
    "gpu": "gpu",
    "time": "s h min d ms us ns y",
}
_PRINTED = {name: symbols.split() for name, symbols in _RANKED.items()}


@lru_cache(maxsize=1024)
def _spell(unit: Unit) -> str:
    if unit.is_dimensionless:
        return "%" if unit.scale == _SYMBOLS["%"].scale else str(unit.scale)
    plain = {name: e for name, e in zip(DIMENSIONS, unit.exponents, strict=True) if e}
    spellings = [plain]
    if plain == {"time": -1}:
        spellings.insert(0, {"frequency": 1})
    elif plain.get("energy", 0) > 0 and plain.get("time", 0) < 0:
        watts = plain | {"power": 1, "energy": plain["energy"] - 1, "time": plain["time"] + 1}
        spellings.insert(0, {name: e for name, e in watts.items() if e})
    for powers in spellings:
        if len(powers) <= 3 and (symbols := _search(unit.scale, powers)):
            return _join(symbols, powers)
    bases = {name: _PRINTED[name][0] for name in spellings[0]}
    if unit.scale == 1:
        return _join(bases, spellings[0])
    text = _join(bases, spellings[0])
    return f"{unit.scale}{text[1:]}" if text.startswith("1/") else f"{unit.scale} {text}"


def _search(scale: Fraction, powers: dict[str, int]) -> dict[str, str] | None:
    """The best-ranked symbols whose scales multiply to `scale`; seconds beat any other time."""
    names = list(powers)
    choices = [range(len(_PRINTED[name])) for name in names]
    seconds = [i for i, name in enumerate(names) if name == "time"]
    ranked = sorted(
        itertools.product(*choices), key=lambda r: ([r[i] for i in seconds], sum(r), r)
    )
    for ranks in ranked:
        symbols = {name: _PRINTED[name][rank] for name, rank in zip(names, ranks, strict=True)}
        if scale == math.prod(_SYMBOLS[symbols[name]].scale ** powers[name] for name in names):
            return symbols
    return None


def _join(symbols: dict[str, str], powers: dict[str, int]) -> str:
    ordered = [name for name in _PRINTED if name in powers]
    texts = {n: symbols[n] + (f"^{abs(powers[n])}" if abs(powers[n]) > 1 else "") for n in ordered}
    above = "*".join(texts[name] for name in ordered if powers[name] > 0) or "1"
    return above + "".join(f"/{texts[name]}" for name in ordered if powers[name] < 0)


@overload
def convert(value: float, from_unit: Unit | str, to_unit: Unit | str) -> float: ...
@overload
def convert(
    value: npt.NDArray[np.float64], from_unit: Unit | str, to_unit: Unit | str
) -> npt.NDArray[np.float64]: ...
def convert(value: Any, from_unit: Unit | str, to_unit: Unit | str) -> Any:
    """Express a number, or an array of them, in another unit of the same dimensions.

    >>> convert(1.5, "kWh", "J"), convert(250, "mcore", "core")
    (5400000.0, 0.25)
    """
    source, target = as_unit(from_unit), as_unit(to_unit)
    if not source.is_convertible(target):
        raise InputError(f"'{source}' cannot be expressed in '{target}': the dimensions differ")
    ratio = source.scale / target.scale
    # One multiplication and one division by exact integers round better than by the float ratio.
    try:
        return value * float(ratio.numerator) / float(ratio.denominator)
    except OverflowError:
        return value * float(ratio)


def as_unit(unit: Unit | str) -> Unit:
    """The unit itself, or the parsed text: what every function with a `unit` argument does."""
    return unit if isinstance(unit, Unit) else parse(unit)


def _digits(value: float) -> str:
    """Three significant digits, no exponent and thousands separated while a person can read it."""
    if value == 0 or not 1e-3 <= abs(value) < 1e7:
        return f"{value:.3g}"
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def choose_si(magnitude: float, unit: Unit | str) -> tuple[float, str]:
    """The factor and the label under which a magnitude has one to three digits before the point.

    >>> choose_si(1234.0, "W")
    (0.001, 'kW')
    """
    text = str(as_unit(unit))
    match = re.match(r"[A-Za-z0-9]+", text)
    if match is None or match[0] not in _FAMILY_OF or text[match.end() :].startswith("^"):
        return 1.0, text
    stem, ladder = _FAMILY_OF[match[0]]
    here = ladder[match[0].removesuffix(stem)]
    rungs = sorted(ladder.items(), key=lambda rung: rung[1])
    # 0.9995 rather than 1: what rounds up to 1000 W should already read 1 kW.
    fitting = [rung for rung in rungs if abs(magnitude) * float(here / rung[1]) >= 0.9995]
    prefix, factor = fitting[-1] if fitting else rungs[0]
    if magnitude == 0:
        prefix, factor = match[0].removesuffix(stem), here
    return float(here / factor), prefix + stem + text[match.end() :]


def format_si(value: float, unit: Unit | str) -> str:
    """A number for people: three significant digits and a fitting prefix.

    >>> format_si(1234.5, "W"), format_si(0.0042, "gCO2e/kWh"), format_si(3.2, "%")
    ('1.23 kW', '4.2 mgCO2e/kWh', '3.2 %')
    """
    factor, label = choose_si(value, unit)
    return _digits(value * factor) if label == "1" else f"{_digits(value * factor)} {label}"


def format_bytes(size_bytes: float) -> str:
    """A size in binary steps.

    >>> format_bytes(16 * 2**30), format_bytes(1536), format_bytes(512)
    ('16 GiB', '1.5 KiB', '512 B')
    """
    for prefix, factor in reversed(_BINARY.items()):
        if abs(size_bytes) >= 0.9995 * int(factor) or not prefix:
            return f"{_digits(size_bytes / int(factor))} {prefix}B"
    raise AssertionError("the ladder ends in the empty prefix")


def format_duration(dur_ns: float) -> str:
    """A duration for people: three digits up to a minute, whole parts above.

    >>> format_duration(78_600_000), format_duration(200e9), format_duration(100_000 * 10**9)
    ('78.6 ms', '3 min 20 s', '1 d 3 h 47 min')
    """
    if not math.isfinite(dur_ns):
        raise InputError(f"a duration has to be finite, not {dur_ns}")
    if dur_ns < 0:
        return f"-{format_duration(-dur_ns)}"
    if dur_ns < 59.95e9:
        return format_si(dur_ns / 1e9, "s") if dur_ns else "0 s"
    seconds = round(dur_ns / 1e9)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    minutes = round(dur_ns / 60e9)
    days, rest = divmod(minutes, 1440)
    hours = f"{rest // 60} h {rest % 60} min"
    return f"{days:,} d {hours}" if days else hours


_NUMBER = r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,2})?"


def parse_duration(text: str) -> int:
    """Nanoseconds of a written duration, rounded to the nearest one.

    >>> parse_duration("1.5ms"), parse_duration("1h30m"), parse_duration("2 min")
    (1500000, 5400000000000, 120000000000)
    """
    parts = re.findall(rf"\s*({_NUMBER})\s*([A-Za-zµμ]+)", text[:200])
    if not parts or re.sub(rf"\s*{_NUMBER}\s*[A-Za-zµμ]+\s*", "", text):
        raise InputError(f"{text!r} is no duration", hint="write it as 250us, 1.5ms, 30s or 1h30m")
    total_s = Fraction(0)
    for number, name in parts:
        unit = parse("min" if name == "m" else name)
        if not unit.is_convertible(_SYMBOLS["s"]):
            raise InputError(f"{name!r} is no unit of time", where=f"duration {text!r}")
        total_s += Fraction(number) * unit.scale
    dur_ns = round(total_s * 10**9)
    if not 0 <= dur_ns < 2**63:
        raise InputError(f"duration {text!r} is out of range", hint="0 to 292 years")
    return dur_ns


def parse_bytes(text: str) -> int:
    """Bytes of a written size: 16GiB and 16Gi are binary, 16GB and 16G decimal, 16 is bytes.

    >>> parse_bytes("16GiB"), parse_bytes("1.5 kB"), parse_bytes("512")
    (17179869184, 1500, 512)
    """
    match = re.fullmatch(rf"\s*({_NUMBER})\s*([A-Za-z]*)\s*", text)
    if match is None:
        raise InputError(f"{text!r} is no size", hint="write it as 512, 64MiB or 1.5GB")
    short = {"K": "k"}.get(match[2], match[2])
    unit = parse(f"{short}B" if short in _BINARY or short in _SI else short)
    size_bytes = Fraction(match[1]) * unit.scale
    if not unit.is_convertible(_SYMBOLS["B"]):
        raise InputError(f"{match[2]!r} is no unit of data", where=f"size {text!r}")
    if size_bytes.denominator != 1 or not 0 <= size_bytes < 2**63:
        raise InputError(f"size {text!r} is not a whole, non-negative number of bytes")
    return int(size_bytes)


def parse_percent(text: str) -> float:
    """The fraction of a written percentage; a bare number is a fraction and at most 1.

    >>> parse_percent("3%"), parse_percent("0.25")
    (0.03, 0.25)
    >>> parse_percent("3")
    Traceback (most recent call last):
    gnomon.errors.InputError: '3' could mean 3 % or 300 %; write 3% or 0.03
    """
    match = re.fullmatch(rf"\s*({_NUMBER})\s*(%?)\s*", text)
    if match is None:
        raise InputError(f"{text!r} is no percentage", hint="write it as 3% or 0.03")
    number = Fraction(match[1])
    if match[2]:
        return float(number / 100)
    if abs(number) > 1:
        what = f"{match[1]!r} could mean {match[1]} % or {float(number * 100):g} %"
        raise InputError(what, hint=f"write {match[1]}% or {float(number / 100):g}")
    return float(number)
