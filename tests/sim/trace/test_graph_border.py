"""The native builder trusts nobody: what cannot be is refused, not read past its end."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon import _core

HOST, DEVICE = 1, 3


def build(**wrong):
    """A call and its kernel, or what is wrong with them."""
    columns = {
        "start": np.array([0, 10]), "end": np.array([5, 20]),
        "event_class": np.array([2, DEVICE], np.uint8), "flags": np.zeros(2, np.uint8),
        "lane": np.array([0, 1], np.int32), "correlation": np.array([7, 7]),
        "host_lanes": 1, "lanes": 2,
        "known_source": np.empty(0, np.int32), "known_target": np.empty(0, np.int32),
        "identity": np.full(2, -1, np.int32), "step": np.full(2, -1, np.int32),
    }  # fmt: skip
    return _core.build_trace_graph(_core.TraceEvents(**(columns | wrong)))


def int32(*values):
    return np.array(values, np.int32)


def test_what_is_right_is_built():
    built = build()
    assert built.take_start().tolist() == [0, 5, 10]
    assert built.take_end().tolist() == [5, 10, 20]
    assert (built.take_source().tolist(), built.take_target().tolist()) == ([0], [1])
    # What was taken is gone.
    assert built.take_start().tolist() == []


def test_nothing_gives_nothing():
    empty = {name: np.empty(0, np.int64) for name in ("start", "end", "correlation")}
    empty |= {name: np.empty(0, np.uint8) for name in ("event_class", "flags")}
    empty |= {name: int32() for name in ("lane", "identity", "step")}
    assert build(**empty, host_lanes=0, lanes=0).take_lane().tolist() == []


@pytest.mark.parametrize(
    "column", ["start", "end", "event_class", "flags", "lane", "correlation", "identity", "step"]
)
def test_columns_of_other_lengths_are_refused(column):
    kind = {"event_class": np.uint8, "flags": np.uint8, "start": np.int64, "end": np.int64,
            "correlation": np.int64}.get(column, np.int32)  # fmt: skip
    with pytest.raises(ValueError, match="columns differ in length"):
        build(**{column: np.zeros(3, kind)})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"known_source": int32(0)}, "columns differ in length"),
        ({"lane": int32(0, 2)}, "a lane that does not exist"),
        ({"lane": int32(-1, 1)}, "a lane that does not exist"),
        ({"lane": int32(1, 1)}, "of the other side"),
        ({"lane": int32(0, 0)}, "of the other side"),
        ({"host_lanes": 3}, "fewer lanes than host lanes"),
        ({"host_lanes": -1}, "fewer lanes than host lanes"),
        ({"lanes": 1}, "a lane that does not exist"),
        ({"event_class": np.array([2, 5], np.uint8)}, "a class that does not exist"),
        ({"end": np.array([5, 9])}, "ends before it starts"),
        ({"start": np.array([-1, 10])}, "ends before it starts"),
        ({"start": np.array([5, 4])}, "in order of their start"),
        ({"known_source": int32(2), "known_target": int32(1)}, "an event that does not exist"),
        ({"known_source": int32(1), "known_target": int32(-1)}, "an event that does not exist"),
    ],
)
def test_what_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        build(**wrong)


def test_events_that_are_ignored_hide_no_disorder():
    three = {
        "start": np.array([10, 5, 6]), "end": np.array([11, 6, 7]),
        "event_class": np.array([HOST, 0, HOST], np.uint8), "flags": np.zeros(3, np.uint8),
        "lane": int32(0, 0, 0), "correlation": np.zeros(3, np.int64),
        "identity": int32(-1, -1, -1), "step": int32(-1, -1, -1), "lanes": 1,
    }  # fmt: skip
    with pytest.raises(ValueError, match="in order of their start"):
        build(**three)


def test_lanes_of_ignored_events_do_not_matter():
    built = build(event_class=np.array([0, DEVICE], np.uint8), lane=int32(-9, 1))
    assert len(built.take_lane()) == 2


def test_waits_between_events_that_are_no_kernels_tie_nothing():
    built = build(known_source=int32(0, 1), known_target=int32(1, 1))
    assert built.take_edge_kind().tolist() == [0]  # the launch alone


@pytest.mark.parametrize("wrong", [np.zeros(2, np.int32), np.zeros(4)[::2], [0, 10], None])
def test_other_types_are_no_columns(wrong):
    with pytest.raises(TypeError):
        build(start=wrong)
