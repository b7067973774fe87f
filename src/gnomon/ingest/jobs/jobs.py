"""Jobs: what ran (or is to run), when, on how much; columns, whatever file they come from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Jobs:
    """One row per job; NaN, -1 or an empty text where the file does not say.

    Attributes:
        start_ns: When it started, or arrived; before 1970 too.
        utilisation: How busy they were, 0 to 1; NaN where unknown.
        energy_kwh: What was measured, without the building's overhead; NaN where nothing was.
        work: Functional units that it did, the R of SCI; NaN where unknown.
        price_usd_kwh: What its electricity cost; NaN where unknown.
        deadline_ns: When it has to be done, zero or more; -1 where it need not.
    """

    where: str
    line: Ints
    id: tuple[str, ...]
    start_ns: Ints
    end_ns: Ints
    cores: Floats
    gpus: Floats
    utilisation: Floats
    energy_kwh: Floats
    work: Floats
    price_usd_kwh: Floats
    deadline_ns: Ints
    machine: tuple[str, ...]
    gpu: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.id)

    def at(self, row: int) -> str:
        return f"{self.where} line {int(self.line[row])}"
