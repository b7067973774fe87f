"""Applications from spans: what was put in is found again."""

from __future__ import annotations

import itertools
import random
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.graph.application import Call, as_work
from gnomon.ingest.services.application_file import parse_application, to_yaml
from gnomon.ingest.services.pod_metrics import read_pod_metrics
from gnomon.ingest.spans import infer
from gnomon.ingest.spans.calls import find_visits
from gnomon.ingest.spans.infer import infer_application
from gnomon.ingest.spans.read import read_spans
from gnomon.ingest.spans.spans import CLIENT, CONSUMER, INTERNAL, PRODUCER, SERVER, SpanRows
from tests.strategies_applications import applications

MS = 1_000_000


class Recorder:
    """Records requests as a tracer would: a client's and a server's span for each call."""

    def __init__(self, seed=0, network_ms=0.0, pairs=True):
        self.rows, self.rng = SpanRows(), random.Random(seed)
        self.network_ns, self.pairs = round(network_ms * MS), pairs
        self.ids = itertools.count(1)
        self.end_ns = 0

    def request(self, call: Call, at_ns: int) -> None:
        self.trace = f"{next(self.ids):x}"
        self.serve(call, at_ns, "")

    def serve(self, call, start, parent, kind=SERVER):
        id, now = str(next(self.ids)), start
        own = as_work(call.cpu_ms).average + as_work(call.wait_ms).average
        now += round(own * MS)
        for stage in call.then:
            ends = [now]
            for one in stage:
                if self.rng.random() >= one.probability:
                    continue
                if one.mode == "queue":
                    sent = str(next(self.ids))
                    self.add(sent, id, call, "send", PRODUCER, now, now)
                    self.serve(one, now + self.network_ns, sent, CONSUMER)
                    continue
                sent = str(next(self.ids)) if self.pairs else id
                done = self.serve(one, now + self.network_ns, sent) + self.network_ns
                if self.pairs:
                    self.add(sent, id, call, f"call {one.service}", CLIENT, now, done)
                ends.append(done)
            now = max(ends)
        is_error = self.rng.random() < call.error_share
        self.add(id, parent, call, call.operation, kind, start, now, is_error)
        return now

    def add(self, id, parent, call, operation, kind, start, end, is_error=False):
        self.rows.add(
            self.trace, id, parent, call.service, operation, kind, start, end, is_error=is_error
        )

    def spans(self):
        return self.rows.build("recorded")


SHOP = Call("web", 2.0, operation="GET /", then=(
    (Call("auth", 1.0, operation="check"),),
    (Call("cart", 3.0, operation="get", then=((Call("db", 5.0, operation="find", probability=0.25),),)),
     Call("offers", 4.0, operation="list", error_share=0.1)),
    (Call("mail", 7.0, operation="send", mode="queue"),),
))  # fmt: skip


def record(call=SHOP, count=400, gap_ms=20.0, **kinds):
    recorder = Recorder(**kinds)
    for i in range(count):
        recorder.request(call, 10**18 + round(i * gap_ms * MS))
    return recorder.spans()


@pytest.mark.parametrize("pairs", [True, False])
def test_what_was_recorded_is_found(pairs):
    found = infer_application(record(pairs=pairs, network_ms=0.25 if pairs else 0.0))
    (one,) = found.app.classes.values()
    assert list(found.app.classes) == ["GET /"]
    assert found.app.rate == pytest.approx(50.0, rel=0.01)
    assert found.app.network_ms == (0.25 if pairs else 0.0)
    root = one.call
    assert [[call.service for call in stage] for stage in root.then] == [
        ["auth"],
        ["cart", "offers"],
        ["mail"],
    ]
    (auth,), (cart, offers), (mail,) = root.then
    assert (root.wait_ms, auth.wait_ms, cart.wait_ms, offers.wait_ms, mail.wait_ms) == (
        2.0,
        1.0,
        3.0,
        4.0,
        7.0,
    )
    assert (mail.mode, cart.mode, root.cpu_ms) == ("queue", "rpc", 0.0)
    assert cart.then[0][0].probability == pytest.approx(0.25, abs=0.07)
    assert offers.error_share == pytest.approx(0.1, abs=0.05)
    assert root.error_share == cart.error_share == 0.0
    assert one.sla is None


