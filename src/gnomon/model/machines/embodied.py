"""What making hardware emits, from its silicon: the ACT model (ISCA 2022).

A die costs `area x (grid of the fab x energy + gases + materials) / yield`, memory and storage so
much a gigabyte, a package so much a piece. Which grid the fab ran on, how much of its gases it
abated and how many dies were good is seldom published: the answer is a range over them.
"""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate

#: Grid of a fab nobody names: the world's, Taiwan's (ACT's default), all coal; ACT's figures.
FAB_G_PER_KWH = Estimate(301.0, 583.0, 820.0)
#: Share of good dies: ACT takes 0.875; the ends are ours, for small dies and for the largest.
FAB_YIELD = Estimate(0.75, 0.875, 0.95)
#: One package, whatever is in it (ACT).
PACKAGE_KG = 0.15


class _ProcessNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node_nm: float
    kwh_cm2: float
    gas_99_g_cm2: float
    gas_95_g_cm2: float
    material_g_cm2: float


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    logic: tuple[_ProcessNode, ...]
    storage_g_gb: dict[str, float]
    grid_g_kwh: dict[str, float]


@cache
def _tables() -> _Tables:
    file = Path(__file__).with_suffix(".toml")
    return msgspec.toml.decode(file.read_bytes(), type=_Tables)


def logic_kg(
    area_mm2: float,
    node_nm: float,
    *,
    fab_g_per_kwh: Estimate | float = FAB_G_PER_KWH,
    fab_yield: Estimate | float = FAB_YIELD,
    abated: float | None = None,
) -> Estimate:
    """Kilograms for one good die, without its package.

    Args:
        node_nm: Process node, 3 to 28 nm; between the nodes of ACT's table, a straight line.
            Marketing names count by their generation: TSMC's 4N is 5 nm, 12FFN lies between 10
            and 14.
        fab_g_per_kwh: Grid of the fab; see `fab_grid`.
        abated: Share of process gases that are abated, 0.95 to 0.99; the whole span unless given.

    >>> logic_kg(814, 5).format("kg")
    '22.6 kgCO2e (13.3 to 34.6)'
    >>> logic_kg(698, 28, fab_g_per_kwh=820, fab_yield=0.875, abated=0.95).format("kg")
    '11.3 kgCO2e'
    """
    if not area_mm2 > 0:
        raise InputError(f"a die of {area_mm2} mm2; its area has to be above zero")
    energy, gas_99, gas_95, material = _per_cm2(node_nm)
    if abated is None:
        gas = Estimate(gas_99, (gas_99 + gas_95) / 2, gas_95)
    elif 0.95 <= abated <= 0.99:
        gas = Estimate.exact(gas_95 + (abated - 0.95) / 0.04 * (gas_99 - gas_95))
    else:
        raise InputError(f"{abated:g} of the gases abated; ACT knows 0.95 to 0.99")
    grams = (_checked_grid(fab_g_per_kwh) * energy + gas + material) * (area_mm2 / 100)
    return grams / _checked_yield(fab_yield) * 1e-3


def storage_kg(
    gigabytes: float,
    process: str = "ddr4_10nm",
    *,
    fab_yield: Estimate | float = 0.875,
) -> Estimate:
    """Kilograms for memory, flash or disks of one process, without packages.

    >>> storage_kg(36, "ddr3_50nm").format("kg")
    '24.7 kgCO2e'
    """
    table = _tables().storage_g_gb
    if process not in table:
        close = difflib.get_close_matches(process.lower(), table, n=2)
        known = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(table)}"
        raise InputError(f"no memory or storage process is called {process!r}", hint=known)
    if not gigabytes >= 0:
        raise InputError(f"{gigabytes} GB; a capacity cannot be negative")
    return Estimate.exact(gigabytes * table[process] * 1e-3) / _checked_yield(fab_yield)


def package_kg(count: int) -> Estimate:
    """Kilograms for packaging so many chips.

    >>> package_kg(2).mid
    0.3
    """
    return Estimate.exact(PACKAGE_KG * count)


def fab_grid(place: str) -> float:
    """g/kWh where a fab stands, or of what it burns.

    >>> fab_grid("Taiwan")
    583.0
    """
    grids = _tables().grid_g_kwh
    if place.lower() not in grids:
        raise InputError(f"no fab grid {place!r}", hint=f"known are {', '.join(grids)}")
    return grids[place.lower()]


def _per_cm2(node_nm: float) -> tuple[float, float, float, float]:
    nodes = sorted(_tables().logic, key=lambda node: node.node_nm)
    sizes = [node.node_nm for node in nodes]
    if not sizes[0] <= node_nm <= sizes[-1]:
        raise InputError(
            f"{node_nm:g} nm is outside of ACT's table, {sizes[0]:g} to {sizes[-1]:g} nm",
            hint="take embodied_kg from the maker's sheet",
        )
    columns = ("kwh_cm2", "gas_99_g_cm2", "gas_95_g_cm2", "material_g_cm2")
    energy, gas_99, gas_95, material = (
        float(np.interp(node_nm, sizes, [getattr(node, name) for node in nodes]))
        for name in columns
    )
    return energy, gas_99, gas_95, material


def _checked_grid(value: Estimate | float) -> Estimate:
    grid = value if isinstance(value, Estimate) else Estimate.exact(value)
    if grid.low < 0:
        raise InputError(f"a fab grid of {grid.low:g} g/kWh; it has to be zero or more")
    return grid


def _checked_yield(value: Estimate | float) -> Estimate:
    share = value if isinstance(value, Estimate) else Estimate.exact(value)
    if not (share.low > 0 and share.high <= 1):
        raise InputError(f"a fab yield of {share}; it lies above 0 and is at most 1")
    return share
