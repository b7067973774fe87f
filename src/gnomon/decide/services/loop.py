"""A manager at work: measure, decide, apply, again."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from gnomon.decide.services.guard import BARE, Decision, Guard, Rails, decision_rng
from gnomon.decide.services.log import DecisionLog
from gnomon.decide.services.policy import ServicePolicy, service_policies
from gnomon.decide.services.target import Target


class Managed(msgspec.Struct, frozen=True, eq=False):
    """A run under a manager.

    Attributes:
        decisions: Each with its window.
        spent_ms: CPU time of each.
    """

    decisions: list[Decision]
    spent_ms: list[float]


def manage(
    target: Target, policy: str | ServicePolicy, *, duration_s: float, interval_s: float = 1.0,
    seed: int = 0, rails: Rails = BARE, log: DecisionLog | None = None, apply: bool = True,
    on_window: Callable[[Decision], None] | None = None,
) -> Managed:  # fmt: skip
    """Runs a manager on a target for a while.

    Args:
        target: What it measures and changes.
        policy: A manager, or the name of one.
        duration_s: For how long.
        interval_s: From decision to decision.
        seed: Of what the manager draws.
        rails: How far it is trusted.
        log: Where decisions are recorded.
        apply: Whether they are carried out; a dry run else.
        on_window: Called after each decision.
    """
    chosen = service_policies.create(policy) if isinstance(policy, str) else policy
    guard = Guard(target.app, chosen, decision_rng(seed), rails)
    decisions: list[Decision] = []
    spent_ms: list[float] = []
    left_s = duration_s
    while left_s > 1e-6:
        window = target.observe(min(interval_s, left_s))
        left_s -= interval_s
        began = time.process_time_ns()
        decision = guard.decide(window)
        spent_ms.append((time.process_time_ns() - began) / 1e6)
        if apply:
            target.apply(decision.allocation)
        decisions.append(decision)
        if log is not None:
            log.write(decision)
        if on_window is not None:
            on_window(decision)
    return Managed(decisions, spent_ms)
