"""A plan: how much load every service may carry, so that every SLA holds with the least CPU."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from gnomon.decide.services.ursa import joint, program
from gnomon.decide.services.ursa.exploration import (
    Exploration,
    Option,
    service_loads,
    size_for,
)
from gnomon.decide.services.ursa.joint import Ranks, Sampled
from gnomon.decide.services.ursa.latencies import Latencies
from gnomon.decide.services.ursa.paths import Paths
from gnomon.decide.services.ursa.program import Candidate, Promise, Target
from gnomon.errors import Infeasible
from gnomon.graph.application import Application

#: How much an SLA is relaxed to see what that would save.
_RELAXED = 0.05

#: What holds of calls that were never timed: all of them may be late.
_NOTHING = Promise(100.0, 0.0)

Bound = Literal["joint", "union"]


class Allowed(msgspec.Struct, frozen=True):
    """What a plan gives a service.

    Attributes:
        option: The operating point that was chosen.
        also: Others that are no slower: at another load one of them may be cheaper.
        cores: What it costs at the planned load.
    """

    option: Option
    also: tuple[Option, ...]
    cores: float


class ClassPlan(msgspec.Struct, frozen=True):
    """What a plan expects of a class.

    Attributes:
        bound_ms: Its SLA, at `percentile`.
        expected_ms: At that percentile, from joint samples.
        union_ms: By the union bound of the same operating points; inf if it gives none.
        share_ms: By service: its part of the expected latency, at that percentile.
        saved_per_ms: Cores that one more millisecond of the bound would save.
    """

    bound_ms: float
    percentile: float
    expected_ms: float
    union_ms: float
    share_ms: dict[str, float]
    saved_per_ms: float = 0.0


class Plan(msgspec.Struct, frozen=True):
    """The answer to: how little CPU meets these SLAs at this load?

    Attributes:
        class_rate: Requests per second of each class that it was made for.
        decomposition: Which bound it keeps.
        services: What each service gets.
        classes: What is expected of each class with an SLA.
        cores: Of all services at that load.
        union_cores: The same by the union bound alone; inf where that has no answer.
    """

    class_rate: dict[str, float]
    decomposition: Bound
    services: dict[str, Allowed]
    classes: dict[str, ClassPlan]
    cores: float
    union_cores: float

    @property
    def binding(self) -> str:
        """The class whose SLA has the least room; empty without SLAs."""
        used = {name: one.expected_ms / one.bound_ms for name, one in self.classes.items()}
        return max(used, key=lambda name: used[name]) if used else ""


class _Choices(msgspec.Struct, frozen=True):
    """The options that carry the load, by service."""

    options: dict[str, list[Option]]
    cores: dict[str, list[float]]
    targets: list[Target]


def make_plan(
    app: Application, exploration: Exploration, class_rate: dict[str, float], *,
    decomposition: Bound = "joint", ranks: dict[str, Ranks] | None = None, explain: bool = True,
    seed: int = 0,
) -> Plan:  # fmt: skip
    """The cheapest operating points that keep every SLA at a load.

    Args:
        app: The application and its SLAs.
        exploration: What is known of its services.
        class_rate: Requests per second, by class.
        decomposition: `joint` samples, or the `union` bound.
        ranks: By class: joint ranks from traces; else a copula with the correlation that
            exploration found.
        explain: Whether to find out what a looser SLA would save.
        seed: Of the samples.

    Raises:
        Infeasible: No choice keeps every SLA, or carries the load; the message says which fails.
        InputError: A service was not explored.
    """
    exploration.check(app)
    choices = _choices(app, exploration, class_rate)
    sampled = [
        Sampled.of(
            target,
            (ranks or {}).get(target.paths.name)
            or joint.draw_ranks(
                target.paths, exploration.correlation.get(target.paths.name, 0.0), seed=seed
            ),
            {
                step.service: [
                    one.latencies.get(target.paths.name, Latencies())
                    for one in choices.options[step.service]
                ]
                for step in target.paths.steps
            },
        )
        for target in choices.targets
    ]
    by_union = _by_union(choices)
    chosen = by_union
    if decomposition == "joint":
        chosen = _by_samples(choices, sampled, by_union)
    if chosen is None:
        untimed = [f"; {_untimed(one)}" for one in sampled if one.untimed()]
        raise Infeasible(
            f"no operating points keep every SLA by the union bound{''.join(untimed)}"
        )
    saved = _savings(choices, sampled, chosen, decomposition) if explain else {}
    classes = {
        one.target.paths.name: _expect(one, choices, chosen, saved.get(one.target.paths.name, 0.0))
        for one in sampled
    }
    services = {
        name: Allowed(options[chosen[name]], _no_slower(options, chosen[name]),
                      choices.cores[name][chosen[name]])
        for name, options in choices.options.items()
    }  # fmt: skip
    return Plan(
        class_rate, decomposition, services, classes, _cores(choices, chosen),
        math.inf if by_union is None else _cores(choices, by_union),
    )  # fmt: skip


def _choices(app: Application, exploration: Exploration, class_rate: dict[str, float]) -> _Choices:
    options: dict[str, list[Option]] = {}
    cores: dict[str, list[float]] = {}
    for name, load in service_loads(app, class_rate).items():
        if not load or name not in exploration.services:
            continue  # nobody calls it
        known = exploration.services[name].options
        sizes = [size_for(app, name, one, load, app.services[name].replicas) for one in known]
        fits = [(one, size.cores) for one, size in zip(known, sizes) if size is not None]
        if not fits:
            seen = {known for one in known for known in one.load}
            new = [which for which, calls in load.items() if calls > 0 and which not in seen]
            raise Infeasible(
                f"{name} was never explored with class {new[0]}" if new else
                f"{name}: no explored operating point carries this load within its cpu_max and "
                "replicas_max"
            )  # fmt: skip
        options[name], cores[name] = [one for one, _ in fits], [cost for _, cost in fits]
    targets = [
        Target(Paths.of(app, name), one.sla.bound_ms, one.sla.percentile)
        for name, one in app.classes.items()
        if one.sla is not None and class_rate.get(name, 0.0) > 0
    ]
    return _Choices(options, cores, targets)


def _promises(option: Option) -> dict[str, tuple[Promise, ...]]:
    return {
        name: tuple(Promise(*pair) for pair in seen.choices(program.PERCENTILES))
        if seen.count else (_NOTHING,)
        for name, seen in option.latencies.items()
    }  # fmt: skip


def _by_union(choices: _Choices) -> dict[str, int] | None:
    """The choice by the union bound, if it has any."""
    try:
        return program.solve(
            {
                name: [
                    Candidate(cost, _promises(one))
                    for one, cost in zip(options, choices.cores[name])
                ]
                for name, options in choices.options.items()
            },
            choices.targets,
        ).chosen
    except Infeasible:
        return None


def _by_samples(
    choices: _Choices, sampled: list[Sampled], by_union: dict[str, int] | None
) -> dict[str, int]:
    start = by_union
    if start is None or not joint.keeps(sampled, start):
        start = joint.fastest(choices.cores, sampled)
    missed = [
        _untimed(one) if one.untimed() else
        f"{one.target.paths.name} (p{one.target.percentile:g} {one.percentile_ms(start):.0f} ms, "
        f"bound {one.target.bound_ms:g} ms)"
        for one in sampled
        if one.percentile_ms(start) > one.target.bound_ms
    ]  # fmt: skip
    if missed:
        raise Infeasible(f"no operating points keep the SLA of {', '.join(missed)}")
    return joint.search(choices.cores, sampled, start)


def _untimed(one: Sampled) -> str:
    return (f"{one.target.paths.name} (its calls to {', '.join(one.untimed())} were never timed "
            "and count as late: explore at a higher rate)")  # fmt: skip


def _cores(choices: _Choices, chosen: dict[str, int]) -> float:
    return sum(choices.cores[name][k] for name, k in chosen.items())


def _savings(
    choices: _Choices, sampled: list[Sampled], chosen: dict[str, int], decomposition: Bound
) -> dict[str, float]:
    """By class: cores that one more millisecond of its bound would save."""
    found = {}
    for at, one in enumerate(sampled):
        more = one.target.bound_ms * _RELAXED
        looser = msgspec.structs.replace(one.target, bound_ms=one.target.bound_ms + more)
        if decomposition == "joint":
            relaxed = [
                *sampled[:at],
                msgspec.structs.replace(one, target=looser),
                *sampled[at + 1 :],
            ]
            other: dict[str, int] | None = joint.search(choices.cores, relaxed, chosen)
        else:
            targets = [*choices.targets[:at], looser, *choices.targets[at + 1 :]]
            other = _by_union(msgspec.structs.replace(choices, targets=targets))
        if other is not None:
            saved = _cores(choices, chosen) - _cores(choices, other)
            found[one.target.paths.name] = max(saved, 0.0) / more
    return found


def _expect(
    one: Sampled, choices: _Choices, chosen: dict[str, int], saved_per_ms: float
) -> ClassPlan:
    target = one.target
    parts, rest = one.parts(chosen)
    options = {name: mine[chosen[name]] for name, mine in choices.options.items()}
    shares = {name: mine[chosen[name]] for name, mine in parts.items()}
    expected = one.percentile_ms(chosen)
    # Parts are means of the requests around the percentile, of which those above are the slower.
    scale = expected / max(sum(shares.values()) + rest, 1e-9)
    shares = {name: ms * scale for name, ms in shares.items()}
    ordered = dict(sorted(shares.items(), key=lambda item: -item[1]))
    return ClassPlan(
        target.bound_ms, target.percentile, expected, _union_ms(target, options),
        ordered, saved_per_ms,
    )  # fmt: skip


def _union_ms(target: Target, options: dict[str, Option]) -> float:
    """The least bound that the union bound gives for fixed operating points.

    By bisection over programs with one option a service.
    """
    single = {
        name: [Candidate(1.0, _promises(one))]
        for name, one in options.items()
        if any(step.service == name for step in target.paths.steps)
    }

    def holds(bound_ms: float) -> bool:
        try:
            program.solve(single, [msgspec.structs.replace(target, bound_ms=bound_ms)])
        except Infeasible:
            return False
        return True

    high = target.bound_ms
    while not holds(high):
        high *= 2
        if high > 1e3 * target.bound_ms:
            return math.inf
    low = 0.0
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _no_slower(options: list[Option], chosen: int) -> tuple[Option, ...]:
    best = options[chosen]
    return tuple(
        one for k, one in enumerate(options)
        if k != chosen and all(
            seen.is_within(best.latencies[name])
            for name, seen in one.latencies.items() if name in best.latencies
        ) and set(best.latencies) <= set(one.latencies)
    )  # fmt: skip
