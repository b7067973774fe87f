"""Ursa on a running application: thresholds, exploration, a plan that was tried.

exploration = explore(app, in_simulator(app), seed=1)
plan = make_plan(app, exploration, {"get": 100.0})
"""

from gnomon.systems.services.ursa.backpressure import backpressure_threshold
from gnomon.systems.services.ursa.explore import Pace, explore
from gnomon.systems.services.ursa.stage import Stage, in_lab, in_simulator

__all__ = ["Pace", "Stage", "backpressure_threshold", "explore", "in_lab", "in_simulator"]
