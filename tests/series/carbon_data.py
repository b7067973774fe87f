"""The readers of public grid data, from the tool that makes the profiles."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

_TOOL = Path(__file__).resolve().parents[2] / "tools" / "make_profiles.py"


def load_tool():
    spec = importlib.util.spec_from_file_location("make_profiles", _TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def new_year(year: int) -> int:
    return int(np.datetime64(f"{year}-01-01", "ns").astype(np.int64))
