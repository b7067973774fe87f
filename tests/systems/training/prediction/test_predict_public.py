"""Steps from configurations alone against public tables, by the means of `benchmarks`."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gnomon.errors import InputError

ROOT = Path(__file__).resolve().parents[4]


@cache
def benchmark() -> ModuleType:
    folder = ROOT / "benchmarks"
    path = folder / "training_predict_public.py"
    spec = importlib.util.spec_from_file_location("training_predict_public", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # It imports its neighbour, as scripts do.
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
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


HEADER = (
    "\ufeff# GPUs,global batch,micro batch,hidden size,attention heads,# layers,"
    "sequence length,tensor parallelism,data parallelism,pipeline parallelism,"
    "iteration time (ms)"
)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_table_of_several_nodes_is_examined_where_there_is_one(tmp_path, monkeypatch, suffix):
    bench = benchmark()
    monkeypatch.setattr(bench, "data_folder", lambda: tmp_path)
    (tmp_path / "vtrain").mkdir()
    assert list(bench.vtrain_multi()) == []
    text = f"{HEADER}\n64,512,2,4096,32,24,2048,8,4,2,5000.0\n"
    written = gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode()
    (tmp_path / "vtrain" / f"ground_truth_multi{suffix}").write_bytes(written)
    (table,) = bench.vtrain_multi()
    (case,) = table.cases
    assert case.measured_ms == 5000.0
    assert case.name == "h4096 l24 mb2 m64 tp8 dp4 pp2"
    assert 0 < case.low_ms < case.predicted_ms < case.high_ms
    assert {"multi_mean_pct", "multi_worst_pct", "multi_inside_pct"} <= set(table.percentages())


def test_columns_go_by_their_names(tmp_path):
    bench = benchmark()
    path = tmp_path / "table.csv"
    names = HEADER.removeprefix("\ufeff").split(",")
    row = ["8", "32", "4", "1024", "16", "24", "512", "2", "2", "2", "219.7"]
    path.write_text("".join(",".join(reversed(line)) + "\n" for line in (names, row)))
    ((c, ms),) = bench._read_vtrain(path, network="ib-hdr")
    assert (c.layers, c.hidden, c.seq, c.batch, c.accumulation, c.network) == (
        24, 1024, 512, 4, 4, "ib-hdr",
    )  # fmt: skip
    assert ms == 219.7
    path.write_text("# layers,hidden size\n24,1024\n")
    with pytest.raises(InputError, match="no column attention heads"):
        bench._read_vtrain(path)


def test_figures_are_named_by_table_and_in_percent():
    bench = benchmark()
    cases = [bench.Case(str(i), 100.0, 100.0 + off, 90.0, 95.0 + off, {}, 10.0, 11.0)
             for i, off in enumerate((2.0, -8.0))]  # fmt: skip
    percentages = bench.Table("t", cases, "", key="all", main=True).percentages()
    assert percentages["mean_pct"] == percentages["all_mean_pct"] == pytest.approx(5.0)
    assert percentages["worst_pct"] == pytest.approx(8.0)
    assert percentages["inside_pct"] == 0.0
    assert percentages["memory_mean_pct"] == pytest.approx(10.0)
    assert percentages["worst_case"] == "1"
    assert set(bench.Table("t", cases, "", key="k").percentages()) == {
        f"k_{name}" for name in bench.Table("t", cases, "", main=True).percentages()
    }


def test_layouts_of_lumos_from_a_synthetic_trace_are_near_those_without():
    found = benchmark().measure(["lumos"])["lumos"]
    assert found["cases"] == found["trace_cases"] == 9
    assert found["scaled_cases"] == found["trace_scaled_cases"] == 8
    bench = benchmark()
    for alone, traced in zip(bench.lumos(), bench.lumos_from_trace(), strict=True):
        # Eager kernels rather than fused ones: a little longer.
        assert 1.0 < traced.predicted_ms / alone.predicted_ms < 1.15
