"""How right predictions from a trace are: one recorded job to another, both measured.

    python benchmarks/training_predict.py [PART ...] [--recordings DIR] [--json]

Parts: shapes (one H200, other sizes), layouts (CPU ranks, other pipelines), coverage (how many of
all known cases lie in their ranges, those of `training_predict_public.py` too), recordings (every
pair of what `benchmarks/collect_gpt.py` recorded into DIR). Reads the data folder (`GNOMON_DATA`, or
`../shared/data` beside the checkout). A case is measured by its unprofiled steps, and its memory by the
allocator's peak; nothing of the target but its configuration is used.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.systems.training.prediction.predict import predict
from gnomon.systems.training.prediction.source import Recorded, read_recorded

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("GNOMON_DATA", ROOT.parent / "shared" / "data"))
SHAPES = [
    ("gpt-base", "gpt-l6"), ("gpt-base", "gpt-h1024"), ("gpt-base", "gpt-b2"),
    ("gpt-l6", "gpt-base"), ("gpt-h1024", "gpt-base"), ("gpt-b2", "gpt-base"),
]  # fmt: skip
LAYOUTS = [
    ("dp2-pp2-l8-h512-m8", "dp1-pp4-l8-h512-m8"),
    ("dp2-pp2-l8-h512-m8", "dp2-pp1-l8-h512-m8"),
    ("dp1-pp4-l8-h512-m8", "dp2-pp2-l8-h512-m8"),
]
#: Recordings between which a prediction makes sense: the same code.
FAMILIES = ("llama", "foreach", "unfused", "tiny", "")

Figures = dict[str, Any]


def main() -> None:
    """Measures the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help="which parts; shapes and layouts unless given")
    parser.add_argument("--recordings", type=Path, help="a folder of recorded jobs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    parts = chosen.part or ["shapes", "layouts", *(["recordings"] if chosen.recordings else [])]
    found = {
        part: recordings(chosen.recordings) if part == "recordings" else PARTS[part]()
        for part in parts
    }
    if chosen.json:
        print(json.dumps(found, indent=1))
        return
    for part, figures in found.items():
        print(f"\n{part}")
        for row in figures.pop("rows")[:40]:
            print("  " + "  ".join(f"{key} {_short(value)}" for key, value in row.items()))
        for name, value in figures.items():
            print(f"  {name}: {_short(value)}")


def measure(parts: list[str]) -> dict[str, Figures]:
    """The figures of some parts; `rows` has what they are made of."""
    return {part: PARTS[part]() for part in parts}


def shapes() -> Figures:
    """Other layers, widths and batches on one H200."""
    return _exam([(DATA / "h200" / a, DATA / "h200" / b) for a, b in SHAPES])


def layouts() -> Figures:
    """Other pipelines and data parallelism of CPU ranks."""
    return _exam([(DATA / "ranks" / a, DATA / "ranks" / b) for a, b in LAYOUTS])


def coverage() -> Figures:
    """How many of all known cases lie in the range that is meant to hold 80 % of them."""
    sys.path.insert(0, str(Path(__file__).parent))
    public = importlib.import_module("training_predict_public")
    rows = []
    for name, figures in public.measure(["vtrain", "neusight", "simumax"]).items():
        rows.append({"cases": figures["cases"], "inside_pct": figures["inside_pct"], "set": name})
    for name, part in (("shapes", shapes), ("layouts", layouts)):
        figures = part()
        rows.append(
            {"cases": figures["cases"], "inside_pct": figures["inside_range_pct"], "set": name}
        )
    cases = np.asarray([row["cases"] for row in rows], float)
    inside = np.asarray([row["inside_pct"] for row in rows])
    return {
        "rows": rows,
        "cases": int(cases.sum()),
        "pooled_pct": float((cases * inside).sum() / cases.sum()),
        "mean_of_sets_pct": float(inside.mean()),
    }


def recordings(folder: Path) -> Figures:
    """Every pair of recordings of the same code in a folder, the host-bound ones apart."""
    names = sorted(path.parent.name for path in folder.glob("*/meta.json"))
    groups: dict[str, list[str]] = {}
    for name in names:
        family = next(family for family in FAMILIES if name.startswith(family))
        groups.setdefault(family, []).append(name)
    pairs = {
        family: [(folder / a, folder / b) for a in group for b in group if a != b]
        for family, group in groups.items()
    }
    bound = _exam(pairs.pop("tiny", []))
    figures = _exam([pair for group in pairs.values() for pair in group])
    return figures | {f"host_bound_{key}": v for key, v in bound.items() if key != "rows"}


def _exam(pairs: list[tuple[Path, Path]]) -> Figures:
    rows = [_case(base, target) for base, target in pairs]
    if not rows:
        return {"rows": []}
    wrong = np.abs([row["error_pct"] for row in rows])
    worst = rows[int(np.argmax(wrong))]
    figures: Figures = {
        "rows": rows,
        "cases": len(rows),
        "mean_pct": float(wrong.mean()),
        "median_pct": float(np.median(wrong)),
        "worst_pct": float(wrong.max()),
        "worst": f"{worst['base']} to {worst['target']}",
        "inside_range_pct": 100.0 * float(np.mean([row["inside"] for row in rows])),
    }
    memory = [abs(row["memory_error_pct"]) for row in rows if "memory_error_pct" in row]
    if memory:
        figures |= {"memory_mean_pct": float(np.mean(memory)),
                    "memory_worst_pct": float(max(memory))}  # fmt: skip
    return figures


@cache
def _recorded(path: Path) -> Recorded:
    return read_recorded(path)[0]


def _case(base: Path, target: Path) -> dict[str, Any]:
    source = _recorded(base)
    # The target's trace tells its configuration and nothing else.
    prediction = predict(source, _recorded(target).base, explain=False)
    meta = json.loads((target / "meta.json").read_text())
    measured = meta["step_ms_median"]
    row = {
        "base": base.name,
        "target": target.name,
        "predicted_ms": prediction.step.mid,
        "low_ms": prediction.step.low,
        "high_ms": prediction.step.high,
        "measured_ms": measured,
        "error_pct": 100.0 * (prediction.step.mid / measured - 1.0),
        "inside": prediction.step.contains(measured),
    }
    if "peak_bytes" in meta:
        row["memory_gib"] = prediction.memory.total / 2**30
        row["memory_error_pct"] = 100.0 * (prediction.memory.total / meta["peak_bytes"] - 1.0)
    return row


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


PARTS = {"shapes": shapes, "layouts": layouts, "coverage": coverage}

if __name__ == "__main__":
    main()
