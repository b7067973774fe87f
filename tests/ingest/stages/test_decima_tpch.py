from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.stages.decima_tpch import read_tpch
from gnomon.ingest.stages.stage_order import parents_first

MS = 10**6
FILE = "batch/decima-tpch/tpch_decima_154jobs.json.gz"


def stage(tasks, fresh, first, rest):
    return {"num_tasks": tasks, "fresh_durations": fresh, "first_wave": first, "rest_wave": rest}


def write(tmp_path, jobs, name="tpch.json"):
    file = tmp_path / name
    raw = json.dumps(jobs).encode()
    file.write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    return file


def waves(kinds, stage, level):
    """Samples of a stage in milliseconds, by wave."""
    at = kinds.levels.tolist().index(level)
    first = kinds.sample_first.reshape(kinds.stage_count, 3, -1)[stage, :, at]
    count = kinds.sample_count.reshape(kinds.stage_count, 3, -1)[stage, :, at]
    return [sorted((kinds.sample_ns[f : f + c] // MS).tolist()) for f, c in zip(first, count)]


SCAN = stage(
    5,
    {"2": [400, 410], "10": [430, 430, 440]},
    {"2": [400, 410], "10": [430, 200, 430, 440, 430]},
    {"2": [90, 80, 70], "10": []},
)
JOIN = stage(3, {"2": [], "10": []}, {"2": [50, 60], "10": [70, 80, 90]}, {"2": [20], "10": []})


def test_waves_are_settled_at_reading(tmp_path):
    file = write(tmp_path, {"2g-q1": {"edges": [[0, 1]], "stages": [SCAN, JOIN]}}, "a.json.gz")
    kinds = read_tpch(file)
    assert kinds.names == ("2g-q1",)
    assert kinds.tasks.tolist() == [5, 3]
    assert kinds.parents_of(1).tolist() == [0]
    # All first ones were fresh, and there is no smaller number: later ones stand for them.
    assert waves(kinds, 0, 2) == [[400, 410], [70, 80, 90], [70, 80, 90]]
    # Two of three 430 are fresh; without later ones, the first stand for them.
    assert waves(kinds, 0, 10) == [[430, 430, 440], [200, 430], [200, 430]]
    # Never fresh: the first ones and a second.
    assert waves(kinds, 1, 2) == [[1050, 1060], [50, 60], [20]]
    assert waves(kinds, 1, 10) == [[1070, 1080, 1090], [70, 80, 90], [70, 80, 90]]
    assert (kinds.cpu_ns // MS).tolist() == [80, 20]
    # What stands for something else does not count in what a task typically takes.
    assert kinds.typical_ns[1] == pytest.approx((50 + 60 + 20 + 70 + 80 + 90) / 6 * MS)


def test_first_ones_that_were_all_fresh_come_from_the_next_smaller_number(tmp_path):
    odd = stage(
        2,
        {"2": [], "5": [30], "9": []},
        {"2": [10], "5": [30], "9": [70]},
        {"2": [], "5": [], "9": []},
    )
    kinds = read_tpch(write(tmp_path, {"a": {"edges": [], "stages": [odd]}}))
    assert waves(kinds, 0, 5)[1] == [10]
    assert waves(kinds, 0, 9)[1] == [70]


def test_a_small_query_keeps_what_it_did_with_the_most_it_had(tmp_path):
    small = stage(2, {"2": [], "3": []}, {"2": [10], "3": [20]}, {"2": [5], "3": []})
    others = {f"b{n}": {"edges": [], "stages": [JOIN, JOIN]} for n in range(2)}
    file = write(tmp_path, {"a": {"edges": [], "stages": [small]}, **others})
    kinds = read_tpch(file)
    assert kinds.levels.tolist() == [2, 10]  # 3 is no level for all
    assert waves(kinds, 0, 10) == [[1020], [20], [20]]


def test_stages_are_put_in_order(tmp_path):
    file = write(tmp_path, {"a": {"edges": [[1, 0]], "stages": [JOIN, SCAN]}})
    kinds = read_tpch(file)
    assert kinds.stage_names == ("1", "0")
    assert kinds.tasks.tolist() == [5, 3]
    assert kinds.parents_of(1).tolist() == [0]


GOOD = {"a": {"edges": [], "stages": [SCAN]}}
EMPTY = stage(1, {"2": []}, {"2": []}, {"2": []})
MIXED = stage(1, {"2": []}, {"5": [1]}, {"2": []})
EARLY = stage(1, {"2": []}, {"2": [-5]}, {"2": []})


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is empty"),
        (b"\x00\x01\x02\xff" * 100, "holds no TPC-H jobs"),
        (b"[]", "holds no TPC-H jobs"),
        (b"{}", "holds no jobs"),
        (json.dumps(GOOD).encode()[:-20], "holds no TPC-H jobs"),
        (gzip.compress(json.dumps(GOOD).encode())[:-12], "ends early"),
        (json.dumps({"a": {"edges": [[0, 1]], "stages": [SCAN]}}).encode(), "an edge goes"),
        (
            json.dumps({"a": {"edges": [[0, 1], [1, 0]], "stages": [SCAN, JOIN]}}).encode(),
            "in a circle",
        ),
        (json.dumps({"a": {"edges": [], "stages": [EMPTY]}}).encode(), "no durations"),
        (json.dumps({"a": {"edges": [], "stages": [MIXED]}}).encode(), "different numbers"),
        (json.dumps({"a": {"edges": [], "stages": [EARLY]}}).encode(), "below zero"),
        (json.dumps({"a": {"edges": [], "stages": []}}).encode(), "no stages"),
    ],
    ids=[
        "empty", "binary", "list", "nothing", "cut", "cut-gzip", "edge", "circle", "durations",
        "mixed", "negative", "stages",
    ],
)  # fmt: skip
def test_rubbish_gets_one_line(tmp_path, raw, says):
    file = tmp_path / "rubbish.json"
    file.write_bytes(raw)
    with pytest.raises(InputError, match=says) as caught:
        read_tpch(file)
    assert "\n" not in str(caught.value)


@given(st.lists(st.sets(st.integers(0, 7)), min_size=8, max_size=8))
def test_prop_order_puts_parents_first_or_there_is_a_cycle(parents):
    order = parents_first(parents)
    if order is None:
        # Following parents inside what is left never ends.
        left = set(range(8))
        while done := {s for s in left if not parents[s] & left}:
            left -= done
        assert left
    else:
        place = {stage: position for position, stage in enumerate(order)}
        assert sorted(order) == list(range(8))
        assert all(place[p] < place[s] for s in order for p in parents[s])


@pytest.mark.data
def test_the_real_queries(public_data):
    kinds = read_tpch(public_data / FILE)
    assert len(kinds) == 154
    assert kinds.levels.tolist() == [2, 5, 10, 20, 40, 50, 60, 80, 100]
    stages = np.diff(kinds.first_stage)
    assert stages.max() == 18
    assert stages.mean() == pytest.approx(9.2, abs=0.05)
    assert kinds.tasks.max() == 593
    # What was recorded: the sum of all durations at a number of executors.
    recorded = {2: (64, 109, 195, 375), 10: (187, 248, 383, 631), 50: (818, 905, 1148, 1617)}
    for size, work_s in recorded.items():
        of_size = [name.startswith(f"{size}g-") for name in kinds.names]
        for executors, expected in zip((5, 20, 50, 100), work_s):
            found = kinds.work_ns(executors)[of_size].mean() / 1e9
            assert found == pytest.approx(expected, rel=0.03)
