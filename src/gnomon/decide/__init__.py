"""Choosing: the shape of a policy, the policies that have names, and the generic baselines.

policy = policies.create("patient?min_queue=4:shortest")
action = policy.decide(state, rng)
"""

from gnomon.decide.baselines import (
    Fifo,
    Hold,
    Lifo,
    Patient,
    Pick,
    Random,
    ReadyQueue,
    Shortest,
)
from gnomon.decide.dispatch import dispatch
from gnomon.decide.policy import Learner, Policy, StateSpace, tell
from gnomon.decide.registry import policies
from gnomon.registry import Description, Parameter, Registry

__all__ = [
    "Description",
    "Fifo",
    "Hold",
    "Learner",
    "Lifo",
    "Parameter",
    "Patient",
    "Pick",
    "Policy",
    "Random",
    "ReadyQueue",
    "Registry",
    "Shortest",
    "StateSpace",
    "dispatch",
    "policies",
    "tell",
]
