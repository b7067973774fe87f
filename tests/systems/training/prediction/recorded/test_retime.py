"""Re-timing recorded parts: what stays, what changes, what is added, what is refused."""

from __future__ import annotations

import math

import pytest

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.systems.training.prediction.memory import parameter_counts
from gnomon.systems.training.prediction.predict import predict
from gnomon.systems.training.prediction.program import PARTS
from gnomon.systems.training.prediction.source import factor_of, read_recorded


@pytest.fixture(scope="module")
def source():
    return read_recorded(bundled("h200-gpt-l6"))[0]


def program(source, **settings):
    return source.program(source.base.changed(settings))


def device_ns(program, part, family=None):
    return sum(p.device_ns for p in program.parts[part] if family in (None, p.family))


def test_unchanged_parts_keep_their_measured_times(source):
    same = program(source)
    assert set(PARTS) <= set(same.parts)
    for name, part in source.extracted.parts.items():
        if name != "optimizer":
            assert device_ns(same, name) == sum(p.device_ns for p in part.pieces)
            assert {p.model for p in same.parts[name]} == {"measured"}


def test_more_layers_and_other_layouts_change_no_part(source):
    base = program(source)
    for settings in ({"layers": 48}, {"dp": 8}, {"layers": 8, "pp": 4, "accumulation": 1}):
        other = program(source, **settings)
        assert device_ns(other, "layer.forward") == device_ns(base, "layer.forward")
        assert len(other.layer_kinds) == settings.get("layers", 6)


@pytest.mark.parametrize(
    ("settings", "times"), [({"batch": 8}, 2.0), ({"hidden": 4096}, 4.0), ({"tp": 4}, 0.25)]
)
def test_gemms_follow_their_operations(source, settings, times):
    base, other = program(source), program(source, **settings)
    ratio = device_ns(other, "layer.forward", "gemm") / device_ns(base, "layer.forward", "gemm")
    assert ratio == pytest.approx(times, rel=0.25)


def test_tensor_parallelism_adds_two_sums_a_pass(source):
    split = program(source, tp=2)
    for part in ("layer.forward", "layer.backward"):
        talk = [p for p in split.parts[part] if p.family == "communication"]
        assert len(talk) == 2
        assert {p.model for p in talk} == {"alpha-beta"}
    assert not [p for p in program(source).parts["layer.forward"] if p.family == "communication"]


def test_accumulation_adds_gradients_up(source):
    once, often = program(source), program(source, accumulation=4)
    for part in ("layer.backward", "head.backward", "embedding.backward"):
        extra = often.parts[part][-1]
        assert extra.name == "accumulate gradients"
        assert extra.host_ns > 0
        assert len(often.parts[part]) == len(once.parts[part]) + 1


def test_the_optimizer_goes_with_the_parameters(source):
    base, wide = program(source), program(source, hidden=4096)
    counts = [parameter_counts(p.configuration, source.style) for p in (base, wide)]
    for name in ("layer", "embedding", "head"):
        part = f"optimizer.{name}"
        ratio = device_ns(wide, part) / device_ns(base, part)
        assert ratio == pytest.approx(counts[1][name] / counts[0][name])


@pytest.mark.parametrize(
    "settings",
    [{"experts": 8}, {"gated": True}, {"cp": 2}, {"dtype": "fp32"}, {"q_rank": 64}],
)
def test_what_a_trace_has_no_kernels_for_is_refused(source, settings):
    with pytest.raises(InputError, match="cannot be changed from a trace"):
        predict(source, settings)


def test_the_same_device_by_another_name_is_the_same_device(source):
    plain, named = (predict(source, s, explain=False) for s in ({}, {"gpu": "h200"}))
    assert plain.step == named.step
    assert named.waterfall == ()


def test_far_away_is_less_sure(source):
    def width(**settings):
        prediction = predict(source, settings, explain=False)
        return math.log(prediction.step.high / prediction.step.low)

    assert width(layers=7) < width(hidden=4096) < width(gpu="mi300x")


def test_a_configuration_as_a_whole_is_taken_as_it_is(source):
    target = source.base.changed({"hidden": 4096, "ffn": 8192, "tp": 2})
    assert predict(source, target, explain=False).target == target
    assert target.ffn == 8192


def test_a_host_that_sets_the_pace_is_scaled_alone(public_data):
    host = read_recorded(public_data / "h200" / "gpt-cpubound")[0]
    assert factor_of(host) == pytest.approx(1.0, abs=0.01)
    # Many times the tokens: the device sets the pace, at its own times.
    large = predict(host, {"batch": 512}, explain=False)
    small = predict(host, {}, explain=False)
    assert small.step.mid == pytest.approx(host.base_ms, rel=1e-6)
    assert "the host sets the pace: faster kernels would change little" in small.notes
    assert large.step.mid > small.step.mid
