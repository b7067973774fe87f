"""Predictions: from recorded jobs and from models, explained, ranged, and against measurements."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.systems.training.prediction.analytic.style import TORCH
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.predict import predict
from gnomon.systems.training.prediction.predict_result import to_result, to_script
from gnomon.systems.training.prediction.source import Modelled, factor_of, read_recorded, style_of


@pytest.fixture(scope="module")
def trace():
    return read_recorded(bundled("h200-gpt-l6"))[0]


@pytest.fixture(scope="module")
def model():
    base = Configuration(layers=8, hidden=1024, heads=8, seq=1024, batch=4, gpu="a100")
    return Modelled(base, TORCH)


def test_nothing_changed_is_the_measured_base(trace):
    same = predict(trace, {})
    assert same.step.mid == pytest.approx(trace.base_ms)
    assert same.waterfall == ()
    assert same.base == same.target
    assert same.step.low < same.step.mid < same.step.high


def test_putting_the_base_together_gives_nearly_the_measured_step(trace):
    assert factor_of(trace) == pytest.approx(1.0, abs=0.03)


def test_layers_are_worth_the_same_each(trace):
    steps = [predict(trace, {"layers": n}, explain=False).step.mid for n in (3, 6, 9, 24)]
    per_layer = (steps[2] - steps[1]) / 3
    assert (steps[1] - steps[0]) / 3 == pytest.approx(per_layer, rel=0.02)
    assert (steps[3] - steps[2]) / 15 == pytest.approx(per_layer, rel=0.02)


@pytest.mark.parametrize(("name", "less", "more"), [
    ("hidden", 1024, 4096), ("batch", 2, 8), ("seq", 1024, 4096), ("vocab", 8192, 131072),
    ("ffn", 4096, 16384), ("accumulation", 1, 4),
])  # fmt: skip
def test_larger_models_take_longer_and_more_memory(trace, name, less, more):
    small, large = (predict(trace, {name: n}, explain=False) for n in (less, more))
    assert small.step.mid < large.step.mid
    if name != "accumulation":
        assert small.memory.total < large.memory.total


def test_a_waterfall_leads_from_base_to_prediction(trace):
    prediction = predict(
        trace, {"layers": 24, "hidden": 3072, "batch": 2, "tp": 2, "dp": 8, "gpu": "h100"}
    )
    assert [w.change for w in prediction.waterfall] == [
        "device", "layers", "shape", "batch", "tensor parallelism", "data parallelism",
    ]  # fmt: skip
    deltas = sum(w.delta_ms for w in prediction.waterfall)
    assert prediction.base_ms + deltas == pytest.approx(prediction.step.mid, rel=1e-9)
    assert prediction.waterfall[-1].after_ms == pytest.approx(prediction.step.mid)
    assert "layers 6 → 24" in prediction.waterfall[1].what


def test_changes_that_only_make_sense_together_are_taken_together(trace):
    # 12 stages need the layers first, and 48 heads the hidden size.
    prediction = predict(trace, {"pp": 12, "layers": 24, "accumulation": 24})
    assert prediction.target.pp == 12
    assert sum(w.delta_ms for w in prediction.waterfall) == pytest.approx(
        prediction.step.mid - prediction.base_ms
    )


def test_a_pipeline_has_a_bubble_and_interleaving_shrinks_it(trace):
    settings = {"layers": 16, "pp": 4, "accumulation": 4}
    plain = predict(trace, settings, explain=False)
    chunks = predict(trace, settings | {"interleave": 2}, explain=False)
    idle = [to_script(p)["breakdown_ms"]["idle"] for p in (plain, chunks)]
    # (pp - 1) of (pp - 1 + m) slots are idle.
    assert idle[0] / plain.step.mid == pytest.approx(3 / 7, abs=0.08)
    assert idle[1] < 0.75 * idle[0]
    assert chunks.step.mid < plain.step.mid


def test_tensor_parallelism_splits_gemms_and_adds_exchanges(trace):
    one, two = (predict(trace, {"tp": n}, explain=False) for n in (1, 2))
    assert two.step.mid < one.step.mid < 2 * two.step.mid
    assert ("communication", "alpha-beta") in two.retimed
    assert two.retimed["communication", "alpha-beta"] > 0
    assert two.memory.parameters < one.memory.parameters


def test_data_parallelism_leaves_compute_alone(trace):
    one, many = (predict(trace, {"dp": n}, explain=False) for n in (1, 8))
    compute = [
        sum(ms for (family, _), ms in p.retimed.items() if family != "communication")
        for p in (one, many)
    ]
    assert compute[0] == pytest.approx(compute[1])
    assert one.step.mid <= many.step.mid < 1.5 * one.step.mid
    assert many.tokens_s > 5 * one.tokens_s


def test_another_device_times_every_kernel_anew(trace):
    h200, a100 = (predict(trace, {"gpu": g}, explain=False) for g in ("h200", "a100"))
    assert 1.5 * h200.step.mid < a100.step.mid < 6 * h200.step.mid
    assert (a100.step.high - a100.step.low) / a100.step.mid > (
        h200.step.high - h200.step.low
    ) / h200.step.mid


def test_what_does_not_fit_says_by_how_much(trace):
    big = predict(trace, {"layers": 96, "hidden": 8192}, explain=False)
    assert not big.fits
    assert big.over_gib == pytest.approx(big.memory.total / 2**30 - big.gpu.memory_gib)
    figure = to_result(big).figure("memory_gib")
    assert "does NOT fit" in figure.note


def test_models_alone_predict_with_a_wider_range(trace, model):
    prediction = predict(model, {"dp": 8, "tp": 2})
    seen = predict(trace, {"layers": 8}, explain=False)

    def width(p):
        return (p.step.high - p.step.low) / p.step.mid

    assert prediction.base_ms > 0
    assert width(prediction) > width(seen)
    assert prediction.fits
    assert prediction.target.world == 16


def test_far_targets_are_told_apart(trace):
    near, far = (predict(trace, s, explain=False) for s in ({"layers": 8}, {"hidden": 16384}))
    assert not any("that is far" in note for note in near.notes)
    assert any("that is far" in note for note in far.notes)


def test_a_device_known_by_its_data_sheet_alone_is_told(trace):
    notes = predict(trace, {"gpu": "mi300x"}, explain=False).notes
    assert any("data sheet of the MI300X" in note for note in notes)


def test_a_gpu_says_nothing_about_a_cpu(trace):
    with pytest.raises(InputError, match="nothing about a CPU"):
        predict(trace, {"gpu": "cpu"})


def test_the_same_seed_gives_the_same_answer(trace):
    one, two = (predict(trace, {"hidden": 3072}, seed=3) for _ in range(2))
    assert to_script(one) == to_script(two)


def test_the_answer_has_everything_scripts_were_promised(trace):
    prediction = to_script(predict(trace, {"layers": 12}))
    assert {
        "base", "target", "predicted_ms", "low_ms", "high_ms", "memory_gib", "fits",
        "breakdown_ms", "waterfall",
    } <= set(prediction)  # fmt: skip
    parts = prediction["breakdown_ms"]
    assert sum(parts.values()) == pytest.approx(prediction["predicted_ms"], rel=0.02)
    json.dumps(prediction)


def test_style_is_told_from_the_kernels(trace):
    style = style_of(trace.extracted)
    assert style.fused_attention
    assert style.bias
    assert not style.rms_norm
    assert (style.gradient_bytes, style.state_bytes) == (2.0, 4.0)


def test_an_unknown_device_is_refused_with_what_is_known(trace):
    with pytest.raises(InputError, match="x9000"):
        predict(trace, {"gpu": "x9000"})


def test_pipelines_of_cpu_ranks_can_be_laid_out_differently():
    source, _ = read_recorded(bundled("cpu-gpt-pp4"))
    assert factor_of(source) == pytest.approx(1.0, abs=0.1)
    four, two, one = (predict(source, {"pp": n}, explain=False).step.mid for n in (4, 2, 1))
    assert four < two < one < 4 * four


SHAPES = [
    ("gpt-base", "gpt-l6"), ("gpt-base", "gpt-h1024"), ("gpt-base", "gpt-b2"),
    ("gpt-l6", "gpt-base"), ("gpt-h1024", "gpt-base"), ("gpt-b2", "gpt-base"),
]  # fmt: skip


def measured(folder):
    meta = json.loads((folder / "meta.json").read_text())
    return meta["step_ms_median"], meta.get("peak_bytes")


def from_to(base, target):
    source, goal = read_recorded(base)[0], read_recorded(target)[0]
    return predict(source, goal.base, explain=False)


def test_measured_shapes_are_predicted(public_data):
    wrong, memory = [], []
    for a, b in SHAPES:
        prediction = from_to(public_data / "h200" / a, public_data / "h200" / b)
        step_ms, peak = measured(public_data / "h200" / b)
        wrong.append(abs(prediction.step.mid / step_ms - 1))
        memory.append(abs(prediction.memory.total / peak - 1))
    assert np.mean(wrong) <= 0.05
    assert max(wrong) <= 0.10
    assert max(memory) <= 0.10


@pytest.mark.parametrize(
    ("base", "target"),
    [("dp2-pp2", "dp1-pp4"), ("dp2-pp2", "dp2-pp1"), ("dp1-pp4", "dp2-pp2")],
)
def test_measured_layouts_are_predicted(public_data, base, target):
    folder = public_data / "ranks"
    goal = folder / f"{target}-l8-h512-m8"
    prediction = from_to(folder / f"{base}-l8-h512-m8", goal)
    assert prediction.step.mid == pytest.approx(measured(goal)[0], rel=0.15)
