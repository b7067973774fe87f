"""Recordings are made once a session and read by many."""

from __future__ import annotations

from pathlib import Path

import pytest

#: Run beside the files of a benchmark, in a process of their own.
collect_ignore = ["rank_program.py", "pretended_device.py"]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory):
    """A function from the name of a small model to the folder of its traces."""
    pytest.importorskip("torch", reason="torch is not installed")
    from tests.systems.aibench.recordings import MODELS, record, torch

    done: dict[str, Path] = {}

    def traces(name: str) -> Path:
        if name not in done:
            torch.manual_seed(0)
            done[name] = record(tmp_path_factory.mktemp("traces") / name, MODELS[name]())
        return done[name]

    return traces
