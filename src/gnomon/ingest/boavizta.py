"""Product footprints of Boavizta's environmental-footprint-data, read from its CSV.

The makers' sheets behind it give a total over the product's life, the share of manufacturing and
how far off the total may be. Its authors warn that they are orders of magnitude.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence

import msgspec

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.delimited import Delimited, read_lines

_NEEDED = ("manufacturer", "name", "gwp_total", "gwp_manufacturing_ratio")


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table.

    Attributes:
        total_kg: Over the whole life, use included.
        embodied_kg: Manufacturing alone, as far off as the total is; None where the sheet gives
            no share of manufacturing.
        mean_w: The sheet's yearly energy as a power; 0 where it does not say.
        doubt: Why there is no `embodied_kg`; empty where there is.
    """

    line: int
    manufacturer: str
    name: str
    subcategory: str
    total_kg: float
    embodied_kg: Estimate | None
    life_years: float
    mean_w: float
    source: str
    doubt: str = ""

    def making(self) -> Estimate:
        """Kilograms of manufacturing, or a clear line where the sheet has no share of it."""
        if self.embodied_kg is None:
            what = f"{self.name!r} (line {self.line}) {self.doubt}"
            raise InputError(what, hint="take another product, or the maker's sheet itself")
        return self.embodied_kg


def looks_like_boavizta(head: bytes) -> bool:
    """Whether a file begins with the header of the table."""
    first = head.split(b"\n", 1)[0]
    return all(name.encode() in first for name in _NEEDED)


def read_boavizta(path: str | os.PathLike[str]) -> list[Product]:
    """All products of a copy of boavizta-data-us.csv (or -fr, with semicolons)."""
    where = os.fspath(path)
    table = Delimited(read_lines(where, hint="expected CSV"), where)
    names = next(table, [])
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        what = f"there is no column {', '.join(missing)}"
        raise InputError(what, where=where, hint="is this Boavizta's footprint table?")
    products = []
    for cells in table:
        row = dict.fromkeys(names, "") | dict(zip(names, cells))
        if row.get("gwp_total"):
            products.append(_product(row, table.line, f"{where} line {table.line}"))
    return products


def _product(row: dict[str, str], line: int, at: str) -> Product:
    total = _number(row, "gwp_total", at) or 0.0
    share = _number(row, "gwp_manufacturing_ratio", at)
    error = _number(row, "gwp_error_ratio", at) or 0.0
    making, doubt = None, "gives no share of manufacturing"
    if share is not None and share > 1:
        # The published table has such lines: one bad line is no reason to refuse the rest.
        doubt = f"gives a share of manufacturing of {share:g}, which is none"
    elif share is not None:
        doubt = ""
        mid = total * share
        # Sheets state errors above 100 % too; what was made cannot have emitted less than nothing.
        making = Estimate(max(0.0, mid * (1 - error)), mid, mid * (1 + error))
    return Product(
        line=line,
        manufacturer=row["manufacturer"].strip(),
        name=row["name"].strip(),
        subcategory=(row.get("subcategory") or "").strip(),
        total_kg=total,
        embodied_kg=making,
        life_years=_number(row, "lifetime", at) or 0.0,
        mean_w=(_number(row, "yearly_tec", at) or 0.0) / 8.76,
        source=(row.get("sources") or "").strip(),
        doubt=doubt,
    )


def _number(row: dict[str, str], name: str, at: str) -> float | None:
    cell = (row.get(name) or "").strip().replace(",", ".")
    if not cell:
        return None
    if not re.fullmatch(r"\d+(\.\d*)?([eE][+-]?\d+)?", cell):
        raise InputError(f"{name}: {cell[:40]!r} is not a number", where=at)
    return float(cell)


def find_product(products: Sequence[Product], name: str) -> Product:
    """The product of that name, its maker's name before it or not."""
    wanted = _plain(name)
    names = [(_plain(p.name), _plain(f"{p.manufacturer} {p.name}")) for p in products]
    for product, known in zip(products, names):
        if wanted in known:
            return product
    inside = [p for p, (plain, _) in zip(products, names) if wanted and wanted in plain]
    if len(inside) == 1:
        return inside[0]
    close = [p.name for p in inside[:4]] or difflib.get_close_matches(
        name, [p.name for p in products], n=3
    )
    hint = f"did you mean {' or '.join(close)}?" if close else None
    many = "several products are" if len(inside) > 1 else "no product is"
    raise InputError(f"{many} called {name!r}", hint=hint)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
