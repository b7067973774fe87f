"""The system as a composition of the layers: read, build, replay, ask."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gnomon.errors import InputError
from gnomon.graph import Timeline
from gnomon.ingest.kineto import read_kineto
from gnomon.sim import replay
from gnomon.systems.training.graph import TrainingGraph, build_graph
from gnomon.systems.training.steps import steady_window
from gnomon.systems.training.whatif import WhatIf, WhatIfRow, play, usual_questions

__all__ = ["TrainingReplay", "find_trace", "replay_trace"]

_META = "meta.json"
_ENDINGS = (".json", ".json.gz", ".json.zst")


class TrainingReplay(msgspec.Struct, frozen=True, eq=False):
    """A trace, replayed: the graph, its timelines, and the answers to what-ifs.

    Attributes:
        source: The trace that was read.
        passed_over: How many other traces lay in the same folder.
        training: The graph and what was recorded.
        as_recorded: The unchanged graph, replayed.
        changes: What was changed, all together.
        timeline: The changed graph, replayed; `as_recorded` when nothing was.
        what_ifs: Questions and their answers, each on its own.
        unprofiled_ms: The step without the profiler, where it was measured.
    """

    source: str
    passed_over: int
    training: TrainingGraph
    as_recorded: Timeline
    changes: tuple[WhatIf, ...]
    timeline: Timeline
    what_ifs: tuple[WhatIfRow, ...]
    unprofiled_ms: float | None

    def window(self) -> tuple[Timeline, int]:
        """The steady steps of the replay, and how many they are."""
        begin, end, steps = steady_window(self.training, self.timeline)
        return (self.timeline.cut(begin, end) if end > begin else self.timeline), steps


def replay_trace(
    path: str | os.PathLike[str],
    questions: Sequence[WhatIf] | None = None,
    changes: Sequence[WhatIf] = (),
) -> TrainingReplay:
    """Reads a profiler trace, rebuilds its graph and plays it.

    Args:
        path: A trace file, or a folder that holds one, perhaps with `meta.json` beside it.
        questions: What-ifs to answer one by one; unless given, the changes, or the usual ones.
        changes: Made to the graph all together before it is played.
    """
    file, passed_over = find_trace(Path(path))
    training = build_graph(read_kineto(file))
    as_recorded = timeline = replay(training.graph)
    if changes:
        changed = training.graph
        for change in changes:
            changed = change.apply(changed)
        timeline = replay(changed)
    if questions is None:
        questions = changes or usual_questions(training)
    rows = play(training, list(questions), as_recorded)
    return TrainingReplay(
        str(file), passed_over, training, as_recorded, tuple(changes), timeline, tuple(rows),
        _unprofiled_ms(file),
    )  # fmt: skip


def find_trace(path: Path) -> tuple[Path, int]:
    """The trace itself, or one inside a folder and the number of others there."""
    if not path.is_dir():
        return path, 0
    try:
        names = sorted(p.name for p in path.iterdir() if p.name.endswith(_ENDINGS))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    traces = [name for name in names if name != _META and not name.startswith("et.")]
    if not traces:
        raise InputError("no profiler trace in this folder", where=str(path))
    # The names that profilers and we give come first.
    traces.sort(key=lambda name: (not name.startswith("kineto"), ".pt.trace." not in name, name))
    return path / traces[0], len(traces) - 1


class _Meta(msgspec.Struct):
    step_ms_median: float | None = None


def _unprofiled_ms(file: Path) -> float | None:
    meta = file.with_name(_META)
    if not meta.is_file():
        return None
    try:
        return msgspec.json.decode(meta.read_bytes(), type=_Meta).step_ms_median
    except msgspec.DecodeError as error:
        what = f"its step_ms_median cannot be read: {error}"
        raise InputError(what, where=str(meta)) from None
