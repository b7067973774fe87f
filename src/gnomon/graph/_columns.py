"""From what a caller gives to the columns a graph is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.errors import GraphError
from gnomon.graph.column_types import Codes, Ints
from gnomon.table import Dictionary

Code = TypeVar("Code", np.uint8, np.int32)

#: Starts are sums of durations; below this bound no sum along a path can overflow int64.
LONGEST_NS = 2**62


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Read-only: columns are shared between graphs, so nobody may write into them.

    The array itself is locked, not only a view of it: a graph that was validated must not change
    while the engine uses it because its maker kept the array.
    """
    if array.base is None:
        array.flags.writeable = False
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def own(values: ArrayLike, array: NDArray[Any]) -> NDArray[Any]:
    """The array, copied if it is still the caller's."""
    return array.copy() if np.may_share_memory(np.asarray(values), array) else array


def as_nanoseconds(values: ArrayLike) -> Ints:
    """Durations as int64; names the first that is not a number or absurdly long."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise GraphError(f"durations must be a flat column, not of shape {array.shape}")
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(array))
        if len(bad):
            raise GraphError(f"task {bad[0]} has duration {array[bad[0]]}")
        array = np.rint(array)
    elif array.dtype.kind not in "iub" and array.size:
        raise GraphError(f"durations must be numbers, not {array.dtype}")
    if array.size and (float(array.max()) >= LONGEST_NS or float(array.min()) <= -LONGEST_NS):
        worst = int(np.argmax(np.abs(array)))
        raise GraphError(f"task {worst} has duration {array[worst]} ns, over a century")
    return own(values, np.ascontiguousarray(array, np.int64))


def as_ids(values: ArrayLike, what: str) -> Codes:
    """Indices as int32; -1 may stand for none."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.dtype.kind == "f" and np.all(np.isfinite(array)) and np.all(array == np.rint(array)):
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise GraphError(f"{what} must be a flat column of whole numbers, not {array.dtype}")
    low, high = int(array.min()), int(array.max())
    if low < -1 or high >= 2**31 - 1:
        raise GraphError(f"{what} {low if low < -1 else high} is out of range")
    return own(values, np.ascontiguousarray(array, np.int32))


def compact_groups(group: NDArray[Any]) -> Codes:
    """Group numbers from 0 without holes: they are sizes of arrays in the engine."""
    member = group >= 0
    numbers = np.full(len(group), -1, np.int32)
    numbers[member] = np.unique(group[member], return_inverse=True)[1]
    return numbers


def intern_codes(
    texts: Sequence[str] | Dictionary | str, n: int, dtype: type[Code], what: str
) -> tuple[NDArray[Code], tuple[str, ...]]:
    """Each distinct text once, and a code per task. One text stands for all."""
    if isinstance(texts, Dictionary):
        return _used_codes(texts, n, dtype, what)
    if isinstance(texts, str):
        return np.zeros(n, dtype), (texts,)
    if len(texts) != n:
        raise GraphError(f"{len(texts)} {what}s for {n} rows")
    table: dict[str, int] = {}
    codes = [table.setdefault(str(text), len(table)) for text in texts]
    if len(table) > np.iinfo(dtype).max:
        raise GraphError(f"{len(table)} distinct {what}s; at most {np.iinfo(dtype).max} fit")
    return np.asarray(codes, dtype), tuple(table) or ((what,) if n else ())


def _used_codes(
    texts: Dictionary, n: int, dtype: type[Code], what: str
) -> tuple[NDArray[Code], tuple[str, ...]]:
    """Codes that somebody made already, without the values that nobody uses."""
    codes, values = np.asarray(texts.codes), texts.values
    if len(codes) != n:
        raise GraphError(f"{len(codes)} {what}s for {n} rows")
    if n and (int(codes.min()) < 0 or int(codes.max()) >= len(values)):
        raise GraphError(f"a {what} has a code outside its table of {len(values)}")
    is_used = np.zeros(len(values), bool)
    is_used[codes] = True
    used = np.flatnonzero(is_used)
    if len(used) > np.iinfo(dtype).max:
        raise GraphError(f"{len(used)} distinct {what}s; at most {np.iinfo(dtype).max} fit")
    new_code = np.zeros(len(values), dtype)
    new_code[used] = np.arange(len(used), dtype=dtype)
    return new_code[codes], tuple(str(values[code]) for code in used.tolist())


def build_csr(
    source: Codes, target: Codes, kind: NDArray[np.uint8], n: int
) -> tuple[Ints, Codes, NDArray[np.uint8]]:
    """Edge list to CSR by source; edges of one source keep their order."""
    for end, what in ((source, "starts"), (target, "ends")):
        if len(end) and (int(end.min()) < 0 or int(end.max()) >= n):
            bad = int(np.flatnonzero((end < 0) | (end >= n))[0])
            raise GraphError(f"edge {bad} {what} at task {end[bad]}, but there are {n} tasks")
    offset = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=n), out=offset[1:])
    if len(source) and np.any(source[1:] < source[:-1]):
        order = np.argsort(source, kind="stable")
        target, kind = target[order], kind[order]
    return offset, np.ascontiguousarray(target), np.ascontiguousarray(kind)
