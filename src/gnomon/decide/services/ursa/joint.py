"""The tighter decomposition: end-to-end percentiles from joint samples of the services' times.

The union bound holds for any dependence and pays for it: it assumes that requests are slow at one
service only. Here the ranks of a request's times at its services are sampled together: as they
stand in traces, or from a Gaussian copula (independent: a convolution by sampling). An option's
distribution turns ranks into times, so any choice of options has an end-to-end distribution.

The cheapest choice is searched by programs that are linear near the present choice: the part of
each call in the requests around the percentile (its expectation there) is what the percentile
changes by, to first order. Every answer is checked by sampling before it is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.integer_program import IntegerProgram
from gnomon.decide.services.ursa.latencies import Latencies
from gnomon.decide.services.ursa.paths import Paths, Timing
from gnomon.decide.services.ursa.program import Target
from gnomon.errors import Infeasible

Floats = NDArray[np.float64]

#: Requests that are sampled of a class.
SAMPLES = 6000
#: Rounds of linear programs.
_ROUNDS = 8
#: Deviations of a percentile's sampling error: as many fresh samples vary as well, so 99.8 % of
#: them stay under it (2.83 times the root of two).
_SURE = 4.0
#: Requests around the percentile, as a share of all.
_AROUND = 0.02
#: A proposal that is over the bounds by less than this is asked from again.
_SLACKS = (1.0, 1.2)
#: A choice that comes again and keeps every SLA may be too careful: so much more is tried.
_LOOSER = 1.05
#: A call that was never timed takes so many times the bound: its request is late in any case.
_LATE = 2.0


class Ranks(msgspec.Struct, frozen=True, eq=False):
    """Of each call of a class: the rank of its time in every request, and whether it was made."""

    ranks: list[Floats]
    made: list[NDArray[np.bool_]]


def draw_ranks(
    paths: Paths, correlation: float, *, samples: int = SAMPLES, seed: int = 0
) -> Ranks:
    """Ranks by a Gaussian copula with one factor; 0: independent."""
    rng = np.random.default_rng([seed, 0x10127])
    mood = rng.standard_normal(samples)
    ranks, made = [], []
    for step in paths.steps:
        own = rng.standard_normal(samples)
        score = math.sqrt(correlation) * mood + math.sqrt(1.0 - correlation) * own
        ranks.append(_as_ranks(score))
        made.append(rng.random(samples) < step.chance)
    return Ranks(ranks, made)


def ranks_of_samples(times_ms: Floats) -> Ranks:
    """Ranks of measured requests: a row a request, a column a call; NaN where it was not made."""
    ranks, made = [], []
    for column in times_ms.T:
        seen = ~np.isnan(column)
        rank = np.full(len(column), 0.5)
        rank[seen] = _as_ranks(column[seen])
        ranks.append(rank)
        made.append(seen)
    return Ranks(ranks, made)


def _as_ranks(score: Floats) -> Floats:
    """Evenly spread over 0 to 1, in the order of the scores: no noise in the margins."""
    ranks = np.empty(len(score))
    ranks[np.argsort(score, kind="stable")] = (np.arange(len(score)) + 0.5) / max(len(score), 1)
    return ranks


class Sampled(msgspec.Struct, frozen=True, eq=False):
    """A class with an SLA and the joint ranks of its calls.

    Attributes:
        options: By service: the latencies of this class under each of its options.
        times: By call and option: the time in every request; over the bound where none is known.
    """

    target: Target
    ranks: Ranks
    options: dict[str, list[Latencies]]
    times: list[list[Floats]]

    @classmethod
    def of(cls, target: Target, ranks: Ranks, options: dict[str, list[Latencies]]) -> Sampled:
        times = [
            [
                seen.at(rank) if seen.count else np.full(len(rank), _LATE * target.bound_ms)
                for seen in options[step.service]
            ]
            for step, rank in zip(target.paths.steps, ranks.ranks)
        ]
        return cls(target, ranks, options, times)

    def timing(self, chosen: dict[str, int]) -> Timing:
        steps = self.target.paths.steps
        times = [mine[chosen[step.service]] for step, mine in zip(steps, self.times)]
        return self.target.paths.latency_ms(times, self.ranks.made)

    def percentile_ms(self, chosen: dict[str, int], timing: Timing | None = None) -> float:
        """End to end at the SLA's percentile, with a margin for how few samples there are."""
        total = (timing or self.timing(chosen)).total_ms
        return float(np.quantile(total, self._share(chosen)))

    def part_of_bound(self, service: str, option: int) -> float:
        """A call's time at the SLA's percentile, as a share of the bound."""
        seen, target = self.options[service][option], self.target
        return seen.quantile_ms(target.percentile) / target.bound_ms if seen.count else math.inf

    def untimed(self) -> list[str]:
        """Services whose calls count and that have no option with a time for them."""
        steps = (self.target.paths.steps[at].service for at in self.target.paths.counted())
        return [name for name in dict.fromkeys(steps)
                if not any(seen.count for seen in self.options[name])]  # fmt: skip

    def _share(self, chosen: dict[str, int]) -> float:
        share = self.target.percentile / 100.0
        counted = {self.target.paths.steps[at].service for at in self.target.paths.counted()}
        samples = [self.options[name][chosen[name]].samples for name in counted]
        few = max(min([one for one in samples if one > 0], default=1), 1)
        return min(share + _SURE * math.sqrt(share * (1.0 - share) / few), 1.0)

    def parts(self, chosen: dict[str, int]) -> tuple[dict[str, list[float]], float]:
        """By service and option: its expected part of the percentile; and what is nobody's."""
        timing = self.timing(chosen)
        critical = timing.is_critical()
        order = np.argsort(timing.total_ms)
        count = len(order)
        middle = round(self._share(chosen) * (count - 1))
        half = max(round(_AROUND * count / 2), 10)
        # Beyond the percentile there may be few: the window is never lopsided.
        half = max(min(half, count - 1 - middle, middle), 5)
        around = order[max(middle - half, 0) : middle + half + 1]
        parts = {name: [0.0] * len(options) for name, options in self.options.items()}
        for at, step in enumerate(self.target.paths.steps):
            here = around[critical[at][around]]
            for k, times in enumerate(self.times[at]):
                parts[step.service][k] += float(times[here].sum()) / len(around)
        known = sum(parts[name][k] for name, k in chosen.items() if name in parts)
        return parts, float(timing.total_ms[around].mean()) - known


