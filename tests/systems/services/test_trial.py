"""Managers on an application in the simulator: rates, scores, results."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import report
from gnomon.decide.services import ServicePolicy, hold, service_policies
from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla
from gnomon.ingest.services.application_file import bundled_applications, read_application
from gnomon.report.charts.svg import render_chart
from gnomon.systems.services import Rate, Requests, Setup, compare, find_rate, simulate
from gnomon.systems.services.measure import _violated
from gnomon.systems.services.rates import SHAPES, label_rates
from gnomon.systems.services.run_result import (
    is_within_sla,
    meets_sla,
    over_time,
    service_graph,
    to_result,
    to_script,
)
from gnomon.systems.services.trial import parse_managers

APP = Application(
    "one", {"web": Service(cpu_limit=0.6, workers=4)},
    {"get": RequestClass(Call("web", cpu_ms=4.0), sla=Sla(60.0))}, rate=100.0,
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@given(mean=st.floats(1, 1e4), seconds=st.integers(2, 300), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_prop_shapes_have_their_mean_and_length(shape, mean, seconds, seed):
    rate = find_rate(shape, mean, duration_s=seconds, seed=seed)
    assert len(rate.per_s) == seconds
    assert rate.per_s.mean() == pytest.approx(mean)
    assert np.all(rate.per_s > 0)


def test_a_file_of_rates_is_taken_as_it_is(tmp_path):
    file = tmp_path / "own.txt"
    file.write_text("10\n20.5\n# a comment\n30 # and one more\n")
    assert find_rate(str(file), 999.0).per_s.tolist() == [10.0, 20.5, 30.0]
    assert find_rate(str(file), 999.0, duration_s=2, scale=2).per_s.tolist() == [20.0, 41.0]
    with pytest.raises(InputError, match="has 3 s"):
        find_rate(str(file), 1.0, duration_s=10)


def test_an_empty_line_is_a_second_that_is_missing(tmp_path):
    (tmp_path / "x").write_text("10\n20\n \n30\n")
    with pytest.raises(InputError, match="line 3 is empty"):
        find_rate(str(tmp_path / "x"), 1.0)


def test_rates_of_one_name_are_told_apart(tmp_path):
    paths = [
        tmp_path / "a/x.txt",
        tmp_path / "b/x.txt",
        tmp_path / "b/x.csv",
        tmp_path / "b/diurnal.txt",
    ]
    names = ["diurnal", *map(str, paths)]
    assert label_rates(names) == ["diurnal", "a/x.txt", "b/x.txt", "x.csv", "diurnal.txt"]
    for twice in (["constant", "constant"], [str(paths[0]), str(tmp_path / "a/../a/x.txt")]):
        with pytest.raises(InputError, match="named twice"):
            label_rates(twice)


@pytest.mark.parametrize("content", ["", "abc", "-1", "nan", "1,2", "10,,20", "\x00\x01"])
def test_bad_rates_get_a_line(tmp_path, content):
    (tmp_path / "x").write_text(content)
    with pytest.raises(InputError):
        find_rate(str(tmp_path / "x"), 1.0)


def test_the_public_rates_are_read(public_data):
    rate = find_rate(str(public_data / "services/autothrottle/bursty.txt"), 1.0)
    assert len(rate.per_s) == 3600
    assert (round(rate.per_s.mean()), rate.per_s.max()) == (163, 397)


def requests(latency_ms, is_answered=None, seconds=10):
    count = len(latency_ms)
    return Requests(
        np.linspace(0, seconds, count, endpoint=False), np.zeros(count, np.int32), np.array(latency_ms, float),
        np.ones(count, bool) if is_answered is None else np.array(is_answered),
    )  # fmt: skip


def test_a_window_is_violated_when_more_than_the_rest_is_late():
    ok = [10.0] * 99 + [90.0]  # one of a hundred may be late
    assert _violated(APP, requests(ok), 0, 10.0).tolist() == [0.0]
    assert _violated(APP, requests([*ok[:-2], 90.0, 90.0]), 0, 10.0).tolist() == [1.0]
    lost = requests([10.0] * 98 + [math.nan] * 2, [True] * 98 + [False] * 2)
    assert _violated(APP, lost, 0, 10.0).tolist() == [1.0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1, 120), min_size=5, max_size=400))
def test_prop_violation_agrees_with_the_percentile(latency):
    violated = _violated(APP, requests(latency), 0, 10.0)
    higher = np.percentile(latency, 99, method="inverted_cdf")
    assert bool(violated[0]) == bool(higher > 60.0)


def test_the_score_adds_up():
    outcome = simulate(
        Setup(APP, intensity=Estimate.exact(100.0)), "static", Rate("flat", np.full(30, 100.0))
    )
    one = outcome.score
    assert one.cpu_mean == one.cpu_p95 == pytest.approx(0.6)
    assert one.cpu_used == pytest.approx(0.4, rel=0.1)
    assert one.energy_kwh.mid == pytest.approx(0.6 * 5 * 30 / 3.6e6)
    assert one.carbon_g.mid == pytest.approx(100 * one.energy_kwh.mid)
    assert one.decisions == 0
    assert one.classes[0].requests == round(outcome.series.rate.sum())


def test_too_little_cpu_violates_and_more_does_not():
    flat = Rate("flat", np.full(30, 100.0))
    tight = simulate(Setup(APP), "static", flat).score
    tighter = Application(
        "one", {"web": Service(cpu_limit=0.3, workers=4)}, APP.classes, rate=100.0
    )
    starved = simulate(Setup(tighter), "static", flat).score
    assert tight.violation_pct < starved.violation_pct == 100.0
    assert starved.recovery_s >= 29
    assert starved.late_pct > 90


def test_requests_without_an_answer_count_as_late():
    stuck = Application("one", {"web": Service(cpu_limit=0.0)}, APP.classes, rate=100.0)
    one = simulate(Setup(stuck), "static", Rate("flat", np.full(10, 20.0))).score
    assert one.violation_pct == 100.0
    assert one.late_pct == 100.0
    assert math.isnan(one.classes[0].p99_ms)


def test_all_managers_get_the_same_requests(tmp_path):
    rates = [find_rate(shape, 100.0, duration_s=20) for shape in ("diurnal", "surge")]
    outcomes = compare(
        Setup(APP), ["static", "hpa", "autothrottle"], rates, on="serial", resume=tmp_path / "kept"
    )
    counts = {(o.score.rate, o.score.classes[0].requests) for o in outcomes}
    assert len(outcomes) == 6
    assert len(counts) == 2
    again = compare(
        Setup(APP), ["static", "hpa", "autothrottle"], rates, on="serial", resume=tmp_path / "kept"
    )
    assert [o.score.cpu_mean for o in again] == [o.score.cpu_mean for o in outcomes]


def test_a_comparison_as_a_result(tmp_path):
    setup = Setup(APP)
    outcomes = compare(
        setup,
        ["static", "autoscale-cons"],
        [find_rate("bursty", 100.0, duration_s=30)],
        on="serial",
    )
    result = to_result(setup, outcomes, verb="compare")
    assert len(result.table("score_card")) == 2
    page = report.render_html(result)
    assert "Where the time goes" in page
    assert "p99 of get, bursty" in page
    script = to_script(outcomes)["managers"]["static"]["bursty"]
    assert {"violation_pct", "cpu_mean", "cpu_p95", "p99_ms", "decisions"} <= set(script)
    assert script["p99_ms"]["get"] > 4
    report.save(result, tmp_path / "saved")
    assert report.load(tmp_path / "saved").charts[-1] == result.charts[-1]


FLAT = Rate("flat", np.full(20, 100.0))
LIMITED = {"web": Service(cpu_limit=0.6, workers=4)}


def answer_of(managers, services=None, cpu_ms=4.0, sla=Sla(60.0), rate=FLAT, **options):  # noqa: B008
    app = Application(
        "one", services or LIMITED, {"get": RequestClass(Call("web", cpu_ms=cpu_ms, wait_ms=1.0), sla=sla)},
        rate=100.0,
    )  # fmt: skip
    setup = Setup(app, **options)
    outcomes = compare(setup, managers, [rate], on="serial")
    return to_result(setup, outcomes, verb="compare"), outcomes


def test_nobody_is_ranked_without_an_sla():
    result, outcomes = answer_of(["static", "vpa"], sla=None)
    assert result.figure("best_0").text == "nobody is ranked: no class has an SLA"
    assert any("sla: {bound_ms" in note for note in result.notes)
    assert math.isnan(outcomes[0].score.violation_pct)
    assert to_script(outcomes)["managers"]["static"]["flat"]["violation_pct"] is None
    assert meets_sla(outcomes)


def test_nobody_is_ranked_without_cpu_time():
    result, _ = answer_of(["static"], cpu_ms=0.0)
    assert result.figure("best_0").text == "nobody is ranked: no call takes CPU time"
    assert any("--cpu-share" in note for note in result.notes)


def test_managers_without_limits_are_not_the_cheapest_unsaid():
    free = {"web": Service(workers=4, cpu_max=2.0)}
    alone, _ = answer_of(["static"], free)
    assert "used, 1 service without a limit" in alone.figure("best_0").text
    assert any("count with what they use, under: static" in note for note in alone.notes)
    both, _ = answer_of(["static", "autoscale-cons"], free)
    assert both.figure("best_0").text.startswith("autoscale-cons: ")


class _Broken(ServicePolicy, frozen=True):
    """Fails from a window on."""

    since_s: float = 0.0

    def decide(self, state, rng):
        if state.window.now_s > self.since_s:
            raise RuntimeError("out of order")
        return hold(state.window)


def test_a_manager_that_fails_is_reported_and_not_ranked(monkeypatch):
    monkeypatch.setitem(service_policies._factories, "broken", _Broken)
    result, outcomes = answer_of(["broken"])
    assert (outcomes[0].score.failed, outcomes[0].score.windows) == (20, 20)
    assert result.figure("best_0").text == "no manager"
    assert any(
        "failed in 20 of 20 windows, so" in n or "failed in 20 of 20 windows:" in n
        for n in result.notes
    )
    assert any("RuntimeError: out of order" in note for note in result.notes)
    assert not meets_sla(outcomes)
    result, outcomes = answer_of(["broken?since_s=15", "static"])
    assert is_within_sla(outcomes[0].score)
    assert any("failed in 5 of 20 windows: RuntimeError" in note for note in result.notes)


def test_the_answer_is_no_where_no_manager_meets_the_sla():
    result, outcomes = answer_of(["static"], {"web": Service(cpu_limit=0.3, workers=4)})
    assert result.figure("best_0").text == "no manager"
    assert "1 % of checks missed" in result.figure("best_0").note
    assert not meets_sla(outcomes)
    assert meets_sla(answer_of(["static"])[1])


def test_watts_are_those_given():
    assert any("3 to 8 W each (a guess)" in line for line in answer_of(["static"])[0].how)
    given, _ = answer_of(["static"], core_w=Estimate.exact(7.0))
    assert any("at 7 W each" in line for line in given.how)
    assert not any("guess" in line for line in given.how)


def test_charts_have_gaps_where_nothing_was_answered():
    result, outcomes = answer_of(
        ["static"], rate=Rate("flat", np.r_[np.zeros(5), np.full(5, 50.0)])
    )
    (p99,) = [chart for chart in result.charts if chart.title.startswith("p99")]
    assert p99.lines[0].y[:5] == [None] * 5
    assert min(p99.lines[0].y[6:]) > 1.0
    long = msgspec.structs.replace(
        outcomes[0].series, end_s=np.arange(1600.0), allocated=np.ones(1600),
        p99_ms=np.r_[np.full(6, math.nan), np.full(1594, 8.0)][None],
    )  # fmt: skip
    again = over_time(APP, [msgspec.structs.replace(outcomes[0], series=long)])
    assert again[1].lines[0].y[:3] == [None, 8.0, 8.0]


def test_the_graph_says_whose_it_is():
    result, _ = answer_of(["autoscale-cons", "static"])
    assert result.charts[-1].title == "Where the time goes, autoscale-cons at flat"


def test_a_run_that_ends_before_its_first_decision_is_refused():
    for run in (
        lambda setup: simulate(setup, "static", FLAT),
        lambda setup: compare(setup, ["static", "hpa"], [FLAT]),
    ):
        with pytest.raises(InputError, match="every 30 s in a run of 20 s"):
            run(Setup(APP, interval_s=30.0))


def test_no_sla_is_noted():
    free = Application(
        "one", APP.services, {"get": RequestClass(Call("web", cpu_ms=4.0))}, rate=10.0
    )
    setup = Setup(free)
    outcome = simulate(setup, "static", Rate("flat", np.full(5, 10.0)))
    assert any(
        "No class has an SLA" in note
        for note in to_result(setup, [outcome], verb="simulate").notes
    )


@pytest.mark.parametrize("name", bundled_applications())
def test_bundled_applications_meet_their_slas_at_their_rate(name):
    app = read_application(f"bundled:{name}")
    outcome = simulate(Setup(app), "static", find_rate("constant", app.rate, duration_s=60))
    assert outcome.score.violation_pct <= 5.0
    assert outcome.score.classes[0].error_pct == 0
    svg = render_chart(service_graph(app, outcome.spent))
    assert svg.count("<rect") == len(app.services)


@pytest.mark.parametrize("text", ["", "static,static", "nobody", "hpa?target=7", " , "])
def test_bad_managers_get_a_line(text):
    with pytest.raises(InputError):
        parse_managers(text)


def test_a_run_without_requests_has_a_score():
    one = simulate(Setup(APP), "static", Rate("none", np.zeros(5))).score
    assert math.isnan(one.violation_pct)  # nothing was checked
    assert math.isnan(one.classes[0].p50_ms)
