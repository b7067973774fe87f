"""Request rates as people keep them: one value per second and line."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.ingest.text import read_whole

_MOST_BYTES = 64 << 20
_MOST_RATE = 1e9


def read_rates(path: str | os.PathLike[str]) -> NDArray[np.float64]:
    """Requests per second, one number a line; lines of a comment (#) are passed over.

    An empty line is refused: it would be a second that is missing, and shift all that follow.
    """
    where = os.fspath(path)
    text = read_whole(path, _MOST_BYTES, "one number per second is enough")
    rates = []
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        value, hash_, _ = line.partition("#")
        value = value.strip()
        if not value and hash_:
            continue
        try:
            rate = float(value)
        except ValueError:
            raise InputError(
                f"line {number} is {f'{value[:40]!r}, not a number' if value else 'empty'}",
                where=where,
                hint="a file of rates has requests per second, one number a line",
            ) from None  # fmt: skip
        if not 0 <= rate <= _MOST_RATE:
            raise InputError(f"line {number}: {value} requests per second", where=where)
        rates.append(rate)
    if not rates:
        raise InputError("holds no rates", where=where)
    return np.array(rates)
