import runpy
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def sample():
    return runpy.run_path(str(Path(__file__).with_name("sample.py")))["build_sample"]()


@pytest.fixture(scope="session")
def hostile():
    return runpy.run_path(str(Path(__file__).with_name("sample.py")))["HOSTILE"]
