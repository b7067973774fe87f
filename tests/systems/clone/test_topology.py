"""Topologies from traces: what was recorded is played again, and the same analyser says so."""

from __future__ import annotations

import itertools
import json
import tarfile
import threading
import urllib.request

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.cli import main
from gnomon.decide.services import SimTarget, manage
from gnomon.errors import InputError
from gnomon.graph.request_shape import (
    FAILED,
    OVERLAPPED,
    QUEUED,
    UNWAITED,
    Shape,
    ShapeCall,
    play,
)
from gnomon.ingest.services.application_file import read_application
from gnomon.ingest.spans.call_graph import CallGraph, Edge, Latency, call_graph
from gnomon.ingest.spans.calls import find_visits
from gnomon.ingest.spans.read import read_spans
from gnomon.ingest.spans.shapes import find_shapes
from gnomon.ingest.spans.spans import CLIENT, CONSUMER, PRODUCER, SERVER, SpanRows
from gnomon.sim.mesh import poisson_requests
from gnomon.systems.clone import topology
from gnomon.systems.clone.topology import reduce
from gnomon.systems.clone.topology.live import deal
from tests.cli.refusal import answer, refused
from tests.waiting import until

MS = 1_000_000
SECRETS = ("checkout", "paypal", "eu-west", "/api/", "place_order")


