"""Which files make a job: one trace, a folder of ranks, a pattern."""

from __future__ import annotations

import glob
from pathlib import Path

from gnomon.errors import InputError
from gnomon.ingest.profiler.kineto import KinetoTrace, read_kineto
from gnomon.systems.training.job import rank_in_name

_ENDINGS = (".json", ".json.gz", ".json.zst")


def find_traces(path: Path) -> tuple[list[Path], int]:
    """The traces that make a job, and how many others lie in the same folder.

    A pattern means all that fit. In a folder, files named after their ranks (`rank0.json.gz`,
    `worker3_....pt.trace.json`) are the ranks of a job; of several of one rank the last by name,
    which is the latest, is meant. Otherwise one of the traces is meant.
    """
    if glob.has_magic(str(path)) and not path.exists():
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
        files = [file for file in found if file.is_file()]
        if not files:
            raise InputError("no file fits this pattern", where=str(path))
        return files, 0
    if not path.is_dir():
        return [path], 0
    traces = _in_folder(path)
    ranked = {rank: file for file in traces if (rank := rank_in_name(file.name)) is not None}
    if ranked:
        files = [file for _, file in sorted(ranked.items())]
        return files, len(traces) - len(files)
    # The names that profilers and we give come first.
    traces.sort(key=lambda f: (not f.name.startswith("kineto"), ".pt.trace." not in f.name, f))
    return traces[:1], len(traces) - 1


def _in_folder(path: Path) -> list[Path]:
    try:
        names = sorted(p.name for p in path.iterdir() if p.name.endswith(_ENDINGS))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    traces = [path / name for name in names if not name.startswith(("et.", "meta"))]
    if not traces:
        raise InputError("no profiler trace in this folder", where=str(path))
    return traces


def find_trace(path: Path) -> tuple[Path, int]:
    """The first trace of a path and the number of others there."""
    files, others = find_traces(path)
    return files[0], others + len(files) - 1


def read_traces(files: list[Path]) -> list[KinetoTrace]:
    """Reads the traces of a job; a bad one is named, with its rank."""
    traces = []
    for file in files:
        try:
            traces.append(read_kineto(file))
        except InputError as error:
            rank = rank_in_name(file.name)
            if len(files) == 1 or rank is None:
                raise
            what = f"rank {rank} of {len(files)} cannot be used: {error.what}"
            raise InputError(what, where=error.where, hint=error.hint) from None
    return traces
