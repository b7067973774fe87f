"""A purchase as a Result: keep or replace, when it pays, and on which grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from gnomon.report import Chart, Figure, LineChart, Manifest, Result
from gnomon.report.charts.chart import Line
from gnomon.systems.carbon.buy import Offer, Purchase, years_to_pay_back
from gnomon.table import Table

_GRIDS = np.geomspace(5.0, 1000.0, 60)


def verdict(purchase: Purchase) -> str:
    """The answer in one sentence."""
    p = purchase
    new = p.candidate.name
    if p.best is None:
        return (
            f"Keep all: within {p.years:g} years no replacement by {new} saves what making it "
            f"emits on a grid of {p.g_kwh.mid:.0f} g/kWh."
        )
    offer = p.best
    return (
        f"Replace {offer.servers_out:,} servers ({', '.join(offer.replaced[:4])}"
        f"{' ...' if len(offer.replaced) > 4 else ''}) by {offer.servers_in:,} x {new}: paid back "
        f"after {_years(offer.years)}, {-offer.net_kg.mid:,.0f} kg less over {p.years:g} years."
    )


def _years(years: float | None) -> str:
    if years is None:
        return "never"
    return f"{years:.1f} years" if years >= 0.1 else f"{365 * years:.0f} days"


def to_result(
    purchase: Purchase, command: str = "", *, price_usd_kwh: float | None = None,
    sources: Sequence[str] = (), notes: Sequence[str] = (),
) -> Result:  # fmt: skip
    """Everything there is to say about a purchase."""
    p = purchase
    return Result(
        "carbon",
        "buy",
        f"Keep, or replace by {p.candidate.name}",
        "Do new servers save more carbon than making them emits, and when?",
        figures=_figures(p, price_usd_kwh),
        tables=[
            _offers("Each model replaced on its own", p.singles),
            _offers("Highest power per unit of work first, cumulative", p.ladder),
        ],
        charts=[_course(p), _by_grid(p)],
        how=list(_HOW),
        notes=[verdict(p), *_notes(p), *notes],
        manifest=Manifest.of(
            command, sources, g_kwh=msgspec.structs.asdict(p.g_kwh), utilisation=p.utilisation,
            years=p.years, change_pct_y=p.change_pct_y, sleep=p.sleep,
        ),
    )  # fmt: skip


def _notes(p: Purchase) -> list[str]:
    if p.candidate.kind == "accelerator":
        return ["An accelerator's embodied carbon is that of its silicon: boards emit more."]
    if p.candidate.kind == "cpu":
        return ["The candidate's figures are of its processor alone: whole servers emit more."]
    return []


_HOW = [
    "What stands in the hall **has been emitted** and is on neither side; what is bought counts "
    "in full on the day it is bought (`gnomon.systems.carbon.buy`).",
    "The demand stays the same. Before and after, servers are filled in the order that emits "
    "least; new servers come in the number that has the performance of those replaced.",
    "Ranges come from those of power, embodied carbon and grid; the best and the worst case take "
    "their far ends together: old servers that draw much and new ones that draw little, or the "
    "other way round.",
]


def _figures(p: Purchase, price: float | None) -> list[Figure]:
    figures = [Figure("answer", "Answer", "keep" if p.best is None else "replace")]
    offer = p.best or (min(p.ladder, key=lambda one: one.net_kg.mid) if p.ladder else None)
    if offer is not None:
        figures += [
            Figure(
                "breakeven_years", "Carbon payback time", _years(offer.years),
                note=f"best {_years(offer.years_best)}, worst {_years(offer.years_worst)}",
            ),
            Figure("embodied_kg", "Embodied carbon of the new servers", offer.embodied_kg, "kg"),
            Figure("saved_kg_y", "Saved in the first year", offer.saved_kg_y, "kg"),
            Figure(
                "net_kg", f"More (less: -) over {p.years:g} years", offer.net_kg, "kg",
                better="lower",
            ),
        ]  # fmt: skip
        if offer.breakeven_g_kwh is not None:
            figures.append(
                Figure(
                    "breakeven_g_kwh",
                    "Break-even grid intensity",
                    offer.breakeven_g_kwh,
                    "gCO2e/kWh",
                )
            )
        if price is not None:
            saved = offer.saved_kwh_y * price
            figures.append(Figure("saved_usd_y", "Electricity saved, per year", saved, "USD"))
    figures.append(Figure("kept_kg_y", "Current fleet, per year", p.kept_kg_y, "kg"))
    return figures


def _offers(title: str, offers: Sequence[Offer]) -> Table:
    columns: dict[str, Any] = {
        "replaced": [
            offer.replaced[0] if len(offer.replaced) == 1 else f"+ {offer.replaced[-1]}"
            for offer in offers
        ],
        "out": [offer.servers_out for offer in offers],
        "in": [offer.servers_in for offer in offers],
        "embodied_kg": [offer.embodied_kg.mid for offer in offers],
        "saved_kg_y": [offer.saved_kg_y.mid for offer in offers],
        "payback": [_years(offer.years) for offer in offers],
        "best": [_years(offer.years_best) for offer in offers],
        "worst": [_years(offer.years_worst) for offer in offers],
        "grid_g_kwh": [
            "none" if offer.breakeven_g_kwh is None else f"{offer.breakeven_g_kwh:.0f}"
            for offer in offers
        ],
        "net_kg": [offer.net_kg.mid for offer in offers],
    }
    return Table.from_columns(
        title, columns, caption="grid_g_kwh: dirtier than this it pays within its use"
    )


def _shown(p: Purchase) -> Offer:
    return p.best or min(p.ladder, key=lambda offer: offer.net_kg.mid)


def _course(p: Purchase) -> Chart:
    offer = _shown(p)
    years = np.linspace(0.0, max(2 * p.years, 10.0), 121)
    rate = np.log1p(p.change_pct_y / 100.0)
    grown = years if rate == 0 else np.expm1(rate * years) / rate
    kept, saved = p.kept_kg_y, offer.saved_kg_y
    after = kept.mid - saved.mid
    x = years.tolist()
    return LineChart(
        "Carbon from today on",
        [
            Line("keep", x, (kept.mid * grown).tolist()),
            Line("replace", x, (offer.embodied_kg.mid + after * grown).tolist()),
        ],
        x_label="years", y_unit="kg", caption="Where the lines cross the new ones are paid back.",
    )  # fmt: skip


def _by_grid(p: Purchase) -> Chart:
    offer = _shown(p)
    lines = []
    for name, embodied, saved in (
        ("paid back after", offer.embodied_kg.mid, offer.saved_kwh_y.mid),
        ("best case", offer.embodied_kg.low, offer.saved_kwh_y.high),
        ("worst case", offer.embodied_kg.high, offer.saved_kwh_y.low),
    ):
        years = [
            years_to_pay_back(embodied, saved * grams / 1e3, p.change_pct_y) for grams in _GRIDS
        ]
        shown = [year if year is not None and year <= 30 else None for year in years]
        lines.append(Line(name, _GRIDS.tolist(), shown, dashed=name != "paid back after"))
    return LineChart(
        "Carbon payback time by grid intensity",
        lines,
        x_label="grid",
        x_unit="gCO2e/kWh",
        y_unit="years",
    )


def to_script(purchase: Purchase) -> dict[str, Any]:
    """What `--json` has at its top."""
    p = purchase
    return {
        "answer": "keep" if p.best is None else "replace",
        "verdict": verdict(p),
        "best": None if p.best is None else _plain(p.best),
        "single": [_plain(offer) for offer in p.singles],
        "cumulative": [_plain(offer) for offer in p.ladder],
        "kept_kg_y": p.kept_kg_y.mid,
    }


def _plain(offer: Offer) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(offer)
    return fields | {"breakeven_years": offer.years, "pays": offer.pays}