class Recording:
    """Spans by hand, in ms: a client's and a server's for every call, as tracers write them."""

    def __init__(self):
        self.rows, self._ids, self._trace = SpanRows(), itertools.count(1), 0

    def request(self, service, operation, start, end, **more):
        self._trace += 1
        return self._add("", service, operation, SERVER, start, end, **more)

    def call(self, caller, service, operation, start, end, network=0.0, **more):
        """A call that the caller saw from `start` to `end`; a way takes so long on the network."""
        sent = self._add(caller[0], caller[1], f"call {operation}", CLIENT, start, end)
        more.setdefault("is_error", False)
        return self._add(
            sent[0], service, operation, SERVER, start + network, end - network, **more
        )

    def send(self, caller, service, operation, sent, start, end):
        by = self._add(caller[0], caller[1], "send", PRODUCER, sent, sent + 0.1)
        return self._add(by[0], service, operation, CONSUMER, start, end)

    def store(self, caller, peer, operation, start, end, **more):
        """Only the caller was traced."""
        return self._add(caller[0], caller[1], operation, CLIENT, start, end, peer=peer, **more)

    def _add(self, parent, service, operation, kind, start, end, **more):
        id = f"{next(self._ids):x}"
        at = 10**18 + self._trace * 10**10
        self.rows.add(f"{self._trace:x}", id, parent, service, operation, kind,
                      at + round(start * MS), at + round(end * MS), **more)  # fmt: skip
        return id, service

    def write(self, path):
        """As Zipkin keeps them."""
        path.write_text(json.dumps([
            {"traceId": row.trace, "id": row.id, "parentId": row.parent_id, "name": row.operation,
             "kind": ("", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")[row.kind],
             "timestamp": row.start_ns // 1000, "duration": (row.end_ns - row.start_ns) // 1000,
             "localEndpoint": {"serviceName": row.service},
             "remoteEndpoint": {"serviceName": row.peer},
             "tags": {"http.request.body.size": row.sizes[0], "response_size": row.sizes[1]}
             | ({"error": "true"} if row.is_error else {})}
            for row in self.rows.rows
        ]))  # fmt: skip

    def visits(self):
        return find_visits(self.rows.build("made up"))

    def shape(self):
        (one,) = find_shapes(self.visits(), rate=1.0).shapes
        return one


def shop(requests=1):
    """Sequence, parallel calls with a join, repetition, a queue, an error, sizes and a store."""
    made = Recording()
    for _ in range(requests):
        front = made.request("checkout", "POST /api/place_order", 0, 60)
        made.call(front, "cart", "get", 2, 10, network=1, sizes=(200, 3000))
        made.call(front, "paypal", "charge", 12, 40, is_error=True)
        rates = made.call(front, "rates", "convert", 14, 30)
        for k in range(3):
            made.store(rates, "eu-west-db", "SELECT", 15 + 4 * k, 17 + 4 * k)
        made.call(front, "cart", "empty", 42, 46)
        made.send(front, "mail", "confirm", 50, 70, 95)
    return made


def test_a_sequence_waits_for_what_came_before():
    made = Recording()
    front = made.request("a", "x", 0, 10)
    made.call(front, "b", "y", 1, 3)
    made.call(front, "c", "z", 5, 8)
    _, first, second = made.shape().calls
    assert (first.after, first.delay_us, first.rest_us) == ((), 1000, 2000)
    assert (second.after, second.delay_us, second.rest_us) == ((1,), 2000, 3000)
    assert made.shape().calls[0].rest_us == 2000


def test_parallel_calls_and_their_join():
    made = Recording()
    front = made.request("a", "x", 0, 20)
    made.call(front, "b", "y", 1, 9)
    made.call(front, "c", "z", 2, 6)
    made.call(front, "d", "w", 10, 15)
    _, first, second, join = made.shape().calls
    assert first.after == second.after == ()
    assert (second.delay_us, second.marks) == (2000, OVERLAPPED)
    assert (join.after, join.delay_us, join.marks) == ((1, 2), 1000, 0)
    # A slower second call delays the join, though it was not the last in the recording.
    slow = ShapeCall(0, second.operation, (), 2000, rest_us=14_000)
    calls = (made.shape().calls[0], first, slow, join)
    assert play(Shape(1, calls))[3].made_us == 17_000


def test_a_call_that_ends_with_the_next_is_before_it():
    """Clients' spans are closed a little late: 5 us of overlap is no parallelism."""
    made = Recording()
    front = made.request("a", "x", 0, 10)
    made.call(front, "b", "y", 1, 4.005)
    made.call(front, "c", "z", 4, 8)
    one = made.shape()
    assert (one.calls[2].after, one.calls[2].delay_us, one.calls[1].tail_us) == ((1,), 0, -5)
    assert play(one)[0].end_us == 10_000


def test_what_takes_the_network_and_what_nobody_waits_for():
    one = shop().shape()
    by_start = sorted(zip(one.calls, play(one)), key=lambda each: each[1].begin_us)
    front, cart, charge, rates, *_ = [call for call, _ in by_start]
    assert (cart.lead_us, cart.tail_us, cart.rest_us) == (1000, 1000, 6000)
    assert (cart.request_bytes, cart.response_bytes) == (200, 3000)
    assert charge.marks == FAILED
    assert rates.marks == OVERLAPPED
    mail, when = by_start[-1]
    assert mail.marks == QUEUED
    assert (mail.delay_us, mail.lead_us) == (4000, 20_000)
    assert (when.made_us, when.begin_us, when.end_us) == (50_000, 70_000, 95_000)
    assert play(one)[0].end_us == 60_000
    assert front.rest_us == 14_000

    made = Recording()
    front = made.request("a", "x", 0, 10)
    made.call(front, "b", "y", 1, 11)  # a tenth of it after its caller's end
    assert made.shape().calls[1].marks == UNWAITED
    assert play(made.shape())[0].end_us == 10_000


def recorded(shapes, tops=1):
    """Spans as cells would write them if they took no time themselves."""
    made = Recording()
    for shape in shapes.shapes * tops:
        ids = {}
        for i, (call, when) in enumerate(zip(shape.calls, play(shape))):
            one = shapes.operations[call.operation]
            where = shapes.tiers[one.tier], one.name
            begin, end = when.begin_us / 1000, when.end_us / 1000
            failed = {"is_error": bool(call.marks & FAILED)}
            if i == 0:
                ids[i] = made.request(*where, begin, end, **failed)
                continue
            kinds = (PRODUCER, CONSUMER) if call.marks & QUEUED else (CLIENT, SERVER)
            caller = ids[call.caller]
            done = when.made_us / 1000 + 0.01 if call.marks & QUEUED else end + call.tail_us / 1000
            sent = made._add(caller[0], caller[1], "call", kinds[0], when.made_us / 1000, done)
            ids[i] = made._add(sent[0], *where, kinds[1], begin, end, **failed)
    return made.visits()


names = st.sampled_from("abcd")


@st.composite
def visits(draw, depth=3):
    """What a service does: gaps in us, and calls before each; some are parallel or queued."""
    stages = draw(st.lists(st.lists(st.tuples(names, names, st.booleans()), min_size=1, max_size=3),
                           max_size=3)) if depth else []  # fmt: skip
    gaps = draw(st.lists(st.integers(1, 5000), min_size=len(stages) + 1, max_size=len(stages) + 1))
    below = [[(*one, draw(st.integers(0, 300)), draw(visits(depth - 1))) for one in stage]
             for stage in stages]  # fmt: skip
    return gaps, below, draw(st.booleans())


def record(made, caller, visit, start_us):
    """Records a visit; the end of it, in us."""
    gaps, stages, _ = visit
    now = start_us
    for gap, stage in zip(gaps, stages):
        now += gap
        ends = [now]
        for service, operation, queued, network, inside in stage:
            kinds = (PRODUCER, CONSUMER) if queued else (CLIENT, SERVER)
            # Spans are added when they end, so a stand-in is there first.
            sent = made._add(caller[0], caller[1], "call", kinds[0], now / 1000, now / 1000)
            row = made.rows.rows[-1]
            below = made._add(sent[0], service, operation, kinds[1], 0, 0, is_error=inside[2])
            own = made.rows.rows[-1]
            begin = now + network
            end = record(made, below, inside, begin)
            base = row.start_ns - now * 1000
            own.start_ns, own.end_ns = base + begin * 1000, base + end * 1000
            if not queued:
                row.end_ns = base + (end + network) * 1000
                ends.append(end + network)
        now = max(ends)
    return now + gaps[-1]


@given(st.lists(st.tuples(names, names, visits()), min_size=1, max_size=4))
def test_prop_what_is_played_has_the_call_graph_and_times_of_what_was_recorded(requests):
    made = Recording()
    for service, operation, visit in requests:
        front = made.request(service, operation, 0, 0, is_error=visit[2])
        row = made.rows.rows[-1]
        row.end_ns = row.start_ns + record(made, front, visit, 0) * 1000
    found = made.visits()
    shapes = find_shapes(found, rate=1.0)
    took = [play(shape)[0].end_us for shape in shapes.shapes]
    assert took == pytest.approx(
        [(one.end_ns - one.start_ns) / 1000 for one in found.visits if one.parent < 0], abs=60
    )
    before, after = call_graph(found), call_graph(recorded(shapes))
    assert {
        (one.caller, one.callee): (one.calls, one.failed, one.squares) for one in before.edges
    } == {(one.caller, one.callee): (one.calls, one.failed, one.squares) for one in after.edges}
    compared = topology.compare(before, after)
    assert compared.has_same_graph
    assert compared.has_same_rates


def one_call(operation, caller=-1, **more):
    return ShapeCall(caller, operation, **more)


def test_rare_kinds_are_merged_but_no_call_is_lost():
    common = Shape(1, (one_call(0, rest_us=1000), one_call(1, 0), one_call(2, 0)))
    slow = Shape(1, (one_call(0, rest_us=9000), one_call(1, 0), one_call(2, 0)))
    twice = Shape(1, (one_call(0, rest_us=8000), one_call(1, 0), one_call(1, 0)))
    only = Shape(1, (one_call(0), one_call(3, 0)))
    shapes, notes = reduce.reduce_shapes([common] * 60 + [slow] * 60 + [twice, only], least=3)
    assert sum(shape.weight for shape in shapes) == 122
    assert {kind for shape in shapes for kind in reduce.edges_of(shape)} == {
        (-1, 0), (0, 1), (0, 2), (0, 3),
    }  # fmt: skip
    assert [shape.weight for shape in shapes if shape.calls[0].rest_us > 8000].count(2) == 1
    assert len(notes) == 2
    kept, (note,) = reduce.reduce_shapes([common, twice, only], least=3)
    assert len(kept) == 3
    assert "too few to merge" in note
    assert len(reduce.reduce_shapes([common] * 120 + [twice], least=0)[0]) == 121


def test_many_requests_are_thinned_by_their_length(monkeypatch):
    monkeypatch.setattr(reduce, "_MOST_SHAPES", 50)
    shapes = [Shape(1, (one_call(0, rest_us=i),)) for i in range(1, 1001)]
    kept, (note,) = reduce.reduce_shapes(shapes, least=3)
    assert (len(kept), {one.weight for one in kept}) == (50, {20})
    assert "50 shapes stand for 1,000" in note
    middle = sorted(play(one)[0].end_us for one in kept)[25]
    assert middle == pytest.approx(500, rel=0.05)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), min_size=1, max_size=20),
       st.integers(1, 300))  # fmt: skip
