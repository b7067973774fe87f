"""What was measured of a job besides its trace: `meta.json` beside it."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import msgspec

from gnomon.errors import InputError

_META = "meta.json"
#: Each step without the profiler: before and after the trace, by CUDA events or by the clock.
_STEPS = (("step_ms_event", "step_ms_event_2"), ("step_ms", "step_ms_2"))


class MeasuredRun(msgspec.Struct, frozen=True):
    """What nobody profiled, as it was measured; None and () where it was not."""

    step_ms: float | None = None
    steps_ms: tuple[float, ...] = ()
    peak_bytes: float | None = None
    power_w: float | None = None


class _Meta(msgspec.Struct):
    step_ms_median: float | None = None
    peak_bytes: float | None = None


def read_measured(trace: Path) -> MeasuredRun:
    """Reads what was measured beside a trace; nothing is where there is no `meta.json`."""
    meta = trace.with_name(_META)
    if not meta.is_file():
        return MeasuredRun()
    try:
        text = meta.read_bytes()
        known = msgspec.json.decode(text, type=_Meta)
        # The rest is nice to have: who keeps something else under its name is not refused.
        rest = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"what was measured cannot be read: {error}", where=str(meta)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(meta)) from None
    return MeasuredRun(known.step_ms_median, _steps_ms(rest), known.peak_bytes, _power_w(rest))


def _steps_ms(meta: dict[str, Any]) -> tuple[float, ...]:
    """All that was measured in one way: two ways are not one sample."""
    for names in _STEPS:
        found = [value for name in names for value in _numbers(meta.get(name))]
        if found:
            return tuple(found)
    return ()


def _numbers(values: object) -> list[float]:
    if not isinstance(values, list):
        return []
    return [
        float(value)
        for value in values
        if isinstance(value, int | float) and math.isfinite(value) and value > 0
    ]


def _power_w(meta: dict[str, Any]) -> float | None:
    """The median of the samples' power, in the column that says so."""
    columns, samples = meta.get("smi_columns"), meta.get("smi")
    if not isinstance(columns, str) or not isinstance(samples, list):
        return None
    named = [name.strip().lower().startswith("power") for name in columns.split(",")]
    if not any(named):
        return None
    column = named.index(True)
    watts = [_cell(sample, column) for sample in samples]
    known = [value for value in watts if value is not None]
    return statistics.median(known) if known else None


def _cell(sample: object, column: int) -> float | None:
    """A number of a row; None where the tool wrote that it has none (`[N/A]`) or was cut."""
    cells = sample.split(",") if isinstance(sample, str) else []
    try:
        value = float(cells[column])
    except (IndexError, ValueError):
        return None
    return value if math.isfinite(value) else None
