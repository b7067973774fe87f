"""Names of a package that are loaded when they are first used: importing it stays cheap."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: each name is taken from its module, once.

    Args:
        package: The package, its `__name__`.
        names: Those that each submodule defines.

    >>> from gnomon import report
    >>> report.to_json.__module__
    'gnomon.report.json'
    """

    homes = {name: module for module, defined in names.items() for name in defined}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
