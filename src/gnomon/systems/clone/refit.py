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
from numpy.random import Generator

from gnomon.systems.clone.recording import BUCKETS, Floats, bucket_of
from gnomon.systems.clone.skeleton import AWAY, CLOSE, CONSTANT, LOAD, SAVE, Op, Skeleton

#: Lines: nearer ones are in every cache. The first bound is this one or a third of a pass.
_NEAREST = 64
#: Times the lines of a pass: up to the first lie lines that each pass touches, up to the next
#: those of some passes.
_PASSES = (1.3, 3.0, 6.0, 12.0, 24.0, 48.0)
#: Of what is off, so much is corrected at once, and nothing below so many accesses a request.
_DAMPED, _LEAST = 0.8, 0.3


def refit(skeleton: Skeleton, over: Mapping[int, Floats], rng: Generator) -> Skeleton:
    """Corrects what is too much: of loads and of stores, by bucket, per request."""
    blocks = [msgspec.structs.replace(one, ops=[msgspec.structs.replace(op) for op in one.ops])
              for one in skeleton.blocks]  # fmt: skip
    weights = defaultdict[int, float](float)
    passes = defaultdict[int, float](float)  # of lines: paths that touch them
    for path in skeleton.paths:
        touched = set()
        for number in path.blocks:
            weights[number] += path.weight
            touched |= {op.value for op in blocks[number].ops if op.place == CONSTANT}
        for line in touched:
            passes[line] += path.weight
    ops = [(op, weights[n]) for n in weights for op in blocks[n].ops]
    order = [ops[i] for i in rng.permutation(len(ops))]
    one_pass = sum(passes.values()) + sum(weight for op, weight in ops if op.place == AWAY)
    requests = sum(path.weight for path in skeleton.paths if path.edge == _busiest(skeleton))
    one_pass /= max(requests, 1e-9)
    bounds = [
        bucket_of(round(min(_NEAREST, one_pass / 3))),
        *(bucket_of(round(k * one_pass)) for k in _PASSES),
        BUCKETS,
    ]
    for k, (first, last) in enumerate(itertools.pairwise(bounds)):
        off = {does: _DAMPED * float(over[does][first:last].sum()) for does in (LOAD, SAVE)}
        if k < 2:
            off[LOAD] -= _give_up(order, passes, off[LOAD], is_each=k == 0)
        for does, much in off.items():
            if much > _LEAST:
                _bring_near(order, does, (first, last), much)
            elif much < -_LEAST:
                _send_away(order, does, min((first + last) // 2, first + 4), -much)
    return msgspec.structs.replace(skeleton, blocks=blocks)


def _busiest(skeleton: Skeleton) -> int:
    work = defaultdict[int, float](float)
    for path in skeleton.paths:
        work[path.edge] += path.weight * len(path.blocks)
    return max(work, key=lambda edge: work[edge], default=0)


def _give_up(
    order: Sequence[tuple[Op, float]], passes: dict[int, float], much: float, *, is_each: bool
) -> float:
    """Lines that each pass touches, or some passes; returns how much that was."""
    gone: set[int] = set()
    total = 0.0
    for line, rate in sorted(
        passes.items(), key=lambda one: abs(one[1] - (1.0 if is_each else 0.4))
    ):
        if total + rate <= much and (rate >= 0.7) == is_each and rate >= 0.02:
            gone.add(line)
            total += rate
    for line in gone:
        del passes[line]
    for op, _ in order:
        if op.place == CONSTANT and op.value in gone:
            op.place, op.value = CLOSE, 0
    return total


def _bring_near(
    order: Sequence[tuple[Op, float]], does: int, span: tuple[int, int], much: float
) -> None:
    for op, weight in order:
        if (
            op.does == does
            and op.place == AWAY
            and span[0] <= op.value < span[1]
            and weight <= much
        ):
            op.place, op.value = CLOSE, 0
            much -= weight


def _send_away(order: Sequence[tuple[Op, float]], does: int, bucket: int, much: float) -> None:
    for op, weight in order:
        if op.does == does and op.place == CLOSE and 0.02 <= weight <= min(much, 2.0):
            op.place, op.value = AWAY, bucket
            much -= weight
