"""The one shape of a policy, for the simulator and for the live loop."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self

import msgspec
from numpy.random import Generator

from gnomon.errors import InputError


class Policy(msgspec.Struct, frozen=True):
    """Chooses an action from what is known now. It never touches the outside world.

    A policy is a frozen Struct under one name; its fields are its parameters. A field `inner`
    makes it a wrapper. It owns all its forms, and whoever runs it asks for the one it needs:

    - `decide(state, rng)`: one decision in Python. Randomness comes from `rng` alone and time
      from the state alone.
    - `native(setting)`: what the native simulator runs at full speed. A kind of decision that has
      a native simulator gives the default, which calls `decide`.
    - `live(state)`: what an agent asks about a running system.

    A form that a policy does not have raises an InputError that says so.

    >>> class Always(Policy, frozen=True):
    ...     "The same answer whatever happens."
    ...     answer: int = 42
    ...     def decide(self, state: object, rng: Generator) -> int:
    ...         return self.answer
    >>> Always().decide(None, rng=None), Always().is_carbon_aware
    (42, False)
    >>> Always().native(None)
    Traceback (most recent call last):
        ...
    gnomon.errors.InputError: Always has no native form
    """

    #: Whether this policy itself, apart from what it wraps, decides by the grid.
    reads_grid: ClassVar[bool] = False

    def decide(self, state: Any, rng: Generator) -> Any:
        """The action to take in this state."""
        self._lacks("Python")

    def native(self, setting: Any) -> Any:
        """What the simulator runs in this setting."""
        self._lacks("native")

    def live(self, state: Any) -> Any:
        """What an agent should do about a running system."""
        self._lacks("live")

    def observe(self, outcome: Any) -> None:
        """Learn from what happened after an earlier decision; wrappers pass it on."""
        if self.wrapped is not None:
            self.wrapped.observe(outcome)

    @property
    def wrapped(self) -> Self | None:
        """The policy inside; None where it is no wrapper."""
        return getattr(self, "inner", None)

    @property
    def innermost(self) -> Self:
        """The policy inside of all wrappers."""
        return self if self.wrapped is None else self.wrapped.innermost

    @property
    def is_carbon_aware(self) -> bool:
        """Whether it, or a policy inside, decides by the grid."""
        return self.reads_grid or (self.wrapped is not None and self.wrapped.is_carbon_aware)

    def _lacks(self, form: str) -> NoReturn:
        raise InputError(f"{type(self).__name__} has no {form} form")
