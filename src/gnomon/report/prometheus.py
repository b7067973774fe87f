"""Figures as Prometheus text, for a node exporter's text folder or a push gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.report.result import Figure, Result


def to_prometheus(result: Result, labels: Mapping[str, str] | None = None) -> str:
    """The figures as gauges named `gnomon_<system>_<figure>`; ranges add `_low` and `_high`.

    A figure in words becomes an info metric: value 1, the words in a label.

    >>> from gnomon.report import Figure
    >>> print(to_prometheus(Result("training", "replay", "t", figures=[
    ...     Figure("step_ms", "Step time", 120.5, "ms")]), {"run": "a"}), end="")
    # HELP gnomon_training_step_ms Step time (ms)
    # TYPE gnomon_training_step_ms gauge
    gnomon_training_step_ms{verb="replay",run="a"} 120.5
    """
    every = {"verb": result.verb} | dict(labels or {})
    for name in every:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) or name.startswith("__"):
            raise InputError(f"{name!r} is no name of a Prometheus label")
    stem = f"gnomon_{result.system}".replace("-", "_")
    return "".join(
        _family(f"{stem}_{figure.name}{suffix}", figure, value, every)
        for figure in result.figures
        for suffix, value in _samples(figure)
    )


def _samples(figure: Figure) -> list[tuple[str, float | int | str]]:
    value = figure.value
    if isinstance(value, Estimate):
        return [("", value.mid), ("_low", value.low), ("_high", value.high)]
    return [("_info" if isinstance(value, str) else "", value)]


def _family(name: str, figure: Figure, value: float | int | str, labels: Mapping[str, str]) -> str:
    help_text = f"{figure.label} ({figure.unit})" if figure.unit else figure.label
    if isinstance(value, str):
        labels, value = {**labels, "value": value}, 1
    inside = ",".join(f'{key}="{_escape(text, quote=True)}"' for key, text in labels.items())
    return (
        f"# HELP {name} {_escape(help_text)}\n# TYPE {name} gauge\n{name}{{{inside}}} {value!r}\n"
    )


def _escape(text: str, quote: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text
