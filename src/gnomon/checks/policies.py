"""What every policy must keep to, ours and everybody else's: whole runs of it are compared."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from gnomon.checks.clusters import CLUSTER_INVARIANTS, cluster_cases, run_cluster_case
from gnomon.checks.equality import is_same
from gnomon.checks.evaluate import from_repr
from gnomon.checks.outcome import Check, Outcome, run_checks
from gnomon.checks.services import SERVICE_INVARIANTS, run_service_case, service_cases
from gnomon.decide import Policy
from gnomon.decide.cluster import cluster_policies
from gnomon.decide.services import service_policies
from gnomon.errors import InputError
from gnomon.registry import Registry

Maker = Callable[[], Any]
Subject = Policy | Maker | str

_EXTREMES = ("empty", "single", "overloaded")


class PolicyKind(msgspec.Struct, frozen=True, eq=False):
    """A kind of decision: what its policies are tried on.

    Attributes:
        registry: Its policies by name.
        make_cases: Cases by name; `empty`, `single` and `overloaded` are among them.
        run: One case under a policy; runs are equal if `is_same` says so.
        invariants: What holds of every run, by the name of the check; each raises otherwise.
        time_limit_s: The time one run may take.
    """

    registry: Registry[Any]
    make_cases: Callable[[], Mapping[str, Any]]
    run: Callable[[Any, Any], Any]
    invariants: Mapping[str, Callable[[Any, Any], None]]
    time_limit_s: float = 20.0


CLUSTER = PolicyKind(cluster_policies, cluster_cases, run_cluster_case, CLUSTER_INVARIANTS)
SERVICES = PolicyKind(service_policies, service_cases, run_service_case, SERVICE_INVARIANTS)


def policy(
    subject: Subject,
    kind: PolicyKind = CLUSTER,
    *,
    time_limit_s: float | None = None,
    raises: bool = True,
) -> list[Outcome]:
    """Run every check that applies to a policy.

    Args:
        subject: a policy, something that makes one when called, or a spec such as "cap:fifo".
        kind: what it decides; a policy of a cluster unless given.
        time_limit_s: the time one run may take.
        raises: raise the first failure as a CheckFailed, or give all outcomes.

    >>> {outcome.status for outcome in policy("fair")}
    {'passed'}
    """
    return run_checks(policy_checks(subject, kind, time_limit_s=time_limit_s), raises=raises)


def policy_checks(
    subject: Subject, kind: PolicyKind = CLUSTER, *, time_limit_s: float | None = None
) -> Iterator[Check]:
    """Yield the checks that apply, for those who run them one by one.

    >>> [check.name for check in policy_checks("fifo")][:2]
    ['check_time_bounded', 'check_same_seed_same_answer']
    """
    make, cases = _maker(subject, kind), kind.make_cases()
    # First, and vital: a policy that hangs would hang the other checks as well.
    limit_s = kind.time_limit_s if time_limit_s is None else time_limit_s
    bounded = functools.partial(check_time_bounded, make, kind, cases, limit_s)
    yield Check("check_time_bounded", bounded, is_vital=True)
    for check in (check_same_seed_same_answer, check_input_not_mutated, check_pickles):
        yield Check(check.__name__, functools.partial(check, make, kind, cases))
    for name, invariant in kind.invariants.items():
        holds = functools.partial(check_invariant, make, kind, cases, invariant)
        yield Check(f"check_{name}", holds)
    for extreme in _EXTREMES:
        survives = functools.partial(check_survives, make, kind, cases[extreme])
        yield Check(f"check_survives_{extreme}", survives)
    yield Check("check_repr_evaluates_back", functools.partial(check_repr_evaluates_back, make))


def check_time_bounded(
    make: Maker, kind: PolicyKind, cases: Mapping[str, Any], limit_s: float
) -> None:
    """Every run ends within the limit, at the second try if the machine was busy."""
    for name, case in cases.items():
        is_quick = any(_run_time_s(make(), kind, case, limit_s) < limit_s for _ in range(2))
        assert is_quick, f"{name!r} was not done within {limit_s:g} s"


def check_same_seed_same_answer(make: Maker, kind: PolicyKind, cases: Mapping[str, Any]) -> None:
    """Two of the same kind on the same seed decide alike."""
    for name, case in cases.items():
        assert is_same(kind.run(make(), case), kind.run(make(), case)), (
            f"other decisions in {name!r}, same seed"
        )


def check_input_not_mutated(make: Maker, kind: PolicyKind, cases: Mapping[str, Any]) -> None:
    """The case is the same after the run."""
    for name, case in cases.items():
        before = copy.deepcopy(case)
        kind.run(make(), case)
        assert is_same(case, before), f"case {name!r} was changed"


def check_invariant(
    make: Maker,
    kind: PolicyKind,
    cases: Mapping[str, Any],
    invariant: Callable[[Any, Any], None],
) -> None:
    """What holds of every run of this kind of decision."""
    for name, case in cases.items():
        try:
            invariant(case, kind.run(make(), case))
        except AssertionError as error:
            raise AssertionError(f"{error} in {name!r}") from error


def check_survives(make: Maker, kind: PolicyKind, case: Any) -> None:
    """A fresh policy on an extreme case."""
    kind.run(make(), case)


def check_pickles(make: Maker, kind: PolicyKind, cases: Mapping[str, Any]) -> None:
    """What comes out of a pickle decides as what went in: workers get policies that way."""
    subject = make()
    twin = pickle.loads(pickle.dumps(subject))
    assert type(twin) is type(subject), f"a {type(subject).__name__} became {type(twin).__name__}"
    for name, case in cases.items():
        assert is_same(kind.run(subject, case), kind.run(twin, case)), (
            f"unpickled, other decisions in {name!r}"
        )


def check_repr_evaluates_back(make: Maker) -> None:
    """The repr is the expression that makes it: what a log shows can be run again."""
    subject = make()
    twin = from_repr(subject)
    assert is_same(twin, subject), f"{subject!r} makes another: {twin!r}"


def _run_time_s(subject: Any, kind: PolicyKind, case: Any, limit_s: float) -> float:
    """The time of one run, given up on at the limit: a thread cannot be ended from here."""
    took_s: list[float] = []

    def run() -> None:
        start_s = time.perf_counter()
        # An error is not slow, and the other checks report it under their own names.
        with contextlib.suppress(Exception):
            kind.run(subject, case)
        took_s.append(time.perf_counter() - start_s)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    return took_s[0] if took_s else limit_s


def _maker(subject: Subject, kind: PolicyKind) -> Maker:
    """Something that makes fresh ones: checks must not see what an earlier check has taught."""
    if isinstance(subject, str):
        return functools.partial(kind.registry.create, subject)
    if isinstance(subject, Policy):
        return functools.partial(copy.deepcopy, subject)
    if callable(subject):
        return subject
    raise InputError(f"{subject!r} is no policy", hint="give a Policy or what makes one")
