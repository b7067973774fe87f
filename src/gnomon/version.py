"""The version, from the installed package's metadata: written once, in pyproject.toml."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gnomon")
except PackageNotFoundError:  # a source tree on the path, never installed
    __version__ = "0+unknown"
