"""A measured service: would preemption help it, and what would the long requests pay?"""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.ingest.samples.samples import SampleRows
from gnomon.systems.threads import Setting, advise, sweep
from gnomon.systems.threads.measured import caveats_of, quanta_of, workload_of
from gnomon.systems.threads.result import to_result


def samples_of(values, *, is_latency=False, kinds=None):
    rows = SampleRows("times.csv")
    for at, (value, count) in enumerate(values):
        rows.add(kinds[at] if kinds else "", value, count)
    return rows.build(is_latency=is_latency)


def answer_of(samples, **how):
    workload = workload_of(samples, "mine")
    setting = Setting(workload, requests=50_000)
    cells = sweep(
        setting, ["fcfs", "rr", "two-queue"], [0.5, 0.7, 0.9], quanta_of(workload), on="serial"
    )
    return to_result(setting, "safepoint", cells, advise(cells), samples=samples).figure("answer")


@pytest.mark.parametrize("scale", [1, 1_000, 1_000_000])
def test_two_modes_are_worth_it_at_any_scale(scale):
    """Microseconds, milliseconds, seconds: quanta follow."""
    samples = samples_of([(5_000 * scale, 995), (500_000 * scale, 5)])
    quanta = quanta_of(workload_of(samples, "mine"))
    assert quanta[0] == 6.5 * scale
    assert quanta[-1] == 250 * scale
    answer = answer_of(samples)
    assert answer.value == "yes"
    assert "at load 0.7" in answer.note
    assert "with a quantum of" in answer.note
    assert "and the p99 of long from" in answer.note


def test_requests_alike_are_left_alone():
    rng = np.random.default_rng(1)
    answer = answer_of(samples_of([(float(t), 1) for t in rng.gamma(9.0, 1e5, 5_000)]))
    assert answer.value == "no"
    assert answer.note.startswith("no policy and quantum tried")


def test_the_answer_names_the_longest_class():
    samples = samples_of([(5_000, 990), (400_000, 10)], kinds=["GET", "SCAN"])
    answer = answer_of(samples)
    assert answer.value == "yes"
    assert "and the p99 of SCAN from" in answer.note


def test_classes_that_are_alike_do_not_hide_who_pays():
    values = [(5_000, 990), (400_000, 10), (5_500, 990), (410_000, 10)]
    samples = samples_of(values, kinds=["a", "a", "b", "b"])
    assert workload_of(samples, "mine").kinds == ["short", "long"]
    assert "the p99 of long from" in answer_of(samples).note
    assert any("alike" in note for note in caveats_of(samples))
    apart = samples_of(values, kinds=["a", "b", "a", "b"])
    assert workload_of(apart, "mine").kinds == ["a", "b"]
    assert not any("alike" in note for note in caveats_of(apart))


def test_short_requests_may_gain_where_the_p99_of_all_is_that_of_long_ones():
    """Two in five are long: the p99 of all cannot fall, that of short requests does."""
    answer = answer_of(samples_of([(5_000, 600), (500_000, 400)]))
    assert answer.value == "for short alone"
    assert "better by a fifth; but at load 0.7" in answer.note
    assert "takes the p99 of short from" in answer.note


def test_a_quantum_does_not_cut_a_request_hundreds_of_times():
    quanta = quanta_of(workload_of(samples_of([(400_000, 900), (1_500_000_000, 100)]), "mine"))
    assert quanta[0] == 7_500  # a twentieth of the mean, not 520 us


def test_quanta_leave_most_short_requests_whole():
    rng = np.random.default_rng(2)
    short = rng.lognormal(0.0, 0.5, 9_900) * 1e6
    workload = workload_of(samples_of([(float(t), 1) for t in [*short, *([2e8] * 100)]]), "mine")
    quanta = quanta_of(workload)
    assert quanta == sorted(set(quanta))
    assert np.mean(short < 1e3 * quanta[0]) > 0.9
    assert quanta[-1] == 100_000  # half of a long one


def test_caveats():
    assert caveats_of(samples_of([(5_000, 10_000)])) == []
    assert caveats_of(samples_of([(5_000, 999)])) == ["999 samples are too few for p99 and p99.9."]
    assert caveats_of(samples_of([(5_000, 9_999)])) == ["9,999 samples are too few for p99.9."]
    (latency,) = caveats_of(samples_of([(5_000, 10_000)], is_latency=True))
    assert "overstate service times" in latency
