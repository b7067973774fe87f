"""What a repr says, made again."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np


def from_repr(subject: Any) -> Any:
    """Evaluates the repr of something, with the classes that it mentions and nothing else.

    >>> from gnomon.decide.cluster.policies.orders import Fifo
    >>> from_repr(Fifo())
    Fifo()
    """
    names = {"__builtins__": {}, "inf": np.inf, "nan": np.nan, **_names_in(subject)}
    return eval(repr(subject), names)


def _names_in(subject: Any) -> dict[str, Any]:
    """The classes that a struct's repr mentions."""
    names: dict[str, Any] = {type(subject).__qualname__.split(".")[-1]: type(subject)}
    if isinstance(subject, msgspec.Struct):
        for name in subject.__struct_fields__:
            names |= _names_in(getattr(subject, name))
    elif isinstance(subject, list | tuple | set | frozenset):
        for part in subject:
            names |= _names_in(part)
    elif isinstance(subject, dict):
        for part in (*subject, *subject.values()):
            names |= _names_in(part)
    return names
