"""Policies written in Python: seen, asked, and told where they go wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim import cluster_cases as cases

from gnomon.decide.cluster import ClusterPolicy, Serve, Wait, simulate
from gnomon.decide.cluster.policies.cap import Cap
from gnomon.decide.cluster.policies.orders import Fifo
from gnomon.errors import InputError, SimulationError
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.sim.cluster import Executors, GridSteps


class PythonFifo(ClusterPolicy, frozen=True):
    """First come, first served; what has come free stays with its job."""

    def decide(self, state, rng):
        own = np.flatnonzero(state.stage_job == state.source)
        return Serve(int(own[0]) if own.size else 0, state.executors)


class Random(ClusterPolicy, frozen=True):
    def decide(self, state, rng):
        return Serve(int(rng.integers(len(state))), state.executors)


def one_job(count=1):
    kinds = JobKinds.build({"only": [Stage(3, {1: Waves(first=[10])})]})
    return BatchJobs.of(kinds, np.zeros(count, int), np.arange(count))


def check_same(jobs, many, seed):
    one, two = (
        simulate(policy, jobs, many, seed=seed, log_tasks=True)
        for policy in ("fifo", PythonFifo())
    )
    assert cases.log_of(one) == cases.log_of(two)


@given(cases.batches(max_stages=1), cases.executors(faults=False), st.integers(0, 99))
def test_prop_fifo_in_python_is_fifo_on_jobs_of_one_stage(jobs, many, seed):
    check_same(jobs, many, seed)


@given(cases.batches(), st.integers(0, 99))
def test_prop_fifo_in_python_is_fifo_on_one_executor(jobs, seed):
    check_same(jobs, Executors(count=1, moving_delay_ns=3), seed)


@given(cases.batches(max_jobs=1), cases.executors(), st.integers(0, 99))
def test_prop_fifo_in_python_is_fifo_on_one_job(jobs, many, seed):
    check_same(jobs, many, seed)


@given(cases.batches(), cases.executors(), st.integers(0, 99))
def test_prop_what_is_drawn_comes_from_the_seed(jobs, many, seed):
    one, two = (simulate(Random(), jobs, many, seed=seed, log_tasks=True) for _ in range(2))
    assert cases.log_of(one) == cases.log_of(two)
    cases.check_run(jobs, many.count, one)


def test_what_a_policy_sees():
    seen = []

    class Watcher(PythonFifo, frozen=True):
        def decide(self, state, rng):
            seen.append(state)
            return super().decide(state, rng)

    grid = GridSteps.known([300.0, 100.0], 5)
    many = Executors(count=2, moving_delay_ns=0)
    simulate(Watcher(), one_job(2), many, grid=grid)
    first = seen[0]
    assert (first.now_ns, first.executors, first.idle, first.busy, first.source) == (
        0,
        2,
        2,
        0,
        -1,
    )
    assert (first.intensity, first.low, first.high) == (300.0, 100.0, 300.0)
    assert (first.job.tolist(), first.job_executors.tolist()) == ([0], [0])
    assert first.job_work_ns.tolist() == [30.0]
    assert first.job_arrival_ns.tolist() == [0]
    assert (first.stage_job.tolist(), first.stage.tolist()) == ([0], [0])
    assert first.stage_tasks.tolist() == [3]
    assert first.stage_path_ns.tolist() == [20.0]
    # Past the grid nothing is known of it.
    assert seen[-1].intensity is None
    assert {state.now_ns for state in seen} <= {0, 1, 5, 10, 20, 30}


def test_an_error_of_a_policy_surfaces():
    class Broken(ClusterPolicy, frozen=True):
        def decide(self, state, rng):
            raise KeyError("no such job")

    with pytest.raises(KeyError, match="no such job"):
        simulate(Broken(), one_job(), 2)


class Always(ClusterPolicy, frozen=True):
    answer: object

    def decide(self, state, rng):
        return self.answer

    def __repr__(self):
        return f"Always({self.answer!r})"


def test_its_own_value_errors_are_its_own():
    class Broken(ClusterPolicy, frozen=True):
        def decide(self, state, rng):
            return int("none")

    with pytest.raises(ValueError, match="invalid literal") as info:
        simulate(Broken(), one_job(), 2)
    assert not isinstance(info.value, InputError)
    assert info.traceback[-1].name == "decide"


@pytest.mark.parametrize("answer", [Serve(9, 1), Serve(-1, 1), None, 0, "wait"])
def test_an_answer_that_is_none_is_told(answer):
    with pytest.raises(InputError, match=r"answered .* to 1 stages"):
        simulate(Always(answer), one_job(), 2)


@pytest.mark.parametrize("answer", [Wait(), Serve(0, 0), Serve(0, -3), Serve(0, -(2**40))])
def test_a_policy_that_never_serves_is_told(answer):
    with pytest.raises(SimulationError, match="1 of 1 jobs were never served"):
        simulate(Always(answer), one_job(), 2)


def test_a_limit_may_be_as_great_as_one_likes():
    assert simulate(Always(Serve(0, 2**70)), one_job(), 2).tasks == 3


def test_a_policy_that_waits_for_something_to_happen():
    class Patient(PythonFifo, frozen=True):
        def decide(self, state, rng):
            return Wait() if state.intensity == 300.0 else super().decide(state, rng)

    many = Executors(count=4, moving_delay_ns=0)
    run = simulate(Patient(), one_job(), many, grid=GridSteps.known([300.0, 100.0], 50))
    assert run.start_ns.tolist() == [50]
    assert run.holds == 1


@given(cases.batches(max_stages=1), st.integers(0, 99))
def test_prop_a_wrapped_policy_in_python_is_gated_like_a_native_one(jobs, seed):
    grid = GridSteps.known([300.0, 100.0, 200.0] * 8, 40)
    one, two = (
        simulate(
            Cap(inner),
            jobs,
            Executors(count=4, moving_delay_ns=3),
            grid=grid,
            seed=seed,
            log_tasks=True,
        )
        for inner in (Fifo(), PythonFifo())
    )
    assert cases.log_of(one) == cases.log_of(two)
    assert Cap(PythonFifo()).is_carbon_aware
