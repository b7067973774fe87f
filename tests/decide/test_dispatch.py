"""Named policies in the queue simulator, against the native disciplines of the same name."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.decide import Hold, Pick, dispatch
from gnomon.errors import InputError, SimulationError
from gnomon.sim.queueing import exponential_sizes, poisson_arrivals, serve

ARRIVAL = poisson_arrivals(3000, 9e5, seed=2)
SIZE = exponential_sizes(3000, 2000.0, seed=2)


@pytest.mark.parametrize("name", ["fifo", "lifo", "shortest"])
def test_a_named_policy_equals_the_native_discipline(name):
    native = serve(ARRIVAL, SIZE, 2, discipline=name)
    assert dispatch(name, ARRIVAL, SIZE, 2).start_ns.tolist() == native.start_ns.tolist()


def test_shortest_first_waits_less_and_patience_costs():
    wait = {name: dispatch(name, ARRIVAL, SIZE, 2).wait_ns.mean() for name in ("fifo", "shortest")}
    assert wait["shortest"] < wait["fifo"]
    patient = dispatch("patient?min_queue=3&max_wait_s=1e-5:shortest", ARRIVAL, SIZE, 2)
    assert patient.wait_ns.mean() > wait["shortest"]


def test_the_same_seed_gives_the_same_choices():
    one, two = (dispatch("random", ARRIVAL, SIZE, seed=s).start_ns for s in (1, 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, dispatch("random", ARRIVAL, SIZE, seed=2).start_ns)


def test_patience_ends_by_itself_and_endless_patience_is_named():
    assert dispatch("patient?max_wait_s=1e-6:fifo", [0, 1], [1, 2]).start_ns.tolist() == [1, 1001]
    late = dispatch("patient?min_queue=9&max_wait_s=1e-6:fifo", [0, 5], [1, 1])
    assert late.start_ns.tolist() == [1000, 1005]

    class Never:
        def decide(self, state, rng):
            return Hold()

    with pytest.raises(SimulationError, match="left 2 of 2 jobs waiting for ever"):
        dispatch(Never(), [0, 1], [1, 1])


def test_fractions_are_refused_not_cut():
    with pytest.raises(InputError, match="whole ns"):
        dispatch("fifo", [0.1, 0.7], [0.5, 0.9])


def test_nonsense_answers_are_named():
    class Broken:
        def decide(self, state, rng):
            return Pick(-4)

    with pytest.raises(InputError, match="a queue takes Pick or Hold"):
        dispatch(Broken(), [0], [1])
