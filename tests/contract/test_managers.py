"""Every manager of services that has a name keeps the contract, and every check can fail."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from gnomon import checks
from gnomon.checks import SERVICES
from gnomon.decide.services import Allocation, ServicePolicy, hold, service_policies

SPECS = [*service_policies.names(), "autothrottle?target=0.1"]
CASES = [
    pytest.param(check, id=f"{spec}-{check.name}")
    for spec in SPECS
    for check in checks.policy_checks(spec, SERVICES)
]


@pytest.mark.parametrize("check", CASES)
def test_every_manager_keeps_the_contract(check):
    check()


class Fails(ServicePolicy, frozen=True):
    """Raises once there is load."""

    def decide(self, state, rng):
        if state.window.class_rate.sum() > 0:
            raise RuntimeError("no idea")
        return hold(state.window)


class Forgets(ServicePolicy, frozen=True):
    """Answers for one service too few."""

    def decide(self, state, rng):
        return Allocation(state.window.cpu_limit[:-1], state.window.replicas[:-1])


class Private(ServicePolicy, frozen=True):
    """Draws from where no seed reaches."""

    def decide(self, state, rng):
        limit = state.window.cpu_limit * np.random.default_rng().uniform(0.5, 2.0)
        return Allocation(limit, np.full(len(limit), -1))


@pytest.mark.parametrize(
    ("policy", "check"),
    [
        (Fails(), "check_no_decision_fails"),
        (Forgets(), "check_no_decision_fails"),
        (Private(), "check_same_seed_same_answer"),
    ],
)
def test_checks_can_fail(policy, check):
    failed = {
        outcome.check for outcome in checks.policy(policy, SERVICES, raises=False)
        if outcome.status != "passed"
    }  # fmt: skip
    assert check in failed


def test_the_guard_keeps_greedy_managers_within_bounds():
    class Greedy(ServicePolicy, frozen=True):
        """Asks for the moon."""

        def decide(self, state, rng):
            count = len(state.window.cpu_limit)
            return Allocation(np.full(count, 1e9), np.full(count, 10**6))

    outcomes = {one.check: one.status for one in checks.policy(Greedy(), SERVICES, raises=False)}
    assert outcomes["check_within_bounds"] == "passed"


def test_cases_are_frozen():
    for case in checks.service_cases().values():
        with pytest.raises(AttributeError):
            case.app = None
        assert isinstance(case, msgspec.Struct)
