"""Profiler traces of all ages."""

from __future__ import annotations

import gzip
import json
import tarfile

import numpy as np
import pytest

from gnomon.datasets import bundled
from gnomon.ingest.formats import identify
from gnomon.ingest.profiler.kineto import read_kineto


def write(path, *events, **top):
    path.write_text(json.dumps({"traceEvents": list(events), **top}))
    return path


def event(**more):
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, **more}


def test_the_bundled_trace():
    trace = read_kineto(bundled("h200-gpt-l6") / "kineto.json.gz")
    assert len(trace) == 8977
    assert trace.gpus == ("NVIDIA H200",)
    assert int(np.count_nonzero(trace.is_category("kernel"))) == 1247
    assert trace.start_ns[0] == 0
    assert np.all(np.diff(trace.start_ns) >= 0)


def test_nanoseconds_survive_absolute_times(tmp_path):
    """Microseconds since 1970 with a fraction do not fit a float: 2**53 ns are 104 days."""
    text = '{"traceEvents": [{"ph":"X","ts":1731600000000000.001,"dur":0.002,"name":"a"},' \
           '{"ph":"X","ts":1731600000000000.004,"dur":10,"name":"b"}]}'  # fmt: skip
    (tmp_path / "t.json").write_text(text)
    trace = read_kineto(tmp_path / "t.json")
    assert trace.start_ns.tolist() == [0, 3]
    assert trace.duration_ns.tolist() == [2, 10_000]


def test_old_categories_take_todays_names(tmp_path):
    path = write(
        tmp_path / "t.json", event(cat="Kernel"), event(cat="Operator"), event(cat="Runtime"),
        event(cat="Memcpy"), event(cat="Operator", name="ProfilerStep#3"),
    )  # fmt: skip
    trace = read_kineto(path)
    assert set(trace.categories) == {
        "kernel",
        "cpu_op",
        "cuda_runtime",
        "gpu_memcpy",
        "user_annotation",
    }


def test_parents_come_before_their_children(tmp_path):
    path = write(tmp_path / "t.json", event(name="child", dur=1), event(name="parent", dur=9))
    trace = read_kineto(path)
    assert [trace.name_of(i) for i in range(2)] == ["parent", "child"]


def test_ranks_bare_lists_and_odd_arguments(tmp_path):
    info = {"rank": 3, "world_size": 8, "backend": "nccl"}
    trace = read_kineto(write(tmp_path / "t.json", event(), distributedInfo=info))
    assert (trace.rank, trace.world_size) == (3, 8)
    (tmp_path / "list.json").write_text(
        json.dumps([event(args={"stream": 7, "correlation": "12"})])
    )
    trace = read_kineto(tmp_path / "list.json")
    assert (trace.stream.tolist(), trace.correlation.tolist(), trace.device.tolist()) == (
        [7],
        [12],
        [-1],
    )
    odd = event(args={"stream": None, "bytes": {"x": 1}})
    assert read_kineto(write(tmp_path / "odd.json", odd)).stream.tolist() == [-1]


def test_shapes_and_what_tells_exchanges_apart_are_kept_as_written(tmp_path):
    text = """{"traceEvents": [
      {"ph": "X", "ts": 1, "dur": 9, "name": "op", "args": {
        "Input Dims": [[2, 3], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", "1"]}},
      {"ph": "X", "ts": 2, "dur": 1, "name": "old", "args": {"Input dims": [[4]], "Seq": "7"}},
      {"ph": "X", "ts": 3, "dur": 1, "name": "nccl", "args": {
        "stream": 7, "Collective name": "allreduce", "other": 1, "Process Group Ranks": [0, 1]}},
      {"ph": "X", "ts": 4, "dur": 1, "name": "again", "args": {"Input Dims": [[4]], "Seq": "7"}},
      {"ph": "X", "ts": 5, "dur": 1, "name": "types alone", "args": {"Input type": ["float"]}}
    ]}"""
    (tmp_path / "t.json").write_text(text)
    trace = read_kineto(tmp_path / "t.json")
    assert trace.shapes == ("", '[[2, 3], []]\t["float", "Scalar"]\t["", "1"]', "[[4]]\t\t")
    assert trace.shape.tolist() == [1, 2, 0, 2, 0]
    assert trace.extras == (
        "", '{"Seq":"7"}', '{"Collective name":"allreduce","Process Group Ranks":[0, 1]}',
    )  # fmt: skip
    assert trace.extra.tolist() == [0, 1, 2, 1, 0]
    assert json.loads(trace.extras[2])["Process Group Ranks"] == [0, 1]


