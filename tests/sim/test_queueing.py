"""Queues against closed forms, SimPy, and what must always hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.sim.queueing import exponential_sizes, poisson_arrivals, serve

JOBS = 400_000


@pytest.mark.parametrize("load", [0.3, 0.7, 0.85])
def test_one_server_equals_the_closed_form(load):
    """M/M/1: mean time in system is s / (1 - load)."""
    served = serve(
        poisson_arrivals(JOBS, 1e6 * load, seed=1), exponential_sizes(JOBS, 1000.0, seed=1)
    )
    assert served.response_ns.mean() == pytest.approx(1000.0 / (1 - load), rel=0.05)


def erlang_c(servers: int, offered: float) -> float:
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.8), (8, 0.9)])
def test_many_servers_equal_erlang_c(servers, load):
    offered = servers * load
    served = serve(
        poisson_arrivals(JOBS, 1e6 * offered, seed=3),
        exponential_sizes(JOBS, 1000.0, seed=3),
        servers,
    )
    expected = erlang_c(servers, offered) * 1000.0 / (servers - offered)
    assert served.wait_ns.mean() == pytest.approx(expected, rel=0.1)


jobs = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=25)


@given(jobs, st.integers(1, 3))
def test_prop_fifo_equals_simpy(pairs, servers):
    simpy = pytest.importorskip("simpy", reason="simpy is absent")
    arrival = np.sort(np.asarray([a for a, _ in pairs], np.int64))
    size = np.asarray([s for _, s in pairs], np.int64)
    ends = {}
    environment = simpy.Environment()
    desk = simpy.Resource(environment, servers)

    def job(number):
        yield environment.timeout(int(arrival[number]))
        with desk.request() as turn:
            yield turn
            yield environment.timeout(int(size[number]))
        ends[number] = environment.now

    for number in range(len(pairs)):
        environment.process(job(number))
    environment.run()
    assert serve(arrival, size, servers).end_ns.tolist() == [ends[i] for i in range(len(pairs))]


@given(jobs, st.integers(1, 3), st.sampled_from(["fifo", "lifo", "shortest", "random"]))
def test_prop_no_discipline_idles_or_overbooks(pairs, servers, discipline):
    arrival = np.sort(np.asarray([a for a, _ in pairs], np.int64))
    size = np.asarray([s for _, s in pairs], np.int64)
    served = serve(arrival, size, servers, discipline=discipline, seed=4)
    assert served.is_served.all()
    assert np.all(served.start_ns >= arrival)
    assert np.all(served.end_ns - served.start_ns == size)
    for t in range(int(served.end_ns.max(initial=0))):
        running = np.count_nonzero((served.start_ns <= t) & (served.end_ns > t))
        waiting = np.count_nonzero((arrival <= t) & (served.start_ns > t))
        assert running <= servers
        assert waiting == 0 or running == servers


def test_a_python_policy_equals_the_native_discipline():
    arrival = poisson_arrivals(2000, 9e5, seed=5)
    size = exponential_sizes(2000, 1000.0, seed=5)
    by_hand = serve(arrival, size, choose=lambda now, waiting: int(np.argmin(size[waiting])))
    assert (
        by_hand.start_ns.tolist() == serve(arrival, size, discipline="shortest").start_ns.tolist()
    )


def test_a_policy_may_hold_and_what_it_never_serves_is_told():
    served = serve([0, 5], [10, 10], choose=lambda now, waiting: -1 if len(waiting) < 2 else 0)
    assert served.start_ns.tolist() == [5, -1]
    assert served.is_served.tolist() == [True, False]
    assert served.wait_ns.tolist() == [5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [1, 2]), "1 arrivals but 2 sizes"),
        (([5, 0], [1, 1]), "sorted"),
        (([0], [-1]), "negative size"),
        (([0], [1], 0), "one at least"),
        (([0.5], [1]), "whole ns"),
        (([0, 0], [2**62, 5]), "more than a century"),
    ],
)
def test_nonsense_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        serve(*arguments)


def test_a_policy_that_picks_nobody_is_named():
    with pytest.raises(InputError, match="does not wait"):
        serve([0], [1], choose=lambda now, waiting: 7)
    with pytest.raises(InputError, match="no discipline 'magic'"):
        serve([0], [1], discipline="magic")


def test_an_error_in_a_policy_comes_out_as_it_is():
    def broken(now, waiting):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        serve([0], [1], choose=broken)
    with pytest.raises(IndexError, match="list index"):
        serve([0], [1], choose=lambda now, waiting: [][0])


def test_a_policy_may_ask_to_be_asked_again():
    served = serve([0, 5], [10, 10], choose=lambda now, waiting: 0 if now >= 42 else ~42)
    assert served.start_ns.tolist() == [42, 52]


def test_streams_do_not_disturb_one_another():
    one = poisson_arrivals(10, 1.0, seed=9)
    assert one.tolist() == poisson_arrivals(20, 1.0, seed=9)[:10].tolist()
    assert one.tolist() != poisson_arrivals(10, 1.0, seed=10).tolist()
    assert not np.array_equal(np.diff(one), exponential_sizes(10, 1e9, seed=9)[1:])
