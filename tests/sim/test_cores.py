"""Requests on cores: closed forms of queueing theory, a slow reference, and what always holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.sim.cores import CoreRequests, Mechanism, Scheduling, run_cores
from tests.sim.reference_cores import SlowCores

RULES = ("fcfs", "round-robin", "two-queue", "least-attained", "shortest-remaining",
         "earliest-deadline", "kind-priority")  # fmt: skip
JOBS, MEAN = 400_000, 10_000.0
SHORT_TURNS = Scheduling("round-robin", quantum_ns=200)


def poisson(service, load, rng):
    gap = service.mean() / load
    arrival = np.cumsum(rng.exponential(gap, len(service)))
    return CoreRequests(np.floor(arrival).astype(np.int64), service.astype(np.int64))


def hyperexponential(rng, count):
    """Nine of ten are short: squared coefficient of variation of 5.4."""
    is_short = rng.random(count) < 0.9
    return np.where(is_short, rng.exponential(4_000, count), rng.exponential(64_000, count))


def means(draw, load, scheduling, runs=8, jobs=JOBS):
    """Mean latency of several runs, and its confidence interval of 99.9 %."""
    found = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        requests = poisson(np.maximum(np.round(draw(rng, jobs)), 1), load, rng)
        found.append(run_cores(requests, scheduling).latency_ns[jobs // 10 :].mean())
    return np.mean(found), 5.41 * np.std(found, ddof=1) / math.sqrt(runs)  # t of 7 degrees


def tail_integral(draw, function):
    """The mean of a function of service times, by many draws."""
    sizes = np.sort(draw(np.random.default_rng(99), 2_000_000))
    return function(sizes)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_first_come_first_served_is_pollaczek_khinchine(load):
    mean, error = means(hyperexponential, load, Scheduling("fcfs"))
    first, second = tail_integral(hyperexponential, lambda s: (s.mean(), (s**2).mean()))
    expected = first + load / first * second / (2 * (1 - load))
    assert abs(mean - expected) < error + 0.02 * expected


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_short_quanta_are_processor_sharing(load):
    """M/G/1-PS: mean service over what is left of the capacity, whatever the distribution."""
    mean, error = means(hyperexponential, load, SHORT_TURNS, jobs=100_000)
    expected = tail_integral(hyperexponential, np.mean) / (1 - load)
    assert abs(mean - expected) < error + 0.02 * expected


def in_system(sizes, load, finish):
    """Mean over sizes of what a formula says of each, on a grid of a thousand of them."""
    rate = load / sizes.mean()
    count = len(sizes)
    below, squared = np.cumsum(sizes) / count, np.cumsum(sizes**2) / count
    share = np.arange(1, count + 1) / count
    grid = np.linspace(0, count - 1, 20_000).astype(np.int64)
    x = sizes[grid]
    # Of sizes cut off at x: the mean, and that of the square.
    cut, cut_squared = (
        below[grid] + x * (1 - share[grid]),
        squared[grid] + x**2 * (1 - share[grid]),
    )
    return float(np.mean(finish(rate, x, below[grid], cut, cut_squared, squared[grid])))


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_least_attained_service_is_foreground_background(load):
    """M/G/1-FB (Kleinrock, vol. 2, section 4.6)."""

    def finish(rate, x, below, cut, cut_squared, squared):
        busy = rate * cut
        return rate * cut_squared / (2 * (1 - busy) ** 2) + x / (1 - busy)

    scheduling = Scheduling("least-attained", quantum_ns=200)
    mean, error = means(hyperexponential, load, scheduling, jobs=100_000)
    expected = tail_integral(hyperexponential, lambda s: in_system(s, load, finish))
    assert abs(mean - expected) < error + 0.03 * expected


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_shortest_remaining_time_is_schrage_and_miller(load):
    def finish(rate, x, below, cut, cut_squared, squared):
        busy = rate * below
        wait = rate * cut_squared / (2 * (1 - busy) ** 2)
        steps = np.diff(np.concatenate([[0.0], x]))
        return wait + np.cumsum(steps / (1 - busy))

    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        service = np.maximum(np.round(hyperexponential(rng, JOBS)), 1)
        requests = poisson(service, load, rng)
        known = CoreRequests(requests.arrival_ns, requests.service_ns, hint_ns=requests.service_ns)
        found.append(run_cores(known, Scheduling("shortest-remaining")).latency_ns.mean())
    expected = tail_integral(hyperexponential, lambda s: in_system(s, load, finish))
    assert (
        abs(np.mean(found) - expected)
        < 5.41 * np.std(found, ddof=1) / math.sqrt(8) + 0.02 * expected
    )


def test_several_workers_are_erlang_c():
    rng = np.random.default_rng(1)
    service = np.maximum(np.round(rng.exponential(MEAN, JOBS)), 1)
    arrival = np.cumsum(rng.exponential(MEAN / (4 * 0.8), JOBS)).astype(np.int64)
    run = run_cores(CoreRequests(arrival, service.astype(np.int64)), Scheduling("fcfs"), workers=4)
    offered = 3.2
    terms = [offered**k / math.factorial(k) for k in range(4)]
    last = offered**4 / math.factorial(4) * 4 / (4 - offered)
    expected = MEAN + last / (sum(terms) + last) * MEAN / (4 - offered)
    assert run.latency_ns.mean() == pytest.approx(expected, rel=0.05)


TASKS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 25), st.integers(0, 2), st.integers(1, 30), st.integers(1, 200)),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(TASKS, st.sampled_from(RULES), st.integers(1, 7), st.integers(1, 3), st.integers(0, 3),
       st.integers(0, 2), st.integers(0, 3))  # fmt: skip
def test_prop_it_is_the_slow_reference(tasks, rule, quantum, workers, cost, dispatch, late):
    tasks = sorted(tasks, key=lambda t: t[0])
    cost = max(cost, int(workers > 1))  # free, two workers could change over at once
    arrival, service, kind, hint, deadline = (np.array(c, np.int64) for c in zip(*tasks))
    requests = CoreRequests(arrival, service, kind.astype(np.int32), hint, deadline)
    run = run_cores(
        requests, Scheduling(rule, quantum_ns=quantum), workers=workers,
        mechanism=Mechanism(cost, dispatch, (late,)),
    )  # fmt: skip
    slow = SlowCores(
        rule, quantum=quantum, workers=workers, cost=cost, dispatch=dispatch, late=late
    )
    expected = slow.run([
        {"number": i, "arrival": a, "service": s, "kind": k, "hint": h, "deadline": d, "attained": 0}
        for i, (a, s, k, h, d) in enumerate(tasks)
    ])  # fmt: skip
    assert run.latency_ns.tolist() == expected or slow.is_tied


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([*RULES, "reserved"]), st.integers(2, 4))
def test_prop_work_is_conserved(seed, rule, workers):
    """Nobody ends before their service is done; without cost the workers lose nothing."""
    rng = np.random.default_rng(seed)
    service = rng.integers(1, 1000, 200)
    arrival = np.sort(rng.integers(0, 20_000, 200))
    requests = CoreRequests(arrival, service, rng.integers(0, 2, 200).astype(np.int32))
    run = run_cores(requests, Scheduling(rule, quantum_ns=50, reserved=1), workers=workers)
    assert np.all(run.latency_ns >= service)
    assert run.lost_ns == 0
    assert run.end_ns >= (service.sum() + workers - 1) // workers
    costly = run_cores(
        requests, Scheduling(rule, quantum_ns=50, reserved=1), workers=workers,
        mechanism=Mechanism(cost_ns=7, dispatch_ns=3),
    )  # fmt: skip
    assert costly.lost_ns == 7 * costly.preemptions.sum() + 3 * (200 + costly.preemptions.sum())


def test_a_reserved_worker_waits_for_short_requests():
    requests = CoreRequests(
        np.array([0, 1, 2]), np.array([1000, 1000, 5]), np.array([1, 1, 0], np.int32)
    )
    scheduling = Scheduling("reserved", reserved=1)
    assert run_cores(requests, scheduling, workers=2).latency_ns.tolist() == [1000, 1999, 5]


@pytest.mark.parametrize(
    ("requests", "settings"),
    [
        (CoreRequests(np.array([5, 1]), np.array([1, 1])), {}),
        (CoreRequests(np.array([1, 2]), np.array([1])), {}),
        (CoreRequests(np.array([1]), np.array([-1])), {}),
        (CoreRequests(np.array([1]), np.array([1])), {"workers": 0}),
        (CoreRequests(np.array([1]), np.array([1])), {"mechanism": Mechanism(cost_ns=-1)}),
    ],
)  # fmt: skip
def test_wrong_requests_get_a_line(requests, settings):
    with pytest.raises(InputError):
        run_cores(requests, Scheduling("fcfs"), **settings)