@pytest.mark.parametrize(
    ("config", "groups"),
    [
        ('[{"pg_name": "0", "ranks": [0, 1], "pg_size": 2}, {"pg_name": "5", "ranks": []}]',
         (("0", (0, 1)), ("5", ()))),
        ("null", ()),
        ('"default_pg"', ()),
        ('[{"pg_name": "0", "ranks": "all"}]', ()),
    ],
)  # fmt: skip
def test_process_groups_are_read_where_they_make_sense(tmp_path, config, groups):
    info = {"rank": 1, "world_size": 2, "pg_config": json.loads(config)}
    write(tmp_path / "t.json", event(), distributedInfo=info)
    trace = read_kineto(tmp_path / "t.json")
    assert trace.rank == 1
    assert tuple((group.name, group.ranks) for group in trace.groups) == groups


@pytest.mark.parametrize(
    ("base", "origin_ns"),
    [(None, 3_000), (1790857026000000000, 1790857026000003000), ("x", 3_000), (2**70, 3_000)],
)
def test_the_clock_at_time_zero(tmp_path, base, origin_ns):
    """The machine's clock at the first event: what times count from, plus the first time."""
    top = {} if base is None else {"baseTimeNanoseconds": base}
    trace = read_kineto(write(tmp_path / "t.json", event(ts=3), event(ts=5), **top))
    assert trace.origin_ns == origin_ns
    assert trace.start_ns.tolist() == [0, 2_000]


def test_events_without_end_are_counted(tmp_path):
    open_end = event()
    del open_end["dur"]
    trace = read_kineto(write(tmp_path / "t.json", event(), open_end))
    assert len(trace) == 1
    assert trace.dropped == {"events had no end and were left out": 1}
    odd = event(args=[1, 2])
    begin = {"ph": "B", "name": "b", "ts": 1}
    trace = read_kineto(write(tmp_path / "o.json", odd, begin))
    assert sorted(trace.dropped.values()) == [1, 1]
    with pytest.raises(ValueError, match="no event has both a start and an end"):
        read_kineto(write(tmp_path / "e.json", open_end))


def test_numbers_no_machine_holds_do_no_harm(tmp_path):
    big = event(args={"correlation": 99999999999999999999, "stream": 1e300})
    trace = read_kineto(write(tmp_path / "t.json", big))
    assert (trace.correlation.tolist(), trace.stream.tolist()) == ([-1], [-1])
    (tmp_path / "u.json").write_text('{"traceEvents":[{"ph":"X","ts":1e999999,"dur":1}]}')
    with pytest.raises(ValueError, match="impossible time"):
        read_kineto(tmp_path / "u.json")


@pytest.mark.parametrize("ending", ["json", "json.gz", "json.zst", "renamed"])
def test_compressions_are_told_by_content(tmp_path, ending):
    content = json.dumps({"traceEvents": [event()]}).encode()
    if ending == "json.gz" or ending == "renamed":
        content = gzip.compress(content)
    if ending == "json.zst":
        zstandard = pytest.importorskip("zstandard", reason="the 'zstd' extra is absent")
        content = zstandard.compress(content)
    path = tmp_path / f"t.{ending}"
    path.write_bytes(content)
    assert len(read_kineto(path)) == 1
    assert identify(path).format == "kineto"


def public_traces(folder):
    paths = [
        p
        for part in ("hta", "kineto", "tracelens")
        for p in (folder / "public" / part).rglob("*.json.gz")
    ]
    paths += [p for p in folder.glob("h200*/*/*.json.gz") if "et.json" not in p.name]
    return paths + list(folder.glob("ranks/*/*.json.gz"))


def assert_nothing_is_lost(path):
    trace = read_kineto(path)
    with gzip.open(path) as file:
        events = json.load(file)
    events = events["traceEvents"] if isinstance(events, dict) else events
    whole = [e for e in events if e.get("ph") == "X" and "dur" in e]
    assert len(trace) == len(whole)
    # Sums in float lose up to a nanosecond an event.
    assert trace.duration_ns.sum() == pytest.approx(sum(e["dur"] for e in whole) * 1e3, rel=1e-6)


@pytest.mark.data
def test_every_public_trace_is_read_or_refused_by_name(public_data):
    """Old and new, NVIDIA and AMD, with and without a GPU: all of them."""
    paths = public_traces(public_data)
    assert len(paths) > 40
    for path in paths:
        if "_et.json" in path.name:
            with pytest.raises(ValueError, match="not a profiler trace"):
                read_kineto(path)
            continue
        assert read_kineto(path).span_ns > 0
        if path.stat().st_size < 200_000:
            assert_nothing_is_lost(path)


@pytest.mark.data
@pytest.mark.slow
def test_nothing_of_large_public_traces_is_lost(public_data):
    for path in public_traces(public_data):
        if "_et.json" not in path.name and path.stat().st_size >= 200_000:
            assert_nothing_is_lost(path)


@pytest.mark.data
def test_eight_ranks_of_one_job(public_data, tmp_path):
    with tarfile.open(public_data / "public" / "param" / "dlrm_kineto.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    traces = [read_kineto(p) for p in sorted(tmp_path.rglob("*.json*"))]
    assert len(traces) == 8
    assert all(2400 <= len(trace) <= 2600 for trace in traces)
