"""The answers of `collect`, `train` and `tune`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gnomon.decide.services.sinan_model import Card
from gnomon.report import Figure, Manifest, Result
from gnomon.systems.services.sinan.dataset import Dataset
from gnomon.table import Table

_HOW = [
    "RMSE: latency over the bound of its SLA, squeezed past the bound as in the loss.",
    "Accuracy: whether an SLA is violated over the next 5 windows. AUC: how often a window before "
    "a violation is ranked above another.",
    "By run: whole runs are held back. At random: windows are, which overlap with others; better "
    "figures there are a leak.",
]


def collected_to_result(
    data: Dataset, files: Sequence[Path], *, command: str = "", seed: int = 0
) -> Result:
    """What was collected."""
    return Result(
        "services", "collect", f"{data.application}: {len(data):,} samples in {len(files)} runs",
        "Is there enough near the border?",
        figures=[
            Figure("samples", "Samples", len(data)),
            Figure("hours", "Hours of windows", len(data) / 3600, "h"),
            Figure("violated_pct", "Followed by a violation",
                   100.0 * float(data.is_violated.mean()), "%"),
        ],
        how=["A sample is a window with 5 before it and 5 after it."],
        manifest=Manifest.of(command, [], seed=seed),
    )  # fmt: skip


def model_to_result(
    card: Card, folder: str | os.PathLike[str], *, verb: str, command: str = "", seed: int = 0
) -> Result:
    """How well a model predicts, by split."""
    rows = [
        {"measured": name, "rmse_pct": 100 * one.rmse, "p99_rmse_pct": 100 * one.rmse_p99,
         "accuracy_pct": one.accuracy_pct, "false_positive_pct": one.false_positive_pct,
         "false_negative_pct": one.false_negative_pct, "majority_pct": one.majority_pct,
         "auc": one.auc}
        for name, one in card.metrics.items()
    ]  # fmt: skip
    units = {name: "%" for name in rows[0] if name.endswith("_pct")}
    best = list(card.metrics.values())[-1 if verb == "tune" else 0]
    return Result(
        "services", verb, f"{card.application}: a model of {card.samples:,} samples",
        "How well does it predict?",
        figures=[
            Figure("samples", "Samples", card.samples),
            Figure("rmse_pct", "RMSE of latency, of the bound", 100 * best.rmse, "%",
                   better="lower"),
            Figure("accuracy_pct", "Accuracy of violations", best.accuracy_pct, "%",
                   better="higher"),
            Figure("majority_pct", "Accuracy of the more frequent answer", best.majority_pct, "%"),
            Figure("p_down", "Most likely violation of a reduction", 100 * card.p_down, "%"),
            Figure("p_up", "And of a hold or growth", 100 * card.p_up, "%"),
        ],
        tables=[Table.from_rows("metrics", rows, units=units)],
        how=[*_HOW, f"Manage with it: --manager 'sinan?model={os.fspath(folder)}'."],
        manifest=Manifest.of(command, [], seed=seed),
    )  # fmt: skip
