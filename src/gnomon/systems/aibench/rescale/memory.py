"""Which memory the batch is in, and how each tensor on it looks after the change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.ingest.execution.trace import TensorValue
from gnomon.systems.aibench.builder.flow import strides_of
from gnomon.systems.aibench.rescale.layout import (
    Factor,
    Layout,
    NotWhole,
    Region,
    dense_strides,
    is_dense,
    region_of,
    restride,
)

#: The guesses that something depends on, by their place in time.
Taint = frozenset[int]
NO_TAINT: Taint = frozenset()
_Key = tuple[Any, ...]


class _Memory(msgspec.Struct, eq=False):
    """Memory that is shown in which the batch is.

    `region` is where in the memory the batch is, None where not known. Memory that is only
    expanded along the batch (`is_same`) is itself what it was.
    """

    views: dict[_Key, Layout]
    region: Region | None
    is_same: bool = False


class Memories:
    """All memory, by number; whatever is not known here is as recorded."""

    def __init__(self) -> None:
        self._known: dict[int, _Memory] = {}
        self._taint: dict[int, Taint] = {}
        #: Sizes of dimensions that the batch is in.
        self.sizes: set[int] = set()

    def carries(self, memory: int) -> bool:
        """Whether the batch is in some memory."""
        return memory in self._known

    def is_decided(self, memory: int) -> bool:
        """Whether anything was decided about some memory."""
        return memory in self._taint

    def taint(self, memories: Sequence[int]) -> Taint:
        """The guesses that some memory depends on."""
        return NO_TAINT.union(*(self._taint.get(memory, NO_TAINT) for memory in memories))

    def read(self, tensor: TensorValue, memory: int) -> Layout:
        """How a tensor looks now.

        Raises:
            NotWhole: It is a part of a tensor that has no counterpart.
        """
        known = self._known.get(memory)
        if known is None:
            return as_recorded(tensor)
        key = _key(tensor)
        if key in known.views:
            return known.views[key]
        for other, layout in known.views.items() if tensor.strides is None else ():
            if other[:3] == key[:3]:
                return layout
        if known.is_same:
            return as_recorded(tensor)
        known.views[key] = self.cut(memory, tensor.shape, tensor.strides, tensor.offset)
        return known.views[key]

    def cut(
        self, memory: int, shape: Sequence[int], strides: Sequence[int] | None, offset: int
    ) -> Layout:
        """Any view of some memory that the batch is in."""
        region = self._known[memory].region
        if region is None:
            raise NotWhole("it reads a part of a tensor in which the batch cannot be found")
        return restride(shape, strides, offset, region)

    def is_itself(self, memory: int) -> bool:
        """Whether memory is as large as it was."""
        return memory not in self._known or self._known[memory].is_same

    def begin(self, memory: int, taint: Taint) -> None:
        """New memory, as recorded until something else is decided."""
        self._taint[memory] = taint
        self._known.pop(memory, None)

    def bring(
        self, memory: int, tensor: TensorValue, shape: tuple[int, ...],
        factors: tuple[Factor | None, ...], taint: Taint,
    ) -> None:  # fmt: skip
        """Memory from outside, by the first tensor that is read from it."""
        self.begin(memory, taint)
        if shape == tensor.shape:
            return
        strides = strides_of(tensor)
        layout = Layout(shape, dense_strides(shape, strides), tensor.offset, factors)
        region = _region(tensor, layout)
        if region is not None:
            layout = restride(tensor.shape, strides, tensor.offset, region)
        self._add(memory, tensor, layout, region)

    def show(self, memory: int, tensor: TensorValue, layout: Layout, taint: Taint) -> None:
        """A view of memory that is already there."""
        self._taint[memory] = self._taint.get(memory, NO_TAINT) | taint
        known = self._known.get(memory)
        if known is None:
            if layout.shape == tensor.shape:
                return
            known = self._known[memory] = _Memory({}, None, is_same=True)
        known.views.setdefault(_key(tensor), layout)
        self.sizes.update(a for a, b in zip(tensor.shape, layout.shape) if a != b)

    def make(self, memory: int, tensor: TensorValue, layout: Layout, tried: Layout | None) -> None:
        """A tensor in new memory.

        Args:
            tried: How the recorded one came out when it was tried, None where it did not.
        """
        if layout.shape == tensor.shape:
            return
        strides, offset = layout.strides, tensor.offset
        old = strides_of(tensor)
        region = None
        if is_dense(tensor.shape, old):
            strides, region = dense_strides(layout.shape, old), _region(tensor, layout)
        elif tried is not None and tried.strides == old:
            offset = layout.offset
        self._add(memory, tensor, Layout(layout.shape, strides, offset, layout.factors), region)

    def _add(
        self, memory: int, tensor: TensorValue, layout: Layout, region: Region | None
    ) -> None:
        self._known[memory] = _Memory({_key(tensor): layout}, region)
        self.sizes.update(a for a, b in zip(tensor.shape, layout.shape) if a != b)

    def result(self, tensor: TensorValue, memory: int) -> Layout:
        """How a tensor looks that was just returned."""
        known = self._known.get(memory)
        found = known.views.get(_key(tensor)) if known is not None else None
        return found if found is not None else as_recorded(tensor)


def _region(tensor: TensorValue, layout: Layout) -> Region | None:
    """Where the batch is in the memory of a tensor, None where that is not known."""
    grown = [dim for dim, (a, b) in enumerate(zip(layout.shape, tensor.shape)) if a != b]
    factor = layout.factors[grown[0]]
    if len(grown) > 1 or factor is None:
        return None
    return region_of(tensor.shape, layout.shape, strides_of(tensor), grown[0], factor)


def as_recorded(tensor: TensorValue) -> Layout:
    """A tensor that nothing has changed."""
    strides = strides_of(tensor)
    return Layout(tensor.shape, strides, tensor.offset, (None,) * len(tensor.shape))


def _key(tensor: TensorValue) -> _Key:
    return (tensor.dtype, tensor.shape, tensor.offset, tensor.strides)
