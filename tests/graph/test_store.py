"""Save and load: the same graph, the same bytes, or one clear line."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.graph import Timeline, WorkGraph
from gnomon.sim import replay
from gnomon.table import write_arrow
from tests.strategies import graphs


@given(graph=graphs(groups=True, waits=True, ranks=True, optional=True))
def test_prop_round_trip_and_same_bytes(tmp_path_factory, graph):
    folder = tmp_path_factory.mktemp("graphs")
    graph.save(folder / "a.arrow")
    loaded = WorkGraph.load(folder / "a.arrow")
    assert loaded == graph
    loaded.save(folder / "b.arrow")
    assert (folder / "a.arrow").read_bytes() == (folder / "b.arrow").read_bytes()


@given(graph=graphs())
def test_prop_timeline_round_trip(tmp_path_factory, graph):
    path = tmp_path_factory.mktemp("lines") / "line.arrow"
    line = replay(graph)
    line.save(path)
    assert Timeline.load(path) == line


def test_other_tools_read_it(tmp_path):
    pl = pytest.importorskip("polars", reason="the 'tables' extra is absent")
    ipc = pytest.importorskip("pyarrow.ipc", reason="the 'tables' extra is absent")
    graph = WorkGraph.from_columns(
        ["cpu", "gpu"], [1, 2], ["host", "kernel"], ["op", "gemm"], ([0], [1], "launch"))  # fmt: skip
    graph.save(tmp_path / "g.arrow")
    frame = pl.read_ipc(tmp_path / "g.arrow")
    assert frame["name"].cast(pl.String).to_list() == ["op", "gemm"]
    assert frame["lane"].cast(pl.String).to_list() == ["cpu", "gpu"]
    with ipc.open_file(tmp_path / "g.arrow") as file:
        rows = file.read_all().to_pylist()
    assert rows[0]["successors"] == [{"task": 1, "kind": "launch"}]


def test_loaded_columns_are_mapped_not_copied(tmp_path):
    WorkGraph.from_columns(["a"] * 1000, np.arange(1000)).save(tmp_path / "g.arrow")
    loaded = WorkGraph.load(tmp_path / "g.arrow")
    assert not loaded.duration_ns.flags.owndata
    assert not loaded.duration_ns.flags.writeable


def _files(folder):
    good = folder / "good.arrow"
    WorkGraph.from_columns(["a", "b"], [1, 2], edges=([0], [1])).save(good)
    yield "empty", b""
    yield "wrong file", json.dumps({"hello": 1}).encode()
    yield "gzip", gzip.compress(good.read_bytes())
    yield "truncated", good.read_bytes()[:-9]
    yield "half", good.read_bytes()[: good.stat().st_size // 2]
    write_arrow(folder / "other.arrow", {"x": np.arange(3)}, {})
    yield "other arrow", (folder / "other.arrow").read_bytes()


def test_bad_files_are_told_in_one_line(tmp_path):
    for case, content in _files(tmp_path):
        path = tmp_path / "bad.arrow"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"bad\.arrow") as caught:
            WorkGraph.load(path)
        assert "\n" not in str(caught.value), case
    with pytest.raises(InputError, match=r"missing\.arrow"):
        WorkGraph.load(tmp_path / "missing.arrow")


@given(st.binary(max_size=8), st.integers(0, 4000))
def test_prop_damaged_files_never_crash(tmp_path_factory, damage, where):
    path = tmp_path_factory.mktemp("damaged") / "g.arrow"
    graph = WorkGraph.from_columns(
        ["a", "b", "a"], [1, 2, 3], edges=([0, 1], [1, 2]), group=[0, 0, -1]
    )
    graph.save(path)
    content = bytearray(path.read_bytes())
    where %= len(content)
    content[where : where + len(damage)] = damage
    path.write_bytes(content)
    try:
        loaded = WorkGraph.load(path)
        loaded.validate()
    except InputError as error:
        assert "\n" not in str(error)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "g.arrow"
    graph = WorkGraph.from_columns(["a"], [1])
    graph.save(path)
    before = path.read_bytes()
    with pytest.raises(InputError):
        graph.save(tmp_path / "no" / "such" / "folder.arrow")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["g.arrow"]
