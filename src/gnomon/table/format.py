"""Numbers as people read them: four figures that matter, thousands apart, one width per column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = "–"


def format_value(value: object) -> str:
    """One value on its own.

    >>> [format_value(v) for v in (1234567, 0.123456, 98.7654, 1e-7, True, "text", float("nan"))]
    ['1,234,567', '0.1235', '98.77', '1.00e-07', 'yes', 'text', '–']
    """
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if isinstance(value, float | np.floating):
        return _format_float(float(value))
    return MISSING if value is None else str(value)


def format_range(low: float | None, high: float | None) -> str:
    """Two ends; empty where they read the same, since that is no range.

    >>> format_range(90.0, 130.0), format_range(27.889, 27.891)
    ('90 – 130', '')
    """
    ends = format_value(low), format_value(high)
    return "" if ends[0] == ends[1] else " – ".join(ends)


def _format_float(value: float) -> str:
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if value == round(value) and size < 1e9:
        return f"{value:,.0f}"
    if size < 1e-4 or size >= 1e15:
        return f"{value:.2e}"
    decimals = max(0, 3 - math.floor(math.log10(size)))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def format_column(values: NDArray[Any]) -> list[str]:
    """A whole column with the same number of decimals, so that the points stand in line.

    >>> format_column(np.array([1.5, 120.25, np.nan]))
    ['1.5', '120.2', '–']
    """
    if values.dtype.kind != "f":
        return [format_value(value) for value in values.tolist()]
    decimals = _decimals(values)
    if decimals is None:
        return [_format_float(value) for value in values.tolist()]
    texts = {value: f"{value:,.{decimals}f}" for value in values.tolist() if math.isfinite(value)}
    idle = min((len(text) - len(text.rstrip("0")) for text in texts.values()), default=0)
    cut = -min(idle, decimals) - (0 < decimals <= idle)  # the point goes with the last decimal
    return [
        texts[value][: cut or None] if value in texts else _format_float(value)
        for value in values.tolist()
    ]


def _decimals(values: NDArray[Any]) -> int | None:
    sizes = np.abs(values[np.isfinite(values)].astype(np.float64))
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return 0
    low, high = float(sizes.min()), float(sizes.max())
    if high >= 1e15 or high < 1e-4:
        return None  # each in powers of ten
    if high < 1e9 and bool(np.all(sizes == np.round(sizes))):
        return 0
    # Four figures of the largest, two of the smallest, but never a tail of digits for its sake.
    wanted = max(3 - math.floor(math.log10(high)), 1 - math.floor(math.log10(low)))
    most = 3 if high >= 0.1 else 3 - math.floor(math.log10(high))
    return max(0, min(wanted, most))
