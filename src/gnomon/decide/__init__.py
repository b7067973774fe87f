"""Choosing: the one shape of a policy, and a package for each kind of decision.

from gnomon.decide.cluster import cluster_policies, simulate
run = simulate(cluster_policies.create("cap:fifo"), jobs, executors=50, grid=grid)
"""

from gnomon.decide.policy import Policy

__all__ = ["Policy"]
