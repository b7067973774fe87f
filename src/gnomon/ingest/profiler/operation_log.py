"""Operation logs: one row an operation of a multi-rank training job, Parquet or CSV.

The shape is that of the straggler study's published traces (OSDI 2025, "Understanding Stragglers
in Large Model Training Using What-if Analysis"): a compute stretch, a send, a receive or a
collective a row, with its rank, place in the job, step, start and duration in seconds. How the
job is laid out (data, pipeline, tensor parallel sizes) stands in a small YAML file beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from gnomon.errors import InputError, MissingExtra
from gnomon.ingest.delimited import Delimited, read_lines
from gnomon.ingest.text import read_head

_TIMES = ("start_ts", "duration")
_NEEDED = ("dp_rank", "stage", "rank", "step", "seq_id")
#: May be absent or blank: then the order of the operations tells as much.
_OPTIONAL = ("mc", "mb_id", "gmc")
_REQUIRED = ("optype", *_NEEDED, *_TIMES)
_PARQUET = b"PAR1"
_FARTHEST_S = 4e9  # a century; in nanoseconds it still fits


class JobLayout(msgspec.Struct, frozen=True):
    """How a job is spread over its ranks.

    Attributes:
        dp_size: Copies of the model that each see other data.
        pp_size: Pipeline stages.
        tp_size: Ranks that share each layer; one of them stands for all in the log.
        dsp_size: Ranks that share each sequence; one of them stands for all in the log.
    """

    name: str
    dp_size: int
    pp_size: int
    tp_size: int = 1
    dsp_size: int = 1
    vpp_size: int = 1
    world_size: int = 0


class OperationLog(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The operations of a job as columns, by step, rank and start.

    Columns: `operation` (codes into `operations`), `rank`, `dp_rank`, `stage`, `step` (the job's
    own numbers), `start_ns` (from the first start of its step), `duration_ns`, `sequence` (count
    of this operation on its rank in its step), `chunk`, `micro_batch` and `global_chunk` (-1 where
    the log does not say).
    """

    source: str
    layout: JobLayout
    operations: tuple[str, ...]
    operation: NDArray[np.int32]
    rank: NDArray[np.int32]
    dp_rank: NDArray[np.int32]
    stage: NDArray[np.int32]
    step: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    sequence: NDArray[np.int32]
    chunk: NDArray[np.int32]
    micro_batch: NDArray[np.int32]
    global_chunk: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> NDArray[np.int64]:
        return self.start_ns + self.duration_ns

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        return np.unique(self.step)

    @cached_property
    def step_index(self) -> NDArray[np.int64]:
        return np.searchsorted(self.steps, self.step)

    @cached_property
    def step_ns(self) -> NDArray[np.int64]:
        longest = np.zeros(len(self.steps), np.int64)
        np.maximum.at(longest, self.step_index, self.end_ns)
        return longest

    def is_operation(self, *operations: str) -> NDArray[np.bool_]:
        wanted = [code for code, name in enumerate(self.operations) if name in operations]
        return np.isin(self.operation, wanted)

    def only(self, steps: Sequence[int]) -> OperationLog:
        missing = [step for step in steps if step not in self.steps]
        if missing:
            first, last = int(self.steps[0]), int(self.steps[-1])
            what = f"has no step {missing[0]}; its {len(self.steps)} run from {first} to {last}"
            raise InputError(what, where=self.source)
        keep = np.isin(self.step, list(steps))
        if not keep.any():
            raise InputError("no step was asked for", where=self.source)
        rows = {name: getattr(self, name)[keep] for name in _COLUMNS}
        return OperationLog(self.source, self.layout, self.operations, **rows)


_COLUMNS = (
    "operation", "rank", "dp_rank", "stage", "step", "start_ns", "duration_ns", "sequence",
    "chunk", "micro_batch", "global_chunk",
)  # fmt: skip


