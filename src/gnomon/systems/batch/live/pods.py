"""CAP as a limit on pods: running ones run on, new ones wait."""

from __future__ import annotations

import time
from collections.abc import Callable

from gnomon.act.held_quota import HeldQuota
from gnomon.act.kubernetes import QuotaPlan, find_cluster, quota_patch
from gnomon.act.process import interrupted_by_signals
from gnomon.errors import ActuationError, InputError
from gnomon.systems.batch.live.policy import DRY_RUN, LivePolicy

#: What happened ("planned", "applied", "restored") with which quota.
OnChange = Callable[[str, QuotaPlan], None]


def limit_pods(
    policy: LivePolicy, namespace: str, name: str, *, drivers: int, period_s: float,
    until: float | None, apply: bool, on_change: OnChange, log: Callable[[str], None],
) -> None:  # fmt: skip
    """Keeps a ResourceQuota at what the grid allows, until a time or an interrupt.

    Args:
        drivers: Other pods in the namespace.
        apply: Set it; otherwise only report what would be set.

    Raises:
        ActuationError: It could not be set even once.
    """
    # Refused before anything is set: names, a policy without a quota, no cluster.
    quota_patch(namespace, name, pods=drivers)
    policy.pods(time.time())
    if apply:
        find_cluster()
    else:
        log(DRY_RUN)
    limit, refused = _PodLimit(apply, on_change, log), None
    try:
        with interrupted_by_signals():
            while until is None or time.time() < until:
                try:
                    pods, why = policy.pods(time.time())
                    limit.set(quota_patch(namespace, name, pods=pods + drivers, reason=why))
                except InputError as error:  # the grid is not known
                    log(str(error))
                    limit.restore()
                except ActuationError as error:
                    refused = error
                    log(f"not set, tried again: {error}")
                time.sleep(period_s)
    except KeyboardInterrupt:
        pass
    finally:
        limit.restore()
    if refused is not None and not limit.was_set:
        raise refused


class _PodLimit:
    """A quota that is set when it changes, and restored at the end."""

    def __init__(self, apply: bool, on_change: OnChange, log: Callable[[str], None]) -> None:
        self._held = HeldQuota() if apply else None
        self._on_change, self._log = on_change, log
        self._last = ""
        self.was_set = False

    def set(self, plan: QuotaPlan) -> None:
        """Sets it, unless it is set already."""
        if (text := plan.describe()) == self._last:
            return
        if self._held is not None:
            self._held.set(plan)
            self.was_set = True
        self._on_change("planned" if self._held is None else "applied", plan)
        self._last = text

    def restore(self) -> None:
        """Back to what was found."""
        self._last = ""
        if self._held is None:
            return
        try:
            if restored := self._held.restore():
                self._on_change("restored", restored)
        except ActuationError as error:
            self._log(f"the quota was not restored: {error}")
