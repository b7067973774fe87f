"""What was measured beside a trace."""

from __future__ import annotations

import json

import pytest

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.ingest.profiler.measured import MeasuredRun, read_measured


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "kineto.json"


def meta(trace, **content):
    trace.with_name("meta.json").write_text(json.dumps(content))
    return read_measured(trace)


def test_nothing_lies_beside_it(trace):
    assert read_measured(trace) == MeasuredRun()
    assert meta(trace, other=[1]) == MeasuredRun()


def test_the_step_and_the_peak(trace):
    found = meta(trace, step_ms_median=12.5, peak_bytes=7, other=[1])
    assert (found.step_ms, found.peak_bytes) == (12.5, 7.0)


def test_every_step_that_was_measured_alike(trace):
    assert meta(trace, step_ms=[3, 4.5]).steps_ms == (3.0, 4.5)
    both = meta(trace, step_ms_event=[1, 2], step_ms_event_2=[3], step_ms=[9])
    assert both.steps_ms == (1.0, 2.0, 3.0)
    odd = meta(trace, step_ms_event=[1, "2", None, -1, 0, 4])
    assert odd.steps_ms == (1.0, 4.0)
    assert meta(trace, step_ms_event="fast").steps_ms == ()


@pytest.mark.parametrize(
    ("columns", "rows", "watts"),
    [
        ("power W, gpu util %", ["680.5, 100", "700.5, 99", "600, 1"], 680.5),
        ("gpu util %, power W", ["100, 400", "100, [N/A]", "100", 5, "100, 500"], 450.0),
        ("gpu util %", ["100"], None),
        ("power W", ["[N/A]", "nan"], None),
        ("power W", [], None),
        ("power W", "400", None),
        (7, ["400"], None),
    ],
)
def test_power_is_the_median_of_its_column(trace, columns, rows, watts):
    assert meta(trace, smi_columns=columns, smi=rows).power_w == watts


@pytest.mark.parametrize("text", [b"nonsense", b"[1]", b'{"step_ms_median": "fast"}', b"\xff"])
def test_another_file_of_that_name_is_named(trace, text):
    trace.with_name("meta.json").write_bytes(text)
    with pytest.raises(InputError, match=r"meta\.json: what was measured cannot be read"):
        read_measured(trace)


def test_the_bundled_recording():
    found = read_measured(bundled("h200-gpt-l6") / "kineto.json.gz")
    assert found.step_ms is not None
    assert min(found.steps_ms) < found.step_ms < max(found.steps_ms)
    assert len(found.steps_ms) == 60
    assert found.peak_bytes is not None
    assert found.peak_bytes > 1e9
    assert found.power_w is not None
    assert 600 < found.power_w < 720
