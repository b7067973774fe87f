"""Recipes for a clone that differs from its original: in data, code, mixes, over time.

Such clones were proposed for batch programs: clone morphing (ISPASS 2017).

A bundle with a recipe keeps the figures of the original; tuning needs those. The recipe is
carried out when the clone is written, on the generated code and on what the load generator
sends, not on the clone's runtime.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from gnomon.errors import InputError
from gnomon.systems.clone.assembly import EXCHANGEABLE, Quota
from gnomon.systems.clone.instructions import CLASSES, INDEX
from gnomon.systems.clone.kinds import kinds_of, nearest_kind
from gnomon.systems.clone.traffic import LoadPhase, Traffic
from gnomon.units import SECOND_NS, parse_duration

_LEAST, _MOST = 1 / 64, 64.0
_MOST_COPIES = 16.0  # of the code: it has to be assembled
#: By how much a factor may be missed, where it is a number of equal parts.
_OFF = 0.02
_ROUNDED = 1e-6


class Phase(msgspec.Struct, frozen=True):
    """A part of a cycle, with factors of the rate and the data, and shares of requests."""

    seconds: float
    rate: float = 1.0
    data: float = 1.0
    mix: dict[str, float] = {}


class Morph(msgspec.Struct, frozen=True):
    """A recipe.

    Attributes:
        data, code: How many times the lines that requests use in turn.
        mix: Shares of requests, by command; the others share what is left.
        instructions: Factors of classes.
        phases: A cycle: the load generator follows rates and mixes, the clone follows the data.
    """

    data: float = 1.0
    code: float = 1.0
    mix: dict[str, float] = {}
    instructions: dict[str, float] = {}
    phases: tuple[Phase, ...] = ()

    def __str__(self) -> str:
        parts = [f"{name} x {value:g}" for name, value in
                 (("data", self.data), ("code", self.code), *self.instructions.items())
                 if value != 1]  # fmt: skip
        parts += [f"{100 * share:g} % {kind}" for kind, share in self.mix.items()]
        for one in self.phases:
            mix = "".join(f", {100 * share:g} % {kind}" for kind, share in one.mix.items())
            parts.append(f"{one.seconds:g} s of rate x {one.rate:g}, data x {one.data:g}{mix}")
        return "; ".join(parts)


class Parts(msgspec.Struct, frozen=True):
    """Factors as numbers of equal parts: so much of the original's data, so many times.

    Attributes:
        memories: Of each phase.
    """

    data: float
    memories: tuple[int, ...]
    code: float
    copies: int


# --- what is typed -------------------------------------------------------------------------------


def parse_pairs(text: str, option: str) -> dict[str, float]:
    """Names with numbers.

    >>> parse_pairs("GET=0.9,set=0.1", "--mix")
    {'get': 0.9, 'set': 0.1}
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (one.strip().lower() for one in part.partition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not name or not math.isfinite(number) or name in found:
            raise InputError(f"{part!r} is no name with a number of its own", where=option,
                             hint="such as get=0.9,set=0.1")  # fmt: skip
        found[name] = number
    return found


def parse_phase(text: str) -> Phase:
    """A duration and what is different in it.

    >>> parse_phase("60s:rate=2,data=4,get=0.5")
    Phase(seconds=60.0, rate=2.0, data=4.0, mix={'get': 0.5})
    """
    duration, colon, rest = text.partition(":")
    seconds = parse_duration(duration) / SECOND_NS
    if not 0.01 <= seconds <= 1e6:
        raise InputError(f"a phase of {seconds:g} s", where="--phase", hint="0.01 to a million")
    pairs = parse_pairs(rest, "--phase") if colon else {}
    return Phase(seconds, pairs.pop("rate", 1.0), pairs.pop("data", 1.0), pairs)


def make_morph(
    traffic: Traffic, data: float, code: float, mix: str | None, instructions: str | None,
    phases: Sequence[str],
) -> Morph:  # fmt: skip
    """A recipe as it is typed, checked."""
    found = Morph(
        data, code, parse_pairs(mix, "--mix") if mix else {},
        parse_pairs(instructions, "--instructions") if instructions else {},
        tuple(map(parse_phase, phases)),
    )  # fmt: skip
    _check(found, traffic)
    return found


def _check(morph: Morph, traffic: Traffic) -> None:
    """Raises InputError: it cannot be carried out for a service with this traffic."""
    factors = [("--code", morph.code, _MOST_COPIES), ("--data", morph.data, _MOST)]
    factors += [(f"--instructions {name}", one, _MOST) for name, one in morph.instructions.items()]
    for one in morph.phases:
        factors += [("--phase rate", one.rate, _MOST), ("--phase data", one.data, _MOST)]
    for where, value, most in factors:
        if not _LEAST <= value <= most:
            raise InputError(f"{value:g} is out of range", where=where, hint=f"1/64 to {most:g}")
    known = [one for group in EXCHANGEABLE for one in group]
    if wrong := [one for one in morph.instructions if one not in known]:
        what = "cannot be exchanged" if wrong[0] in CLASSES else "is no class of instructions"
        raise InputError(f"{wrong[0]!r} {what}", where="--instructions", hint=", ".join(known))
    weights_of(traffic, morph.mix, "--mix")
    for one in morph.phases:
        weights_of(traffic, one.mix, "--phase")
    parts_of(morph)


# --- what is sent --------------------------------------------------------------------------------


def weights_of(traffic: Traffic, shares: Mapping[str, float], where: str) -> list[float]:
    """Of the classes of requests, so that commands have these shares; others share what is left.

    A command that is of several kinds has names with sizes too, such as `get-36`.
    """
    total, kinds = sum(shares.values()), kinds_of(traffic)
    if min(shares.values(), default=0.0) < 0 or total > 1 + _ROUNDED:
        raise InputError(f"shares are 0 to 1, and these sum up to {total:g}", where=where)
    names = [(one.verb.lower(), f"{one.verb.lower()}-{one.request_bytes}") for one in kinds]
    names = [names[nearest_kind(kinds, one.verb, one.request_bytes)] for one in traffic.classes]
    owner = [[name for name in shares if name in mine] for mine in names]
    for name in shares:
        if [name] not in owner:
            known = dict.fromkeys(name for i in (0, 1) for name in (mine[i] for mine in names))
            raise InputError(f"there is no request {name!r}, or it is named twice", where=where,
                             hint=f"there are {', '.join(known)}")  # fmt: skip
    if all(owner) and total < 1 - _ROUNDED:
        raise InputError(f"all requests are named, and the shares sum up to {total:g}",
                         where=where, hint="to 1")  # fmt: skip
    of_group = {"": max(1 - total, 0.0), **shares}
    groups = [mine[0] if mine else "" for mine in owner]
    sums = dict.fromkeys(groups, 0.0)
    for group, one in zip(groups, traffic.classes, strict=True):
        sums[group] += one.weight
    return [of_group[group] * one.weight / sums[group]
            for group, one in zip(groups, traffic.classes, strict=True)]  # fmt: skip


def morphed_traffic(traffic: Traffic, morph: Morph) -> Traffic:
    """What the load generator sends, and when what."""
    base = weights_of(traffic, morph.mix, "--mix")
    classes = tuple(msgspec.structs.replace(one, weight=weight)
                    for one, weight in zip(traffic.classes, base, strict=True))  # fmt: skip
    phases = tuple(
        LoadPhase(one.seconds, one.rate,
                  tuple(weights_of(traffic, one.mix, "--phase") if one.mix else base))
        for one in morph.phases
    )  # fmt: skip
    keys = max(round(traffic.keys * morph.data), 1)
    return msgspec.structs.replace(traffic, classes=classes, keys=keys, phases=phases)


# --- what is executed ----------------------------------------------------------------------------


def parts_of(morph: Morph) -> Parts:
    """Raises InputError: phases whose data are no multiples of one part."""
    phases = morph.phases or (Phase(0.0),)
    data, memories = _equal_parts([morph.data * one.data for one in phases])
    code, (copies,) = _equal_parts([morph.code])
    return Parts(data, tuple(memories), code, copies)


def _equal_parts(factors: Sequence[float]) -> tuple[float, list[int]]:
    """A part of at most 1, and how many of it each factor is.

    >>> _equal_parts([1.5]), _equal_parts([0.5]), _equal_parts([1.0, 4.0])
    ((0.75, [2]), (0.5, [1]), (1.0, [1, 4]))
    """
    for count in range(1, round(_MOST) + 1):
        part = min(factors) / count
        counts = [round(one / part) for one in factors]
        off = max(abs(n * part / one - 1) for n, one in zip(counts, factors, strict=True))
        if part <= 1 and off <= _OFF and max(counts) <= _MOST:
            return part, counts
    raise InputError(
        f"data x {', '.join(f'{one:g}' for one in factors)}: no multiples of one part",
        where="--phase", hint="such as 1 and 1.5; the largest is at most 64 parts",
    )  # fmt: skip


def exchanged(quota: Quota, factors: Mapping[str, float]) -> Quota:
    """Another mix of classes that can stand for one another: as many in all as before."""
    mix = list(quota.mix)
    for group in EXCHANGEABLE:
        named, others = ([INDEX[one] for one in group if (one in factors) is is_named]
                         for is_named in (True, False))  # fmt: skip
        left, total = (sum(mix[i] for i in mine) for mine in (others, named + others))
        for i in named:
            mix[i] *= factors[CLASSES[i]]
        asked = sum(mix[i] for i in named)
        # More than there are, or less and nothing else: only what they are to one another.
        if asked > total or (left == 0 and asked > 0):
            for i in named:
                mix[i] *= total / asked
            asked = total
        for i in others:
            mix[i] *= (total - asked) / left if left else 0.0
    return msgspec.structs.replace(quota, mix=tuple(mix))