def looks_like_operation_log(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a table with the columns of an operation log; nothing else is read."""
    try:
        head = read_head(path)
        if head.startswith(_PARQUET):
            footer = _parquet_footer(Path(path))
            # With its length in front: else 'rank' would be found in 'dp_rank'.
            return all(bytes([len(name)]) + name.encode() in footer for name in _REQUIRED)
    except (InputError, OSError):
        return False
    header = head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode(errors="replace")
    return set(_REQUIRED) <= {cell.strip().strip('"') for cell in header.split(",")}


def _parquet_footer(path: Path) -> bytes:
    """The end of a Parquet file, where the names of its columns stand in plain text."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(0, size - 8 - length))
        return file.read(length)


def read_operation_log(path: str | os.PathLike[str]) -> OperationLog:
    """Reads a log, .parquet, .csv or .csv.gz, and its layout from the YAML file beside it.

    The layout of `trace-NAME.parquet` is `meta-NAME.yaml`; otherwise a YAML file of the same name
    or `meta.yaml` is taken.
    """
    where = str(path)
    is_parquet = read_head(path, 4) == _PARQUET
    cells = _read_parquet(Path(path)) if is_parquet else _read_csv(path)
    missing = [name for name in _REQUIRED if name not in cells]
    if missing:
        what = f"has no column {missing[0]!r}"
        raise InputError(what, where=where, hint=f"an operation log has {', '.join(_REQUIRED)}")
    if not len(cells["rank"]):
        raise InputError("has no rows", where=where)
    return _checked(where, _read_layout(Path(path)), cells)


# -- tables ----------------------------------------------------------------------------------


def _read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "tables", "reading Parquet files") from None
    try:
        file = pyarrow.parquet.ParquetFile(path)
        wanted = [n for n in (*_REQUIRED, *_OPTIONAL) if n in file.schema_arrow.names]
        table = file.read(columns=wanted)
        return {
            name: _texts(table[name]) if name == "optype" else table[name].to_numpy()
            for name in wanted
        }
    except (pyarrow.ArrowException, OSError, TypeError, ValueError) as error:
        first_line = str(error).split("\n", 1)[0]
        what = f"the Parquet file cannot be read ({first_line})"
        raise InputError(what, where=str(path), hint="was the file cut short?") from None


def _texts(column: Any) -> NDArray[Any]:
    """A column of text as objects, each distinct text built once."""
    coded = column.combine_chunks().dictionary_encode()
    values = np.asarray([*coded.dictionary.to_pylist(), None], object)
    codes = coded.indices.fill_null(len(values) - 1).to_numpy()
    return np.asarray(values[codes], object)


def _read_csv(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    where = str(path)
    table = Delimited(read_lines(path, hint="expected Parquet or CSV"), where, separator=",")
    rows = []
    for row in table:
        rows.append(row)
        table.check_width(row, len(rows[0]))
    header = [cell.strip() for cell in rows[0]] if rows else []
    columns = list(zip(*rows[1:])) if len(rows) > 1 else [()] * len(header)
    known = {*_REQUIRED, *_OPTIONAL}
    return {
        name: np.asarray(cells, object) if name == "optype" else _numbers(name, cells, where)
        for name, cells in zip(header, columns)
        if name in known
    }


def _numbers(name: str, cells: Sequence[str], where: str) -> NDArray[np.float64]:
    try:
        return np.asarray([cell.strip() or "nan" for cell in cells], np.float64)
    except ValueError:
        pass
    for number, cell in enumerate(cells, 2):
        try:
            float(cell.strip() or "nan")
        except ValueError:
            what = f"line {number}: {name} is {cell!r}, not a number"
            raise InputError(what, where=where) from None
    raise AssertionError("a column that cannot be read has a cell that cannot")


# -- the layout beside the table -------------------------------------------------------------


class _LayoutFile(msgspec.Struct):
    dp_size: int
    pp_size: int
    trial_name: str = ""
    tp_size: int = 1
    dsp_size: int = 1
    vpp_size: int = 1
    world_size: int | None = None


def _read_layout(path: Path) -> JobLayout:
    file = _find_layout(path)
    try:
        meta = msgspec.convert(yaml.safe_load(file.read_bytes()), _LayoutFile)
    except (yaml.YAMLError, msgspec.ValidationError, OSError, UnicodeDecodeError) as error:
        first_line = str(error).split("\n", 1)[0]
        raise InputError(f"is not the layout of a job ({first_line})", where=str(file)) from None
    sizes = (meta.dp_size, meta.pp_size, meta.tp_size, meta.dsp_size)
    if min(*sizes, meta.vpp_size) < 1:
        raise InputError("every size of a layout is at least 1", where=str(file))
    world = int(np.prod(sizes))
    if meta.world_size not in (None, world):
        what = f"world_size is {meta.world_size}, but the sizes multiply to {world}"
        raise InputError(what, where=str(file))
    return JobLayout(
        meta.trial_name or path.name.split(".")[0], *sizes, meta.vpp_size, world
    )  # fmt: skip


def _find_layout(path: Path) -> Path:
    stem = path.name.split(".")[0]
    names = [f"meta-{stem.removeprefix('trace-')}", stem, "meta"]
    for name in names:
        for ending in (".yaml", ".yml"):
            if (file := path.with_name(name + ending)).is_file():
                return file
    hint = f"put {names[0]}.yaml with dp_size and pp_size beside it"
    raise InputError("the layout of the job is not there", where=str(path), hint=hint)


# -- from cells to columns -------------------------------------------------------------------


def _checked(where: str, layout: JobLayout, cells: Mapping[str, NDArray[Any]]) -> OperationLog:
    n = len(cells["rank"])
    whole = {name: _whole(name, cells[name], where) for name in _NEEDED}
    for name in _OPTIONAL:
        blank = np.full(n, -1, np.int64)
        whole[name] = _whole(name, cells[name], where, blank=-1) if name in cells else blank
    start, duration = (_seconds(name, cells[name], where) for name in _TIMES)
    if float(duration.min()) < 0.0:
        row = int(np.argmax(duration < 0.0))
        raise InputError(f"row {row + 1} has a duration of {duration[row]:g} s", where=where)
    operation, operations = _codes(cells["optype"], where)
    _check_places(where, layout, whole)
    begin_s = _first_of_step(whole["step"], start)
    start_ns = np.rint((start - begin_s) * 1e9).astype(np.int64)
    duration_ns = np.rint(duration * 1e9).astype(np.int64)
    order = np.lexsort((operation, start_ns + duration_ns, start_ns, whole["rank"], whole["step"]))
    small = {name: column.astype(np.int32)[order] for name, column in whole.items()}
    log = OperationLog(
        where, layout, operations, operation[order], small["rank"], small["dp_rank"],
        small["stage"], whole["step"][order], start_ns[order], duration_ns[order],
        small["seq_id"], small["mc"], small["mb_id"], small["gmc"],
    )  # fmt: skip
    _check_distinct(log)
    return log


def _whole(
    name: str, values: NDArray[Any], where: str, blank: int | None = None
) -> NDArray[np.int64]:
    column = _finite(name, values, where, blank)
    wrong = np.flatnonzero((column != np.rint(column)) | (column < -1) | (column >= 2**31 - 1))
    if len(wrong):
        what = f"row {wrong[0] + 1} has {name} {values[wrong[0]]}, not a small whole number"
        raise InputError(what, where=where)
    return column.astype(np.int64)


def _seconds(name: str, values: NDArray[Any], where: str) -> NDArray[np.float64]:
    column = _finite(name, values, where)
    far = np.flatnonzero(np.abs(column) > _FARTHEST_S)
    if len(far):
        what = f"row {far[0] + 1} has {name} {column[far[0]]:g}"
        raise InputError(what, where=where, hint="times are in seconds")
    return column


def _finite(
    name: str, values: NDArray[Any], where: str, blank: int | None = None
) -> NDArray[np.float64]:
    try:
        column = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"column {name!r} does not hold numbers", where=where) from None
    bad = np.flatnonzero(~np.isfinite(column))
    if not len(bad):
        return column
    if blank is None:
        raise InputError(f"row {bad[0] + 1} has {name} {column[bad[0]]}", where=where)
    return np.where(np.isfinite(column), column, float(blank))


