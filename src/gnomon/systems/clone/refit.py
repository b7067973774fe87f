"""Moving accesses nearer or farther, so that the reuse distances of a clone become those of the
original.

What the runtime touches and what is left out with calls shift distances. Lines that are touched
once in a pass are given up, and accesses close by are sent away, or the other way round, as many
as are off.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.systems.clone.recording import BUCKETS, Floats, bucket_of, distance_of
from gnomon.systems.clone.skeleton import (
    AWAY,
    CLOSE,
    CONNECTION,
    CONSTANT,
    LOAD,
    NEXT,
    SAVE,
    Op,
    Skeleton,
)  # fmt: skip

#: Lines: nearer ones are in every cache. The first bound is this one or a third of a pass.
_NEAREST = 64
#: Bounds, in lines of a pass.
_PASSES = (0.7, 1.0, 1.4, 3.0, 6.0, 12.0, 24.0, 48.0)
#: Accesses a request: less is not corrected.
_LEAST = 0.3
#: Of accesses beyond the nearest, the share from which to which they tell how long a pass is.
_OF_PASS = (0.1, 0.4)
#: So many of those that are to go far have to be too many before the pass itself is too long.
_MORE = 1.0
#: A line that so many requests touch is one of a pass.
_BY_MOST = 0.7
_OWN = (CONNECTION, NEXT)
#: Lines of a connection that the runtime has.
_OF_RUNTIME = 4


_Line = tuple[int, int]  # its place and number


def refit(
    skeleton: Skeleton, over: Mapping[int, Floats], lines: Mapping[int, float], rng: Generator,
    share: float, *, longer: float = 0.0,
) -> Skeleton:  # fmt: skip
    """Corrects what is too much.

    Args:
        over: Of loads and of stores, by bucket, per request.
        lines: By edge, that one execution touches.
        share: Of what is off, to be corrected.
        longer: Lines by which a pass over the service's data is: see `longer_by`.
    """
    blocks = [msgspec.structs.replace(one, ops=[msgspec.structs.replace(op) for op in one.ops])
              for one in skeleton.blocks]  # fmt: skip
    weights = defaultdict[int, float](float)
    for path in skeleton.paths:
        if path.edge in lines:  # others are not compared
            for number in path.blocks:
                weights[number] += path.weight
    ops = [(op, weights[n]) for n in weights for op in blocks[n].ops]
    order = [ops[i] for i in rng.permutation(len(ops))]
    gone = set[_Line]()
    for edge, much in lines.items():
        gone |= _lines_to_give_up(skeleton, edge, share * much, gone)
    busiest = [path for path in skeleton.paths if path.edge == _busiest(skeleton)]
    one_pass = np.average(
        [path.lines for path in busiest], weights=[path.weight for path in busiest]
    )
    bounds = [
        bucket_of(round(min(_NEAREST, one_pass / 3))),
        *(bucket_of(round(k * one_pass)) for k in _PASSES),
        BUCKETS,
    ]
    far = [bound for bound in bounds if one_pass <= distance_of(bound)]
    all_over = over[LOAD] + over[SAVE]
    if any(all_over[bound:].sum() > _MORE * _away(ops, bound) + _LEAST for bound in far):
        gone |= _lines_of_a_pass(skeleton, share * longer, gone)
    for op, _ in order:
        if (op.place, op.value) in gone:
            op.place, op.value = CLOSE, 0
    for does in (LOAD, SAVE):
        moved = 0.0  # so far: beyond what follows
        for first, last in reversed(list(itertools.pairwise(bounds))):
            # All that lies beyond: where a pass has become longer, lines that are touched once in
            # each have left this span for the next. More of them would make it longer still.
            much = share * float(over[does][first:].sum()) + moved
            if much > _LEAST:
                moved -= _bring_near(order, does, (first, last), much)
            elif much < -_LEAST:
                moved += _send_away(order, does, min((first + last) // 2, first + 4), -much)
    return msgspec.structs.replace(skeleton, blocks=blocks)


def longer_by(wanted: Floats, seen: Floats) -> float:
    """Lines by which a clone's pass over its data is longer, from distances of both per request.

    It matters where too many accesses are far, and they are not those that are to go far.

    A line that each request touches is touched again after all others: where there are more of
    them, the farthest accesses move.
    """
    far = bucket_of(_NEAREST)
    middle = np.array([distance_of(bucket) for bucket in range(far, BUCKETS)])

    def distances(counts: Floats, at: Floats) -> Floats:
        beyond = np.cumsum(counts[far:][::-1])
        return np.asarray(np.interp(at, beyond, middle[::-1]))

    at = np.linspace(*_OF_PASS, 32) * float(wanted[far:].sum())
    return float((distances(seen, at) - distances(wanted, at)).mean())


def _lines_of_a_pass(skeleton: Skeleton, much: float, gone: set[_Line]) -> set[_Line]:
    """So many lines that most requests touch, first those that are touched least often."""
    touched, accesses = defaultdict[_Line, float](float), defaultdict[_Line, float](float)
    for path in skeleton.paths:
        mine = [(op.place, op.value) for number in path.blocks
                for op in skeleton.blocks[number].ops if op.place == CONSTANT]  # fmt: skip
        for line in mine:
            accesses[line] += path.weight
        for line in set(mine):
            touched[line] += path.weight
    order = sorted((line for line in touched if touched[line] >= _BY_MOST and line not in gone),
                   key=lambda one: (accesses[one], one))  # fmt: skip
    return set(order[: max(round(much - len(gone)), 0)])


def _busiest(skeleton: Skeleton) -> int:
    work = defaultdict[int, float](float)
    for path in skeleton.paths:
        work[path.edge] += path.weight * len(path.blocks)
    return max(work, key=lambda edge: work[edge], default=0)


def _lines_to_give_up(skeleton: Skeleton, edge: int, much: float, gone: set[_Line]) -> set[_Line]:
    """Lines that most executions of an edge touch, so many in all, but for those that are gone.

    First a few of the connection: the runtime has some for each, too.
    """
    shares = defaultdict[_Line, float](float)
    total = 0.0
    for path in skeleton.paths:
        if path.edge != edge:
            continue
        total += path.weight
        for line in {(op.place, op.value) for number in path.blocks
                     for op in skeleton.blocks[number].ops
                     if op.place in (CONSTANT, *_OWN)}:  # fmt: skip
            shares[line] += path.weight
    much -= sum(shares[line] for line in gone) / max(total, 1e-9)
    most = _OF_RUNTIME - sum(place in _OWN for place, _ in gone)
    order = sorted(shares, key=lambda one: (one[0] not in _OWN, -shares[one], one))
    found = set[_Line]()
    for line in order:
        share, is_own = shares[line] / total, line[0] in _OWN
        if line in gone or share < _BY_MOST or share > much or (is_own and most <= 0):
            continue
        found.add(line)
        much -= share
        most -= is_own
    return found


def _away(ops: Sequence[tuple[Op, float]], bucket: int) -> float:
    """Accesses that are to go so far, or farther."""
    return sum(weight for op, weight in ops if op.place == AWAY and op.value >= bucket)


def _bring_near(
    order: Sequence[tuple[Op, float]], does: int, span: tuple[int, int], much: float
) -> float:
    """Returns how many."""
    left = much
    for op, weight in order:
        is_there = op.does == does and op.place == AWAY and span[0] <= op.value < span[1]
        if is_there and weight <= left:
            op.place, op.value = CLOSE, 0
            left -= weight
    return much - left


def _send_away(order: Sequence[tuple[Op, float]], does: int, bucket: int, much: float) -> float:
    """Returns how many."""
    left = much
    for op, weight in order:
        if op.does == does and op.place == CLOSE and 0.02 <= weight <= min(left, 2.0):
            op.place, op.value = AWAY, bucket
            left -= weight
    return much - left