def test_latency_as_recorded_is_kept():
    found = infer_application(record())
    latency = found.recorded["GET /"]
    assert len(latency) == 400
    assert set(latency.tolist()) <= {7.0, 11.0}  # offers, or cart with its store, is the longer


def test_cpu_time_comes_from_cores_or_a_share():
    spans = record()
    half = infer_application(spans, cpu_share=0.5).app.classes["GET /"].call
    assert (half.cpu_ms, half.wait_ms) == (1.0, 1.0)
    # 50 requests/s of 1 ms at auth: 0.02 cores are 0.4 of its time. More than all is all.
    known = infer_application(spans, cores={"auth": 0.02, "cart": 9.0})
    (auth,), (cart, _), _ = known.app.classes["GET /"].call.then
    assert auth.cpu_ms == pytest.approx(0.4, rel=0.01)
    assert auth.wait_ms == pytest.approx(0.6, rel=0.01)
    assert (cart.cpu_ms, cart.wait_ms) == (3.0, 0.0)
    assert known.app.cpu_demand("auth") == pytest.approx(0.02, rel=0.01)
    assert any(
        "more CPU time than their spans took" in note and "cart" in note for note in known.notes
    )
    assert any("0% of the time of 4 services" in note for note in known.notes)


def test_sampling_scales_the_rate():
    assert infer_application(record(), sampling=0.1).app.rate == pytest.approx(500.0, rel=0.01)
    # The cores were used by all requests, traced or not.
    known = infer_application(record(), cores={"auth": 0.02}, sampling=0.1)
    assert known.app.cpu_demand("auth") == pytest.approx(0.02, rel=0.01)
    with pytest.raises(InputError, match=r"sampling is 0; it is 1e-09 to 1"):
        infer_application(record(), sampling=0.0)


def test_pauses_between_recordings_do_not_count():
    recorder = Recorder()
    for begin_s in (0, 600, 1800):
        for i in range(50):
            recorder.request(
                Call("web", 1.0, operation="x"), 10**18 + (begin_s * 1000 + 10 * i) * MS
            )
    found = infer_application(recorder.spans())
    assert found.app.rate == pytest.approx(100.0, rel=0.01)
    assert "The rate leaves out 2 pauses between recordings." in found.notes


def test_times_vary_as_they_did():
    recorder, rng = Recorder(), np.random.default_rng(0)
    samples = rng.lognormal(1.0, 1.0, 3000)
    for i, ms in enumerate(samples):
        recorder.request(Call("web", float(ms), operation="x"), 10**18 + i * 10 * MS)
    work = infer_application(recorder.spans()).app.classes["x"].call.wait_ms
    assert work.average == pytest.approx(samples.mean(), rel=1e-4)
    for p in (10.0, 50.0, 90.0, 99.0):
        assert work.quantiles[p] == pytest.approx(np.percentile(samples, p), rel=0.03)


def test_classes_are_by_first_operation_and_rare_ones_are_left_out():
    recorder = Recorder()
    for i in range(1000):
        name = "rare" if i == 7 else ("a", "a", "b")[i % 3]
        recorder.request(Call("web", 1.0, operation=f"/{name}/{i}"), 10**18 + i * MS)
    found = infer_application(recorder.spans())
    assert list(found.app.classes) == ["/a/{id}", "/b/{id}"]
    assert found.app.shares()["/a/{id}"] == pytest.approx(2 / 3, abs=0.01)
    assert found.counts["rare classes left out"] == 1


def test_one_entry_point_of_several_pages_is_several_classes():
    recorder = Recorder()
    home = ((Call("a", 2.0, operation="list"),), (Call("c", 1.0, operation="ads"),))
    item = ((Call("b", 2.0, operation="get"),),)
    for i in range(90):
        then = item if i % 3 == 0 else home
        recorder.request(Call("web", 1.0, operation="any", then=then), 10**18 + i * MS)
    found = infer_application(recorder.spans())
    assert {name: [call.service for call in one.call.walk()] for name, one in found.app.classes.items()} == {
        "any 1": ["web", "a", "c"], "any get": ["web", "b"],
    }  # fmt: skip
    assert found.app.shares()["any get"] == pytest.approx(1 / 3)
    assert found.counts == {"classes with one first operation, separated by whom they call": 2}


