"""Traces written from models: read back they give what they were written from."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from gnomon.cli import main
from gnomon.errors import InputError
from gnomon.systems.training.prediction.analytic.style import TORCH
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.predict import predict
from gnomon.systems.training.prediction.source import Modelled, read_recorded

ROOT = Path(__file__).resolve().parents[4]
SMALL = Configuration(
    layers=4, hidden=1024, heads=8, seq=1024, batch=4, vocab=16384, gpu="H200"
)  # fmt: skip
OTHERS = {
    "narrow heads": {"heads": 16},
    "shared keys": {"kv_heads": 2},
    "wide middle": {"ffn": 6144},
    "gate": {"gated": True, "ffn": 2816},
    "short sequences": {"seq": 512, "batch": 6},
    "two micro-batches": {"accumulation": 2},
    "floats on another GPU": {"dtype": "fp32", "gpu": "A100"},
    "one sequence": {"batch": 1, "seq": 2048},
}


@cache
def bench() -> ModuleType:
    path = ROOT / "benchmarks" / "synthetic_trace.py"
    spec = importlib.util.spec_from_file_location("synthetic_trace", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")

    @cache
    def written(configuration):
        path = folder / f"{abs(hash(configuration))}.json.gz"
        bench().write_trace(path, configuration)
        return read_recorded(path)[0]

    return written


@pytest.mark.parametrize("changes", [{}, *OTHERS.values()], ids=["small", *OTHERS])
def test_the_configuration_is_found_in_the_trace(read, changes):
    written = SMALL.changed(changes)
    assert read(written).base == written


@pytest.mark.parametrize("changes", [{}, {"layers": 12, "hidden": 512}], ids=["device", "host"])
def test_the_step_is_that_of_the_models(read, changes):
    written = SMALL.changed(changes)
    modelled = predict(Modelled(written, TORCH), {}, explain=False).step.mid
    assert read(written).base_ms == pytest.approx(modelled, rel=0.05)


@pytest.mark.parametrize("base", [{}, *OTHERS.values()], ids=["small", *OTHERS])
@pytest.mark.parametrize("changes", [
    {"layers": 8}, {"hidden": 2048}, {"hidden": 2048, "layers": 6, "vocab": 32768},
    {"seq": 2048}, {"batch": 8}, {"hidden": 2048, "accumulation": 4}, {"ffn": 8192},
], ids=str)  # fmt: skip
def test_larger_ones_are_predicted_as_their_own_traces_say(read, base, changes):
    small = SMALL.changed(base)
    prediction = predict(read(small), changes, explain=False)
    # Biases and norms accumulate gradients too, as real traces show; the written one leaves them out.
    near = 0.07 if "accumulation" in changes else 0.05
    assert prediction.step.mid == pytest.approx(read(small.changed(changes)).base_ms, rel=near)


def test_the_same_seed_gives_the_same_file(tmp_path):
    paths = [tmp_path / f"{i}.json.gz" for i in range(3)]
    for path, seed in zip(paths, (1, 1, 2)):
        bench().write_trace(path, SMALL, seed=seed)
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again != other


def test_every_kernel_has_a_launch_inside_an_operator(tmp_path):
    path = tmp_path / "trace.json.gz"
    bench().write_trace(path, SMALL, steps=2)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    events = [e for e in events if e["ph"] == "X"]
    kernels = [e for e in events if e["cat"] == "kernel"]
    calls = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    assert len(calls) == len(kernels) == len({e["args"]["correlation"] for e in kernels})
    assert all(calls[k["args"]["correlation"]]["ts"] < k["ts"] for k in kernels)
    # One after the other on their stream.
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in zip(kernels, kernels[1:]))
    names = Counter(e["name"] for e in events)
    assert names["ProfilerStep#0"] == names["ProfilerStep#1"] == 1
    assert names["Optimizer.step#AdamW.step"] == 2
    assert names["aten::addmm"] == 2 * 4 * 4
    assert names["autograd::engine::evaluate_function: GeluBackward0"] == 2 * 4


def test_gradients_accumulate_from_the_second_micro_batch_on(tmp_path):
    path = tmp_path / "trace.json.gz"
    bench().write_trace(path, SMALL.changed({"accumulation": 3}), steps=1)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    adds = [e for e in events if e["name"] == "torch::autograd::AccumulateGrad"]
    # Four matrices of each of four layers, the head and the words.
    assert len(adds) == 2 * (4 * 4 + 2)


def test_the_command_predicts_from_it(tmp_path, capsys):
    path = tmp_path / "trace.json.gz"
    bench().write_trace(path, SMALL)
    assert main(["training", "predict", str(path), "--set", "layers=8,dp=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "changes", [{"tp": 2}, {"experts": 4, "expert_ffn": 64}, {"dtype": "fp8"}, {"head_dim": 64}]
)
def test_what_cannot_be_written_is_refused(tmp_path, changes):
    with pytest.raises(InputError):
        bench().write_trace(tmp_path / "trace.json.gz", SMALL.changed(changes))
