"""Several tiers from traces: every tier a process, every request one of the recorded shapes.

model = make_model(read_spans("traces.json"), name="shop")
write_folder(model, Path("shop"))
ran = run(model, seconds=60.0)
compare(model.original, ran.seen).matches
"""

from __future__ import annotations

from gnomon.systems.clone.topology.compare import Comparison, compare
from gnomon.systems.clone.topology.folder import (
    check_place,
    is_folder,
    read_folder,
    write_folder,
    write_spans,
)
from gnomon.systems.clone.topology.live import Ran, run, serve
from gnomon.systems.clone.topology.model import Model, make_model

__all__ = [
    "Comparison", "Model", "Ran", "check_place", "compare", "is_folder", "make_model",
    "read_folder", "run", "serve", "write_folder", "write_spans",
]  # fmt: skip
