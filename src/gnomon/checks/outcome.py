"""A check, its outcome, and the error that names the one that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec


class CheckFailed(AssertionError):
    """A plug-in breaks the contract; names the check and says how.

    >>> str(CheckFailed("check_pickles", "cannot pickle a lock"))
    'check_pickles: cannot pickle a lock'
    """

    def __init__(self, check: str, why: str) -> None:
        self.check, self.why = check, why
        super().__init__(f"{check}: {why}")

    def __reduce__(self) -> tuple[type[CheckFailed], tuple[str, str]]:
        return type(self), (self.check, self.why)


class Check(msgspec.Struct, frozen=True):
    """One rule of a contract, bound to what it examines. Call it: it returns, or raises.

    >>> def check_is_even(number: int) -> None:
    ...     assert number % 2 == 0, f"{number} is odd"
    >>> Check("check_is_even", lambda: check_is_even(3))()
    Traceback (most recent call last):
        ...
    gnomon.checks.outcome.CheckFailed: check_is_even: 3 is odd
    """

    name: str
    run: Callable[[], None]
    # A check after which the others cannot be trusted to return.
    is_vital: bool = False

    def __call__(self) -> None:
        """Run it; whatever goes wrong is raised as a CheckFailed with this check's name."""
        try:
            self.run()
        except AssertionError as error:
            raise CheckFailed(self.name, str(error)) from error
        except Exception as error:
            raise CheckFailed(self.name, f"{type(error).__name__}: {error}") from error


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one check.

    >>> Outcome("check_pickles", "passed")
    Outcome(check='check_pickles', status='passed', why='')
    """

    check: str
    status: Literal["passed", "failed", "skipped"]
    why: str = ""


def run_checks(checks: Iterable[Check], *, raises: bool = True) -> list[Outcome]:
    """Run checks in order; raise the first failure, or give every outcome.

    >>> run_checks([Check("check_nothing", lambda: None)])
    [Outcome(check='check_nothing', status='passed', why='')]
    """
    outcomes: list[Outcome] = []
    vital = ""
    for check in checks:
        if vital:
            outcomes.append(Outcome(check.name, "skipped", f"{vital} failed"))
            continue
        try:
            check()
        except CheckFailed as failed:
            if raises:
                raise
            outcomes.append(Outcome(check.name, "failed", failed.why))
            vital = check.name if check.is_vital else ""
        else:
            outcomes.append(Outcome(check.name, "passed"))
    return outcomes