def test_prop_shapes_are_dealt_by_weight_and_every_kind_comes_up(made, count):
    shapes = tuple(
        Shape(weight, (one_call(0, rest_us=7 * i), *(one_call(1, 0) for _ in range(kind))))
        for i, (weight, kind) in enumerate(made)
    )
    dealt = deal(shapes, count, np.random.default_rng(1))
    kinds = np.array(reduce.kinds_of(shapes))
    assert set(kinds[dealt]) == set(kinds)
    assert count <= len(dealt) <= count + 3
    wanted = count * np.array([shape.weight for shape in shapes])
    wanted = wanted / sum(shape.weight for shape in shapes)
    assert np.all(np.abs(np.bincount(dealt, minlength=len(shapes)) - wanted) < 2.01)


def graph(requests=100, calls=100, failed=0, ms=10.0, squares=None, callee="y"):
    edge = Edge(("t", "x"), ("t", callee), calls, failed, calls if squares is None else squares)
    first = Edge(None, ("t", "x"), requests, 0, requests)
    return CallGraph(requests, [first, edge], [Latency(("t", "x"), True, requests, [ms] * 101)])


@pytest.mark.parametrize(
    ("clone", "matches"),
    [
        (graph(), True),
        (graph(requests=50, calls=50), True),
        (graph(ms=11.4), True),
        (graph(ms=11.6), False),
        (graph(ms=8.4), False),
        (graph(calls=120, squares=144), False),
        (graph(failed=10), False),
        (graph(callee="z"), False),
    ],
)
def test_what_matches(clone, matches):
    found = topology.compare(graph(), clone)
    assert found.matches == matches
    if clone.edges[1].callee[1] == "z":
        assert (found.missing, found.added, found.has_same_graph) == (1, 1, False)


