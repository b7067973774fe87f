"""The command line as it was typed, for the manifest of its answer."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextvars import ContextVar

TYPED: ContextVar[Sequence[str]] = ContextVar("TYPED", default=())
#: Where an answer goes, and where it is computed, is no part of how to make it again.
_FLAGS = ("--json", "--overwrite", "--force")
_TARGETS = ("--html", "--save", "--perfetto", "--on", "--resume")


def typed_command() -> str:
    """What was typed, without where the answer went; files by their name alone.

    >>> token = TYPED.set(["carbon", "buy", "--zone", "SE", "--html=x.html", "--json"])
    >>> typed_command()
    'gnomon carbon buy --zone SE'
    >>> TYPED.reset(token)
    """
    kept, words = ["gnomon"], iter(TYPED.get())
    for word in words:
        option, equals, value = word.partition("=")
        if option in _TARGETS:
            if not equals:
                next(words, None)
        elif word not in _FLAGS:
            given = equals and option.startswith("--")
            kept.append(f"{option}={_name(value)}" if given else _name(word))
    return shlex.join(kept)


def _name(word: str) -> str:
    return os.path.basename(word.rstrip(os.sep)) if os.path.exists(word) else word
