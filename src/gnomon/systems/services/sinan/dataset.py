"""Data files of runs as arrays to train on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

import msgspec
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gnomon.decide.services import PERCENTILES
from gnomon.decide.services.sinan_model import (
    PAST,
    History,
    Singles,
    Subject,
    candidate_features,
)
from gnomon.errors import InputError
from gnomon.model.latency_net import Inputs
from gnomon.systems.services.sinan.collect import RunHead, load_pyarrow

#: Windows ahead that are judged together: as many as `History.violated` looks back on.
AHEAD = PAST


class Dataset(msgspec.Struct, frozen=True, eq=False):
    """Samples: past windows, the next allocation, and the latency that followed.

    Attributes:
        steady: The candidate of the trees: the least limits of the next AHEAD windows. A decision
            asks what comes of an allocation that stays, and training data has others after it.
        latency: Of the next window, over its bound: samples x percentiles.
        is_violated: Whether an SLA was violated over the next AHEAD windows.
        run: The number of the run that each sample is of.
    """

    application: str
    subject: Subject
    inputs: Inputs
    steady: Singles
    latency: Singles
    is_violated: NDArray[np.bool_]
    run: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.run)

    def take(self, rows: NDArray[np.int64] | slice) -> Self:
        return msgspec.structs.replace(
            self, inputs=self.inputs.take(rows), steady=self.steady[rows],
            latency=self.latency[rows], is_violated=self.is_violated[rows], run=self.run[rows],
        )  # fmt: skip


class Split(NamedTuple):
    """Rows to train on and rows to check on."""

    train: NDArray[np.int64]
    check: NDArray[np.int64]


def split(
    data: Dataset, by: Literal["run", "random"], *, seed: int = 0, share: float = 0.1
) -> Split:
    """Holds back a share of the runs, or of the windows at random.

    Windows overlap, so that a random split lets the answers leak; the paper's is of that kind.
    """
    rng = np.random.default_rng([seed, 0x5B11])
    if by == "random":
        held = np.zeros(len(data), bool)
        held[rng.permutation(len(data))[: max(1, round(share * len(data)))]] = True
    else:
        runs = np.unique(data.run)
        if len(runs) < 2:
            raise InputError("a split by run needs two runs or more", hint="collect more")
        kept = rng.permutation(runs)[: max(1, round(share * len(runs)))]
        held = np.isin(data.run, kept)
    return Split(np.flatnonzero(~held), np.flatnonzero(held))


def read_dataset(source: str | os.PathLike[str] | Sequence[Path]) -> Dataset:
    """All data files of a folder, or those given.

    Raises:
        InputError: There are none, one is broken, or they are of several applications.
    """
    if isinstance(source, str | os.PathLike):
        files, where = sorted(Path(source).glob("*.parquet")), str(source)
    else:
        files, where = list(source), "data"
    if not files:
        raise InputError("no data files there", where=where,
                         hint="gnomon services collect writes them")  # fmt: skip
    parts: list[Dataset] = []
    for number, path in enumerate(files):
        head, history = read_run(path)
        if parts:
            head.subject.check(parts[0].subject, str(path))
        if len(history) > PAST + AHEAD:
            parts.append(samples_of(head, history, number))
    return join(parts, where)


def join(parts: Sequence[Dataset], where: str = "data") -> Dataset:
    """Data of one application, one after another."""
    if not parts:
        raise InputError(f"no run of over {PAST + AHEAD} windows", where=where)
    inputs = (np.concatenate(part) for part in zip(*(one.inputs for one in parts)))
    return msgspec.structs.replace(
        parts[0], inputs=Inputs(*inputs), steady=np.concatenate([one.steady for one in parts]),
        latency=np.concatenate([one.latency for one in parts]),
        is_violated=np.concatenate([one.is_violated for one in parts]),
        run=np.concatenate([one.run for one in parts]),
    )  # fmt: skip


def read_run(path: str | os.PathLike[str]) -> tuple[RunHead, History]:
    """One data file."""
    arrow, parquet = load_pyarrow()
    where = os.fspath(path)
    try:
        table = parquet.read_table(where)
        head = msgspec.json.decode((table.schema.metadata or {})[b"gnomon"], type=RunHead)
        columns = {
            name: table.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False)
            for name in History.__struct_fields__
        }
    except OSError as error:
        raise InputError(f"cannot be read: {_line(error)}", where=where) from None
    except (arrow.ArrowException, KeyError, AttributeError, msgspec.DecodeError) as error:
        raise InputError(f"is no data file of a run: {_line(error)}", where=where) from None
    count, classes = table.num_rows, len(head.subject.classes)
    widths = {"class_rate": classes, "class_failed": classes, "class_late": classes,
              "class_ms": classes * len(PERCENTILES)}  # fmt: skip
    for name, values in columns.items():
        width = widths.get(name, len(head.subject.services))
        if values.shape != (count * width,):
            raise InputError(f"column {name} is not {width} numbers a window", where=where)
        if name != "class_ms" and not np.all(np.isfinite(values) & (values >= 0)):
            raise InputError(f"column {name} holds what cannot be measured", where=where)
        columns[name] = values.astype(float).reshape(count, width)
    columns["class_ms"] = columns["class_ms"].reshape(count, len(PERCENTILES), classes)
    if not np.all(columns["limit"] > 0):
        raise InputError("column limit holds what cannot be measured", where=where)
    return head, History(**columns)


def samples_of(head: RunHead, history: History, number: int = 0) -> Dataset:
    """Every window of a run that has enough before and after it."""
    now = np.arange(PAST - 1, len(history) - AHEAD)
    ratios = history.ratios(head.subject.classes)
    usage = sliding_window_view(
        history.channels(), PAST, axis=0
    )  # starts x channels x tiers x PAST
    latency = sliding_window_view(ratios, PAST, axis=0)
    violated = history.violated(head.subject.classes)
    start = now - PAST + 1
    mean = sliding_window_view(history.usage, PAST, axis=0).mean(axis=-1)[start]
    peak = sliding_window_view(history.peak, PAST, axis=0).max(axis=-1)[start]
    least = sliding_window_view(history.limit, AHEAD, axis=0).min(axis=-1)[now + 1]
    candidate, steady = (
        candidate_features(limit, history.limit[now], history.replicas[now], mean, peak)
        for limit in (history.limit[now + 1], least)
    )
    return Dataset(
        head.application, head.subject,
        Inputs(*map(np.ascontiguousarray, (usage[start], latency[start], candidate))), steady,
        ratios[now + 1], violated[now + AHEAD], np.full(len(now), number),
    )  # fmt: skip


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
