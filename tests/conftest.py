"""Shared by all tests: where data and parts are, and what is skipped for want of them."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
# Two BLAS threads on a busy machine cost twenty times one, and recorded shapes depend on them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests neither use nor fill the cache of whoever runs them.
os.environ["GNOMON_CACHE"] = tempfile.mkdtemp(prefix="gnomon-test-cache-")
atexit.register(shutil.rmtree, os.environ["GNOMON_CACHE"], ignore_errors=True)

# A job in the background ignores SIGINT (`nohup make test &`), and so would every child of it: tests
# that interrupt a child would wait for ever.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time: a run of the tests says something about the change, not about luck.
# `make test-slow` looks further, at random.
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", parent=settings.get_profile("default"), derandomize=False, max_examples=2000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def load_benchmark(name: str) -> ModuleType:
    """A module that only benchmarks use, by its name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # structs look up their annotations there
    spec.loader.exec_module(module)
    return module


def data_folder() -> Path | None:
    """The folder of public data, if this machine has it."""
    for candidate in (os.environ.get("GNOMON_DATA"), ROOT.parent / "shared" / "data"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    return None


@pytest.fixture
def public_data() -> Path:
    folder = data_folder()
    if folder is None:
        pytest.skip("public data is absent: set GNOMON_DATA to its folder")
    return folder


def find_chromium() -> str | None:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


@pytest.fixture(scope="session")
def chromium() -> str:
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine: install the distribution's 'chromium'")
    return path
