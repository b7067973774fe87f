"""Rates of requests over time: shapes by name, scaled to an application, or a file of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.ingest.services.rates import read_rates

Floats = NDArray[np.float64]
#: How long a shape is unless it is said.
SHAPE_S = 600.0
_LONGEST_S = 10 * 24 * 3600


class Rate(msgspec.Struct, frozen=True, eq=False):
    """Requests per second, second by second."""

    name: str
    per_s: Floats


def _constant(x: Floats, rng: Generator) -> Floats:
    return np.ones_like(x)


def _diurnal(x: Floats, rng: Generator) -> Floats:
    """A day: one trough, one peak, and some noise."""
    return 1.0 - 0.35 * np.cos(2 * np.pi * x) + 0.04 * _wander(x, rng)


def _bursty(x: Floats, rng: Generator) -> Floats:
    """A steady base with bursts of up to two and a half times that die out."""
    rate = np.full_like(x, 0.75) + 0.04 * _wander(x, rng)
    decay = max(0.02 * len(x), 5.0)
    for start in rng.integers(0, len(x), size=max(2, round(len(x) / 150))):
        passed = np.arange(len(x) - start)
        rate[start:] += rng.uniform(0.4, 1.2) * np.exp(-passed / decay)
    return rate


def _noisy(x: Floats, rng: Generator) -> Floats:
    wander: Floats = 1.0 + 0.25 * _wander(x, rng)
    return wander


def _surge(x: Floats, rng: Generator) -> Floats:
    """Twice the rate in the middle third, from one second to the next."""
    return np.where((x >= 1 / 3) & (x < 2 / 3), 1.5, 0.75)


def _wander(x: Floats, rng: Generator) -> Floats:
    """Noise that remembers about ten seconds, of unit variance."""
    steps = rng.normal(size=len(x)) * np.sqrt(1 - 0.9**2)
    wander: Floats = np.empty(len(steps))
    last = 0.0
    for i, step in enumerate(steps):
        last = 0.9 * last + step
        wander[i] = last
    return wander


SHAPES: dict[str, Callable[[Floats, Generator], Floats]] = {
    "constant": _constant, "diurnal": _diurnal, "bursty": _bursty, "noisy": _noisy,
    "surge": _surge,
}  # fmt: skip


def find_rate(
    name: str, rate: float, *, duration_s: float | None = None, scale: float = 1.0, seed: int = 0,
    shape_s: float = SHAPE_S,
) -> Rate:  # fmt: skip
    """A shape by name with a mean of `rate`, or a file of rates as they are.

    Args:
        name: One of `SHAPES`, or a file of one value per second.
        rate: The mean of a shape.
        duration_s: How long; `shape_s` of a shape, all of a file unless given.
        scale: Factor on top.
        seed: Of the noise.
        shape_s: How long a shape is without `duration_s`.

    >>> find_rate("surge", 100.0, duration_s=9).per_s.tolist()
    [75.0, 75.0, 75.0, 150.0, 150.0, 150.0, 75.0, 75.0, 75.0]
    """
    if not 0 < scale < 1e6:
        raise InputError(f"a factor of {scale:g} is out of range")
    if duration_s is not None and not 1 <= duration_s <= _LONGEST_S:
        raise InputError(f"a run of {duration_s:g} s", hint="a second at least, ten days at most")
    if name in SHAPES:
        count = round(duration_s or shape_s)
        rng = np.random.default_rng([seed, 0x4A7E])
        shape = np.maximum(SHAPES[name]((np.arange(count) + 0.5) / count, rng), 0.05)
        return Rate(name, scale * rate * shape / shape.mean())
    if not Path(name).exists():
        raise InputError(f"there is no rate {name!r}", hint=f"{', '.join(SHAPES)}, or a file")
    values = read_rates(name)
    if duration_s is not None:
        if duration_s > len(values):
            raise InputError(f"has {len(values)} s, {duration_s:g} s were asked for", where=name)
        values = values[: round(duration_s)]
    return Rate(Path(name).stem, scale * values)


def label_rates(names: Sequence[str]) -> list[str]:
    """What each rate is called: a file by its stem, or by more of its path where that is taken.

    >>> label_rates(["diurnal", "a/x.txt", "b/x.txt", "y.txt"])
    ['diurnal', 'a/x.txt', 'b/x.txt', 'y']
    """
    paths = [None if name in SHAPES else Path(name).resolve() for name in names]
    for i, (name, path) in enumerate(zip(names, paths)):
        if name in names[:i] or (path is not None and path in paths[:i]):
            raise InputError(f"the rate {name!r} is named twice")
    labels = [name if path is None else path.stem for name, path in zip(names, paths)]
    parts = 0
    while any(labels.count(label) > 1 for label in labels):
        parts += 1
        labels = [
            label if path is None or labels.count(label) == 1 else "/".join(path.parts[-parts:])
            for label, path in zip(labels, paths)
        ]
    return labels
