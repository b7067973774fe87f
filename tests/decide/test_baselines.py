"""The baselines against the slow and obvious."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.decide import Fifo, Hold, Lifo, Patient, Pick, Random, ReadyQueue, Shortest, policies
from gnomon.errors import InputError

RNG = np.random.default_rng(0)
rows = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12)


def queue_of(items, **options):
    return ReadyQueue([a for a, _ in items], [s for _, s in items], **options)


@given(rows)
def test_prop_against_sorting(items):
    queue = queue_of(items, now_ns=10)
    if not items:
        assert {type(p.decide(queue, RNG)) for p in (Fifo(), Lifo(), Shortest(), Random())} == {
            Hold
        }
        return
    places = range(len(items))
    assert Fifo().decide(queue, RNG) == Pick(min(places, key=lambda i: (items[i][0], i)))
    assert Lifo().decide(queue, RNG) == Pick(max(places, key=lambda i: (items[i][0], i)))
    shortest = min(places, key=lambda i: (items[i][1], items[i][0], i))
    assert Shortest().decide(queue, RNG) == Pick(shortest)


def test_random_reaches_everybody():
    queue, rng = queue_of([(0, 1)] * 3), np.random.default_rng(1)
    assert {Random().decide(queue, rng).index for _ in range(100)} == {0, 1, 2}


@given(rows, st.integers(0, 12), st.integers(0, 12))
def test_prop_patient_holds_or_asks(items, min_queue, wait_ns):
    queue = queue_of(items, now_ns=9)
    action = Patient(Fifo(), min_queue, wait_ns / 1e9).decide(queue, RNG)
    waited = max((9 - arrival for arrival, _ in items), default=0)
    if items and (len(items) >= min_queue or waited >= wait_ns):
        assert action == Fifo().decide(queue, RNG)
    elif items:
        assert action == Hold(until_ns=min(arrival for arrival, _ in items) + wait_ns)
    else:
        assert action == Hold()


def test_patient_passes_outcomes_on():
    class Learning:
        seen = ()

        def decide(self, state, rng):
            return Hold()

        def observe(self, outcome):
            self.seen = (*self.seen, outcome)

    learning = Learning()
    Patient(learning).observe("late")
    Patient(Fifo()).observe("late")
    assert learning.seen == ("late",)


@pytest.mark.parametrize("spec", ["fifo", "lifo", "shortest", "random", "patient:fifo"])
def test_no_room_no_start(spec):
    assert policies.create(spec).decide(queue_of([(0, 1)] * 5, free=0), RNG) == Hold()


def test_queues_are_checked_and_cannot_be_written():
    arrivals = np.array([1, 2])
    queue = ReadyQueue(arrivals, [3, 4])
    with pytest.raises(ValueError, match="read-only"):
        queue.arrival_ns[0] = 5
    arrivals[0] = 5  # the owner still may
    assert queue == ReadyQueue([5, 2], [3, 4])
    assert queue != ReadyQueue([5, 2], [3, 4], free=2)
    for wrong in (([1], [1, 2]), ([[1]], [[1]])):
        with pytest.raises(InputError):
            ReadyQueue(*wrong)
    with pytest.raises(InputError):
        ReadyQueue([], [], free=-1)
    with pytest.raises(InputError, match="min_queue=-1"):
        policies.create("patient?min_queue=-1:fifo")
