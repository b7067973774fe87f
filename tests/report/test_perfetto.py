"""Traces that other people's tools read: decoded by Perfetto's own package."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from tests.strategies import graphs

from gnomon.errors import InputError, SimulationError
from gnomon.graph import GraphBuilder, Timeline, WorkGraph, merge
from gnomon.report.perfetto import write_chrome_json, write_perfetto, write_trace
from gnomon.sim import replay

HOSTILE = 'void k<float, "x">(</script>) \u00e9\u4e2d'


def decode(path):
    trace_pb2 = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
        reason="the 'perfetto' package is absent",
    )
    trace = trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    return trace.packet


def slices(packets):
    """(process, lane, name, kind, start, end) as a viewer would see them."""
    process, lane, parent = {}, {}, {}
    names, kinds = {}, {}
    opened, found = {}, []
    for packet in packets:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                process[track.uuid] = track.process.process_name
            if track.HasField("thread"):
                lane[track.uuid] = track.thread.thread_name
                parent[track.uuid] = track.parent_uuid
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
        for entry in packet.interned_data.event_categories:
            kinds[entry.iid] = entry.name
        event = packet.track_event
        if event.type == 1:
            assert event.track_uuid not in opened, "slices of a lane must not overlap"
            opened[event.track_uuid] = (event, packet.timestamp)
        elif event.type == 2:
            begun, start = opened.pop(event.track_uuid)
            track = event.track_uuid
            found.append((process[parent[track]], lane[track], names[begun.name_iid],
                          kinds[begun.category_iids[0]], start, packet.timestamp))  # fmt: skip
    assert not opened
    return found


@given(graph=graphs(groups=True))
def test_prop_pftrace_says_what_the_timeline_says(tmp_path_factory, graph):
    try:
        line = replay(graph)
    except SimulationError:
        return
    path = tmp_path_factory.mktemp("traces") / "t.pftrace"
    write_perfetto(path, {"replayed": line})
    expected = [
        ("replayed", graph.lanes[graph.lane[i]], graph.names[graph.name[i]], graph.kinds[graph.kind[i]],
         int(line.start_ns[i]) - line.begin_ns, int(line.end_ns[i]) - line.begin_ns)
        for i in range(len(graph))
    ]  # fmt: skip
    assert slices(decode(path)) == expected


def build():
    builder = GraphBuilder()
    launch = builder.task("cpu", 10, kind="host", name=HOSTILE)
    kernel = builder.task("gpu", 50, kind="kernel", name="gemm")
    builder.task("cpu", 5, kind="host", name="idle")
    builder.edge(launch, kernel, "launch")
    return builder.build()


def test_flows_critical_path_and_counters(tmp_path):
    line = replay(build())
    write_perfetto(tmp_path / "t.pftrace", {"recorded": line, "replayed": line})
    packets = decode(tmp_path / "t.pftrace")
    flows_out = [f for p in packets for f in p.track_event.flow_ids]
    flows_in = [f for p in packets for f in p.track_event.terminating_flow_ids]
    assert sorted(flows_out) == sorted(flows_in)
    assert len(set(flows_out)) == 2  # one a timeline, never shared between them
    critical = [p for p in packets if p.track_event.debug_annotations]
    assert len(critical) == 4
    assert {s[2] for s in slices(packets)} == {HOSTILE, "gemm", "idle"}
    values = [p.track_event.double_counter_value for p in packets if p.track_event.type == 4]
    assert max(values) <= 2.0
    assert min(values) >= 0.0


def test_ranks_become_processes(tmp_path):
    line = replay(merge([build(), build()]))
    write_perfetto(tmp_path / "t.pftrace", {"job": line})
    assert {s[0] for s in slices(decode(tmp_path / "t.pftrace"))} == {"job: rank 0", "job: rank 1"}
    write_chrome_json(tmp_path / "t.json", {"job": line})
    events = json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]
    named = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {"job: rank 0", "job: rank 1"}


def test_chrome_json_keeps_nanoseconds_and_pairs_flows(tmp_path):
    line = replay(build())
    write_trace(tmp_path / "t.json.gz", {"a": line, "b": line})
    from gnomon.ingest.profiler.kineto import read_kineto

    again = read_kineto(tmp_path / "t.json.gz")
    assert sorted(again.duration_ns.tolist()) == sorted(2 * line.graph.duration_ns.tolist())
    write_trace(tmp_path / "t.json", {"a": line})
    events = json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]
    assert [e["id"] for e in events if e["ph"] == "s"] == [
        e["id"] for e in events if e["ph"] == "f"
    ]


def test_recorded_times_need_not_begin_at_zero(tmp_path):
    line = Timeline(WorkGraph.from_columns(["a"], [5]), np.array([10**18]))
    write_perfetto(tmp_path / "t.pftrace", {"late": line})
    assert slices(decode(tmp_path / "t.pftrace"))[0][4:] == (0, 5)


@pytest.mark.parametrize("name", ["t.txt", "trace", "t.gz"])
def test_an_unknown_ending_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="does not say which trace"):
        write_trace(tmp_path / name, {"a": replay(build())})


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_perfetto(tmp_path / "no" / "t.pftrace", {"a": replay(build())})
    assert list(tmp_path.iterdir()) == []
