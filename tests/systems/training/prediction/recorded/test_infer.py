"""Configurations told from made-up traces, and facts beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.sim.trace.steps import count_only
from gnomon.systems.training.pipeline import read_job
from gnomon.systems.training.prediction.recorded.extract import extract
from gnomon.systems.training.prediction.recorded.infer import contradictions

from ..made_up import Job, Model, write_job, write_pipeline

MODEL = Model()


def read(path, *, steps=None, **overrides):
    job, _, _ = read_job(path, complete=False)
    if steps:
        job = type(job)(count_only(job.training, steps), job.parts, job.rendezvous)
    return extract(job, overrides, str(path), job.training.gpu)


@pytest.fixture
def inferred_of(tmp_path):
    def inferred_of(model=MODEL, job=None, **overrides):
        return read(write_job(tmp_path / "trace.json", model, job), **overrides)

    return inferred_of


def assert_told(configuration, model, **others):
    expected = {
        "layers": model.layers, "hidden": model.hidden, "heads": model.heads,
        "kv_heads": model.kv_heads, "seq": model.seq, "batch": model.batch,
        "vocab": model.vocab, "ffn": 4 * model.hidden, "tp": model.tp, "pp": 1, "dp": 1,
        "accumulation": model.accumulation, "dtype": "bf16",
    } | others  # fmt: skip
    assert {name: getattr(configuration, name) for name in expected} == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 1},
        {"attention": "eager"},
        {"attention": "eager", "fused_qkv": False},
        {"attention": "eager", "fused_qkv": False, "kv_heads": 2, "expands_keys": True},
        {"fused_qkv": False, "kv_heads": 2},
        {"fused_qkv": False, "kv_heads": 2, "expands_keys": True},
        {"kv_heads": 2, "expands_keys": True},
        {"loss": "own"},
        {"autocast": True},
        {"operators": False},
        {"vocab": 65},
        {"accumulation": 2, "layers": 1},
    ],
    ids=str,
)
def test_however_it_is_written_it_is_understood(inferred_of, changes):
    model = replace(MODEL, **changes)
    assert_told(inferred_of(model).configuration, model)


@pytest.mark.parametrize(
    ("job", "overlap"),
    [
        (Job(world=4, gradients="overlapped"), True),
        (Job(world=4, gradients="overlapped", sums_loss=True), True),
        (Job(world=4, gradients="after"), False),
        (Job(world=4), None),
    ],
)
def test_data_parallelism_is_told(inferred_of, job, overlap):
    one = inferred_of(MODEL, job)
    assert_told(one.configuration, MODEL, dp=4)
    assert one.overlap_gradients is overlap
    assert not one.talks_in_layers
    assert all(piece.lane == "compute" for part in one.parts.values() for piece in part.pieces)


def test_tensor_parallelism_is_told_and_its_communications_are_no_pieces(inferred_of):
    model = replace(MODEL, tp=2)
    one = inferred_of(model, Job(world=2))
    assert_told(one.configuration, model)
    assert one.talks_in_layers
    assert one.overlap_gradients is None
    families = {piece.family for part in one.parts.values() for piece in part.pieces}
    assert "communication" not in families
    sizes = {e.bytes for e in one.collectives if e.kind == "all-reduce"}
    assert sizes == {2.0 * model.tokens * model.hidden}


@pytest.mark.parametrize("layers", [2, 4])
def test_pipelines_are_told(tmp_path, layers):
    model = replace(MODEL, layers=layers, accumulation=4)
    one = read(write_pipeline(tmp_path / "ranks", model))
    assert_told(one.configuration, model, pp=2)
    assert {e.kind for e in one.collectives} == {"send"}


@pytest.mark.parametrize("stage", [0, 1])
def test_a_stage_alone_is_refused(tmp_path, stage):
    folder = write_pipeline(tmp_path / "ranks", replace(MODEL, layers=4, accumulation=2))
    with pytest.raises(InputError, match="not given"):
        read(folder / f"rank{stage}.json")


def test_neighbours_without_the_rest_of_their_pipeline_are_refused():
    ranks = sorted(path for path in bundled("cpu-gpt-pp4").iterdir() if "rank" in path.name)
    for path in ranks:
        with pytest.raises(InputError, match="all ranks of a pipeline"):
            read(path)


def test_parameters_gathered_layer_by_layer_are_refused(inferred_of):
    with pytest.raises(InputError, match=r"layer by layer \(FSDP\)"):
        inferred_of(MODEL, Job(world=4, gathers=True))


def test_kernels_on_an_unnamed_device_are_refused_unless_it_is_given(tmp_path):
    path = write_job(tmp_path / "trace.json", MODEL, gpu="")
    with pytest.raises(InputError, match="--base gpu"):
        read(path)
    assert read(path, gpu="H100").configuration.gpu == "H100"


def test_only_the_steps_asked_for_are_taken_apart(tmp_path):
    larger = replace(MODEL, batch=8)
    path = write_job(tmp_path / "trace.json", MODEL, steps=4, later=larger)
    assert (read(path).configuration.batch, read(path).steps) == (8, 4)
    first, rest = read(path, steps="0"), read(path, steps="1-3")
    assert (first.configuration.batch, first.steps) == (4, 1)
    assert (rest.configuration.batch, rest.steps) == (8, 3)


def test_what_contradicts_the_shapes_is_said(inferred_of):
    one = inferred_of(MODEL, hidden=512, layers=3, vocab=77, accumulation=2)
    assert one.notes == (
        "--base hidden=512: the trace's shapes say 256",
        "--base accumulation=2: the trace's shapes say 1",
    )
    assert one.configuration.hidden == 512


def test_what_is_not_known_contradicts_nothing():
    assert contradictions({"hidden": 64}, {"layers": 4, "hidden": 64}) == ()


@pytest.mark.parametrize(
    ("changes", "weight", "state"),
    [
        ({}, 2.0, 4.0),
        ({"autocast": True}, 4.0, 8.0),
        ({"optimizer": "SGD"}, 2.0, 2.0),
        ({"optimizer": "SGD", "autocast": True}, 4.0, 4.0),
    ],
    ids=str,
)
def test_weights_and_states_are_told(inferred_of, changes, weight, state):
    one = inferred_of(replace(MODEL, **changes))
    assert (one.weight_bytes, one.state_bytes) == (weight, state)
    assert not one.tied_head


@pytest.mark.parametrize("job", [Job(), Job(world=4, gradients="overlapped")])
def test_nothing_is_left_over_of_a_plain_step(inferred_of, job):
    one = inferred_of(MODEL, job)
    host, device = one.step_ns
    whole = sum(piece.device_ns for part in one.parts.values() for piece in part.pieces)
    assert abs(device) < 0.01 * whole
    assert abs(host) < 0.05 * whole


def test_nothing_is_left_over_of_a_pipeline(tmp_path):
    one = read(write_pipeline(tmp_path / "ranks", replace(MODEL, layers=4, accumulation=4)))
    # Parts of both ranks, all their runs in a step.
    whole = sum(
        part.runs / one.steps * sum(piece.device_ns for piece in part.pieces)
        for part in one.parts.values()
    )
    assert abs(one.step_ns[1]) < 0.01 * whole / 2


def test_a_compilers_kernels_grow_with_the_tokens(inferred_of):
    one = inferred_of(replace(MODEL, operators=False))
    growths = one.parts["layer.forward"].growths
    memory = [growth for growth in growths if growth.kind == "memory"]
    assert len(memory) == 5
    assert {growth.sizes[0].symbols for growth in memory} == {("tokens", "hidden")}
