"""The door: spans of one service, options that do not apply."""

from __future__ import annotations

import json

import pytest

from gnomon.errors import InputError
from gnomon.ingest.samples.read import read_samples
from tests.ingest.samples import JAEGER, otlp, write_sample


def test_own_times_of_the_service_with_most_requests(tmp_path):
    path = tmp_path / "traces.json"
    spans = JAEGER["data"][0]["spans"]
    more = {**spans[1], "spanID": "3", "duration": 100, "operationName": "put"}
    path.write_text(json.dumps({"data": [{**JAEGER["data"][0], "spans": [*spans, more]}]}))
    samples = read_samples(path)
    assert samples.kinds == ("get", "put")  # of cart
    assert sorted(samples.time_ns.tolist()) == [100_000, 400_000]
    assert not samples.is_latency
    assert "Services by requests: cart (2), web (1); --service chooses another." in samples.notes
    web = read_samples(path, service="web")
    assert web.time_ns.tolist() == [500_000]  # 900 us, of which 400 in calls of cart
    with pytest.raises(InputError, match=r"no service 'shop'; there are cart \(2\), web \(1\)"):
        read_samples(path, service="shop")


def test_stores_are_no_services_to_choose(tmp_path):
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(otlp()))
    samples = read_samples(path)
    assert samples.time_ns.tolist() == [500_000]
    with pytest.raises(InputError, match="no service 'web-redis'"):
        read_samples(path, service="web-redis")


def test_requests_that_failed_are_left_out(tmp_path):
    path = tmp_path / "traces.json"
    error = [{"key": "error", "type": "bool", "value": True}]
    trace = json.loads(json.dumps(JAEGER))
    trace["data"][0]["spans"][1]["tags"] += error
    path.write_text(json.dumps(trace))
    with pytest.raises(InputError, match="no time in it; 1 requests that failed"):
        read_samples(path, service="cart")


@pytest.mark.parametrize("name", ["jaeger", "zipkin", "otlp", "span-table"])
def test_every_kind_of_spans_has_times(tmp_path, name):
    assert len(read_samples(write_sample(name, tmp_path))) >= 1


def test_a_service_that_only_waited_has_no_times(tmp_path):
    with pytest.raises(InputError, match="all times are zero"):
        read_samples(write_sample("otlp-protobuf", tmp_path))


def test_a_folder_of_traces(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(JAEGER))
    assert len(read_samples(tmp_path, service="web")) == 1


def test_options_that_do_not_apply(tmp_path):
    path = write_sample("jaeger", tmp_path)
    with pytest.raises(InputError, match="have their unit"):
        read_samples(path, unit="us")
    path.write_text("latency_ms\n5\n")
    with pytest.raises(InputError, match="in traces alone"):
        read_samples(path, service="web")
    with pytest.raises(InputError, match="no unit 'h'"):
        read_samples(path, unit="h")
