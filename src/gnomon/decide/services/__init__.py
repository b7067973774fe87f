"""Managers of services, by name: CPU limits, shares and replicas from what was measured.

    run = manage(SimTarget(app, arrivals), "hpa", duration_s=600.0, seed=1)

The same manager runs on the simulator, on the process lab and on Kubernetes: each is a `Target`.
"""

from gnomon.decide.services.guard import BARE, Decision, Guard, Rails
from gnomon.decide.services.log import DecisionLog, read_log, replay_log
from gnomon.decide.services.loop import manage
from gnomon.decide.services.policy import ServicePolicy, hold, service_policies
from gnomon.decide.services.state import PERCENTILES, Allocation, ServiceState, Window
from gnomon.decide.services.target import SimTarget, Target

__all__ = [
    "BARE", "PERCENTILES", "Allocation", "Decision", "DecisionLog", "Guard", "Rails",
    "ServicePolicy", "ServiceState", "SimTarget", "Target", "Window", "hold", "manage", "read_log",
    "replay_log", "service_policies",
]  # fmt: skip
