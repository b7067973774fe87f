"""Waits between streams against graphs whose true waits are known (`tests/data/h200`)."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
CASES = sorted((ROOT / "tests" / "data" / "h200").glob("streams-*"))


@cache
def accuracy() -> ModuleType:
    path = ROOT / "benchmarks" / "training_accuracy.py"
    spec = importlib.util.spec_from_file_location("training_accuracy", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def is_found(exam, source, target, edges) -> bool:
    """As an edge, or through one from something that comes after the source."""
    return any(
        b == target and (a == source or (a[0] == source[0] and source[1] in exam.ancestors[a[1]]))
        for a, b in edges
    )


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_recorded_waits_are_all_found_and_all_right(folder):
    """CUDA 13 leaves stream and record out: numbers of events and the host's doings tell."""
    exam = accuracy().Exam(folder, "sync")
    edges = exam.edges()
    assert all(exam.is_right(*pair) for pair in edges)
    waits = exam.true_waits()
    assert len(waits) > 90
    assert all(is_found(exam, source, target, edges) for source, target, _ in waits)
    assert exam.training.inferred == ()


def test_inferred_waits_are_mostly_right_and_mostly_found():
    right = wrong = asked = found = 0
    sure: list[bool] = []
    for folder in CASES:
        exam = accuracy().Exam(folder, "plain")
        edges = exam.edges()
        verdicts = {pair: exam.is_right(*pair) for pair in edges}
        right += sum(verdicts.values())
        wrong += len(verdicts) - sum(verdicts.values())
        sure += [verdicts[pair] for pair, confidence in edges.items() if confidence > 0.8]
        binding = [(source, target) for source, target, binds in exam.true_waits() if binds]
        asked += len(binding)
        found += sum(is_found(exam, *pair, edges) for pair in binding)
    assert asked > 300
    assert found / asked >= 0.9
    assert right / (right + wrong) >= 0.9
    assert sum(sure) / len(sure) >= 0.98
