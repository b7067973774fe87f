"""Quotas of executors: CAP, which follows the grid, and a fixed one as its control."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.decide.cluster.fields import check_share, check_word
from gnomon.decide.cluster.live import LiveCluster, LiveDecision
from gnomon.decide.cluster.policy import (
    Binding,
    ClusterPolicy,
    Counts,
    NativeForm,
    QuotaTerms,
    Setting,
    cluster_policies,
)
from gnomon.decide.cluster.rules import cap_quota
from gnomon.errors import InputError


@cluster_policies.register("cap")
class Cap(ClusterPolicy, frozen=True):
    """CAP: as many executors as the grid is clean, at least a share of `min_share` (section 4.2).

    Nothing is stopped: while more are busy than may be, none starts. A job's limit shrinks by as
    much as the quota did (`narrows`). That holds for every `task` that starts, as the paper says.
    In the authors' program limits do not shrink on Decima, and the quota is tested before a
    `decision` alone, which may then go beyond it: `narrows=false&binding=decision`.

    The quota `counts` executors that are `busy`, as in the paper's model, or all that applications
    hold (`held`): so do a limit on pods and the target that an agent sets. Idle ones beyond it are
    then released, unless the order keeps them.
    """

    inner: ClusterPolicy
    min_share: float = 0.2
    narrows: bool = True
    binding: Binding = "task"
    counts: Counts = "busy"

    def __post_init__(self) -> None:
        _check("cap", "min_share", self.min_share, self)

    def native(self, setting: Setting) -> NativeForm:
        grid, count = setting.grid_for("cap"), setting.executors.count
        quota = cap_quota(
            grid.seen, grid.low, grid.high, min_executors=self._least(count), executors=count
        )
        return _behind_quota(self, setting, quota)

    def live(self, state: LiveCluster) -> LiveDecision:
        inner, grid, count = self.inner.live(state), state.grid, state.executors
        if count is None:
            raise InputError("cap: of how many executors?", hint="give --executors")
        low, high = grid.low_end, grid.high_end
        quota = int(
            cap_quota(
                grid.intensity, low, high, min_executors=self._least(count), executors=count
            )[0]
        )
        return inner.at_most(
            quota,
            f"{grid.intensity:.0f} g/kWh between {low:.0f} and {high:.0f}: "
            f"{quota} of {count} executors",
        )

    @property
    def quota_terms(self) -> QuotaTerms:
        return QuotaTerms(self.narrows, self.binding, self.counts)

    def _least(self, executors: int) -> int:
        return max(1, round(self.min_share * executors))


@cluster_policies.register("quota")
class FixedQuota(ClusterPolicy, frozen=True):
    """A share of the executors at all hours: what CAP saves without knowing the grid.

    At least one executor. A share that is no whole number of them is kept over time: 2.5 are two
    in one hour and three in the next. With `narrows`, a job's limit shrinks by as much, as CAP's
    does.
    """

    reads_grid: ClassVar[bool] = False

    inner: ClusterPolicy
    share: float = 0.5
    narrows: bool = True
    binding: Binding = "task"
    counts: Counts = "busy"

    def __post_init__(self) -> None:
        _check("quota", "share", self.share, self)

    def native(self, setting: Setting) -> NativeForm:
        grid, count = setting.grid_for("quota"), setting.executors.count
        # Rounded, since 0.29 x 100 is a little less than 29.
        whole = np.floor(np.round(self.share * count * np.arange(grid.seen.size + 1), 6))
        quota = np.maximum(np.diff(whole), 1).astype(np.int32)
        return _behind_quota(self, setting, quota)

    @property
    def quota_terms(self) -> QuotaTerms:
        return QuotaTerms(self.narrows, self.binding, self.counts)


def _check(name: str, field: str, share: float, policy: Cap | FixedQuota) -> None:
    check_share(name, field, share)
    check_word(name, "binding", policy.binding, Binding)
    check_word(name, "counts", policy.counts, Counts)


def _behind_quota(
    policy: Cap | FixedQuota, setting: Setting, quota: NDArray[np.int32]
) -> NativeForm:
    gate = _core.quota_gate(
        quota, policy.narrows, policy.binding == "task", policy.counts == "held"
    )
    return policy.inner.native(setting).with_gate(gate)
