"""From recorded tensors to registers: who made what, what has to be there beforehand.

A trace names tensors by the addresses of their objects and of their memory, and addresses are used
again. So memory has generations: it begins one when an operator returns a tensor in it that was
not given one, and a later read is of the newest. A tensor that is read is, in this
order: the register that holds this very tensor; another register with the same view of the same
memory (autograd unpacks what it saved under new names); a new view of memory that is known; or
something from outside, that is made before the first step and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gnomon.ingest.execution.trace import TensorValue, Value
from gnomon.systems.aibench.builder.select import tensors_in
from gnomon.systems.aibench.program import Call, Made, Meta, Storage


class _Memory(msgspec.Struct, eq=False):
    """One generation of some memory; `storage` is its number where it comes from outside."""

    number: int
    nbytes: int
    on_cpu: bool
    storage: int | None
    views: dict[Any, list[Any]]
    #: Any tensor on it, from which others are cut.
    base: list[Any] | None = None
    base_dtype: str = ""
    made_by: Call | None = None
    #: None once a view without strides lies on it: older traces do not know them.
    unknown: int | None = 0


class Flow:
    """Follows the tensors of a trace, call by call, in order of start."""

    def __init__(self) -> None:
        self.storages: list[Storage] = []
        self.made: list[Made] = []
        self.metas: list[Meta] = []
        self.memories: list[_Memory] = []
        self._meta_numbers: dict[Meta, int] = {}
        self._live: dict[int, _Memory] = {}
        self._tensors: dict[int, tuple[_Memory, Any, list[Any]]] = {}
        self._made_numbers: dict[Made, int] = {}
        self._outside: dict[tuple[int, bool], int] = {}
        self._registers = 0

    def take(self, tensor: TensorValue, emit: Callable[[Call], None], call: Call) -> list[Any]:
        """The operand that stands for a tensor that is read.

        Args:
            tensor: As recorded.
            emit: Takes a call that has to come before, where a view has to be cut first.
            call: Who reads.
        """
        memory = self.memory_of(tensor)
        view = _view(tensor)
        known = self._tensors.get(tensor.tensor)
        if known is not None and known[0] is memory and _same(known[1], view):
            return known[2]
        if view in memory.views:
            return memory.views[view]
        if None in (view[3], memory.unknown):
            for other, operand in memory.views.items():
                if _same(other, view):
                    return operand
        if memory.storage is not None:
            operand = ["x", self._make(memory, tensor)]
        else:
            operand = self._cut(memory, tensor, emit, call)
        memory.views[view] = operand
        memory.unknown = None if view[3] is None else memory.unknown
        return operand

    def memory_of(self, tensor: TensorValue) -> _Memory:
        """The memory that a tensor is read from; from outside where no call made it."""
        memory = self._live.get(tensor.storage) if tensor.elements else None
        needed = extent_bytes(tensor)
        on_cpu = _on_cpu(tensor)
        if memory is not None and memory.on_cpu == on_cpu:
            if memory.storage is not None:
                self.storages[memory.storage].nbytes = memory.nbytes = max(memory.nbytes, needed)
                return memory
            if needed <= memory.nbytes:
                return memory
        return self._begin(tensor, needed, self._storage_for(tensor, needed))

    def is_outside(self, tensor: TensorValue) -> bool:
        """Whether no call made what a tensor shows."""
        memory = self._live.get(tensor.storage)
        return memory is None or memory.storage is not None

    def _storage_for(self, tensor: TensorValue, needed: int) -> int:
        # What lay at the same address one after the other need not lie side by side, unless
        # whole numbers are among it, which may be indices that must not be overwritten.
        key = (tensor.storage, _on_cpu(tensor))
        is_plain = tensor.dtype.startswith(("float", "bfloat", "complex"))
        number = self._outside.get(key) if tensor.elements and is_plain else None
        if number is None:
            number = len(self.storages)
            self.storages.append(Storage(needed, int(_on_cpu(tensor)), []))
            if tensor.elements and is_plain:
                self._outside[key] = number
        storage = self.storages[number]
        storage.nbytes = max(storage.nbytes, needed)
        return number

    def _make(self, memory: _Memory, tensor: TensorValue) -> int:
        assert memory.storage is not None
        made = Made(memory.storage, tensor.offset, self.meta(tensor))
        number = self._made_numbers.setdefault(made, len(self.made))
        if number == len(self.made):
            self.made.append(made)
        return number

    def _cut(
        self, memory: _Memory, tensor: TensorValue, emit: Callable[[Call], None], call: Call
    ) -> list[Any]:
        assert memory.base is not None
        dtype = None if memory.base_dtype == tensor.dtype else tensor.dtype
        return self._view(memory.base, tensor, memory.number, emit, call, dtype)

    def _view(
        self, base: list[Any], tensor: TensorValue, memory: int, emit: Callable[[Call], None],
        call: Call, dtype: str | None = None,
    ) -> list[Any]:  # fmt: skip
        where = [list(tensor.shape), list(strides_of(tensor)), tensor.offset]
        does, args = "aten.as_strided.default", [base, *where]
        if dtype is not None:
            does, args = "view_as", [base, ["d", dtype], *where]
        register = self.register()
        emit(Call(
            does, args, {}, register, [self.meta(tensor)], call.at, call.thread, "view", "view",
            reads={memory}, extra={"g": 1},  # glue: the recording did without
        ))  # fmt: skip
        return ["r", register]

    def alias(
        self, operand: list[Any], tensor: TensorValue, emit: Callable[[Call], None], call: Call
    ) -> list[Any]:
        """Another tensor on the same memory, which a call may reshape."""
        return self._view(operand, tensor, self.memory_of(tensor).number, emit, call)

    def give(self, values: tuple[Value, ...], call: Call) -> None:
        """Binds what a call returned: fills its registers and how they look."""
        outs = [self._give(value, call) for value in values]
        call.outs = outs[0] if len(outs) == 1 else outs if outs else None

    def _give(self, value: Value, call: Call) -> Any:
        if isinstance(value, tuple):
            return [self._give(part, call) for part in value]
        if not isinstance(value, TensorValue):
            return None
        register = self.register()
        operand = ["r", register]
        memory = self._live.get(value.storage) if value.elements else None
        if memory is None or memory.number not in call.reads or memory.on_cpu != _on_cpu(value):
            memory = self._begin(value, extent_bytes(value), None)
            memory.made_by = call
            call.writes.add(memory.number)  # a view writes nothing; others mark what they write
        if memory.base is None:
            memory.base, memory.base_dtype = operand, value.dtype
        view = _view(value)
        if memory.storage is None:
            memory.nbytes = max(memory.nbytes, extent_bytes(value))
            memory.views[view] = operand
            memory.unknown = None if view[3] is None else memory.unknown
        self._tensors[value.tensor] = (memory, view, operand)
        call.metas.append(self.meta(value))
        return register

    def forget(self, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> None:
        """Ends what memory held when a call that is left out made something new in it.

        Whoever reads it later reads something from outside, not what lay there before.
        """
        given = {tensor.storage for tensor in tensors_in(inputs)}
        for tensor in tensors_in(outputs):
            if tensor.elements and tensor.storage not in given:
                self._live.pop(tensor.storage, None)

    def _begin(self, tensor: TensorValue, nbytes: int, storage: int | None) -> _Memory:
        memory = _Memory(len(self.memories), nbytes, _on_cpu(tensor), storage, {})
        self.memories.append(memory)
        if tensor.elements:
            self._live[tensor.storage] = memory
        return memory

    def register(self) -> int:
        """An unused register."""
        self._registers += 1
        return self._registers - 1

    def meta(self, tensor: TensorValue) -> int:
        """The number of a look."""
        strides = tensor.strides
        if strides == natural_strides(tensor.shape):
            strides = None
        meta = Meta(tensor.dtype, tensor.shape, strides, int(_on_cpu(tensor)))
        number = self._meta_numbers.setdefault(meta, len(self.metas))
        if number == len(self.metas):
            self.metas.append(meta)
        return number


def natural_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor.

    >>> natural_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def strides_of(tensor: TensorValue) -> tuple[int, ...]:
    """The strides of a tensor; older traces have none, and it counts as contiguous."""
    return tensor.strides or natural_strides(tensor.shape)


def extent_bytes(tensor: TensorValue) -> int:
    """How far into its memory a tensor reaches."""
    if not tensor.elements:
        return 0
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, strides_of(tensor)))
    return (tensor.offset + reach + 1) * tensor.item_bytes


def _view(tensor: TensorValue) -> tuple[Any, ...]:
    return (tensor.dtype, tensor.shape, tensor.offset, tensor.strides)


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two views are the same; older traces do not know strides."""
    return one[:3] == other[:3] and (one[3] == other[3] or one[3] is None or other[3] is None)


def _on_cpu(tensor: TensorValue) -> bool:
    return tensor.device == "cpu"
