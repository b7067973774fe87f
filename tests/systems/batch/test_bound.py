"""The offline bound against every way there is, on small whole numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gnomon.decide.cluster import simulate
from gnomon.errors import Infeasible
from gnomon.systems.batch.bound import cleanest_mean, fill_cleanest
from tests.sim import cluster_cases as cases

hours = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 5, 9]), st.integers(0, 3), st.integers(0, 3)),
    min_size=1, max_size=5,
)  # fmt: skip


def all_ways(arrived, room):
    """Whole work in each hour: of such bounds the vertices are whole, so the best is among them."""
    for done in itertools.product(*(range(r + 1) for r in room)):
        by_then = list(itertools.accumulate(done))
        if by_then[-1] == arrived[-1] and all(d <= a for d, a in zip(by_then, arrived)):
            yield done


@given(hours)
def test_prop_no_other_way_is_cleaner(columns):
    intensity, work, room = (list(column) for column in zip(*columns))
    arrived = list(itertools.accumulate(work))
    ways = list(all_ways(arrived, room))
    as_arrays = [np.array(c, dtype=np.float64) for c in (intensity, arrived, room)]
    if not ways:
        with pytest.raises(Infeasible, match="do not fit before the end"):
            fill_cleanest(*as_arrays)
        return
    done = fill_cleanest(*as_arrays)
    best = min(sum(d * i for d, i in zip(way, intensity)) for way in ways)
    assert done @ as_arrays[0] == pytest.approx(best)
    assert (done <= as_arrays[2]).all()
    assert (np.cumsum(done) <= as_arrays[1] + 1e-9).all()


@pytest.mark.parametrize("spec", ["fifo", "fair", "cap:fifo", "pcaps"])
@given(
    jobs=cases.batches(min_jobs=1, with_after=True), many=cases.executors(), grid=cases.grids(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_prop_no_run_is_cleaner_than_the_bound(spec, jobs, many, grid, seed):
    run = simulate(spec, jobs, many, grid=grid, seed=seed)
    assume(0 < run.end_ns <= grid.actual.size * grid.step_ns and run.work_ns > 0)
    bound = cleanest_mean(run, jobs, grid, many.count, run.end_ns)
    assert bound <= run.weighted.sum() / run.work_ns + 1e-6