def test_few_requests_decide_only_where_all_are_few():
    slow = Latency(("t", "z"), True, 5, [99.0] * 101)
    quick = Latency(("t", "z"), True, 5, [1.0] * 101)
    both = [CallGraph(105, graph().edges, [*graph().latencies, one]) for one in (slow, quick)]
    assert topology.compare(*both).matches
    alone = [CallGraph(100, graph().edges, [one]) for one in (slow, quick)]
    assert not topology.compare(*alone).matches


@pytest.fixture(scope="module")
def model():
    return topology.make_model(shop(30).rows.build("made up"), name="shop")


def test_a_folder_says_nothing_of_names(model, tmp_path):
    topology.write_folder(model, tmp_path / "shop")
    files = {file.name: file.read_text() for file in (tmp_path / "shop").iterdir()}
    assert set(files) == {"README.md", "application.yaml", "shapes.json"}
    for text in files.values():
        assert not [secret for secret in SECRETS if secret in text.lower()]
    assert set(model.names) >= {"tier-1", "op-1"}
    assert "checkout" in model.names.values()
    again = topology.read_folder(tmp_path / "shop")
    assert (again.shapes, again.original, again.app) == (model.shapes, model.original, model.app)


def test_requests_are_held_out_for_the_comparison():
    made = Recording()
    for took in range(1, 41):
        front = made.request("a", "x", 0, 10 * took)
        made.call(front, "b", "y", 1, 5 * took)
    spans = made.rows.build("made up")
    model = topology.make_model(spans, name="shop", hold_out=0.25)
    assert (model.original.requests, len(model.shapes.shapes)) == (10, 30)
    assert {one.operation for one in model.original.latencies} == {
        ("tier-1", "op-1"), ("tier-2", "op-2"),
    }  # fmt: skip
    (note,) = (note for note in model.notes if "apart" in note)
    assert "30 requests" in note
    assert "10 others" in note


