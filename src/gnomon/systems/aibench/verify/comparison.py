"""Two profiles side by side: the clone's and the original's, row by row and family by family."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.accelerator.operator_family import FRAMEWORK
from gnomon.report import InputFile
from gnomon.systems.aibench.verify.clone_run import CloneRun
from gnomon.systems.aibench.verify.profile import PLACEHOLDER, UNNAMED, Profile

#: What the two ran on: only on the same device does a difference speak about the clone.
Basis: TypeAlias = Literal["same device", "another device", "another kind of device"]
Verdict: TypeAlias = Literal["agrees", "differs", "not judged"]


class Tolerance(msgspec.Struct, frozen=True):
    """How far a clone may be off.

    Attributes:
        step_pct: The step's time.
        family_pct: The time of each family of kernels that matters; all else likewise, but that
            decides nothing.
        share_pct: A family matters from this share of the device's time on, in either run.
    """

    step_pct: float = 10.0
    family_pct: float = 10.0
    share_pct: float = 2.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} has to be zero or more, not {value}")


class Row(msgspec.Struct, frozen=True):
    """One quantity of both.

    Attributes:
        tolerance_pct: How far the clone may be off; None where that is not judged.
        decides: Whether the verdict on the clone hangs on it.
        original_range: Where the original's value lies, where that is an estimate.
    """

    name: str
    original: float | None
    clone: float | None
    unit: str = ""
    tolerance_pct: float | None = None
    decides: bool = False
    original_range: Estimate | None = None
    clone_range: Estimate | None = None

    @property
    def difference_pct(self) -> float | None:
        """How far the clone is off, in percent of the original; of a percentage in points."""
        if self.original is None or self.clone is None:
            return None
        return _off(self.original, self.clone, self.unit)

    @property
    def verdict(self) -> Verdict:
        """Whether the clone is within tolerance."""
        if self.tolerance_pct is None or self.original is None or self.clone is None:
            return "not judged"
        # Any value of an estimate's range may be the true one: the nearest two are compared.
        one = self.original_range or Estimate.exact(self.original)
        two = self.clone_range or Estimate.exact(self.clone)
        if one.overlaps(two):
            return "agrees"
        near = (one.high, two.low) if one.high < two.low else (one.low, two.high)
        off = _off(*near, self.unit)
        return "agrees" if off is not None and abs(off) <= self.tolerance_pct else "differs"


def _off(original: float, clone: float, unit: str) -> float | None:
    if unit == "%":
        return clone - original
    if not original:
        return None if clone else 0.0
    return 100.0 * (clone / original - 1.0)


class Check(msgspec.Struct, frozen=True):
    """A clone set beside its original.

    Attributes:
        counts: Number by family, in the same order.
        run: What the clone reported; None where only its profile is there.
    """

    original: Profile
    clone: Profile
    basis: Basis
    tolerance: Tolerance
    rows: tuple[Row, ...]
    families: tuple[Row, ...] = ()
    counts: tuple[Row, ...] = ()
    run: CloneRun | None = None
    notes: tuple[str, ...] = ()
    inputs: tuple[InputFile, ...] = ()

    @property
    def every_row(self) -> tuple[Row, ...]:
        """All that was compared."""
        return self.rows + self.families + self.counts

    @property
    def agrees(self) -> bool | None:
        """Whether step and families are within tolerance; None where it is not judged."""
        if self.basis != "same device":
            return None
        return all(row.verdict == "agrees" for row in self.every_row if row.decides)

    @property
    def against(self) -> tuple[Row, ...]:
        """What the verdict hangs on and is out of tolerance."""
        return tuple(row for row in self.every_row if row.decides and row.verdict == "differs")


def compare_profiles(
    original: Profile,
    clone: Profile,
    *,
    tolerance: Tolerance = Tolerance(),  # noqa: B008
    run: CloneRun | None = None,
) -> Check:
    """Sets two profiles side by side.

    Only what can be compared is: between a GPU and a CPU the host's operators; between two GPUs
    everything, but there a difference is one of the devices and is not judged.
    """
    basis = _basis(original, clone)
    rows, families, counts = list(_rows(original, clone, tolerance)), [], []
    if basis == "another kind of device":
        rows = [row for row in rows if row.name == _HOST_OPS]
    else:
        families = _families(original, clone, tolerance)
        one, two = original.family_count, clone.family_count
        counts = [
            Row(row.name, one.get(row.name, 0), two.get(row.name, 0), "", tolerance.family_pct)
            for row in families
        ]
    if basis != "same device":
        rows, families, counts = (
            [msgspec.structs.replace(row, tolerance_pct=None, decides=False) for row in part]
            for part in (rows, families, counts)
        )
    notes = tuple(_notes(original, clone, basis))
    return Check(
        original, clone, basis, tolerance, tuple(rows), tuple(families), tuple(counts), run, notes
    )


def _basis(original: Profile, clone: Profile) -> Basis:
    if original.on_gpu != clone.on_gpu:
        return "another kind of device"
    names = {original.device, clone.device} - {UNNAMED}
    return "same device" if len(names) < 2 else "another device"


_HOST_OPS = "host operators per step"


#: Name, unit, and value of what is compared beside the step and the families.
_QUANTITIES: tuple[tuple[str, str, Callable[[Profile], float | None]], ...] = (
    ("device time per step", "ms", lambda run: _total(run.kernel_ms)),
    ("operator time per step", "ms", lambda run: _total(run.operator_ms)),
    ("kernels per step", "", lambda run: run.kernels),
    ("streams", "", lambda run: len(run.stream_pct)),
    ("busiest stream", "%", lambda run: run.stream_pct[0] if run.stream_pct else None),
    ("device busy, profiled", "%", lambda run: run.busy_pct),
    ("device busy", "%", lambda run: run.unprofiled_busy_pct),
    (_HOST_OPS, "", lambda run: run.host_ops),
    ("peak memory", "GiB", lambda run: None if run.peak_bytes is None else run.peak_bytes / 2**30),
    ("power", "W", lambda run: run.power_w),
)


def _rows(original: Profile, clone: Profile, tolerance: Tolerance) -> Iterator[Row]:
    """All but the families; what neither has is left out."""
    # A step that was not measured has a range; the spread of measured ones excuses nothing.
    ranges = [run.step_ms if run.step_from == "estimated" else None for run in (original, clone)]
    mids = original.step_ms.mid, clone.step_ms.mid
    yield Row("step", *mids, "ms", tolerance.step_pct, True, *ranges)
    for name, unit, of in _QUANTITIES:
        one, two = of(original), of(clone)
        if one or two:
            yield Row(name, one, two, unit, tolerance.family_pct)


def _total(by_family: Mapping[str, float]) -> float | None:
    return math.fsum(by_family.values()) if by_family else None


def _families(original: Profile, clone: Profile, tolerance: Tolerance) -> list[Row]:
    """Time by family; one that only one of them has is there too."""
    one, two = original.family_ms, clone.family_ms
    wholes = [(family, math.fsum(family.values())) for family in (one, two)]
    share = {
        name: max(100.0 * run.get(name, 0.0) / whole if whole else 0.0 for run, whole in wholes)
        for name in (*one, *two)
    }
    return [
        Row(
            name, one.get(name, 0.0), two.get(name, 0.0), "ms", tolerance.family_pct,
            # Autograd's own frames are the host's: a clone need not have them.
            share[name] >= tolerance.share_pct and name != FRAMEWORK,
        )
        for name in sorted(share, key=lambda name: (-one.get(name, 0.0), -two.get(name, 0.0)))
    ]  # fmt: skip


def _notes(original: Profile, clone: Profile, basis: Basis) -> Iterator[str]:
    if basis == "another kind of device":
        yield (
            f"the original ran on {original.device}, the clone on {clone.device}: times, memory "
            "and power of the two are not comparable"
        )
    elif basis == "another device":
        yield (
            f"the original ran on {original.device}, the clone on {clone.device}: differences "
            "speak about the devices, so they are shown and not judged"
        )
    elif UNNAMED in (original.device, clone.device):
        yield "a trace does not name its GPU: that both are the same is taken for granted"
    for who, profile in (("original", original), ("clone", clone)):
        if profile.step_from == "estimated":
            step = profile.step_ms
            yield (
                f"the {who}'s step was not measured without the profiler: {step.mid:.4g} ms is "
                f"estimated from its profile, {step.low:.4g} to {step.high:.4g}"
            )
        elif profile.step_from == "profiled":
            yield f"the {who}'s step is that of its profile, the profiler's own time included"
        for note in profile.notes:
            yield f"{who}: {note}"
    if PLACEHOLDER in clone.kernel_ms and basis != "another kind of device":
        spent = f"{clone.kernel_ms[PLACEHOLDER]:.4g} ms of the clone's step"
        yield f"{spent} are placeholder kernels, which count as a family of their own"
