"""Random application files, whole and broken: each runs, or gives one clear line."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gnomon.decide.services import SimTarget, manage, service_policies
from gnomon.errors import InputError, SimulationError
from gnomon.ingest.services.application_file import parse_application
from gnomon.sim.mesh import poisson_requests
from tests.strategies_applications import application_file

MANAGERS = service_policies.names()


def run(seed):
    """What came of one file: `ran`, or the line that refused it."""
    text = application_file(random.Random(seed))
    try:
        app = parse_application(text, where="app.yaml")
        rate = float(min(app.rate, 30.0))
        target = SimTarget(
            app, poisson_requests(app, [rate] * 2, seed=seed), seed=seed, most_events=30_000
        )
        done = manage(target, MANAGERS[seed % len(MANAGERS)], duration_s=3, seed=seed)
    except (InputError, SimulationError) as error:
        line = str(error)
        assert line
        assert "\n" not in line
        return line
    assert all(np.all(decision.window.usage >= 0) for decision in done.decisions)
    return "ran"


def check(seeds):
    outcomes = [run(seed) for seed in seeds]
    ran = outcomes.count("ran")
    assert 0.2 * len(outcomes) < ran < len(outcomes)  # both kinds are tried


def test_random_applications_run_or_give_a_line():
    check(range(400))


@pytest.mark.slow
def test_ten_thousand_random_applications():
    check(range(10_000))