def test_an_application_for_the_managers(model, tmp_path):
    topology.write_folder(model, tmp_path / "shop")
    app = read_application(tmp_path / "shop" / "application.yaml")
    assert len(app.services) == len(model.shapes.tiers) == 6
    assert [one.cpu_limit for one in app.services.values()] == [None] * 6  # nothing is CPU time
    target = SimTarget(app, poisson_requests(app, [20.0] * 5, seed=1), seed=1)
    assert len(manage(target, "hpa", duration_s=5).decisions) == 5


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda file: file.update(version=9), "version 9"),
        (lambda file: file["shapes"]["shapes"][0][1][1].__setitem__(0, 7), "malformed"),
        (lambda file: file["shapes"]["shapes"][0][1][1].__setitem__(3, -7), "malformed"),
        (lambda file: file["shapes"].update(shapes=[]), "no shapes"),
        (lambda file: file["shapes"].pop("tiers"), "no cloned topology"),
    ],
)
def test_a_damaged_folder_is_refused(model, tmp_path, damage, says):
    topology.write_folder(model, tmp_path)
    file = json.loads((tmp_path / "shapes.json").read_text())
    damage(file)
    (tmp_path / "shapes.json").write_text(json.dumps(file))
    with pytest.raises(InputError, match=says):
        topology.read_folder(tmp_path)


def test_what_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    (tmp_path / "spans.json").write_text(json.dumps([
        {"traceId": "1", "id": "1", "timestamp": 1, "duration": 5, "localEndpoint": {"serviceName": "a"}}
    ]))  # fmt: skip
    assert "which traces" in refused(capsys, "clone", "topology")
    for words, says in {
        ("-o", "mine"): "something else",
        ("--run", "soon"): "no duration",
        ("--run", "0.1"): "a second to a day",
        ("--rate", "5"): "--rate is of a run",
        ("--run", "5", "--rate", "0"): "over 0",
        ("--run", "5", "--serve"): "one of them",
        ("--cpu-share", "2"): "cpu_share is 2",
        ("--hold-out", "0.5"): "too few",
        ("--least", "-1"): "--least -1",
    }.items():
        assert says in refused(capsys, "clone", "topology", "spans.json", *words)
    assert (tmp_path / "mine" / "thesis.tex").exists()


# -- real processes -------------------------------------------------------------------------------


