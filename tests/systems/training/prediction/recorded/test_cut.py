"""Cutting made-up traces: passes, layers and ends, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.sim.trace.unprofiled import without_profiler
from gnomon.systems.training.pipeline import read_job
from gnomon.systems.training.prediction.recorded.cut import cut_rank, is_score_softmax
from gnomon.systems.training.prediction.recorded.units import Phase, find_units

from ..made_up import Job, Model, write_job, write_pipeline

MODEL = Model()


def cut(path, rank=0):
    job, _, _ = read_job(path, complete=False)
    part = job.parts[rank]
    training = part.on_its_own_clock()
    return cut_rank(find_units(part.trace, training, without_profiler(part.trace, training)), "x")


@pytest.fixture
def taken(tmp_path):
    return lambda model=MODEL, job=None: cut(write_job(tmp_path / "trace.json", model, job))


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("attention", ["flash", "eager"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_every_pass_has_its_layers_and_ends(taken, layers, attention, accumulation):
    model = replace(MODEL, layers=layers, attention=attention, accumulation=accumulation)
    one = taken(model)
    assert (one.layers, one.micro_batches) == (layers, accumulation)
    assert {slot.is_forward for slot in one.slots} == {True, False}
    assert all(len(slot.layers) == layers for slot in one.slots)
    # A norm, a GEMM and two kernels of the loss come after the layers; two look-ups and a sum
    # come before them.
    kernels = {len(layer) for slot in one.slots if slot.is_forward for layer in slot.layers}
    assert kernels == {10 if attention == "flash" else 13}
    assert {(len(s.before), len(s.after)) for s in one.slots if s.is_forward} == {(3, 4)}
    assert one.holds_embedding
    assert one.holds_head


def test_every_unit_that_computes_is_in_one_place(taken):
    one = taken(MODEL, Job(world=4, gradients="overlapped"))
    held = np.concatenate(
        [*(p for s in one.slots for p in (s.before, *s.layers, s.after)), *one.optimizer]
    )
    assert len(np.unique(held)) == len(held)
    computes = np.flatnonzero(~one.units.is_family("communication"))
    np.testing.assert_array_equal(np.sort(held), computes)


def test_gradients_on_a_stream_of_their_own_are_no_part_of_layers(taken):
    one = taken(MODEL, Job(world=4, gradients="overlapped"))
    assert len(one.gradients) == MODEL.layers * len(one.steps)
    assert one.units.side[one.gradients].all()
    assert (one.units.phase[one.gradients] == Phase.BACKWARD).all()
    assert not len(one.in_layers)


def test_what_tensor_parallelism_communications_is_no_gradient(taken):
    one = taken(replace(MODEL, tp=2), Job(world=2))
    assert len(one.in_layers) == 2 * MODEL.layers * len(one.steps)
    assert not len(one.gradients)
    talks = one.units.is_family("communication")
    assert not any(talks[layer].any() for slot in one.slots for layer in slot.layers)


def test_tensor_and_data_parallelism_are_told_apart(taken):
    one = taken(replace(MODEL, tp=2), Job(world=4, gradients="overlapped"))
    assert len(one.gradients) == MODEL.layers * len(one.steps)
    assert len(one.in_layers) == 2 * MODEL.layers * len(one.steps)


def test_a_sum_of_the_loss_is_not_inside_layers(taken):
    one = taken(MODEL, Job(world=4, gradients="overlapped", sums_loss=True))
    assert not len(one.in_layers)
    assert len(one.gradients) == MODEL.layers * len(one.steps)


@pytest.mark.parametrize("layers", [2, 4])
@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_the_stages_of_a_pipeline_hold_their_own(tmp_path, layers, accumulation):
    model = replace(MODEL, layers=layers, accumulation=accumulation)
    folder = write_pipeline(tmp_path / "ranks", model)
    first, last = cut(folder, 0), cut(folder, 1)
    assert first.layers == last.layers == layers // 2
    assert first.micro_batches == last.micro_batches == accumulation
    assert (first.holds_embedding, first.holds_head) == (True, False)
    assert (last.holds_embedding, last.holds_head) == (False, True)


@pytest.mark.parametrize("layers", [(1, 1), (3, 3), (3, 1)])
def test_an_encoder_with_a_decoder_is_refused(taken, layers):
    model = replace(MODEL, layers=layers[0], decoder_layers=layers[1])
    with pytest.raises(InputError, match="layers of several kinds"):
        taken(model)


def test_scores_are_told_from_logits(taken):
    one = taken(replace(MODEL, attention="eager"))
    softmax = np.flatnonzero(one.units.is_family("softmax")).tolist()
    scores = [unit for unit in softmax if is_score_softmax(one.units, unit)]
    assert len(scores) == 2 * MODEL.layers * len(one.steps)
    assert len(softmax) > len(scores)


def test_kernels_of_no_operator_are_told_apart_by_name(taken):
    one = taken(replace(MODEL, operators=False))
    alone = np.flatnonzero(one.units.operator < 0)
    assert len(alone)
    assert all(one.units.shapes(unit) == () for unit in alone.tolist())
    names = {one.units.name[unit] for unit in alone.tolist()}
    assert len(np.unique(one.units.token[alone])) >= len(names) > 3
    assert one.layers == MODEL.layers
