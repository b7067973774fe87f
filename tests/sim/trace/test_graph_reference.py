"""The native builder against the slow one: on random traces and on real ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.ingest.profiler.kineto import read_kineto
from gnomon.sim import replay
from gnomon.sim.trace import build_graph
from gnomon.sim.trace.events import lay_out
from tests.sim.trace.reference_graph import GAP, flatten, host_events, reference_graph
from tests.sim.trace.traces import (
    backend_event,
    call,
    kernel,
    launch,
    mark,
    op,
    post,
    trace_of,
    us,
)

# Many events at the same instant, and lengths on both sides of every threshold.
instants = st.integers(0, 30) | st.integers(0, 30).map(lambda tens: 20 * tens)
lengths = st.sampled_from([0, 0, 1, 2, 5, 10, 19, 20, 21, 40, 60, 120, 400])
delays = st.sampled_from([-5, 0, 1, 3, 30, 130, 450])
threads = st.integers(1, 3)
streams = st.sampled_from([7, 9, -1])
correlations = st.integers(0, 6)

ops = st.builds(op, instants, lengths, st.sampled_from(["aten::mm", "aten::add"]), threads)
launches = st.builds(launch, instants, lengths, correlations, threads)
calls = st.builds(
    call,
    st.sampled_from(
        ["cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy",
         "cudaFuncGetAttributes"]
    ),
    instants, lengths, threads,
)  # fmt: skip
kernels = st.builds(
    kernel, instants, lengths, correlations, streams,
    st.sampled_from(["gemm", "ncclDevKernel_AllReduce", "Memset (Device)",
                     "Memcpy HtoD (Pageable -> Device)"]), bytes=st.integers(0, 9),
)  # fmt: skip
marks = st.builds(mark, st.integers(0, 3), instants, lengths)
others = st.builds(us, st.just("frame"), st.sampled_from(["python_function", "overhead"]), threads,
                   instants, lengths)  # fmt: skip


@st.composite
def small_traces(draw):
    """Operators and calls nested or not, kernels with and without a launch, marks of steps."""
    events = [draw(ops | launches | kernels)]
    for kind, most in ((ops, 8), (launches, 5), (calls, 3), (kernels, 7), (marks, 2), (others, 1)):
        events += draw(st.lists(kind, max_size=most))
    for number in range(draw(st.integers(0, 4))):
        begin, delay = draw(instants), draw(delays)
        events.append(launch(begin, draw(lengths), 100 + number, draw(threads)))
        name = draw(st.sampled_from(["gemm", "Memcpy DtoH (Device -> Pageable)"]))
        at = max(begin + delay, 0)
        events.append(kernel(at, draw(lengths), 100 + number, draw(streams), name))
    if draw(st.booleans()):  # a queue that was full until a kernel ended
        begin, stream = draw(instants), draw(streams)
        events += [launch(i, 1, 200 + i, 4) for i in range(4)]
        events += [kernel(begin, 1, 200 + i, stream) for i in range(4)]
        events.append(launch(begin, 400, 300, draw(threads)))
        events.append(kernel(begin + draw(instants), draw(lengths), 0, stream))
        events.append(kernel(begin + 700, 1, 300, stream))
    return trace_of(*events)


@st.composite
def traces_with_communication(draw):
    """Operators beside what a CPU backend sends, receives and reduces."""
    events = [draw(ops), *draw(st.lists(ops, max_size=8))]
    for _ in range(draw(st.integers(1, 5))):
        begin, thread = draw(instants), draw(threads)
        name, peer = draw(st.sampled_from([("send", 1), ("recv_", 2), ("allreduce_", None)]))
        shown = "all_reduce" if peer is None else name.strip("_")
        if draw(st.integers(0, 4)):
            events.append(post(begin, draw(lengths), name, peer, thread))
        at = max(0, begin + draw(delays))
        events.append(backend_event(at, draw(lengths), f"gloo:{shown}", draw(st.integers(5, 6))))
    return trace_of(*events)


def columns(training):
    graph = training.graph
    return list(
        zip(
            [graph.lanes[code] for code in graph.lane.tolist()],
            [graph.kinds[code] for code in graph.kind.tolist()],
            [graph.names[code] for code in graph.name.tolist()],
            training.recorded.start_ns.tolist(),
            training.recorded.end_ns.tolist(),
            graph.duration_ns.tolist(),
            graph.bytes.tolist() if graph.bytes is not None else [0] * len(graph),
        )
    )


def edges(graph):
    found = [column.tolist() for column in graph.edge_list()]
    return sorted((a, b, graph.edge_kinds[kind]) for a, b, kind in zip(*found))


def waits(graph):
    if graph.wait_task is None:
        return []
    pairs = zip(graph.wait_task.tolist(), graph.wait_lane.tolist())
    return sorted((task, graph.lanes[lane]) for task, lane in pairs)


def assert_same(trace):
    """All is equal but what streams wait for between themselves."""
    training, slow = build_graph(trace), reference_graph(trace)
    linked = edges(training.graph)
    held = {target for _, target, kind in linked if kind == "stream"}
    ours, theirs = columns(training), [tuple(task) for task in slow.tasks]
    assert len(ours) == len(theirs)
    for number, (one, other) in enumerate(zip(ours, theirs)):
        if number not in held:
            assert one == other, number
        else:
            assert (*one[:5], one[6]) == (*other[:5], other[6])
            assert one[5] <= other[5]
    assert [edge for edge in linked if edge[2] != "stream"] == sorted(slow.edges)
    assert waits(training.graph) == sorted(slow.waits)
    assert training.step.tolist() == slow.step
    assert training.step_names == slow.step_names
    assert [note for note in training.notes if note in slow.notes] == slow.notes


def assert_replays_exactly(training):
    line = replay(training.graph)
    # A launch that blocked on a full queue is charged to the kernel that made room, not to itself.
    same = ~training.graph.is_kind("blocked")
    assert np.array_equal(line.end_ns[same], training.recorded.end_ns[same])


@settings(max_examples=250)
@given(small_traces())
def test_prop_random_traces_build_the_same_and_replay_exactly(trace):
    assert_same(trace)
    assert_replays_exactly(build_graph(trace))


@given(traces_with_communication())
def test_prop_communications_of_cpu_backends_replay_exactly(trace):
    training = build_graph(trace)
    assert_replays_exactly(training)
    laid = lay_out(trace)
    assert len(laid.communications) == np.count_nonzero(training.graph.is_kind("communication"))


@given(small_traces(), st.integers(0, 10**12))
def test_prop_another_clock_moves_all_times_alike(trace, shift_ns):
    """But for the gap before a thread's first event, which then is longer or new."""
    plain, moved = (
        [(*task[:3], task[3] - shift, task[4] - shift, step)
         for task, step in zip(columns(training), training.step.tolist())
         if task[1] not in ("gap", "latency")]
        for training, shift in
        ((build_graph(trace), 0), (build_graph(trace, shift_ns=shift_ns), shift_ns))
    )  # fmt: skip
    assert plain == moved


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=12))
def test_prop_flattening_gives_each_instant_to_the_innermost(spans):
    """Against looking at each instant."""
    nested = []  # keep those that nest: a profiler's scopes do
    for start, length in sorted(spans, key=lambda s: (s[0], -s[1])):
        if all(start >= b or start + length <= b for a, b in nested if a <= start):
            nested.append((start, start + length))
    trace = trace_of(*(op(a, b - a, f"e{i}") for i, (a, b) in enumerate(nested)))
    start, end = trace.start_ns.tolist(), trace.end_ns.tolist()
    (events,) = host_events(trace).values()
    pieces = flatten(start, end, events, set())
    assert all(a.end_ns == b.start_ns for a, b in zip(pieces, pieces[1:]))
    for piece in pieces:
        for instant in range(piece.start_ns, piece.end_ns, 1000):
            inside = [e for e in events if start[e] <= instant < end[e]]
            innermost = max(inside, key=lambda e: (start[e], -end[e]), default=GAP)
            same = {e for e in events if (start[e], end[e]) == (start[innermost], end[innermost])}
            assert piece.owner == GAP == innermost or piece.owner in same


