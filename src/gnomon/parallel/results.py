"""What a map gives back."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeVar

from gnomon.parallel.call import Failure

R = TypeVar("R")


class Results(list[R]):
    """The results in the order of the items, and how many of them were not computed again.

    >>> from gnomon.parallel import pmap
    >>> results = pmap(abs, [-1, 2], on="serial")
    >>> results, results.reused, results.failures
    ([1, 2], 0, [])
    """

    def __init__(self, values: Iterable[R] = (), *, reused: int = 0) -> None:
        super().__init__(values)
        self.reused = reused

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # A list subclass with a keyword would otherwise come back without its count.
        return functools.partial(Results, list(self), reused=self.reused), ()

    @property
    def failures(self) -> list[Failure]:
        return [value for value in self if isinstance(value, Failure)]
