"""What-if variants of a clone: more or less data, more or less code, other mixes, phases.

A morphed bundle is the bundle with a recipe. The recipe is carried out when the clone is written:
tuning needs the original as it was, and finds what the clone's runtime adds, which no recipe
changes.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from gnomon.errors import InputError
from gnomon.systems.clone.assembly import EXCHANGEABLE, Quota
from gnomon.systems.clone.instructions import CLASSES, INDEX
from gnomon.systems.clone.kinds import kinds_of, nearest_kind
from gnomon.systems.clone.packing import copied, packed
from gnomon.systems.clone.recording import BUCKETS, bucket_of, distance_of
from gnomon.systems.clone.server import READS
from gnomon.systems.clone.skeleton import AWAY, CONNECTION, CONSTANT, NEAR, Skeleton
from gnomon.systems.clone.traffic import LoadPhase, Traffic
from gnomon.systems.clone.turns import Turns
from gnomon.units import SECOND_NS, parse_duration

_LEAST, _MOST = 1 / 64, 64.0
#: Memories and copies, and by how much a factor may be missed.
_MOST_MEMORIES, _MOST_COPIES, _OFF = 128, 16, 0.02
#: Edges turn once a request; a little more often does no harm.
_TURNS_A_REQUEST = 1.05
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
        data, code: Factors of the lines that are touched, and of how far away they are.
        mix: Shares of requests, by command or number of a kind.
        instructions: Factors of shares, by class.
        phases: A cycle; the load generator follows rates and mixes, the clone follows the data.
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
        parts += [f"{one.seconds:g} s of rate x {one.rate:g}, data x {one.data:g}"
                  for one in self.phases]  # fmt: skip
        return ", ".join(parts) or "nothing"


# --- what is typed -------------------------------------------------------------------------------


def parse_pairs(text: str, option: str) -> dict[str, float]:
    """Names with numbers, small letters.

    >>> parse_pairs("GET=0.9,set=0.1", "--mix")
    {'get': 0.9, 'set': 0.1}
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (one.strip() for one in part.partition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not name or not math.isfinite(number) or name.lower() in found:
            raise InputError(f"{part!r} is no name with a number of its own", where=option,
                             hint="such as get=0.9,set=0.1")  # fmt: skip
        found[name.lower()] = number
    return found


def parse_phase(text: str) -> Phase:
    """A duration and what is other in it.

    >>> parse_phase("60s:rate=2,data=4,get=0.5")
    Phase(seconds=60.0, rate=2.0, data=4.0, mix={'get': 0.5})
    """
    where = "--phase"
    duration, colon, rest = text.partition(":")
    try:
        bare = re.fullmatch(r"\s*\d+(\.\d+)?\s*", duration)
        seconds = parse_duration(f"{duration}s" if bare else duration) / SECOND_NS
    except InputError:
        seconds = 0.0
    if seconds <= 0:
        raise InputError(f"{text!r} does not begin with a duration", where=where,
                         hint="such as 60s:rate=2,data=4")  # fmt: skip
    pairs = parse_pairs(rest, where) if colon else {}
    rate, data = pairs.pop("rate", 1.0), pairs.pop("data", 1.0)
    return Phase(seconds, _factor(rate, f"{where} rate"), _factor(data, f"{where} data"), pairs)


def _factor(value: float, where: str) -> float:
    if not _LEAST <= value <= _MOST:  # also where it is no number
        raise InputError(f"{value:g} is no factor", where=where, hint="1/64 to 64")
    return value


def combine(old: Morph | None, new: Morph, traffic: Traffic) -> Morph:
    """One recipe after another, checked: factors multiply, a mix and phases replace earlier ones.

    Raises:
        InputError: A factor out of range, a kind or a class that there is none of, shares that do
            not sum up to 1.
    """
    old = old or Morph()
    factors = dict(old.instructions)
    for name, value in new.instructions.items():
        factors[name] = factors.get(name, 1.0) * _factor(value, f"--instructions {name}")
    known = [one for group in EXCHANGEABLE for one in group]
    if wrong := [one for one in factors if one not in known]:
        what = "cannot be exchanged" if wrong[0] in CLASSES else "is no class of instructions"
        raise InputError(f"{wrong[0]!r} {what}", where="--instructions", hint=", ".join(known))
    found = Morph(
        _factor(old.data * _factor(new.data, "--data"), "--data"),
        _factor(old.code * _factor(new.code, "--code"), "--code"),
        new.mix or old.mix, factors, new.phases or old.phases,
    )  # fmt: skip
    weights_of(traffic, found.mix, "--mix")
    for one in found.phases:
        weights_of(traffic, one.mix, "--phase")
    turns_of(found, ())
    return found


# --- what is sent --------------------------------------------------------------------------------


def weights_of(traffic: Traffic, shares: Mapping[str, float], where: str) -> list[float]:
    """Of the classes of requests, so that kinds have these shares; others share what is left."""
    kinds, weights = kinds_of(traffic), [one.weight for one in traffic.classes]
    left = dict(enumerate(traffic.classes))
    found = [0.0] * len(weights)
    total = sum(shares.values())
    if not shares:
        return weights
    if min(shares.values()) < 0 or total > 1 + _ROUNDED:
        raise InputError(f"shares are 0 to 1, and these sum up to {total:g}", where=where)
    for name, share in shares.items():
        mine = [i for i, one in left.items() if one.verb.lower() == name or (name.isdigit()
                and nearest_kind(kinds, one.verb, one.request_bytes) == int(name))]  # fmt: skip
        _deal(found, weights, mine, share)
        if not mine:
            names = dict.fromkeys(
                [*(one.verb.lower() for one in kinds), *map(str, range(len(kinds)))]
            )
            raise InputError(f"there is no kind {name!r} of requests, or it is named twice",
                             where=where, hint=f"there are {', '.join(names)}")  # fmt: skip
        for i in mine:
            del left[i]
    if not left and total < 1 - _ROUNDED:
        raise InputError(f"all kinds are named, and the shares sum up to {total:g}", where=where,
                         hint="to 1")  # fmt: skip
    _deal(found, weights, list(left), max(1.0 - total, 0.0))
    return found


def _deal(found: list[float], weights: Sequence[float], mine: Sequence[int], share: float) -> None:
    total = sum(weights[i] for i in mine)
    for i in mine:
        found[i] = share * weights[i] / total


def morphed_traffic(traffic: Traffic, morph: Morph) -> tuple[Traffic, list[LoadPhase]]:
    """What the load generator sends, and when what."""
    base = weights_of(traffic, morph.mix, "--mix")
    classes = tuple(msgspec.structs.replace(one, weight=weight)
                    for one, weight in zip(traffic.classes, base, strict=True))  # fmt: skip
    phases = [
        LoadPhase(one.seconds, one.rate,
                  tuple(weights_of(traffic, one.mix, "--phase") if one.mix else base))
        for one in morph.phases
    ]  # fmt: skip
    keys = max(round(traffic.keys * morph.data), 1)
    return msgspec.structs.replace(traffic, classes=classes, keys=keys), phases


# --- what is executed ----------------------------------------------------------------------------


def morphed_code(
    skeleton: Skeleton, quota: Quota, morph: Morph, edges: Sequence[tuple[str, float, float]]
) -> tuple[Skeleton, Quota, Turns]:
    """What to generate.

    Args:
        edges: The call that each begins with, executions a request, and instructions of one.
    """
    unit, _ = _units([morph.data * one.data for one in morph.phases or (Phase(0.0),)])
    dense, (copies,) = _units([morph.code], _MOST_COPIES)
    found = _with_less_data(skeleton, unit) if unit < 1 else skeleton
    found = packed(found, dense) if dense < 1 else found
    return (copied(found, copies), _exchanged(quota, morph.instructions), turns_of(morph, edges))


def turns_of(morph: Morph, edges: Sequence[tuple[str, float, float]]) -> Turns:
    """Memories of each phase, copies, and the edges that begin the work on a request."""
    phases = morph.phases or (Phase(0.0),)
    _, memories = _units([morph.data * one.data for one in phases])
    _, (copies,) = _units([morph.code], _MOST_COPIES)
    seconds = [one.seconds for one in phases]
    if len(set(memories)) == 1:
        memories, seconds = memories[:1], seconds[:1]
    turns = Turns(copies, tuple(memories), tuple(seconds))
    turning, often = set[int](), 0.0
    # A service that reads until there is nothing left reads twice for one request: the edge that
    # costs more is the one that works on it.
    order = sorted(range(len(edges)), key=lambda i: -edges[i][1] * edges[i][2])
    for i in order:
        call, _, target = edges[i][0].partition(":")
        if call in READS and target == "connection" and often + edges[i][1] <= _TURNS_A_REQUEST:
            often += edges[i][1]
            turning.add(i)
    return turns if turns.is_plain else msgspec.structs.replace(turns, edges=frozenset(turning))


def _units(factors: Sequence[float], most: int = _MOST_MEMORIES) -> tuple[float, list[int]]:
    """A part of at most 1, and how many of it each factor is.

    >>> _units([1.5]), _units([0.5]), _units([1.0, 4.0])
    ((0.75, [2]), (0.5, [1]), (1.0, [1, 4]))
    """
    for parts in range(1, most + 1):
        unit = min(factors) / parts
        counts = [round(one / unit) for one in factors]
        if max(counts) > most:
            break
        off = max(abs(n * unit / one - 1) for n, one in zip(counts, factors, strict=True))
        if unit <= 1 and off <= _OFF:
            return unit, counts
    raise InputError(
        f"{', '.join(f'{one:g}' for one in factors)} are not multiples of one part of at most 1",
        hint="phases with data=1 and data=1.5 are; the largest is at most 64 parts",
    )


def _with_less_data(skeleton: Skeleton, factor: float) -> Skeleton:
    """Lines that are touched by the same requests become one; what goes away goes less far."""
    number = _folded(skeleton, factor)
    own = max(math.ceil(factor * skeleton.connection_lines), 1)
    blocks = []
    for block in skeleton.blocks:
        ops = [msgspec.structs.replace(op) for op in block.ops]
        for op in ops:
            if op.place == AWAY and op.value < BUCKETS - 1:
                op.value = bucket_of(max(round(factor * distance_of(op.value)), NEAR))
            elif op.place == CONSTANT:
                op.value = number[op.value]
            elif op.place == CONNECTION:
                op.value %= own
        blocks.append(msgspec.structs.replace(block, ops=ops))
    paths = [msgspec.structs.replace(one, lines=round(factor * one.lines))
             for one in skeleton.paths]  # fmt: skip
    return msgspec.structs.replace(
        skeleton, blocks=blocks, paths=paths,
        connection_lines=min(own, skeleton.connection_lines),
    )  # fmt: skip


def _folded(skeleton: Skeleton, factor: float) -> list[int]:
    """For each line the one that takes its place.

    Lines that are touched half a pass apart become one, which is then touched twice a pass, at
    half the distance. Neighbours in time would become hits of the nearest cache.
    """
    often, first = defaultdict[int, float](float), dict[int, int]()
    for path in skeleton.paths:
        touched = dict.fromkeys(op.value for b in path.blocks for op in skeleton.blocks[b].ops
                                if op.place == CONSTANT)  # fmt: skip
        for line in touched:
            often[line] += path.weight
            first.setdefault(line, len(first))
    groups = defaultdict[int, list[int]](list)
    for line in first:
        if skeleton.lines[line] >= 0:  # those of the stack stay where they are
            groups[round(math.log2(max(often[line], 1e-6)))].append(line)
    found = list(range(len(skeleton.lines)))
    for mine in groups.values():
        for i, line in enumerate(mine):
            found[line] = mine[i % max(round(factor * len(mine)), 1)]
    return found


def _exchanged(quota: Quota, factors: Mapping[str, float]) -> Quota:
    """Another mix of classes that can stand for one another: as many in all as before."""
    mix = list(quota.mix)
    for group in EXCHANGEABLE:
        mine = [INDEX[one] for one in group]
        total, named = sum(mix[i] for i in mine), [INDEX[one] for one in group if one in factors]
        for i in named:
            mix[i] *= factors[CLASSES[i]]
        asked, others = sum(mix[i] for i in named), [i for i in mine if i not in named]
        left = sum(mix[i] for i in others)
        for i in others:
            mix[i] *= max(total - asked, 0.0) / max(left, 1e-9)
    return msgspec.structs.replace(quota, mix=tuple(mix))
