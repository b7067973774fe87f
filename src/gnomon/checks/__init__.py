"""Public conformance checks: what ours and outsiders' plug-ins must keep to.

In a package that brings a policy, this is the whole test:

    from gnomon import checks

    def test_policy():
        checks.policy(MyPolicy())
"""

from gnomon.checks.clusters import ClusterCase, cluster_cases
from gnomon.checks.equality import is_same
from gnomon.checks.outcome import Check, CheckFailed, Outcome, run_checks
from gnomon.checks.policies import CLUSTER, SERVICES, PolicyKind, policy, policy_checks
from gnomon.checks.services import ServiceCase, service_cases

__all__ = [
    "CLUSTER", "SERVICES", "Check", "CheckFailed", "ClusterCase", "Outcome", "PolicyKind",
    "ServiceCase", "cluster_cases", "is_same", "policy", "policy_checks", "run_checks",
    "service_cases",
]  # fmt: skip