def test_no_request_is_lost_where_names_meet():
    recorder = Recorder()
    names = ["any", "any", "any 1", "any 2"]
    for i in range(200):
        then = ((Call("ab"[i // 4 % 2], 2.0, operation="x"),),)
        recorder.request(Call("web", 1.0, operation=names[i % 4], then=then), 10**18 + i * MS)
    found = infer_application(recorder.spans())
    assert sum(map(len, found.recorded.values())) == 200


def test_partial_traces_are_counted():
    rows = SpanRows()
    rows.add("1", "b", "gone", "web", "x", SERVER, 10, 90)
    rows.add("1", "c", "b", "db", "y", SERVER, 20, 30)
    rows.add("1", "d", "also gone", "mail", "z", SERVER, 40, 50)
    visits = find_visits(rows.build("x"))
    assert [visit.service for visit in visits.visits] == ["web", "db"]
    assert visits.counts == {
        "traces without their first span, begun at the earliest that is there": 1,
        "spans of parts of traces whose caller is missing, left out": 1,
    }


def test_stores_and_services_that_were_not_traced_are_services():
    rows = SpanRows()
    rows.add("1", "a", "", "web", "GET /", SERVER, 0, 100)
    rows.add("1", "b", "a", "web", "GET", CLIENT, 10, 30, peer="redis")
    rows.add("1", "c", "a", "web", "repository.find", INTERNAL, 40, 90, peer="")
    rows.add("1", "d", "c", "web", "SELECT x.y", INTERNAL, 50, 80, peer="web-sql")
    rows.add("1", "e", "d", "web", "SELECT driver", INTERNAL, 55, 75, peer="web-sql")
    found = find_visits(rows.build("x"))
    assert [(v.service, v.exclusive_ns) for v in found.visits] == [
        ("web", 50),
        ("redis", 20),
        ("web-sql", 30),
    ]
    assert found.counts == {"calls of stores that are known by the name of a span only": 1}


def test_a_service_that_calls_itself():
    rows = SpanRows()
    rows.add("1", "a", "", "web", "x", SERVER, 0, 100)
    rows.add("1", "b", "a", "web", "call", CLIENT, 10, 60)
    rows.add("1", "c", "b", "web", "y", SERVER, 20, 50)
    first, second = find_visits(rows.build("x")).visits
    assert (first.exclusive_ns, second.exclusive_ns, second.network_ns) == (50, 30, 20)


def test_children_that_overlap_in_most_requests_are_parallel():
    def recorded(overlapping):
        rows = SpanRows()
        for i in range(10):
            at, is_parallel = 10**9 * (i + 1), i < overlapping
            rows.add(i + 1, "a", "", "web", "x", SERVER, at, at + 100)
            rows.add(i + 1, "b", "a", "one", "x", SERVER, at + 10, at + 40)
            rows.add(
                i + 1, "c", "a", "two", "x", SERVER, at + (30 if is_parallel else 50), at + 80
            )
        return infer_application(rows.build("x")).app.classes["x"].call.then

    assert [len(stage) for stage in recorded(6)] == [2]
    assert [len(stage) for stage in recorded(5)] == [1, 1]


def test_traces_of_one_span_and_of_no_length():
    rows = SpanRows()
    rows.add("1", "a", "", "web", "x", SERVER, 5, 5)
    found = infer_application(rows.build("x"))
    assert found.app.rate == 1.0
    assert found.app.classes["x"].call == Call("web", operation="x")


def test_loops_and_chains_without_end_are_cut_and_counted(monkeypatch):
    monkeypatch.setattr(infer, "_MOST_CALLS", 2000)
    rows = SpanRows()
    rows.add("1", "top", "", "web", "x", SERVER, 0, 10**9)
    for i in range(3000):
        rows.add("1", f"{i + 1:x}", "top", f"s{i % 7}", "get", SERVER, 10 * i, 10 * i + 5)
    rows.add("2", "b0", "", "deep", "y", SERVER, 0, 10**6)
    for i in range(1, 3000):
        rows.add(
            "2",
            f"b{i:x}",
            f"b{i - 1:x}" if i > 1 else "b0",
            f"s{i % 7}",
            "get",
            SERVER,
            i,
            10**6 - i,
        )
    found = infer_application(rows.build("x"))
    sizes = {name: sum(1 for _ in one.call.walk()) for name, one in found.app.classes.items()}
    assert sizes == {"x": 2000, "y": 150}
    assert found.counts["calls left out of trees that are too large"] == 1001 + 1
    assert parse_application(to_yaml(found.app)) == found.app


@given(applications(calls=8), st.booleans())
def test_prop_calls_at_each_service_are_found_again(app, pairs):
    """Whatever the tree, the mean number of calls and the time at each service are those recorded."""
    recorder = Recorder(pairs=pairs)
    visits: dict[str, int] = {}
    for one in app.classes.values():
        for i in range(5):
            recorder.request(one.call, 10**18 + i * 10**9)
    spans = recorder.spans()
    found = infer_application(spans, rare=0.0)
    for visit in find_visits(spans).visits:
        visits[visit.service] = visits.get(visit.service, 0) + 1
    requests = 5 * len(app.classes)
    shares = found.app.shares()
    for service, count in visits.items():
        mean = sum(shares[name] * by.get(service, 0.0) for name, by in found.app.visits().items())
        assert mean == pytest.approx(count / requests, rel=1e-3)
    assert parse_application(to_yaml(found.app)) == found.app


# -- what others recorded -------------------------------------------------------------------------


def latency_ms(call, rng, n, network_ms):
    """Of the tree alone, without any queueing: what the inferred times say together."""
    total = sum(_draw(time, rng, n) for time in (call.cpu_ms, call.wait_ms))
    for stage in call.then:
        longest = np.zeros(n)
        for one in stage:
            if one.mode == "rpc":
                took = latency_ms(one, rng, n, network_ms) + 2 * network_ms
                longest = np.maximum(longest, took * (rng.random(n) < one.probability))
        total = total + longest
    return total


def _draw(time, rng, n):
    work = as_work(time)
    if not work.quantiles:
        return np.full(n, work.mean)
    points = sorted(work.quantiles.items())
    return np.interp(100 * rng.random(n), [p for p, _ in points], [v for _, v in points])


def _mean_errors(found):
    rng = np.random.default_rng(0)
    for name, one in found.app.classes.items():
        mean = latency_ms(one.call, rng, 4000, found.app.network_ms).mean()
        yield name, mean / found.recorded[name].mean() - 1


@pytest.mark.data
def test_social_network(public_data):
    """20 traces of compose-post: 12 services and 9 stores, recorded mean 4.93 ms."""
    spans = read_spans(
        public_data / "services" / "deathstarbench" / "jaeger-traces-socialnetwork.json.gz"
    )
    found = infer_application(spans)
    assert len(found.app.services) == 21
    assert found.counts == {"calls of stores that are known by the name of a span only": 180}
    ((name, error),) = _mean_errors(found)
    assert name == "/wrk2-api/post/compose"
    assert found.recorded[name].mean() == pytest.approx(4.925, abs=0.01)
    assert abs(error) < 0.02
    text = next(
        call for call in found.app.classes[name].call.walk() if call.service == "text-service"
    )
    assert [{call.service for call in stage} for stage in text.then] == [
        {"url-shorten-service", "user-mention-service"}
    ]


@pytest.mark.data
@pytest.mark.parametrize(
    ("day", "services", "classes", "requests"),
    [
        pytest.param("2022-08-22", 12, 6, 4806, marks=pytest.mark.slow),
        ("2023-01-29", 48, 10, 787),
    ],
)
def test_nezha(public_data, tmp_path, day, services, classes, requests):
    """Online Boutique and Train Ticket: means of all classes within 5 % of those recorded."""
    with tarfile.open(public_data / "services" / "nezha" / f"{day}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    cores = read_pod_metrics(tmp_path / day / "metric").cores
    found = infer_application(read_spans(tmp_path / day / "trace"), cores=cores)
    assert (len(found.app.services), len(found.app.classes)) == (services, classes)
    assert sum(map(len, found.recorded.values())) == requests
    for name, error in _mean_errors(found):
        assert abs(error) < 0.05, name
    for service in found.app.services:
        if service in cores:
            assert found.app.cpu_demand(service) <= 1.03 * cores[service]
