"""The wheel holds what an installed gnomon needs: built once, looked into."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_holds_every_package_and_data_file(tmp_path):
    pytest.importorskip("scikit_build_core", reason="the build back end is absent")
    # A copy, so that the build folder of this checkout stays as it is.
    source = tmp_path / "source"
    shutil.copytree(
        ROOT, source,
        ignore=shutil.ignore_patterns(".git", ".venv", "build", "site", "report.png", "__pycache__", ".*_cache"),
    )  # fmt: skip
    done = subprocess.run(
        # Without the native core, whose build this environment has already been through.
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
         "-C", "wheel.cmake=false", "-C", "wheel.py-api=py3", "-w", str(tmp_path / "wheel"), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    wanted = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "gnomon").rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }
    assert wanted - packed == set()
    assert wheel.stat().st_size < 5_000_000
