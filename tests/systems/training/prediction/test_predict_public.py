"""Steps from configurations alone against public tables, by the means of `benchmarks`."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[4]


@cache
def benchmark() -> ModuleType:
    path = ROOT / "benchmarks" / "training_predict_public.py"
    spec = importlib.util.spec_from_file_location("training_predict_public", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def mean_error(cases) -> float:
    return float(np.mean([abs(case.error) for case in cases]))


def covered(cases) -> float:
    return float(np.mean([case.inside for case in cases]))


@pytest.mark.data
def test_single_node_table_of_vtrain(public_data, monkeypatch):
    bench = benchmark()
    rows = bench.vtrain_rows()
    assert len(rows) == 1440
    unused = [row for row, used in zip(rows, bench._tenth(len(rows)), strict=True) if not used]
    monkeypatch.setattr(bench, "vtrain_rows", lambda: unused[::8])
    cases = bench.vtrain()
    assert len(cases) == 162
    assert mean_error(cases) < 0.0837  # vTrain's own
    assert 0.65 < covered(cases) < 0.95


@pytest.mark.data
def test_four_gpu_table_of_neusight(public_data):
    cases = benchmark().neusight()
    assert len(cases) == 11
    assert mean_error(cases) < 0.077  # NeuSight's own
    assert max(abs(case.error) for case in cases) < 0.15


@pytest.mark.data
def test_eight_gpu_table_of_simumax(public_data):
    cases = [case for case in benchmark().simumax() if not case.group["used"]]
    assert len(cases) == 39
    assert mean_error(cases) < 0.056  # SimuMax's own
