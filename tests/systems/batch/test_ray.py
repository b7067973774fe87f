"""Trials on a real Ray are the same as here."""

from __future__ import annotations

import functools

import msgspec
import numpy as np
import pytest

from gnomon.datasets.batch_jobs import sample_jobs, tpch_like
from gnomon.sim.cluster import Executors
from gnomon.systems.batch import Experiment, hours_of_zone, run_experiment


@pytest.mark.ray
def test_trials_on_ray_are_the_same():
    kinds = tpch_like(np.random.default_rng(3), queries=4, sizes_gb=(2,))
    experiment = Experiment(
        policies=("fifo", "cap:fifo"),
        make_jobs=functools.partial(sample_jobs, kinds, 8, mean_s=30.0),
        executors=Executors(count=20),
    )
    here, there = (
        run_experiment(experiment, [hours_of_zone("DE")], trials=2, on=on, explain=False)
        for on in ("serial", "ray")
    )
    assert msgspec.json.encode(here.outcomes) == msgspec.json.encode(there.outcomes)
