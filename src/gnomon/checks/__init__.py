"""Public conformance checks: what ours and outsiders' plug-ins must keep to.

In a package that brings a policy, this is the whole test:

    from gnomon import checks

    def test_policy():
        checks.policy(MyPolicy())

Policies of a cluster of executors have theirs: `checks.cluster_policy("my-policy")`.
"""

from gnomon.checks.cluster_policies import (
    ClusterCase,
    cluster_cases,
    cluster_policy,
    cluster_policy_checks,
)
from gnomon.checks.equality import is_same
from gnomon.checks.outcome import Check, CheckFailed, Outcome, run_checks
from gnomon.checks.policies import policy, policy_checks, queue_states

__all__ = [
    "Check",
    "CheckFailed",
    "ClusterCase",
    "Outcome",
    "cluster_cases",
    "cluster_policy",
    "cluster_policy_checks",
    "is_same",
    "policy",
    "policy_checks",
    "queue_states",
    "run_checks",
]
