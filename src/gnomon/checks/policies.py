"""What every policy must keep to, ours and everybody else's."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from gnomon.checks.equality import is_same
from gnomon.checks.evaluate import from_repr
from gnomon.checks.outcome import Check, Outcome, run_checks
from gnomon.decide import Hold, Pick, Policy, ReadyQueue, StateSpace, policies
from gnomon.errors import InputError

__all__ = ["policy", "policy_checks", "queue_states"]

AnyPolicy = Policy[Any, Any]
Maker = Callable[[], AnyPolicy]
Subject = AnyPolicy | Maker | str

_SEED = 20_240_229
_EXTREMES = ("empty", "single", "overloaded")


def policy(
    subject: Subject,
    states: StateSpace | None = None,
    *,
    time_limit_s: float = 1.0,
    raises: bool = True,
) -> list[Outcome]:
    """Run every check that applies to a policy.

    Args:
        subject: a policy, something that makes one when called, or a spec such as "cap:fifo".
        states: what to try it on; by default the class's own `check_states()`, else queues.
        time_limit_s: the time one decision may take.
        raises: raise the first failure as a CheckFailed, or give all outcomes.

    >>> outcomes = policy("fifo")
    >>> {outcome.status for outcome in outcomes}
    {'passed'}
    """
    return run_checks(policy_checks(subject, states, time_limit_s=time_limit_s), raises=raises)


def policy_checks(
    subject: Subject, states: StateSpace | None = None, *, time_limit_s: float = 1.0
) -> Iterator[Check]:
    """Yield the checks that apply, for those who run them one by one.

    >>> [check.name for check in policy_checks("fifo")][:2]
    ['check_time_bounded', 'check_same_seed_same_answer']
    """
    make = _maker(subject)
    made = make()
    space = states if states is not None else _states_of(made)

    def bound(check: Callable[..., None], **arguments: Any) -> Check:
        run = functools.partial(check, make, space, **arguments)
        return Check("_".join([check.__name__, *arguments.values()]), run)

    # First, and vital: a policy that hangs would hang the other checks as well.
    bounded = functools.partial(check_time_bounded, make, space, time_limit_s)
    yield Check("check_time_bounded", bounded, is_vital=True)
    yield bound(check_same_seed_same_answer)
    yield bound(check_input_not_mutated)
    yield bound(check_answer_in_action_space)
    for case in _EXTREMES:
        if case in space.cases:
            yield bound(check_survives, case=case)
    yield bound(check_pickles)
    if isinstance(made, msgspec.Struct):
        yield bound(check_repr_evaluates_back)


def check_time_bounded(make: Maker, space: StateSpace, limit_s: float) -> None:
    """Every decision comes within the limit, at the second try if the machine was busy."""
    for name, state in space.cases.items():
        is_quick = any(_decision_time_s(make(), state, limit_s) < limit_s for _ in range(2))
        assert is_quick, f"no answer to {name!r} within {limit_s:g} s"


def check_same_seed_same_answer(make: Maker, space: StateSpace) -> None:
    """Two of the same kind, given the same states and seed, answer alike."""
    one, two = make(), make()
    left_rng, right_rng = _rng(), _rng()
    for name, state in space.cases.items():
        left, right = one.decide(state, left_rng), two.decide(state, right_rng)
        assert is_same(left, right), f"{left!r}, then {right!r}, in state {name!r}, same seed"


def check_input_not_mutated(make: Maker, space: StateSpace) -> None:
    """The state is the same after the decision."""
    subject, rng = make(), _rng()
    for name, state in space.cases.items():
        before = copy.deepcopy(state)
        subject.decide(state, rng)
        assert is_same(state, before), f"state {name!r} was changed"


def check_answer_in_action_space(make: Maker, space: StateSpace) -> None:
    """The answer is one that can be carried out."""
    subject, rng = make(), _rng()
    for name, state in space.cases.items():
        action = subject.decide(state, rng)
        assert space.is_valid(state, action), f"{action!r} is no answer to {name!r}"


def check_survives(make: Maker, space: StateSpace, case: str) -> None:
    """A fresh policy whose first state is an extreme one, three times over."""
    subject, rng = make(), _rng()
    state = space.cases[case]
    for _ in range(3):
        action = subject.decide(state, rng)
        assert space.is_valid(state, action), f"{action!r} is no answer to {case!r}"


def check_pickles(make: Maker, space: StateSpace) -> None:
    """What comes out of a pickle answers as what went in: workers get policies that way."""
    subject = make()
    twin = pickle.loads(pickle.dumps(subject))
    assert type(twin) is type(subject), f"a {type(subject).__name__} became {type(twin).__name__}"
    left_rng, right_rng = _rng(), _rng()
    for name, state in space.cases.items():
        left, right = subject.decide(state, left_rng), twin.decide(state, right_rng)
        assert is_same(left, right), f"{left!r}, unpickled {right!r}, in state {name!r}"


def check_repr_evaluates_back(make: Maker, space: StateSpace) -> None:
    """The repr is the expression that makes it: what a log shows can be run again."""
    subject = make()
    twin = from_repr(subject)
    assert is_same(twin, subject), f"{subject!r} makes another: {twin!r}"


def queue_states(seed: int = _SEED) -> StateSpace:
    """Queues of ready items: none, one, no room, far too many, all alike, and some by chance.

    >>> list(queue_states().cases)[:4]
    ['empty', 'single', 'overloaded', 'no-room']
    """
    rng = np.random.default_rng(seed)
    cases = {
        "empty": _queue(rng, 0, free=2),
        "single": _queue(rng, 1, free=1),
        "overloaded": _queue(rng, 20_000, free=1),
        "no-room": _queue(rng, 5, free=0),
        "alike": ReadyQueue(np.zeros(6, np.int64), np.ones(6, np.int64), now_ns=1, free=3),
    }
    for number in range(16):
        length = int(rng.integers(2, 50))
        cases[f"chance-{number}"] = _queue(rng, length, free=int(rng.integers(1, 5)))
    return StateSpace(cases, _is_queue_answer)


def _queue(rng: np.random.Generator, length: int, free: int) -> ReadyQueue:
    now_ns = 3_600 * 10**9
    arrival_ns = rng.integers(0, now_ns, length, endpoint=True)
    size_ns = rng.exponential(5e7, length).astype(np.int64) + 1
    return ReadyQueue(arrival_ns, size_ns, now_ns=now_ns, free=free)


def _is_queue_answer(state: ReadyQueue, action: object) -> bool:
    if isinstance(action, Pick):
        is_index = isinstance(action.index, int) and 0 <= action.index < len(state)
        return state.can_start and is_index
    return isinstance(action, Hold)


def _maker(subject: Subject) -> Maker:
    """Something that makes fresh ones: checks must not see what an earlier check has taught."""
    if isinstance(subject, str):
        return functools.partial(policies.create, subject)
    if isinstance(subject, Policy) and not isinstance(subject, type):
        return functools.partial(copy.deepcopy, subject)
    if callable(subject):
        return subject
    raise InputError(f"{subject!r} has no decide()", hint="give a policy or what makes one")


def _states_of(subject: AnyPolicy) -> StateSpace:
    own = getattr(subject, "check_states", None)
    if own is None:
        inner = getattr(subject, "inner", None)  # a wrapper lives on its inner policy's states
        return queue_states() if inner is None else _states_of(inner)
    space = own()
    assert isinstance(space, StateSpace), "check_states() gives a StateSpace"
    return space


def _rng() -> np.random.Generator:
    return np.random.default_rng(_SEED)


def _decision_time_s(subject: AnyPolicy, state: Any, limit_s: float) -> float:
    """The time of one decision, given up on at the limit: a thread cannot be ended from here."""
    took_s: list[float] = []

    def decide() -> None:
        start_s = time.perf_counter()
        # An error is not slow, and the other checks tell it under their own names.
        with contextlib.suppress(Exception):
            subject.decide(state, _rng())
        took_s.append(time.perf_counter() - start_s)

    thread = threading.Thread(target=decide, daemon=True)
    thread.start()
    thread.join(limit_s)
    return took_s[0] if took_s else limit_s
