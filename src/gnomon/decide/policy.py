"""The shape of a policy, and the states it can be tried on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec
from numpy.random import Generator

__all__ = ["Learner", "Policy", "StateSpace", "tell"]

State_contra = TypeVar("State_contra", contravariant=True)
Action_co = TypeVar("Action_co", covariant=True)
Outcome_contra = TypeVar("Outcome_contra", contravariant=True)


@runtime_checkable
class Policy(Protocol[State_contra, Action_co]):
    """Chooses an action from what is known now. Must not touch the outside world.

    The simulator and the live loop call the same object. Randomness comes from `rng` alone and
    time from the state alone, so the same state and seed give the same action. Write it as a
    frozen msgspec Struct: its fields are its parameters, in specs, help and schemas alike.

    A class may say on what to try it: a classmethod `check_states()` that gives a StateSpace.

    >>> class Always(msgspec.Struct, frozen=True):
    ...     "Answers what it was told to."
    ...     answer: int = 42
    ...     def decide(self, state: object, rng: Generator) -> int:
    ...         return self.answer
    >>> isinstance(Always(), Policy)
    True
    """

    def decide(self, state: State_contra, rng: Generator) -> Action_co:
        """The action to take in this state."""
        ...


@runtime_checkable
class Learner(Protocol[Outcome_contra]):
    """What a policy has besides when it learns from what happened.

    >>> class Count:
    ...     seen = 0
    ...     def observe(self, outcome: object) -> None:
    ...         self.seen += 1
    >>> isinstance(Count(), Learner)
    True
    """

    def observe(self, outcome: Outcome_contra) -> None:
        """Take note of what came of an earlier decision."""
        ...


def tell(policy: object, outcome: object) -> None:
    """Pass an outcome to a policy if it learns; wrappers call this for what they wrap.

    >>> tell("a policy that does not learn", outcome=1)
    """
    if isinstance(policy, Learner):
        policy.observe(outcome)


class StateSpace(msgspec.Struct, frozen=True):
    """States to try a policy on, by name, and what counts as an answer to one.

    The names `empty`, `single` and `overloaded` are looked for; the others are free.

    >>> space = StateSpace({"single": 1}, lambda state, action: action <= state)
    >>> space.is_valid(space.cases["single"], 2)
    False
    """

    cases: Mapping[str, Any]
    is_valid: Callable[[Any, Any], bool]
