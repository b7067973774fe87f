"""How long a step takes, and how well one step foretells another."""

from __future__ import annotations

import pytest

from gnomon.errors import InputError
from gnomon.graph import scale
from gnomon.sim import replay
from gnomon.sim.trace.steps import (
    StepRow,
    count_only,
    held_out,
    steady_window,
    step_estimate,
    step_rows,
)
from tests.sim.trace.traces import graph_of, kernel, launch, mark, op


def thinking(*gaps):
    """A step: 100 us of work, a silence, 100 us of work; the next follows at once."""
    events, at = [], 0
    for number, gap in enumerate(gaps):
        events += [
            mark(number, at, 200 + gap), op(at, 100, "aten::mm"),
            op(at + 100 + gap, 100, "aten::add"),
        ]  # fmt: skip
        at += 200 + gap
    return graph_of(*events)


def test_a_step_lasts_from_the_end_of_the_one_before():
    training = thinking(30, 50, 70)
    rows = step_rows(training, replay(training.graph))
    assert [(row.step, row.rank) for row in rows] == [
        (f"ProfilerStep#{number}", None) for number in range(3)
    ]
    assert [row.recorded_ms for row in rows] == pytest.approx([0.23, 0.25, 0.27])
    assert all(row.error_pct == 0 for row in rows)
    twice = replay(scale(training.graph, slice(None), 2.0))
    assert [row.error_pct for row in step_rows(training, twice)] == pytest.approx([100.0] * 3)
    assert steady_window(training, training.recorded) == (230_000, 750_000, 2)


def test_a_gpu_that_lags_behind_its_host_sets_the_pace():
    events = []
    for i in range(3):
        events += [
            mark(i, 100 * i, 90),
            launch(100 * i, 10, i + 1),
            kernel(50 + 200 * i, 190, i + 1),
        ]
    training = graph_of(*events)
    rows = step_rows(training, replay(training.graph))
    # The first from its own start; the host is done after 290 us, the GPU needs 200 us a step.
    assert [row.recorded_ms for row in rows] == pytest.approx([0.24, 0.2, 0.2])


def test_the_first_of_several_steps_does_not_count():
    training = thinking(30, 50, 70)
    estimate = step_estimate(training, training.recorded)
    assert (estimate.low, estimate.mid, estimate.high) == pytest.approx((0.25, 0.26, 0.27))
    assert steady_window(training, training.recorded) == (230_000, 750_000, 2)


def test_one_step_and_none_count_as_a_whole():
    alone = thinking(30)
    assert step_estimate(alone, alone.recorded).mid == pytest.approx(0.23)
    assert steady_window(alone, alone.recorded) == (0, 230_000, 1)
    unmarked = graph_of(op(0, 50), op(70, 10))
    assert step_rows(unmarked, unmarked.recorded) == []
    assert step_estimate(unmarked, unmarked.recorded).mid == pytest.approx(0.08)
    assert steady_window(unmarked, unmarked.recorded) == (0, 80_000, 1)


@pytest.mark.parametrize(
    ("wanted", "counted"), [("0", (0,)), ("1-2", (1, 2)), ("0, 2", (0, 2)), ("2,0-1", (0, 1, 2))]
)
def test_steps_are_chosen_by_the_number_in_their_mark(wanted, counted):
    training = count_only(thinking(30, 50, 70), wanted)
    assert training.counted == counted
    rows = step_rows(training, training.recorded)
    assert [row.step for row in rows] == [f"ProfilerStep#{number}" for number in counted]


def test_only_chosen_steps_make_the_answer():
    training = count_only(thinking(30, 50, 70), "0")
    assert step_estimate(training, training.recorded).mid == pytest.approx(0.23)
    assert steady_window(training, training.recorded) == (0, 230_000, 1)
    both = count_only(training, "1-2")
    assert steady_window(both, both.recorded) == (230_000, 750_000, 2)


def test_a_marked_step_in_which_nothing_ran_keeps_its_number():
    events = [mark(0, 0, 10), op(0, 10), mark(1, 10, 10), mark(2, 20, 30), op(20, 30, "aten::add")]
    training = count_only(graph_of(*events), "2")
    (row,) = step_rows(training, training.recorded)
    assert (row.step, row.recorded_ms) == ("ProfilerStep#2", pytest.approx(0.04))
    assert step_estimate(training, training.recorded).mid == pytest.approx(0.04)
    assert steady_window(training, training.recorded) == (10_000, 50_000, 1)


@pytest.mark.parametrize("wanted", ["7", "", "x", "1-9", "-1", "1-", "0,,1", "1--2"])
def test_steps_that_are_not_there_are_named(wanted):
    with pytest.raises(InputError, match=r"no step '.*'; there are 0, 1, 2"):
        count_only(thinking(30, 50, 70), wanted)


def test_steps_backwards_and_in_a_trace_without_marks():
    with pytest.raises(InputError, match="'2-1' end before they begin"):
        count_only(thinking(30, 50, 70), "2-1")
    with pytest.raises(InputError, match="the trace marks none"):
        count_only(graph_of(op(0, 1)), "1")


# -- one step foretold by the others ---------------------------------------------------------


def test_each_step_is_foretold_by_the_median_of_the_others():
    rows = held_out(thinking(30, 50, 70))
    assert [row.recorded_ms for row in rows] == pytest.approx([0.23, 0.25, 0.27])
    # The silence of each step as the other two had it: 60, 50 and 40 us.
    assert [row.replayed_ms for row in rows] == pytest.approx([0.26, 0.25, 0.24])


def test_other_kinds_can_be_foretold_too():
    """Operators here take the same in every step; with the gaps kept nothing changes."""
    rows = held_out(thinking(30, 50, 70), kinds=("host",))
    assert [row.error_pct for row in rows] == pytest.approx([0.0] * 3)


def test_a_silence_that_no_other_step_has_stays():
    events = [mark(0, 0, 250), op(0, 100, "a"), op(150, 100, "b"), mark(1, 250, 230),
              op(250, 100, "a"), op(380, 100, "c")]  # fmt: skip
    rows = held_out(graph_of(*events))
    assert [row.error_pct for row in rows] == pytest.approx([0.0, 0.0])


def test_the_same_silence_twice_in_a_step_is_told_apart_by_order():
    def step(number, at, first, second):
        ops = [op(at, 10, "a"), op(at + 10 + first, 10, "b"), op(at + 20 + first, 10, "a"),
               op(at + 30 + first + second, 10, "b")]  # fmt: skip
        return [mark(number, at, 40 + first + second), *ops]

    events = step(0, 0, 100, 1000) + step(1, 1140, 120, 1200)
    rows = held_out(graph_of(*events))
    assert [row.replayed_ms for row in rows] == pytest.approx([1.36, 1.14])


def test_fewer_than_two_steps_foretell_nothing():
    assert held_out(thinking(30)) == []
    assert held_out(graph_of(op(0, 1))) == []


def test_a_step_without_length_has_no_error():
    assert StepRow("s", None, 0.0, 0.0).error_pct == 0.0
