"""Loads modules that lie beside a benchmark's `run.py`, as `run.py` does: by their bare names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import gnomon.systems.aibench

RUNTIME = Path(gnomon.systems.aibench.__file__).with_name("runtime")


def load(name):
    sys.path.insert(0, str(RUNTIME))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(RUNTIME))
