"""The desired state, and the changes that lead to it: pure and printable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, UnsetType

from gnomon.act.spark.state import DriverState

#: The first priority of an order: before all of Spark's own, which are job ids from 0 on.
_FIRST_PRIORITY = -1_000_000


class SparkDecision(msgspec.Struct, frozen=True):
    """The desired state of an application, whatever it is now.

    Attributes:
        quota: Executors at most, from 1 on; None sets no limit.
        hold: Stages to hold. Their running tasks run on.
        order: Stages, the most important first; others follow in Spark's own order.
        reasons: Why, in words: by stage, or by `"quota"`.
    """

    quota: int | None = None
    hold: frozenset[int] = frozenset()
    order: tuple[int, ...] = ()
    reasons: dict[str, str] = {}


class SparkPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changes to an application, as the driver's plugin takes them.

    Attributes:
        target: Executors to ask for; None restores what was before; unset changes nothing.
        hold: Stages to hold, further attempts included.
        release: Stages to release.
        priority: Lower is served first; None is Spark's own.
        reasons: Why, in words.
        notes: What was decided and is not supported.
    """

    target: int | UnsetType | None = UNSET
    hold: tuple[int, ...] = ()
    release: tuple[int, ...] = ()
    priority: dict[int, int | None] = {}
    reasons: dict[str, str] = {}
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when nothing would change."""
        return self.target is UNSET and not (self.hold or self.release or self.priority)

    def describe(self) -> str:
        """The plan in lines that a person can read.

        >>> why = {"7": "420 g/kWh, off the long path"}
        >>> print(SparkPlan(target=2, hold=(7,), reasons=why).describe())
        ask for 2 executors
        hold stage 7: 420 g/kWh, off the long path
        """
        lines = []
        if self.target is None:
            lines.append(self._with_reason("restore the number of executors", "quota"))
        elif not isinstance(self.target, UnsetType):
            noun = "executor" if self.target == 1 else "executors"
            lines.append(self._with_reason(f"ask for {self.target} {noun}", "quota"))
        lines += [self._with_reason(f"hold stage {stage}", str(stage)) for stage in self.hold]
        lines += [
            self._with_reason(f"release stage {stage}", str(stage)) for stage in self.release
        ]
        if self.priority:
            lines.append(f"serve {_describe_order(self.priority)}")
        lines += [f"unsupported: {note}" for note in self.notes]
        return "\n".join(lines) or "nothing to change"

    def _with_reason(self, text: str, key: str) -> str:
        return f"{text}: {self.reasons[key]}" if key in self.reasons else text


def _describe_order(priority: Mapping[int, int | None]) -> str:
    ordered = sorted((rank, stage) for stage, rank in priority.items() if rank is not None)
    parts = [f"stage {stage}" for _, stage in ordered]
    parts += [f"stage {stage} as Spark would" for stage, rank in priority.items() if rank is None]
    return ", then ".join(parts)


def plan(decision: SparkDecision, state: DriverState) -> SparkPlan:
    """The changes that lead from a state to the desired one; empty where it is reached.

    Args:
        decision: The desired state. Stages that the application does not have are ignored.
        state: The state now.
    """
    notes: list[str] = []
    target = _target(decision, state, notes)
    hold, release = _holds(decision, state, notes)
    return SparkPlan(
        target, hold, release, _priorities(decision, state, notes), decision.reasons, tuple(notes)
    )


def _target(
    decision: SparkDecision, state: DriverState, notes: list[str]
) -> int | UnsetType | None:
    if decision.quota == state.target:
        return UNSET
    if decision.quota is not None and not state.capabilities.can_scale:
        notes.append(f"the number of executors: {state.why_missing('set_target')}")
        return UNSET
    return decision.quota


def _holds(
    decision: SparkDecision, state: DriverState, notes: list[str]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    wanted = {stage.stage for stage in state.stages if stage.hold_requested}
    open_now = {stage.stage for stage in state.stages if not stage.done and not stage.skipped}
    if decision.hold and not state.capabilities.hold:
        notes.append(f"holding stages: {state.why_missing('hold')}")
        return (), ()
    hold = (decision.hold & open_now) - wanted
    return _sorted(hold), _sorted(wanted - decision.hold)


def _priorities(
    decision: SparkDecision, state: DriverState, notes: list[str]
) -> dict[int, int | None]:
    if decision.order and not state.capabilities.priority:
        notes.append(f"the order of stages: {state.why_missing('priority')}")
        return {}
    now = {
        stage.stage: stage.priority for stage in state.stages if stage.schedulable or stage.held
    }
    wanted = {
        stage: _FIRST_PRIORITY + rank
        for rank, stage in enumerate(dict.fromkeys(decision.order))
        if stage in now
    }
    changes: dict[int, int | None] = {
        stage: priority for stage, priority in wanted.items() if now[stage] != priority
    }
    # No longer ordered: Spark's own priority again.
    for stage, priority in now.items():
        if stage not in wanted and priority is not None and priority < 0:
            changes[stage] = None
    return changes


def _sorted(stages: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(stages))