def test_the_running_clone_has_the_original_s_call_graph(capsys, tmp_path, monkeypatch):
    """Sequence, join, repetition, queue, error and sizes, by the spans of real processes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gnomon.systems.clone.topology.live._FEWEST", 60)
    shop(30).write(tmp_path / "t.json")
    assert main(["clone", "topology", "t.json", "-o", "shop", "--key", "key.json"]) == 0
    assert "checkout" in json.loads((tmp_path / "key.json").read_text()).values()
    capsys.readouterr()
    assert main(["clone", "topology", "shop", "--run", "2", "--json"]) in (0, 3)
    got = json.loads(capsys.readouterr().out)
    assert got["figures"]["same_graph"] == "yes"
    calls = got["tables"]["calls"]["columns"]
    assert calls["same"] == ["yes"] * 7
    assert sorted(round(one, 6) for one in calls["clone_calls"]) == [1.0] * 6 + [3.0]
    assert sorted(calls["clone_failed_pct"]) == [0.0] * 6 + [100.0]
    # Nothing is faster than it was recorded; how much slower depends on who else runs here.
    first = got["tables"]["first operations"]["columns"]
    assert first["p50_ms"] == [60]
    assert 59 < first["p50_clone_ms"][0] < 200
    spans = read_spans(tmp_path / "shop" / "spans.json")
    found = find_visits(spans)
    assert {one.is_queued for one in found.visits} == {False, True}
    assert {(one.request_bytes, one.response_bytes) for one in found.visits} == {
        (0, 0),
        (200, 3008),
    }
    queued = next(one for one in found.visits if one.is_queued)
    assert queued.start_ns - found.visits[queued.parent].start_ns > 69 * MS
    assert not [s for s in SECRETS if s in (tmp_path / "shop" / "spans.json").read_text().lower()]


def test_too_high_a_rate_is_lowered_and_cpu_time_is_spent():
    made = Recording()
    for _ in range(12):
        front = made.request("a", "x", 0, 8)
        made.call(front, "b", "y", 2, 4)
    model = topology.make_model(made.rows.build("made up"), name="busy", cpu_share=0.5)
    ran = topology.run(model, seconds=1.0, rate=1e5)
    (note,) = (note for note in ran.notes if note.startswith("Slowed down"))
    assert "overload" in note
    assert all(one.cpu_limit for one in model.app.services.values())
    assert ran.rate < 1000
    assert ran.cores * ran.seconds > 0.8 * ran.seen.requests * 4e-3
    assert topology.compare(model.original, ran.seen).has_same_graph


def test_a_served_clone_answers_any_client(model):
    addresses, may_end, answers = [], threading.Event(), []

    def ask():
        until(lambda: addresses or may_end.is_set())
        for address in addresses:
            with urllib.request.urlopen(address, timeout=60) as got:
                answers.append(got.read())
        may_end.set()

    client = threading.Thread(target=ask)
    client.start()
    try:
        topology.serve(model, seed=0, say=addresses.append, wait=may_end.wait)
    finally:
        may_end.set()
        client.join()
    assert answers == [b"ok\n"]
    assert addresses[0].endswith("/op-1")


# -- other people's traces ------------------------------------------------------------------------


def test_deathstarbench(public_data, tmp_path, capsys):
    traces = public_data / "services/deathstarbench/jaeger-traces-socialnetwork.json.gz"
    got = answer(capsys, "clone", "topology", traces, "-o", tmp_path / "shop")
    assert got["figures"]["tiers"] == 21
    text = "".join(f.read_text() for f in (tmp_path / "shop").iterdir()).lower()
    assert not [w for w in ("compose", "nginx", "mongo", "timeline", "wrk2") if w in text]
    model = topology.read_folder(tmp_path / "shop")
    found = topology.compare(model.original, topology.run(model, seconds=4.0, rate=25.0).seen)
    assert found.has_same_graph
    assert found.has_same_rates
    assert found.worst_error_pct(50) < 50


@pytest.mark.parametrize(
    ("day", "tiers", "edges"), [("2022-08-22", 12, 23), ("2023-01-29", 48, 135)]
)
def test_nezha_without_processes(public_data, tmp_path, day, tiers, edges):
    with tarfile.open(public_data / "services" / "nezha" / f"{day}.tar.xz") as archive:
        some = [one for one in archive.getmembers() if "/trace/" in one.name and one.isfile()]
        archive.extractall(tmp_path, members=some, filter="data")
    model = topology.make_model(read_spans(tmp_path), name="nezha")
    assert len(model.shapes.tiers) == tiers
    assert sum(one.caller is not None for one in model.original.edges) == edges
    found = topology.compare(model.original, call_graph(recorded(model.shapes)))
    assert found.matches
    assert abs(found.worst_error_pct(50)) < 2
    assert abs(found.worst_error_pct(99)) < 2