def _codes(texts: NDArray[Any], where: str) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    table: dict[object, int] = {}
    codes = np.asarray([table.setdefault(text, len(table)) for text in texts.tolist()], np.int32)
    for text, code in table.items():
        if not isinstance(text, str) or not text.strip():
            row = int(np.argmax(codes == code)) + 1
            raise InputError(f"row {row} names no operation (optype {text!r})", where=where)
    names = sorted(str(text) for text in table)
    position = {name: number for number, name in enumerate(names)}
    return np.asarray([position[str(t)] for t in table], np.int32)[codes], tuple(names)


def _check_places(where: str, layout: JobLayout, whole: Mapping[str, NDArray[np.int64]]) -> None:
    """Each rank has one place in the job, and no two have the same."""
    sizes = {"dp_rank": layout.dp_size, "stage": layout.pp_size, "rank": layout.world_size}
    for name, size in sizes.items():
        wrong = np.flatnonzero((whole[name] < 0) | (whole[name] >= size))
        if len(wrong):
            what = f"row {wrong[0] + 1} has {name} {whole[name][wrong[0]]}; the layout has {size}"
            raise InputError(what, where=where)
    seats = np.unique(np.stack([whole["rank"], whole["dp_rank"], whole["stage"]]), axis=1)
    rank, dp_rank, stage = seats
    if len(np.unique(rank)) < len(rank):
        twice = int(rank[np.argmax(np.diff(rank) == 0)])
        raise InputError(f"rank {twice} has two places (dp_rank, stage)", where=where)
    place, count = np.unique(dp_rank * layout.pp_size + stage, return_counts=True)
    if count.max() > 1:
        dp, at = divmod(int(place[np.argmax(count)]), layout.pp_size)
        what = f"{count.max()} ranks are at dp_rank {dp}, stage {at}"
        raise InputError(what, where=where, hint="log one rank of those that share a place")


def _first_of_step(step: NDArray[np.int64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    steps, index = np.unique(step, return_inverse=True)
    begin = np.full(len(steps), np.inf)
    np.minimum.at(begin, index, start)
    return begin[index]


def _check_distinct(log: OperationLog) -> None:
    keys = np.stack([log.step, log.rank, log.operation, log.sequence])
    order = np.lexsort(keys)
    same = np.all(keys[:, order[1:]] == keys[:, order[:-1]], axis=0)
    if same.any():
        row = int(order[np.argmax(same)])
        name = f"{log.operations[log.operation[row]]} {log.sequence[row]}"
        what = f"{name} of rank {log.rank[row]} is there twice in step {log.step[row]}"
        raise InputError(what, where=log.source)