def search(
    cores: dict[str, list[float]], classes: Sequence[Sampled], start: dict[str, int]
) -> dict[str, int]:
    """The cheapest choice found that keeps every SLA; `start` if it is the only one that does.

    Where the linear program goes too far it is asked again from there, or from halfway. Neither is
    always better: both are tried.
    """
    found = [_search(cores, classes, start, slack) for slack in _SLACKS]
    return min(found, key=lambda chosen: _cost(cores, chosen))


def _search(
    cores: dict[str, list[float]], classes: Sequence[Sampled], start: dict[str, int], slack: float
) -> dict[str, int]:
    best = dict(start)
    cost = _cost(cores, best)
    point, scale = dict(start), [1.0] * len(classes)
    tried: set[tuple[int, ...]] = set()
    for _ in range(_ROUNDS):
        proposed = _linear(cores, classes, point, scale)
        if proposed is None:
            break
        over = [one.percentile_ms(proposed) / one.target.bound_ms for one in classes]
        key = tuple(proposed.values())
        is_kept = max(over, default=0.0) <= 1.0
        if key in tried:  # it goes round: be stricter where it fails, or less strict everywhere
            scale = [
                s * min(0.99, 1.0 / o) if o > 1.0 else s * (_LOOSER if is_kept else 1.0)
                for s, o in zip(scale, over)
            ]
        tried.add(key)
        is_near = max(over, default=0.0) <= slack
        point = proposed if is_near else _between(cores, point, proposed)
        if _cost(cores, point) < cost and (is_kept or keeps(classes, point)):
            best, cost = point, _cost(cores, point)
    return _polish(cores, classes, best)


def fastest(cores: dict[str, list[float]], classes: Sequence[Sampled]) -> dict[str, int]:
    """Of each service the option whose times are the least part of the bounds.

    Not the least utilised: at a lower level of load that is a smaller replica, and may be slower.
    """

    def part(name: str, k: int) -> float:
        return max((one.part_of_bound(name, k) for one in classes if name in one.options),
                   default=0.0)  # fmt: skip

    return {name: min(range(len(costs)), key=lambda k: part(name, k))
            for name, costs in cores.items()}  # fmt: skip


def keeps(classes: Sequence[Sampled], chosen: dict[str, int]) -> bool:
    """Whether a choice keeps every SLA."""
    return all(one.percentile_ms(chosen) <= one.target.bound_ms for one in classes)


def _cost(cores: dict[str, list[float]], chosen: dict[str, int]) -> float:
    return sum(cores[name][k] for name, k in chosen.items())


def _between(
    cores: dict[str, list[float]], a: dict[str, int], b: dict[str, int]
) -> dict[str, int]:
    """Halfway, where the linear program went too far.

    In the order of cost: options are numbered level by level of load, so that one whose number is
    between those of two others may be cheaper and slower than both.
    """
    found = {}
    for name, costs in cores.items():
        order = sorted(range(len(costs)), key=lambda k: costs[k])
        found[name] = order[(order.index(a[name]) + order.index(b[name]) + 1) // 2]
    return found


def _linear(
    cores: dict[str, list[float]], classes: Sequence[Sampled], point: dict[str, int],
    scale: Sequence[float],
) -> dict[str, int] | None:  # fmt: skip
    program = IntegerProgram()
    picks = {name: [program.binary(one) for one in costs] for name, costs in cores.items()}
    for chosen in picks.values():
        program.one_of(chosen)
    for one, strict in zip(classes, scale):
        parts, rest = one.parts(point)
        terms = {
            variable: part
            for name, mine in parts.items()
            for variable, part in zip(picks[name], mine)
            if part > 0.0
        }
        program.row(terms, at_most=one.target.bound_ms * strict - rest)
    try:
        answer = program.solve(limit_s=5.0)
    except Infeasible:
        return None
    return {name: answer.chosen(chosen) for name, chosen in picks.items()}


def _polish(
    cores: dict[str, list[float]], classes: Sequence[Sampled], chosen: dict[str, int]
) -> dict[str, int]:
    """One service after the other gets its cheapest option that still keeps every SLA."""
    chosen = dict(chosen)
    has_changed = True
    while has_changed:
        has_changed = False
        for name in sorted(chosen, key=lambda name: -cores[name][chosen[name]]):
            mine = [one for one in classes if name in one.options]
            cheaper = [k for k, cost in enumerate(cores[name]) if cost < cores[name][chosen[name]]]
            for k in sorted(cheaper, key=lambda k: cores[name][k]):
                if keeps(mine, chosen | {name: k}):
                    chosen[name] = k
                    has_changed = True
                    break
    return chosen
