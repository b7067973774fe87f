"""Windows from Prometheus: from a real one, and from answers that are wrong in some way."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.act.metric_profile import Profile, bundled_profiles, parse_profile, read_profile
from gnomon.act.prometheus import Observation, _share_above, observe_window
from gnomon.decide.services.state import PERCENTILES, Window
from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla
from gnomon.ingest.http_json import RequestFailed
from gnomon.ingest.metrics.prometheus import Prometheus, PrometheusSeries, parse_answer
from tests.act.real_prometheus import Exporter, exporting, scraping
from tests.waiting import until

APP = Application(
    "shop", {"web": Service(), "db": Service()},
    {"browse": RequestClass(Call("web", then=((Call("db"),),)), sla=Sla(30.0)), "buy": RequestClass(Call("web"))},
)  # fmt: skip
NOW_S = 1_000.0


class Told:
    """A client that answers by the metric in the query: labels and values, or a failure."""

    def __init__(self, answers, at_s=NOW_S, warnings=()):
        self.answers, self.at_s, self.warnings, self.asked = answers, at_s, warnings, []

    def query(self, promql, at_s, *, timeout_s):
        self.asked.append(promql)
        found = next((a for name, a in self.answers.items() if name in promql), [])
        if isinstance(found, Exception):
            raise found
        rows = [{"metric": labels, "value": [self.at_s, value]} for labels, value in found]
        return self._answer("vector", rows)

    def query_range(self, promql, start_s, end_s, step_s, *, timeout_s):
        found = next((a for name, a in self.answers.items() if name in promql), [])
        times = np.arange(start_s, end_s + step_s / 2, step_s).tolist()
        rows = [
            {"metric": labels, "values": [[t, value] for t in times]} for labels, value in found
        ]
        return self._answer("matrix", rows)

    def _answer(self, kind, rows):
        raw = {
            "status": "success",
            "warnings": self.warnings,
            "data": {"resultType": kind, "result": rows},
        }
        return parse_answer(json.dumps(raw).encode(), "told")


LAB = read_profile("lab")
CPU = "gnomon_lab_cpu_usage_seconds_total"


def observed(answers, profile=LAB, **more):
    return observe_window(Told(answers, **more), APP, profile, NOW_S)


def why(seen, what):
    (line,) = [one for one in seen.missing if one.startswith(what)]
    return line


@pytest.mark.parametrize(
    ("answers", "more", "reason"),
    [
        ({CPU: [({"service": "web"}, "NaN")]}, {}, "usage of web: the value is nan"),
        ({CPU: [({"service": "web"}, "+Inf")]}, {}, "usage of web: the value is inf"),
        ({CPU: [({"service": "web"}, "-1")]}, {}, "usage of web: the value is -1"),
        ({CPU: [({"service": "other"}, "1")]}, {}, "usage of web: no series"),
        ({CPU: [({}, "1")]}, {}, "usage of web: no series"),
        ({CPU: [({"service": "web"}, "1"), ({"service": "web", "pod": "b"}, "2")]}, {}, "usage of web: 2 series: the query must aggregate"),
        ({CPU: [({"service": "web"}, "1")]}, {"at_s": NOW_S - 31}, "usage of web: the sample is 31 s old"),
        ({CPU: []}, {}, "usage: the answer is empty"),
        ({CPU: RequestFailed("x answered 500")}, {}, "usage: x answered 500"),
    ],
    ids=["nan", "inf", "negative", "other", "no-label", "several", "stale", "empty", "failed"],
)  # fmt: skip
def test_what_is_missing_is_nan_with_a_reason(answers, more, reason):
    seen = observed(answers, **more)
    assert np.isnan(seen.window.usage).all()
    assert why(seen, reason.split(":")[0]) == reason
    assert seen.is_empty


def test_nothing_at_all():
    seen = observed({})
    assert isinstance(seen.window, Window)
    assert seen.is_empty
    assert seen.window.replicas.tolist() == [-1, -1]
    assert seen.window.class_ms.shape == (len(PERCENTILES), 2)
    assert np.isnan(seen.window.utilisation).all()


def test_infinity_is_a_limit_and_warnings_are_passed_on():
    answers = {"cpu_limit": [({"service": "web"}, "+Inf"), ({"service": "db"}, "0.5")],
               "lab_replicas": [({"service": "web"}, "3")], CPU: [({"service": "db"}, "0.2")]}  # fmt: skip
    seen = observed(answers, warnings=["a store is away"])
    assert seen.window.cpu_limit[0] == math.inf
    assert seen.window.replicas.tolist() == [3, -1]
    assert math.isnan(seen.window.cpu_limit[1])  # of how many replicas?
    assert seen.warnings == ("a store is away",)
    assert not seen.is_empty


def test_queries_that_do_not_get_their_turn():
    ticks = iter(range(100))
    told = Told({CPU: [({"service": "web"}, "1")]})
    seen = observe_window(told, APP, LAB, NOW_S, timeout_s=3.5, clock=lambda: next(ticks))
    assert len(told.asked) == 3
    assert "queue: out of time" in seen.missing


def test_classes_that_a_metric_does_not_tell_apart():
    profile = parse_profile("extends: istio\nvariables: {namespace: shop}")
    rates = {"istio_requests_total": [({"destination_workload": "web"}, "7")]}
    seen = observed(rates, profile)
    assert np.isnan(seen.window.class_rate).all()
    assert "class_rate of buy: other classes enter there too" in seen.missing
    alone = Application("one", {"web": Service()}, {"get": RequestClass(Call("web"))})
    assert observe_window(Told(rates), alone, profile, NOW_S).window.class_rate.tolist() == [7]


def test_other_names_in_the_labels():
    profile = parse_profile(
        "extends: opentelemetry\nservices: {web: frontend}\nclasses: {browse: /items}"
    )
    rates = {"http_server": [({"service_name": "frontend", "http_route": "/items"}, "7"),
                             ({"service_name": "frontend", "http_route": "buy"}, "2")]}  # fmt: skip
    assert observed(rates, profile).window.class_rate.tolist() == [7, 2]


def test_slices_of_a_window():
    profile = parse_profile("extends: lab\nslice_s: 10")
    seen = observed({CPU: [({"service": "db"}, "0.5")]}, profile)
    assert seen.window.usage_samples.shape == (3, 2)
    assert seen.window.usage_samples[:, 1].tolist() == [0.5] * 3
    assert observed({CPU: [({"service": "db"}, "0.5")]}).window.usage_samples.shape == (1, 2)


def buckets(counts):
    return [PrometheusSeries("", {"le": le}, [0.0], [count]) for le, count in counts.items()]


def test_the_share_of_requests_above_a_bound():
    histogram = buckets({"0.01": 50.0, "0.1": 90.0, "+Inf": 100.0})
    assert _share_above(histogram, 0.01) == pytest.approx(0.5)
    assert _share_above(histogram, 0.055) == pytest.approx(0.3)
    assert _share_above(histogram, 5.0) == pytest.approx(0.1)  # what is above the last edge
    assert math.isnan(_share_above(buckets({"0.1": 3.0}), 0.1))
    assert math.isnan(_share_above(buckets({"+Inf": 0.0}), 0.1))
    assert math.isnan(_share_above(buckets({"wide": 1.0}), 0.1))


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8), st.floats(0, 20), st.floats(0, 20))
def test_prop_shares_fall_with_the_bound(counts, one, other):
    total = np.cumsum(counts)
    edges = [*(str(i + 1) for i in range(len(counts) - 1)), "+Inf"]
    shares = [
        _share_above(buckets(dict(zip(edges, total))), bound) for bound in sorted((one, other))
    ]
    if total[-1] > 0:
        assert 1 >= shares[0] >= shares[1] >= 0


@pytest.mark.parametrize("name", bundled_profiles())
def test_bundled_profiles_are_complete(name):
    profile = read_profile(name)
    assert {"usage", "cpu_limit", "replicas", "throttled"} <= set(profile.metrics)
    for quantity in profile.metrics:
        assert "$" not in profile.text(quantity, 30.0).replace('"$1"', "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("extends: nobody", "x line 1, .*there is no profile 'nobody'"),
        (
            "metrics:\n  usage: rate(x[$windw])",
            r"x line 2, \$.metrics.usage: \$windw is no variable",
        ),
        ("metrics:\n  usage: {label: a}", "x line 2.*unknown field `label`"),
        ("metrics:\n  temperature: x", "Invalid enum value"),
        ("metrics: {}\nvariables: {a: 'x\"'}", "x line 2.*quote"),
        ("metrics: {}\nstale_s: -1", "x line 2.*out of range"),
        ("metrics: 3", "expected a table"),
    ],
)
def test_profiles_that_are_wrong(text, words):
    with pytest.raises(InputError, match=words):
        parse_profile(text, where="x")


def test_profiles_from_files(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("extends: kubernetes\nvariables: {namespace: shop}\nmetrics: {queue: q}")
    profile = read_profile(file)
    assert isinstance(profile, Profile)
    assert 'namespace="shop"' in profile.text("usage", 60.0)
    assert profile.variables["sidecars"]  # kept
    with pytest.raises(InputError, match="there is no such profile; a file, or one of istio"):
        read_profile("nobody")


# ---- a real Prometheus ----

EDGES_S = (0.01, 0.02, 0.05, 0.1)


class Lab:
    """Counters as the lab's programs expose them, which grow by the clock."""

    def __init__(self):
        self.began_s = time.monotonic()
        self.errors = False
        self.web_limit = "0.5"

    def text(self):
        t = time.monotonic() - self.began_s
        lines = [f'gnomon_lab_cpu_limit_cores{{service="web"}} {self.web_limit}']
        for service, cores in (("web", 0.4), ("db", 0.1)):
            lines += [
                f'gnomon_lab_cpu_usage_seconds_total{{service="{service}"}} {cores * t}',
                f'gnomon_lab_replicas{{service="{service}"}} 2',
                f'gnomon_waiting{{service="{service}"}} 1.5',
            ]
        lines += [f'gnomon_lab_cpu_periods_total{{service="web"}} {10 * t}',
                  f'gnomon_lab_cpu_throttled_periods_total{{service="web"}} {2.5 * t}',
                  'gnomon_lab_cpu_periods_total{service="db"} 0',
                  'gnomon_lab_cpu_throttled_periods_total{service="db"} 0']  # fmt: skip
        for service, class_, rate in (
            ("web", "browse", 50),
            ("web", "buy", 10),
            ("db", "browse", 50),
        ):
            here = f'service="{service}",class="{class_}"'
            lines.append(f'gnomon_requests_total{{{here},outcome="ok"}} {rate * t}')
            if self.errors and class_ == "buy":
                lines.append(f'gnomon_requests_total{{{here},outcome="error"}} {5 * t}')
            # Uniform between 0 and 100 ms.
            for le in (*map(str, EDGES_S), "+Inf"):
                count = rate * t * min(float(le) / 0.1, 1)
                lines.append(f'gnomon_latency_seconds_bucket{{{here},le="{le}"}} {count}')
                lines.append(f'gnomon_exclusive_seconds_bucket{{{here},le="{le}"}} {count}')
        return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A lab, its exporter, and a client of the Prometheus that scrapes it."""
    lab, exporter = Lab(), Exporter()
    exporter.text = lab.text
    with (
        exporting(exporter) as target,
        scraping(tmp_path_factory.mktemp("prometheus"), target) as url,
    ):
        client = Prometheus(url, environ={})
        until(lambda: not np.isnan(look(client).window.class_ms[:, 0]).any(), "two scrapes")
        yield lab, exporter, client


def look(client, profile=LAB, duration_s=2.0) -> Observation:
    return observe_window(client, APP, profile, time.time(), duration_s=duration_s, timeout_s=60.0)


def is_even(window):
    rates = [*window.usage, *window.class_rate, *window.rate]
    return np.allclose(rates, [0.4, 0.1, 50, 10, 60, 50], rtol=0.05)


def test_a_window_from_a_real_prometheus(real):
    lab, _, client = real
    # Late scrapes bend a rate: on a busy machine a window without any may take a while.
    seen = until(
        lambda: (s := look(client)) and not s.missing and is_even(s.window) and s, "rates"
    )
    window = seen.window
    assert window.cpu_limit.tolist() == [0.5, math.inf]
    assert window.replicas.tolist() == [2, 2]
    assert window.throttled == pytest.approx([0.25, 0.0], abs=0.02)
    assert window.queue.tolist() == [3 / 2, 3 / 2]
    assert window.class_errors.tolist() == [0, 0]  # no counter of errors yet
    # Uniform up to 100 ms, and buckets with straight lines: the quantiles are exact.
    assert window.class_ms[:, 0] == pytest.approx(PERCENTILES, rel=0.02)
    assert window.service_ms[:, 1] == pytest.approx(PERCENTILES, rel=0.02)
    assert window.class_violations[0] == pytest.approx(0.7, abs=0.02)
    assert math.isnan(window.class_violations[1])  # it has no SLA


def test_errors_and_slices(real):
    lab, _, client = real
    lab.errors = True
    profile = parse_profile("extends: lab\nslice_s: 0.5")
    until(lambda: look(client, profile).window.class_errors[1] > 0, "errors")
    seen = until(
        lambda: (s := look(client, profile)) and not s.missing and len(s.window.usage_samples) == 4 and s,
        "a full window",
    )  # fmt: skip
    assert seen.window.usage_samples.shape == (4, 2)
    assert np.nanmean(seen.window.usage_samples, axis=0) == pytest.approx([0.4, 0.1], rel=0.2)


def test_a_counter_that_was_reset(real):
    """A restarted program counts from zero: its rate stays a rate."""
    lab, _, client = real
    lab.began_s = time.monotonic()
    until(
        lambda: (
            client.query(
                "resets(gnomon_lab_cpu_usage_seconds_total{service='web'}[10s]) > 0"
            ).series
        ),
        "the reset",
    )
    usage = [look(client).window.usage[0] for _ in range(5)]
    assert all(0 <= cores < 1 for cores in usage)


def test_a_limit_that_is_no_number(real):
    lab, _, client = real
    lab.web_limit = "NaN"
    seen = until(lambda: (s := look(client)) and math.isnan(s.window.cpu_limit[0]) and s, "NaN")
    assert why(seen, "cpu_limit of web") == "cpu_limit of web: the value is nan"
    lab.web_limit = "0.5"


def test_a_query_that_is_wrong_does_not_spoil_the_others(real):
    *_, client = real
    profile = parse_profile("extends: lab\nmetrics: {usage: 'rate(oops', queue: 'nobody_counts'}")
    seen = look(client, profile)
    assert "parse error" in why(seen, "usage")
    assert why(seen, "queue") == "queue: the answer is empty"
    assert seen.window.replicas.tolist() == [2, 2]


@pytest.mark.parametrize("name", bundled_profiles())
def test_every_query_of_every_profile_is_valid(real, name):
    *_, client = real
    seen = look(client, read_profile(name))
    assert not [line for line in seen.missing if "answered" in line]


def test_every_query_of_the_dashboard_is_valid(real):
    *_, client = real
    dashboard = json.loads(
        (Path(__file__).parents[2] / "deploy/grafana/services.json").read_text()
    )
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "5s").replace("$manager", ".*")
            client.query(text)  # raises for what is no PromQL


def test_an_exporter_that_is_gone_goes_stale(real):
    """Last of all: the exporter does not come back."""
    _, exporter, client = real
    exporter.text = None
    profile = parse_profile("extends: lab\nstale_s: 1")
    seen = until(lambda: (s := look(client, profile)) and s.is_empty and s, "staleness")
    assert seen.window.replicas.tolist() == [-1, -1]
    assert why(seen, "usage") == "usage: the answer is empty"
