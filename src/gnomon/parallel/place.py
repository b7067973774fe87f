"""Where work runs: this process, processes beside it, or a Ray cluster."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from gnomon.errors import InputError

_HINT = "use serial, local, local:4, ray, ray://auto or ray://host:port"
_ADDRESS = re.compile(r"ray://(?:[^\s/:\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")


class Place(msgspec.Struct, frozen=True):
    """A place to run work, as `parse_on` reads it.

    `workers` is None where the text does not say; `address` is what Ray is given, None meaning
    "the cluster of RAY_ADDRESS, else one of our own".

    >>> parse_on("local:4")
    Place(kind='local', workers=4, address=None)
    """

    kind: Literal["serial", "local", "ray"]
    workers: int | None = None
    address: str | None = None


def parse_on(text: str) -> Place:
    """Read a place: serial, local, local:4, ray, ray://auto or ray://host:port.

    >>> parse_on("ray://head:10001").address
    'ray://head:10001'
    >>> parse_on("lcoal")
    Traceback (most recent call last):
        ...
    gnomon.errors.InputError: 'lcoal' is no place to run; use serial, local, local:4, ray, \
ray://auto or ray://host:port
    """
    if text in ("serial", "local", "ray"):
        # Spelt out for the type checker: a str is not a Literal.
        kind: Literal["serial", "local", "ray"] = (
            "serial" if text == "serial" else "local" if text == "local" else "ray"
        )
        return Place(kind, workers=1 if kind == "serial" else None)
    if counted := re.fullmatch(r"local:(\d{1,6})", text):
        workers = int(counted[1])
        if workers < 1:
            raise InputError(f"{text!r} asks for no worker at all", hint="use local:1 or serial")
        return Place("local", workers=workers)
    if text == "ray://auto":
        return Place("ray", address="auto")
    if (address := _ADDRESS.fullmatch(text)) and 0 < int(address[1]) < 65536:
        return Place("ray", address=text)
    raise InputError(f"{text!r} is no place to run", hint=_HINT)
