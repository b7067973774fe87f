"""Files of spans: every format gives the same columns, and damage is counted or refused."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import tarfile

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.ingest.spans.read import read_spans
from gnomon.ingest.spans.span_table import service_of_pod
from gnomon.ingest.spans.spans import (
    CLIENT,
    CONSUMER,
    INTERNAL,
    KINDS,
    PRODUCER,
    SERVER,
    SpanRows,
    peer_of,
)
from tests.ingest.samples import JAEGER, ZIPKIN, otlp, otlp_protobuf, write_sample

T0 = 1_794_766_704_000_000_000


def summary(spans):
    return [
        (spans.services[s], spans.operations[o], KINDS[k], int(a - T0), int(b - T0), bool(e), int(p))
        for s, o, k, a, b, e, p in zip(
            spans.service, spans.operation, spans.kind, spans.start_ns, spans.end_ns, spans.is_error, spans.parent
        )
    ]  # fmt: skip


def write(tmp_path, value, name="a.json"):
    (tmp_path / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return tmp_path / name


def test_jaeger(tmp_path):
    spans = read_spans(write_sample("jaeger", tmp_path))
    assert summary(spans) == [
        ("web", "GET /", "server", 0, 900_000, False, -1), ("cart", "get", "server", 100_000, 500_000, False, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("shape", ["trace", "traces", "spans", "lines", "elasticsearch", "nested"])
def test_jaeger_in_other_shapes(tmp_path, shape):
    trace = copy.deepcopy(JAEGER["data"][0])
    expected = summary(read_spans(write(tmp_path, JAEGER)))
    flat = [{**span, "process": trace["processes"][span["processID"]]} for span in trace["spans"]]
    for span in flat:
        del span["processID"]
    nested = copy.deepcopy(JAEGER)
    nested["data"][0]["spans"][1]["references"][0]["span"] = trace["spans"][0]
    text = {
        "trace": json.dumps(trace), "traces": json.dumps([trace]), "spans": json.dumps(flat),
        "lines": "\n".join(json.dumps(span) for span in flat) + "\n",
        "elasticsearch": json.dumps({"hits": {"hits": [{"_source": span} for span in flat]}}),
        "nested": json.dumps(nested),
    }[shape]  # fmt: skip
    assert summary(read_spans(write(tmp_path, text))) == expected


def test_jaeger_keeps_tags_that_matter(tmp_path):
    changed = copy.deepcopy(JAEGER)
    span = changed["data"][0]["spans"][1]
    span["processID"] = "p1"
    span["tags"] = [
        {"key": "span.kind", "value": "client"}, {"key": "error", "value": True},
        {"key": "db.system", "value": "redis"}, {"key": "db.name", "value": "carts"},
    ]  # fmt: skip
    spans = read_spans(write(tmp_path, changed))
    assert summary(spans)[1][2] == "client"
    assert spans.is_error.tolist() == [False, True]
    assert spans.peers[spans.peer[1]] == "redis-carts"


def test_zipkin_with_shared_ids(tmp_path):
    """Both ends of a call may carry one id; children of the callee name that id too."""
    spans = [
        {"traceId": "000000000000001a", "id": "1", "kind": "CLIENT", "name": "get", "timestamp": 1_000_000,
         "duration": 900, "localEndpoint": {"serviceName": "web"}},
        {"traceId": "1a", "id": "1", "kind": "SERVER", "shared": True, "name": "get", "timestamp": 1_000_100,
         "duration": 700, "localEndpoint": {"serviceName": "cart"}},
        {"traceId": "1a", "id": "2", "parentId": "1", "name": "inside", "timestamp": 1_000_200,
         "duration": 100, "localEndpoint": {"serviceName": "cart"}},
    ]  # fmt: skip
    read = read_spans(write(tmp_path, [spans]))
    assert read.traces == 1
    assert [read.services[s] for s in read.service] == ["web", "cart", "cart"]
    assert read.parent.tolist() == [-1, 0, 1]


def test_zipkin_peers_and_errors(tmp_path):
    spans = read_spans(write(tmp_path, ZIPKIN))
    assert [spans.peers[p] for p in spans.peer] == ["", "redis"]
    assert spans.is_error.tolist() == [False, True]


def snake(value):
    if isinstance(value, dict):
        return {
            "".join(f"_{c.lower()}" if c.isupper() else c for c in key): snake(v)
            for key, v in value.items()
        }
    return [snake(one) for one in value] if isinstance(value, list) else value


def in_base64(document):
    changed = copy.deepcopy(document)
    for span in changed["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
        span["kind"] = {2: "SPAN_KIND_SERVER", 3: "SPAN_KIND_CLIENT"}[span["kind"]]
        span["startTimeUnixNano"] = int(span["startTimeUnixNano"])
    return changed


def batches(document):
    resource = copy.deepcopy(document["resourceSpans"][0])
    resource["instrumentationLibrarySpans"] = resource.pop("scopeSpans")
    return {"batches": [resource]}


OTLP = [
    ("web", "GET /", "server", 0, 900_000, False, -1),
    ("web", "GET", "client", 0, 400_000, True, 0),
]


@pytest.mark.parametrize(
    "change",
    [
        dict,
        snake,
        in_base64,
        batches,
        lambda d: {"result": d},
        lambda d: {"trace": d},
        lambda d: [d],
    ],
)
def test_otlp_in_all_spellings(tmp_path, change):
    spans = read_spans(write(tmp_path, change(otlp())))
    assert summary(spans) == OTLP
    assert spans.peers[spans.peer[1]] == "web-redis"


def test_otlp_of_a_file_exporter_is_a_document_a_line(tmp_path):
    one, other = otlp(), otlp(traceId="5b8efff798038103d269b633813fc60d", parentSpanId="")
    path = tmp_path / "traces.jsonl.gz"
    path.write_bytes(gzip.compress(f"{json.dumps(one)}\n\n{json.dumps(other)}\n".encode()))
    spans = read_spans(path)
    assert spans.traces == 2
    assert spans.counts == {"spans that repeat another": 1}
    path.write_bytes(gzip.compress(f"{json.dumps(one)}\n{json.dumps(other)[:-9]}".encode()))
    with pytest.raises(InputError, match=r"line 2: is no JSON: .*cut short"):
        read_spans(path)


def test_otlp_protobuf(tmp_path):
    path = tmp_path / "a.pb"
    path.write_bytes(otlp_protobuf())
    spans = read_spans(path)
    assert [row[:4] for row in summary(spans)] == [row[:4] for row in OTLP]
    assert spans.is_error.tolist() == [False, True]
    assert spans.peers[spans.peer[1]] == "web-redis"
    one = otlp_protobuf()
    length = bytes([len(one) & 127 | 128, len(one) >> 7])
    path.write_bytes((length + one) * 3)
    again = read_spans(path)
    assert len(again) == 2
    assert again.counts == {"spans that repeat another": 4}
    path.write_bytes(length + one[:-3])
    with pytest.raises(InputError, match="ends early; was the file cut short"):
        read_spans(path)


def test_tables_of_spans_and_of_calls(tmp_path):
    spans = read_spans(write_sample("span-table", tmp_path))
    assert [row[:2] for row in summary(spans)] == [("web", "GET /"), ("cart", "get")]
    calls = (
        "traceId,traceTime,startTime,endTime,parentId,childId,childOperation,parentOperation,childMS,childPod,"
        "parentMS,parentPod,parentDuration,childDuration\n"
        "1a,1794766704000000,1794766704000100,1794766704000500,1,2,get,GET /,cart,cart,web,web,900,400\n"
    )
    spans = read_spans(write(tmp_path, calls))
    assert summary(spans) == [
        ("web", "GET /", "internal", 0, 900_000, False, -1), ("cart", "get", "internal", 100_000, 500_000, False, 0),
    ]  # fmt: skip
    with pytest.raises(InputError, match="line 3: 2 cells where the header has 14"):
        read_spans(write(tmp_path, calls + "1a,2\n"))


def test_folders_patterns_and_lists(tmp_path):
    write(tmp_path, JAEGER, "a.json")
    write(tmp_path, ZIPKIN, "b.json")
    write(tmp_path, "nothing\n", "README")
    spans = read_spans(tmp_path)
    assert spans.traces == 1  # both call their trace 1a
    assert spans.counts == {"files without spans": 1, "spans that repeat another": 1}
    assert len(read_spans(str(tmp_path / "*.json"))) == len(spans)
    assert len(read_spans([tmp_path / "a.json", tmp_path / "b.json"])) == len(spans)
    with pytest.raises(InputError, match="holds no spans of a known kind"):
        read_spans(tmp_path / "README")
    with pytest.raises(InputError, match="names no file"):
        read_spans(str(tmp_path / "*.pb"))
    with pytest.raises(InputError, match="cannot be read"):
        read_spans(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [{"traceID": "1", "spans": []}]}', "there is no span in it"),
        (
            '{"data": [{"traceID": "1", "spans": [{"spanID": "1", "traceID": "1"}]}]}',
            "1 spans without times",
        ),
        ('{"data": [{"traceID": "1", "spans": [', "is no JSON"),
        ('{"resourceSpans": 7}', "there is no span"),
    ],
)
def test_files_without_spans_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_spans(write(tmp_path, text))


# -- building -------------------------------------------------------------------------------------


def build(*spans):
    rows = SpanRows()
    for id, parent, service, kind, start, end in spans:
        rows.add("t", id, parent, service, "op", kind, start, end)
    return rows.build("x")


def test_what_cannot_be_a_span_is_counted():
    rows = SpanRows()
    rows.add("", "1", "", "a", "op", SERVER, 1, 2)
    rows.add("t", None, "", "a", "op", SERVER, 1, 2)
    rows.add("t", "1", "", "a", "op", SERVER, None, 2)
    rows.add("t", "2", "", "a", "op", SERVER, -5, 2)
    rows.add("t", "3", "", "a", "op", SERVER, 2**63, 2**63 + 1)
    rows.add("t", "4", "", "a", "op", SERVER, 0, 10**18)
    rows.add("t", "5", "", "  ", "op", SERVER, 9, 2)
    spans = rows.build("x")
    assert len(spans) == 1
    assert spans.services == ("unknown",)
    assert spans.counts == {
        "spans without an id": 2, "spans without times": 1, "spans with times that cannot be": 3,
        "spans that ended before they began, taken as instants": 1, "spans without a service": 1,
    }  # fmt: skip


def test_cycles_are_cut_and_counted():
    spans = build(("1", "2", "a", SERVER, 1, 9), ("2", "3", "b", SERVER, 2, 8), ("3", "1", "c", SERVER, 3, 7),
                  ("4", "4", "d", SERVER, 1, 2), ("5", "3", "e", SERVER, 4, 5))  # fmt: skip
    assert len(spans) == 5
    assert (spans.parent < np.arange(5)).all()
    assert (spans.parent < 0).sum() == 2
    assert spans.counts["spans that are their own ancestors, taken as tops of partial traces"] == 2


def test_missing_parents_are_marked():
    spans = build(
        ("1", "", "a", SERVER, 1, 9),
        ("2", "77", "b", SERVER, 2, 8),
        ("3", "2", "b", INTERNAL, 3, 4),
    )
    assert spans.is_orphan.tolist() == [False, True, False]


def test_a_clock_that_is_off_moves_the_callee_and_what_is_below():
    # The callee's clock is a second behind; it is put into the middle of the caller's span of the call.
    off = -(10**9)
    spans = build(
        ("1", "", "a", SERVER, 2 * 10**9, 2 * 10**9 + 1000), ("2", "1", "a", CLIENT, 2 * 10**9 + 100, 2 * 10**9 + 900),
        ("3", "2", "b", SERVER, 2 * 10**9 + off, 2 * 10**9 + off + 600),
        ("4", "3", "b", INTERNAL, 2 * 10**9 + off + 50, 2 * 10**9 + off + 60),
    )  # fmt: skip
    assert (spans.start_ns - 2 * 10**9).tolist() == [0, 100, 200, 250]
    assert spans.counts == {"spans moved, for clocks that disagree": 1}


def test_work_that_goes_on_after_its_caller_is_not_moved():
    spans = build(("1", "", "a", SERVER, 1000, 2000), ("2", "1", "b", CONSUMER, 1900, 9000))
    assert spans.start_ns.tolist() == [1000, 1900]
    assert spans.counts == {}


@pytest.mark.parametrize(
    ("kind", "operation", "attributes", "peer"),
    [
        (CLIENT, "q", {"db.system": "mysql", "server.address": "orders-db:3306"}, "orders-db"),
        (CLIENT, "q", {"db.system.name": "mysql", "db.namespace": "orders"}, "mysql-orders"),
        (CLIENT, "q", {"db.type": "sql", "peer.address": "10.0.0.1"}, "web-sql"),
        (PRODUCER, "send", {"messaging.system": "kafka", "messaging.destination.name": "mail"}, "kafka-mail"),
        (CONSUMER, "take", {"messaging.system": "kafka", "messaging.destination.name": "mail"}, ""),
        (SERVER, "GET", {"peer.service": "who-called", "net.peer.name": "who-called"}, ""),
        (CLIENT, "GET", {"server.address": "api.example.com"}, "api.example.com"),
        (CLIENT, "GET", {"server.address": "127.0.0.1"}, ""),
        (INTERNAL, "url_mongo_insert_client", {}, "web-mongo"),
        (INTERNAL, "SELECT ts.orders", {}, "web-sql"),
        (INTERNAL, "compute_mongolia", {}, ""),
        (INTERNAL, "select", {}, ""),
    ],
)  # fmt: skip
def test_who_was_called(kind, operation, attributes, peer):
    assert peer_of(kind, "web", operation, attributes) == peer


def test_pods_are_of_services():
    pods = {
        "ts-station-food-service-dc4d75dd-fw6ft": "ts-station-food-service", "redis-0": "redis",
        "currencyservice-cf787dd48-vpjrd": "currencyservice", "user-timeline-redis": "user-timeline-redis", "a": "a",
    }  # fmt: skip
    assert {pod: service_of_pod(pod) for pod in pods} == pods


# -- what others recorded -------------------------------------------------------------------------


@pytest.mark.data
def test_social_network_as_json_and_as_a_table(public_data):
    folder = public_data / "services" / "deathstarbench"
    spans = read_spans(folder / "jaeger-traces-socialnetwork.json.gz")
    assert (len(spans), spans.traces, len(spans.services), spans.counts) == (660, 20, 12, {})
    table = read_spans(folder / "trace.csv")
    assert (len(table), table.traces) == (660, 20)
    assert (
        np.sort(table.end_ns - table.start_ns).tolist()
        == np.sort(spans.end_ns - spans.start_ns).tolist()
    )


@pytest.mark.data
def test_nezha(public_data, tmp_path):
    with tarfile.open(public_data / "services" / "nezha" / "2022-08-22.tar.xz") as archive:
        names = [name for name in archive.getnames() if name.endswith("03_53_trace.csv")]
        archive.extractall(tmp_path, names, filter="data")
    spans = read_spans(tmp_path)
    assert (len(spans), spans.traces, len(spans.services)) == (23019, 497, 10)
    assert spans.counts == {"spans moved, for clocks that disagree": 18}
