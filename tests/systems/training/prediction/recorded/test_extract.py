"""Taking recorded jobs apart: units, cuts, configurations, communications."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.model.accelerator.profiler_cost import default_profiler_cost
from gnomon.sim.trace.unprofiled import without_profiler
from gnomon.systems.training.pipeline import read_job
from gnomon.systems.training.prediction.recorded.collectives import timed_collectives
from gnomon.systems.training.prediction.recorded.cut import cut_rank
from gnomon.systems.training.prediction.recorded.extract import extract
from gnomon.systems.training.prediction.recorded.units import (
    Phase,
    find_units,
    parse_shapes,
)


def taken_apart(path, **overrides):
    job, _, _ = read_job(path, complete=False)
    return extract(job, overrides, str(path), job.training.gpu)


def units_of(path, rank=0):
    job, _, _ = read_job(path, complete=False)
    part = job.parts[rank]
    training = part.on_its_own_clock()
    return find_units(part.trace, training, without_profiler(part.trace, training))


def test_the_bundled_gpu_trace_is_understood():
    one = taken_apart(bundled("h200-gpt-l6"))
    c = one.configuration
    assert (c.layers, c.hidden, c.heads, c.seq, c.batch, c.vocab) == (6, 2048, 16, 2048, 4, 50304)
    assert (c.ffn, c.accumulation, c.dtype, c.dp, c.pp, c.tp) == (8192, 1, "bf16", 1, 1, 1)
    matrices = [g for g in one.parts["layer.forward"].growths if g.kind == "gemm"]
    assert [g.group for g in matrices] == ["qkv", "proj", "up", "down"]
    backward = [g for g in one.parts["layer.backward"].growths if g.kind == "gemm"]
    assert sorted(g.group for g in backward) == sorted(["qkv", "proj", "up", "down"] * 2)


def test_the_profiler_cost_that_is_given_reaches_the_extraction():
    job, _, _ = read_job(bundled("h200-gpt-l6"), complete=False)
    costly = msgspec.structs.replace(default_profiler_cost(), operator=3.0, launch=3.0)
    usual, lighter = (
        extract(job, {}, "trace", job.training.gpu, cost).parts for cost in (None, costly)
    )

    def host_ns(parts):
        return sum(piece.host_ns for part in parts.values() for piece in part.pieces)

    assert 0 < host_ns(lighter) < 0.9 * host_ns(usual)


def test_the_bundled_pipeline_is_understood():
    one = taken_apart(bundled("cpu-gpt-pp4"))
    c = one.configuration
    assert (c.pp, c.dp, c.accumulation, c.dtype, c.gpu) == (4, 1, 8, "fp32", "cpu")
    assert not one.on_gpu
    assert one.overlap_gradients is None
    assert {e.kind for e in one.collectives} == {"send"}
    sizes = {e.bytes for e in one.collectives}
    assert sizes == {4.0 * c.tokens * c.hidden}


def test_what_the_user_says_stands():
    c = taken_apart(bundled("h200-gpt-l6"), vocab=1000, dp=4).configuration
    assert (c.vocab, c.dp, c.layers) == (1000, 4, 6)


def test_units_hold_all_the_work_of_the_steps():
    units = units_of(bundled("h200-gpt-l6"))
    assert set(np.unique(units.phase)) == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
    assert units.on_gpu
    assert not units.side.any()
    forward = units.is_family("attention") & (units.phase == Phase.FORWARD)
    steps = len(np.unique(units.step))
    # One call of a fused attention a layer and step.
    assert len(set(units.operator[forward].tolist())) == 6 * steps
    cut = cut_rank(units, "here")
    covered = np.concatenate(
        [*(p for s in cut.slots for p in (s.before, *s.layers, s.after)), *cut.optimizer]
    )
    assert len(np.unique(covered)) == len(covered) == len(units)


def test_parts_add_up_to_the_recorded_step():
    one = taken_apart(bundled("h200-gpt-l6"))
    units = units_of(bundled("h200-gpt-l6"))
    steps = len(np.unique(units.step))
    whole = units.device_ns.sum() / steps
    times = {"layer.forward": 6, "layer.backward": 6}
    parts = sum(
        times.get(name, 1) * sum(piece.device_ns for piece in part.pieces)
        for name, part in one.parts.items()
    )
    assert parts + one.step_ns[1] == pytest.approx(whole, rel=1e-9)


def test_shapes_of_lists_are_flattened():
    assert parse_shapes("[[2, 3], [], [[4], [5, 6]]]\t[]\t[]") == ((2, 3), (4,), (5, 6))
    assert parse_shapes("") == parse_shapes("[[...") == ()


def made_up(tmp_path, events):
    path = tmp_path / "trace.json"
    marks = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 1, "tid": 1,
         "ts": 1000 * i, "dur": 900}
        for i in range(2)
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": marks + events}))
    return path


def op(name, ts, dur=10, shapes=None):
    args = {"Input Dims": shapes} if shapes else {}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def test_a_trace_of_no_layers_is_refused(tmp_path):
    events = [op(f"aten::thing_{i}", 1000 * s + 20 * i) for s in range(2) for i in range(8)]
    with pytest.raises(InputError, match="no attention in what repeats"):
        taken_apart(made_up(tmp_path, events))


def test_a_trace_of_inference_is_refused(tmp_path):
    events = [
        op(name, 1000 * s + 100 * layer + 20 * i, shapes=[[8, 16], [16, 16]])
        for s in range(2)
        for layer in range(4)
        for i, name in enumerate(("aten::mm", "aten::scaled_dot_product_attention", "aten::mm"))
    ]
    with pytest.raises(InputError, match="no backward pass"):
        taken_apart(made_up(tmp_path, events))


@pytest.mark.parametrize(
    ("name", "layers", "pp", "dp"),
    [("dp1-pp4-l8-h512-m8", 8, 4, 1), ("dp2-pp1-l8-h512-m8", 8, 1, 2),
     ("dp2-pp2-l8-h512-m8", 8, 2, 2)],
)  # fmt: skip
def test_recorded_layouts_are_told(public_data, name, layers, pp, dp):
    c = taken_apart(public_data / "ranks" / name).configuration
    assert (c.layers, c.pp, c.dp, c.tp) == (layers, pp, dp, 1)
    assert (c.hidden, c.heads, c.seq, c.batch, c.vocab, c.accumulation) == (
        512,
        8,
        128,
        2,
        4096,
        8,
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt-base", {}),
        ("gpt-b2", {"batch": 2}),
        ("gpt-h1024", {"hidden": 1024, "heads": 8}),
        ("gpt-cpubound",
         {"layers": 24, "hidden": 512, "heads": 8, "seq": 128, "batch": 2, "vocab": 8192}),
        ("overlap", {"layers": 8, "seq": 1024}),
    ],
)  # fmt: skip
def test_recorded_shapes_are_told(public_data, name, settings):
    c = taken_apart(public_data / "h200" / name).configuration
    expected = {
        "layers": 12, "hidden": 2048, "heads": 16, "seq": 2048, "batch": 4, "vocab": 50304,
    } | settings  # fmt: skip
    assert {key: getattr(c, key) for key in expected} == expected
    assert c.ffn == 4 * c.hidden


def test_what_was_exchanged_is_told_with_its_bytes(public_data):
    job, _, _ = read_job(public_data / "ranks" / "dp2-pp2-l8-h512-m8")
    collectives = timed_collectives(job)
    sums = [e for e in collectives if e.kind == "all-reduce"]
    assert {e.ranks for e in sums} == {2}
    assert max(e.bytes for e in sums) == 4.0 * 4096 * 512
    small = np.median([e.us for e in sums if e.bytes < 10_000])
    large = np.median([e.us for e in sums if e.bytes > 4e6])
    assert 0 < small < large