def real_traces(folder):
    paths = sorted(folder.glob("h200/*/kineto.json.gz"))
    paths += sorted(folder.glob("h200-pairs/*/[!t]*.json.gz"))
    for part in ("hta", "kineto", "tracelens"):
        paths += sorted((folder / "public" / part).rglob("*.json.gz"))
    return [path for path in paths if not path.name.endswith(("_et.json.gz", "et.json.gz"))]


def assert_same_where_there_is_a_graph(path):
    trace = read_kineto(path)
    if lay_out(trace).communications:
        return
    try:
        assert_same(trace)
    except InputError as error:
        assert "neither operators nor kernels" in str(error)


def test_the_bundled_trace_builds_the_same():
    assert_same(read_kineto(bundled("h200-gpt-l6") / "kineto.json.gz"))


@pytest.mark.data
def test_a_real_trace_of_each_folder_builds_the_same(public_data):
    """The smallest of each, unless it is large; all of them are among the slow tests."""
    smallest = {}
    for path in sorted(real_traces(public_data), key=lambda path: -path.stat().st_size):
        if path.stat().st_size < 400_000:
            smallest[path.parent] = path
    assert len(smallest) > 15
    for path in smallest.values():
        assert_same_where_there_is_a_graph(path)


@pytest.mark.data
@pytest.mark.slow
def test_every_real_trace_builds_the_same(public_data):
    for path in real_traces(public_data):
        assert_same_where_there_is_a_graph(path)


@pytest.mark.data
def test_every_real_trace_replays_exactly(public_data):
    """A graph that does not give the record back has lost something."""
    replayed = 0
    for path in real_traces(public_data) + sorted(public_data.glob("ranks/*/*.json.gz")):
        try:
            training = build_graph(read_kineto(path))
        except InputError as error:
            assert "neither operators" in str(error)
            continue
        assert_replays_exactly(training)
        replayed += 1
    assert replayed > 55
