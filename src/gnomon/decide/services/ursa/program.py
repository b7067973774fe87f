"""The integer program: an operating point for each service, a percentile for each of its classes.

By the union bound, requests of a class of which at most `r_i` percent are slower than `t_i` at
service i are slower than the sum of `t_i` end to end in at most the sum of `r_i` percent. No
independence is needed. The program chooses one option of each service and, for every class that
passes it, one pair (r, t) of that option, so that for each class the times stay under the bound of
its SLA and the residuals under what the SLA leaves; the cores of all options are the least.

Calls in parallel take as long as the longest; a call that a request makes with a chance of one
half adds half of its residual.

A search of our own (`branch`) solves it; HiGHS solves what that gives up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnomon.decide.integer_program import IntegerProgram
from gnomon.decide.services.ursa import branch
from gnomon.decide.services.ursa.promise import (
    Candidate,
    Promise,
    Solution,
    Target,
    undominated,
)
from gnomon.errors import InputError

__all__ = [
    "PERCENTILES",
    "Candidate",
    "Promise",
    "Solution",
    "Target",
    "solve",
    "solve_with_highs",
    "undominated",
]

#: Percentiles that the program may choose from, and the greatest sample.
PERCENTILES = (50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.7, 99.8, 99.9, 99.95, 99.98)


def solve(
    services: Mapping[str, Sequence[Candidate]], targets: Sequence[Target], *, gap: float = 1e-4,
    limit_s: float = 60.0,
) -> Solution:  # fmt: skip
    """The cheapest options that keep every SLA by the union bound.

    Args:
        services: Options of each.
        targets: The SLAs.
        gap: How far from the best an answer may be, as a share.
        limit_s: Of HiGHS, where it is needed: after that the best answer so far is taken.

    Raises:
        InputError: A service has no option at all.
        Infeasible: No choice keeps every SLA by this bound.
    """
    for name, options in services.items():
        if not options:
            raise InputError(f"{name}: no operating point carries this load",
                             hint="explore at a higher load, or raise cpu_max")  # fmt: skip
    return branch.solve(services, targets, gap=gap) or solve_with_highs(
        services, targets, gap=gap, limit_s=limit_s
    )


def solve_with_highs(
    services: Mapping[str, Sequence[Candidate]], targets: Sequence[Target], *, gap: float = 1e-4,
    limit_s: float = 60.0,
) -> Solution:  # fmt: skip
    """The same as a mixed-integer program: slower, but for any number of paths.

    Raises:
        Infeasible: No choice keeps every SLA by this bound, or none was found in time.
    """
    program = IntegerProgram()
    picks = {
        name: [program.binary(one.cores) for one in options] for name, options in services.items()
    }
    for chosen in picks.values():
        program.one_of(chosen)
    written: dict[tuple[str, str], list[tuple[int, Promise]]] = {}
    for target in targets:
        _write_target(program, services, picks, target, written)
    answer = program.solve(gap=gap, limit_s=limit_s)
    found = {name: answer.chosen(chosen) for name, chosen in picks.items()}
    promised: dict[str, dict[str, Promise]] = {name: {} for name in services}
    for (name, request_class), ways in written.items():
        at = answer.chosen([variable for variable, _ in ways])
        promised[name][request_class] = ways[at][1]
    cores = sum(services[name][k].cores for name, k in found.items())
    return Solution(found, promised, cores, answer.gap, answer.seconds)


def _write_target(
    program: IntegerProgram, services: Mapping[str, Sequence[Candidate]],
    picks: dict[str, list[int]],
    target: Target, written: dict[tuple[str, str], list[tuple[int, Promise]]],
) -> None:  # fmt: skip
    paths = target.paths
    counted = paths.counted()
    weight: dict[str, float] = {}
    for at in counted:
        step = paths.steps[at]
        weight[step.service] = weight.get(step.service, 0.0) + step.visits
    residuals: dict[int, float] = {}
    for name, visits in weight.items():
        ways: list[tuple[int, Promise]] = []
        for pick, option in zip(picks[name], services[name]):
            mine = [
                (program.binary(), one) for one in undominated(option.promises.get(paths.name, ()))
            ]
            program.row({pick: -1.0} | {v: 1.0 for v, _ in mine}, at_least=0.0, at_most=0.0)
            ways += mine
        written[name, paths.name] = ways
        for variable, one in ways:
            residuals[variable] = visits * one.residual
    program.row(residuals, at_most=100.0 - target.percentile)
    _write_times(program, target, set(counted), written)


def _write_times(
    program: IntegerProgram, target: Target, counted: set[int],
    written: dict[tuple[str, str], list[tuple[int, Promise]]],
) -> None:  # fmt: skip
    """Rows that keep the longest path under the bound.

    A call's reply takes `terms` (variables and their milliseconds) and a constant; stages with one
    call add up, those with several get a variable that is at least each of them.
    """
    paths, way = target.paths, 2 * target.paths.network_ms
    replies: dict[int, tuple[dict[int, float], float]] = {}
    ends: dict[int, list[tuple[dict[int, float], float]]] = {}
    for at in reversed(range(len(paths.steps))):
        if at not in counted:
            continue
        step = paths.steps[at]
        terms = {v: one.time_ms for v, one in written[step.service, paths.name]}
        constant = 0.0
        late: list[tuple[dict[int, float], float]] = []
        for stage in step.stages:
            if paths.until_all:
                late += [
                    (_sum(terms, more), constant + paths.network_ms + ms)
                    for below in stage
                    for more, ms in ends[below]
                ]
            waited = [replies[b] for b in stage if b in counted and not paths.steps[b].is_queued]
            if len(waited) == 1:
                terms, constant = _sum(terms, waited[0][0]), constant + waited[0][1] + way
            elif waited:
                longest = program.continuous()
                for more, ms in waited:
                    program.row(
                        {longest: 1.0} | {v: -t for v, t in more.items()}, at_least=ms + way
                    )
                terms = _sum(terms, {longest: 1.0})
            elif stage:
                constant += way
        replies[at] = terms, constant
        ends[at] = [(terms, constant), *late] if paths.until_all else []
    for terms, constant in ends[0] if paths.until_all else [replies[0]]:
        program.row(terms, at_most=target.bound_ms - constant - way)


def _sum(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    """Terms of both; a service that is called twice counts twice."""
    found = dict(a)
    for variable, ms in b.items():
        found[variable] = found.get(variable, 0.0) + ms
    return found
