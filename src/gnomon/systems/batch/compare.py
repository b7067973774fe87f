"""Policies over all trials: changes against the first, their parts, and their confidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.estimate import Estimate
from gnomon.systems.batch.measure import PolicyMeasures
from gnomon.systems.batch.trial import PolicyOutcome, TrialOutcome

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_RESAMPLES = 2_000
_COVERAGE = 0.95
_NOTHING = 1e-12

#: Figures of a policy: label and unit.
FIELDS = {
    "carbon_kg": ("carbon", "kg"),
    "carbon_pct": ("carbon", "%"),
    "work_pct": ("of it by work", "%"),
    "intensity_pct": ("by cleaner hours", "%"),
    "oracle_pct": ("oracle's hours", "%"),
    "placebo_pct": ("placebo", "%"),
    "quota_pct": ("fixed quota", "%"),
    "placebo_intensity_pct": ("placebo, hours", "%"),
    "cpu_carbon_pct": ("carbon by CPU time", "%"),
    "cpu_work_pct": ("CPU time", "%"),
    "jct_mean_s": ("mean job time", "s"),
    "jct_p95_s": ("95 % of jobs", "s"),
    "ect_s": ("all done", "s"),
    "jct_pct": ("mean job time", "%"),
    "ect_pct": ("all done", "%"),
}


class PolicyComparison(msgspec.Struct, frozen=True):
    """One policy over all trials of one grid, or of all.

    Attributes:
        figures: By name, as in `FIELDS`; without a control, its figures are missing. Ranges hold
            95 % of resampled sets of start hours.
    """

    policy: str
    grid: str
    trials: int
    figures: dict[str, Estimate]
    quota_share: float | None = None


def compare(
    outcomes: Sequence[TrialOutcome], grid: str, *, seed: int = 0
) -> list[PolicyComparison]:
    """Every policy against the first, over these trials.

    A change is the geometric mean of each trial's. A ratio of sums would be that of the dirtiest
    trials, and less work in those would look like cleaner hours.
    """
    specs = list(outcomes[0].policies)
    # All figures of all policies on the same sets of trials. Those of one number have the same
    # jobs on every grid: they are drawn together.
    names = np.array([outcome.grid for outcome in outcomes])
    groups = [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]
    estimator = _Estimator(groups, np.random.default_rng([seed, len(outcomes)]))
    first = [outcome.policies[specs[0]].measured for outcome in outcomes]
    return [
        _comparison(spec, grid, [o.policies[spec] for o in outcomes], first, estimator)
        for spec in specs
    ]


def _comparison(
    spec: str, grid: str, own: Sequence[PolicyOutcome], first: Sequence[PolicyMeasures],
    estimate: _Estimator,
) -> PolicyComparison:  # fmt: skip
    measured = [outcome.measured for outcome in own]
    placebo = [outcome.placebo for outcome in own if outcome.placebo is not None]
    quota = [outcome.quota for outcome in own if outcome.quota is not None]

    def share(part: Sequence[PolicyMeasures], of: str, per: str | None = None) -> Estimate:
        return estimate.change(*_columns(part, of, per), *_columns(first, of, per))

    figures = {
        "carbon_kg": estimate.mean([m.carbon_g / 1e3 for m in measured]),
        "carbon_pct": share(measured, "carbon_g"),
        "work_pct": share(measured, "energy_kwh"),
        "intensity_pct": share(measured, "carbon_g", "energy_kwh"),
        "cpu_carbon_pct": share(measured, "cpu_carbon_g"),
        "cpu_work_pct": share(measured, "cpu_energy_kwh"),
        "jct_mean_s": estimate.mean([m.jct_mean_s for m in measured]),
        "jct_p95_s": estimate.mean([m.jct_p95_s for m in measured]),
        "ect_s": estimate.mean([m.ect_s for m in measured]),
        "jct_pct": share(measured, "jct_mean_s"),
        "ect_pct": share(measured, "ect_s"),
    }
    energy = np.array([m.energy_kwh for m in measured])
    ideal = np.array([outcome.bound for outcome in own]) * energy
    figures["oracle_pct"] = estimate.change(
        ideal, energy, *_columns(first, "carbon_g", "energy_kwh")
    )
    if placebo:
        figures["placebo_pct"] = share(placebo, "carbon_g")
        figures["placebo_intensity_pct"] = share(placebo, "carbon_g", "energy_kwh")
    if quota:
        figures["quota_pct"] = share(quota, "carbon_g")
    shares = [outcome.quota_share for outcome in own if outcome.quota_share is not None]
    return PolicyComparison(
        spec, grid, len(own), figures, float(np.mean(shares)) if shares else None
    )


def _columns(part: Sequence[PolicyMeasures], of: str, per: str | None) -> tuple[Floats, Floats]:
    top = np.array([getattr(m, of) for m in part])
    return top, np.array([getattr(m, per) for m in part]) if per else np.ones(top.size)


class _Estimator:
    """Means over trials and their range, by sets of trials drawn again from each grid."""

    def __init__(self, groups: Sequence[Ints], rng: np.random.Generator) -> None:
        drawn = {
            size: rng.integers(0, size, (_RESAMPLES, size))
            for size in dict.fromkeys(group.size for group in groups)
        }
        self.samples = np.concatenate([group[drawn[group.size]] for group in groups], axis=1)
        self.is_single = all(group.size == 1 for group in groups)

    def mean(self, values: Sequence[float] | Floats) -> Estimate:
        return self._estimate(np.asarray(values, dtype=np.float64), lambda mean: mean)

    def change(self, top: Floats, bottom: Floats, top0: Floats, bottom0: Floats) -> Estimate:
        """Per cent by which a ratio differs from the first policy's, trial by trial."""
        # Hours may emit nothing; nothing against nothing is no change.
        logs = [np.log(np.maximum(column, _NOTHING)) for column in (top, bottom, top0, bottom0)]
        return self._estimate(
            logs[0] - logs[1] - logs[2] + logs[3], lambda mean: 100.0 * np.expm1(mean)
        )

    def _estimate(self, column: Floats, scale: Callable[[Floats], Floats]) -> Estimate:
        mid = _rounded(scale(column.mean(keepdims=True))[0])
        if self.is_single:
            return Estimate.exact(mid)
        tail = (1.0 - _COVERAGE) / 2.0
        low, high = np.quantile(scale(column[self.samples].mean(axis=1)), [tail, 1.0 - tail])
        return Estimate(min(_rounded(low), mid), mid, max(_rounded(high), mid))


def _rounded(value: float) -> float:
    """Without what computers make of sums: no -0.0, and no 4e-14 %."""
    return round(float(value), 12) + 0.0
