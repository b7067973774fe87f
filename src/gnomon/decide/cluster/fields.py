"""Checks of policies' parameters: one line where a value is out of range."""

from __future__ import annotations

from typing import Any, get_args

from gnomon.errors import InputError


def check_word(name: str, field: str, value: str, words: Any) -> None:
    """One of a Literal's words."""
    if value not in get_args(words):
        raise InputError(f"{name}: {field} is {' or '.join(get_args(words))}, not {value}")


def check_share(name: str, field: str, value: float) -> None:
    """From 0 to 1."""
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{name}: {field}={value:g}", hint="it lies from 0 to 1")


def check_hours(name: str, field: str, value: float) -> None:
    """More than nothing, and finite."""
    if not 0.0 < value < 1e6:
        raise InputError(f"{name}: {field}={value:g}", hint="over 0 and under a million hours")
