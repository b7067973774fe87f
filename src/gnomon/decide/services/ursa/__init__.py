"""Ursa: an analytical plan of CPU for services (Zhang et al., HPCA 2024).

    exploration = Exploration.read("explored.json")      # `gnomon services explore`
    plan = make_plan(app, exploration, {"get": 100.0})
    print(plan.cores, plan.shares)

- `latencies`: the latency of a service at one operating point, as a distribution.
- `exploration`: the operating points of every service, and the file that keeps them.
- `paths`: a class as the times of its calls, in sequence and in parallel.
- `program`: the integer program: percentiles by the union bound.
- `joint`: the tighter decomposition, from joint samples.
- `plan`: both, what the plan allows each service, and why.
"""

from gnomon.decide.services.ursa.exploration import Exploration, Explored, Option
from gnomon.decide.services.ursa.latencies import Latencies
from gnomon.decide.services.ursa.plan import Plan, make_plan

__all__ = ["Exploration", "Explored", "Latencies", "Option", "Plan", "make_plan"]
