"""Requests on the cores of one process, under a scheduling policy and a way to preempt.

`native/engine/cores/cores.hpp` states the rules. The policies are compiled from the header that
the runtime of preemptive threads uses, `native/policy/policy.hpp`.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon import _core
from gnomon.errors import InputError

Ints = NDArray[np.int64]

Rule = Literal[
    "fcfs", "round-robin", "two-queue", "least-attained", "shortest-remaining",
    "earliest-deadline", "kind-priority", "reserved", "best-effort",
]  # fmt: skip
#: In the order of `PolicyKind`.
_RULES = get_args(Rule)
#: Longer than any run: never.
NEVER_NS = 2**62

#: How a quantum is chosen while requests run: not at all, by the rules of LibPreemptible, or by
#: simulating the last requests with what preempting costs.
Control = Literal["off", "paper", "cost"]
_CONTROLS = get_args(Control)


class Scheduling(msgspec.Struct, frozen=True):
    """A policy as the simulator runs it.

    Attributes:
        quantum_ns: After which a request may be cut.
        hard_quantum_ns: After which cut requests cut one another (`two-queue`).
        patience_ns: After which a cut request goes before new ones (`two-queue`).
        reserved: Workers that run kind 0 alone (`reserved`).
        share: Of the time that kinds above 0 get while they wait (`best-effort`).
    """

    rule: Rule
    quantum_ns: int = NEVER_NS
    hard_quantum_ns: int = 500_000
    patience_ns: int = NEVER_NS
    reserved: int = 0
    share: float = 0.0

    def to_native(self) -> _core.Scheduling:
        return _core.Scheduling(
            rule=_RULES.index(self.rule), quantum=self.quantum_ns,
            hard_quantum=self.hard_quantum_ns, patience=self.patience_ns,
            reserved=self.reserved, share=self.share,
        )  # fmt: skip


class Mechanism(msgspec.Struct, frozen=True, eq=False):
    """How a request is cut.

    Attributes:
        cost_ns: What a worker loses each time.
        dispatch_ns: What it loses when it takes a request up.
        late_ns: How late it stops: samples, which are drawn from.
    """

    cost_ns: int = 0
    dispatch_ns: int = 0
    late_ns: tuple[int, ...] = ()

    def to_native(self) -> _core.Mechanism:
        return _core.Mechanism(
            cost_ns=self.cost_ns, dispatch_ns=self.dispatch_ns,
            late_ns=np.array(self.late_ns, np.int64),
        )  # fmt: skip


class CoreRequests(msgspec.Struct, frozen=True, eq=False):
    """Requests in order of arrival.

    Attributes:
        kind: Of each, from 0 on: GET, SCAN.
        hint_ns: How long each should take, for policies that know.
        deadline_ns: Of each.
    """

    arrival_ns: Ints
    service_ns: Ints
    kind: NDArray[np.int32] | None = None
    hint_ns: Ints | None = None
    deadline_ns: Ints | None = None

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def to_native(self) -> _core.CoreRequests:
        return _core.CoreRequests(
            arrival=_times(self.arrival_ns), service=_times(self.service_ns),
            kind=None if self.kind is None else np.ascontiguousarray(self.kind, np.int32),
            hint=None if self.hint_ns is None else _times(self.hint_ns),
            deadline=None if self.deadline_ns is None else _times(self.deadline_ns),
        )  # fmt: skip


class CoreRun(msgspec.Struct, frozen=True, eq=False):
    """Requests that were played.

    Attributes:
        latency_ns: From arrival to end.
        preemptions: Of each.
        end_ns: Of the last one.
        lost_ns: By all workers, to preemptions and dispatch.
        asked: Ends of slices at which the policy was asked whether to preempt.
        quanta_ns: What the controller chose, one a period; `NEVER_NS` or more: no preemption.
    """

    latency_ns: Ints
    preemptions: NDArray[np.int32]
    end_ns: int
    lost_ns: int
    asked: int
    quanta_ns: Ints


def run_cores(
    requests: CoreRequests, scheduling: Scheduling, *, workers: int = 1,
    mechanism: Mechanism | None = None, is_shared: bool = True, control: Control = "off",
    control_period_ns: int = 100_000_000, seed: int = 0,
) -> CoreRun:  # fmt: skip
    """Plays requests on workers under a policy.

    Args:
        is_shared: One queue for all workers; otherwise one each, as in the runtime.

    >>> both = CoreRequests(np.array([0, 10]), np.array([100, 5]))
    >>> run_cores(both, Scheduling("fcfs")).latency_ns.tolist()
    [100, 95]
    >>> run_cores(both, Scheduling("round-robin", quantum_ns=20)).latency_ns.tolist()
    [105, 15]
    """
    try:
        found = _core.run_cores(
            requests=requests.to_native(), scheduling=scheduling.to_native(),
            mechanism=(mechanism or Mechanism()).to_native(), workers=workers,
            is_shared=is_shared, control=control_number(control),
            control_period=control_period_ns, seed=seed,
        )  # fmt: skip
    except ValueError as error:
        raise InputError(str(error)) from None
    return CoreRun(
        found.take_latency(), found.take_preemptions(), found.end, found.lost, found.asked,
        found.take_quanta(),
    )  # fmt: skip


def control_number(control: Control) -> int:
    """As the native core counts them."""
    return _CONTROLS.index(control)


def _times(values: ArrayLike) -> Ints:
    return np.ascontiguousarray(values, np.int64)
