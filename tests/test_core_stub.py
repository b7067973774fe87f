"""The stub of the native core says what the module really has."""

from __future__ import annotations

from pathlib import Path

import pytest

import gnomon
from gnomon import _core


def test_stub_is_up_to_date():
    stubgen = pytest.importorskip("nanobind.stubgen", reason="nanobind is absent")
    generator = stubgen.StubGen(module=_core, quiet=True)
    generator.put(_core)
    committed = (Path(gnomon.__file__).parent / "_core.pyi").read_text()
    assert generator.get() == committed, (
        "run: python -m nanobind.stubgen -m gnomon._core -o src/gnomon/_core.pyi"
    )
