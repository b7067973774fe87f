"""Orders of pipelines: complete, playable, bounded in memory, with the bubble of theory."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.graph import WorkGraph
from gnomon.sim import replay
from gnomon.systems.training.prediction.layout.schedule import (
    in_flight,
    lay_slots,
    schedule,
    split_layers,
)


@st.composite
def pipelines(draw):
    pp = draw(st.integers(1, 6))
    kind = draw(st.sampled_from(["1f1b", "gpipe"]))
    interleave = draw(st.integers(1, 3)) if kind == "1f1b" else 1
    if interleave > 1:
        return pp, pp * draw(st.integers(1, 4)), interleave, kind
    return pp, draw(st.integers(1, 12)), interleave, kind


def passes(order):
    columns = (order.is_forward, order.micro_batch, order.chunk)
    return list(zip(*(column.tolist() for column in columns)))


@given(pipelines())
def test_prop_every_pass_once_and_forward_first(pipeline):
    pp, micro_batches, interleave, _ = pipeline
    for order in schedule(*pipeline):
        run = passes(order)
        every = [
            (f, m, c)
            for f in (True, False)
            for m in range(micro_batches)
            for c in range(interleave)
        ]
        assert Counter(run) == Counter(every)
        place = {one: at for at, one in enumerate(run)}
        for m in range(micro_batches):
            for c in range(interleave):
                assert place[True, m, c] < place[False, m, c]
    assert len(schedule(*pipeline)) == pp


@given(pipelines())
def test_prop_passes_held_at_once_are_what_in_flight_says(pipeline):
    pp, micro_batches, interleave, kind = pipeline
    for stage, order in enumerate(schedule(*pipeline)):
        held = np.cumsum(np.where(order.is_forward, 1, -1)).max()
        assert held == in_flight(pp, micro_batches, stage, interleave, kind)
        if kind == "1f1b" and interleave == 1:
            assert held <= pp - stage


@given(pipelines())
def test_prop_slots_come_after_what_they_need(pipeline):
    pp, micro_batches, interleave, _ = pipeline
    slots = lay_slots(*pipeline)
    assert len(slots) == 2 * pp * micro_batches * interleave
    assert np.all(slots.sender < np.arange(len(slots)))
    for rank, order in enumerate(schedule(*pipeline)):
        mine = slots.rank == rank
        assert slots.is_forward[mine].tolist() == order.is_forward.tolist()
        assert slots.micro_batch[mine].tolist() == order.micro_batch.tolist()
    # Exactly the first chunk's forward passes need nothing.
    starts = (slots.rank == 0) & (slots.chunk == 0) & slots.is_forward
    assert np.array_equal(slots.sender < 0, starts)


def play(pp, micro_batches, interleave, kind, forward=3, backward=6):
    slots = lay_slots(pp, micro_batches, interleave, kind)
    needs = np.flatnonzero(slots.sender >= 0)
    graph = WorkGraph.from_columns(
        slots.rank,
        np.where(slots.is_forward, forward, backward),
        edges=(slots.sender[needs], needs),
    )
    return replay(graph).makespan_ns


@given(pipelines())
def test_prop_bubble_of_equal_stages(pipeline):
    pp, micro_batches, interleave, _ = pipeline
    work = 9 * micro_batches * interleave
    bubble = play(*pipeline) / work - 1
    assert bubble == pytest.approx((pp - 1) / (micro_batches * interleave))


def test_interleaved_needs_whole_groups():
    with pytest.raises(InputError, match="groups of pp=4"):
        schedule(4, 6, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "pp has to be"),
        ((1, 0), "micro_batches has to be"),
        ((2, 2, 1, "zb"), "no schedule 'zb'"),
        ((2, 2, 2, "gpipe"), "needs the 1f1b schedule"),
    ],
)
def test_wrong_input_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        schedule(*arguments)


def test_stage_outside_is_named():
    with pytest.raises(InputError, match="stage 4 of a pipeline of 4"):
        in_flight(4, 8, 4)


@given(st.integers(1, 8), st.integers(1, 3), st.integers(0, 30))
def test_prop_layers_split_evenly(pp, interleave, more):
    layers = pp * interleave + more
    split = split_layers(layers, pp, interleave)
    assert sum(split) == layers
    assert len(split) == pp * interleave
    assert max(split) - min(split) <= 1
    assert split[-1] <= split[0]


@pytest.mark.parametrize(
    ("arguments", "ends", "split"),
    [
        ((10, 4), {}, (2, 3, 3, 2)),
        ((12, 4), {"first": 2, "last": 2}, (2, 4, 4, 2)),
        ((11, 4), {"last": 2}, (3, 3, 3, 2)),
        ((8, 2, 2), {"first": 3}, (2, 3, 1, 2)),
        ((5, 1), {}, (5,)),
    ],
)
def test_layers_of_ends_can_be_fixed(arguments, ends, split):
    assert split_layers(*arguments, **ends) == split


def test_layers_that_do_not_fit_are_named():
    with pytest.raises(InputError, match="3 layers cannot fill 4 chunks"):
        split_layers(3, 4)
    with pytest.raises(InputError, match="first=8"):
        split_layers(8, 4, first=8)
    with pytest.raises(InputError, match="cannot fill"):
        split_layers(8, 1, first=4)
