"""What the data of a benchmark has to look like for its operators to take the time they took.

Most floating-point data may be anything that stays in range; some has to be positive, and whole
numbers are mostly indices, which decide what memory an operator touches, and whether it crashes.
What a tensor has to be follows from the arguments it is passed as, by name; a demand on something
that was only copied goes back to where it was copied from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from gnomon.ingest.execution.trace import Node, TensorValue, Value
from gnomon.systems.aibench.builder.flow import Flow
from gnomon.systems.aibench.builder.operators import Operator
from gnomon.systems.aibench.builder.select import tensors_in
from gnomon.systems.aibench.program import Call

#: How many an index may choose from, by the named arguments; what fails sets no bound.
_Bound = Callable[[dict[str, Any]], Any]


def _rows(given: dict[str, Any]) -> Any:
    """The size of the dimension that is indexed; a number counts as one row."""
    return (given["self"].shape or (1,))[given["dim"]]


def _classes(given: dict[str, Any]) -> Any:
    shape = given["self"].shape
    return shape[1 if len(shape) > 1 else 0]


_DIM: dict[str, _Bound] = {"index": _rows}
_TARGET: dict[str, _Bound] = {"target": _classes}
_WEIGHTS: dict[str, _Bound] = {"indices": lambda given: given["num_weights"]}
_TABLE: dict[str, _Bound] = {"indices": lambda given: given["weight"].shape[0]}
_ELEMENTS: dict[str, _Bound] = {"index": lambda given: given["self"].elements}
#: Arguments that are indices, by operator (without its underscore for in place).
_INDICES: dict[str, dict[str, _Bound]] = {
    **dict.fromkeys(
        ("embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only",
         "_embedding_bag_per_sample_weights_backward"),
        _TABLE,
    ),
    **dict.fromkeys(
        ("embedding_backward", "embedding_dense_backward", "embedding_sparse_backward",
         "_embedding_bag_backward", "_embedding_bag_dense_backward"),
        _WEIGHTS,
    ),
    "embedding_renorm": {"indices": lambda given: given["self"].shape[0]},
    **dict.fromkeys(
        ("index_select", "gather", "gather_backward", "scatter", "scatter_add", "scatter_reduce",
         "index_add", "index_copy", "index_fill", "index_reduce"),
        _DIM,
    ),
    "index_select_backward": {"index": lambda given: given["self_sizes"][given["dim"]]},
    **dict.fromkeys(
        ("nll_loss", "nll_loss_nd", "nll_loss_forward", "nll_loss_backward", "nll_loss2d",
         "nll_loss2d_forward", "nll_loss2d_backward", "cross_entropy_loss", "multi_margin_loss"),
        _TARGET,
    ),
    "one_hot": {"self": lambda given: given["num_classes"]},
    "take": _ELEMENTS,
    "put": _ELEMENTS,
    "bincount": {"self": lambda given: given["minlength"]},
    "max_pool2d_with_indices_backward":
        {"indices": lambda given: math.prod(given["self"].shape[-2:])},
    "max_pool3d_with_indices_backward":
        {"indices": lambda given: math.prod(given["self"].shape[-3:])},
}  # fmt: skip
#: Arguments that begin with zero, never fall and end at the number of indices.
_OFFSETS = {"offsets": "indices"}
#: Operators whose `indices` are one tensor per dimension.
_ADVANCED = ("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put")
_POSITIVE = {"sqrt", "rsqrt", "log", "log2", "log10", "_foreach_rsqrt", "_foreach_log"}
_POSITIVE_NAMES = {"running_var", "rstd", "save_invstd", "invstd", "save_var"}
_SHARES = {("bernoulli", "self"), ("multinomial", "self"), ("binary_cross_entropy", "self"),
           ("binary_cross_entropy", "target"),
           ("binary_cross_entropy_backward", "self")}  # fmt: skip
#: What optimisers begin with. It fills up as it did in the recorded job, and stays zero where
#: gradients do, which takes another time: a division by almost nothing is a slow one.
_MOMENTS = (
    "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_sums", "momentum_buffer_list",
)  # fmt: skip
#: What normalisations multiply by and add, at the start of a training. Something smaller would dim
#: all that follows: even attention, almost empty gradients, and a GPU that draws less power.
_AFFINE = {"weight": 1.0, "bias": 0.0}
_NORMALISATIONS = ("layer_norm", "batch_norm", "group_norm", "rms_norm", "instance_norm")
_CONSTANTS = {"state_steps": 10.0, "found_inf": 0.0, "grad_scale": 1.0, "inv_scale": 1.0}
#: Hand on the values they are given.
_COPIES = {
    "to", "_to_copy", "copy", "clone", "contiguous", "cat", "concat", "stack", "repeat", "expand",
    "reshape", "view", "_reshape_alias", "flatten", "squeeze", "unsqueeze", "slice", "select",
    "index_select", "gather", "index", "roll", "flip", "lift_fresh", "detach", "transpose", "t",
    "permute", "pin_memory", "repeat_interleave", "masked_select", "narrow", "split", "unbind",
}  # fmt: skip
_WHOLE = ("int", "uint", "bool")


class Demands:
    """Collects what is asked of data, and settles what each storage is filled with."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        #: By memory: the least bound of an index, offsets, or what floats have to be.
        self._bounds: dict[int, int] = {}
        self._lows: dict[int, int] = {}
        self._offsets: dict[int, tuple[int, int]] = {}
        self._floats: dict[int, list[Any]] = {}
        self._trues: dict[int, int] = {}
        #: Every check of an index, and the memory it lies in.
        self._asked: list[tuple[list[Any], int]] = []

    def ask(self, node: Node, operator: Operator, call: Call) -> None:
        """Notes what an operator demands of its arguments."""
        base = operator.name.partition("::")[2]
        base = base.removesuffix("_") if not base.endswith("__") else base
        names = [argument.name if argument else "" for argument in operator.arguments]
        given = dict(zip(names, node.inputs))
        recorded = _recorded_ranges(node)
        position = 0
        for name, argument, value in zip(names, operator.arguments, node.inputs):
            if argument is None:
                continue
            place = None if argument.by_name else position
            position += not argument.by_name
            if base in _ADVANCED and name == "indices" and isinstance(value, tuple):
                self._advanced(given.get("self"), value, call, place)
            elif (bound := _INDICES.get(base, {}).get(name)) and isinstance(value, TensorValue):
                self._index(value, bound, given, recorded, call, place)
            elif name in _OFFSETS and isinstance(value, TensorValue):
                self._ask_offsets(value, given)
            elif isinstance(value, TensorValue | tuple):
                self._floats_for(base, name, value, recorded)
        if base in ("nonzero", "masked_select") and node.outputs:
            self._count_trues(node, given)

    def _index(
        self, tensor: TensorValue, of: _Bound, given: dict[str, Value],
        recorded: dict[int, tuple[float, float]], call: Call, place: int | None,
    ) -> None:  # fmt: skip
        try:
            bound = of(given)
        except (AttributeError, LookupError, TypeError):
            return
        if not tensor.dtype.startswith(_WHOLE) or not isinstance(bound, int) or bound <= 0:
            return
        memory = self.flow.memory_of(tensor).number
        if tensor.tensor in recorded:
            low, high = recorded[tensor.tensor]
            if 0 <= low <= high < bound:
                self._lows[memory] = max(self._lows.get(memory, 0), int(low))
                self._tighten(memory, int(high) + 1)
        self._tighten(memory, bound)
        if place is not None:
            call.checks.append([place, bound])
            self._asked.append((call.checks[-1], memory))

    def _tighten(self, memory: int, bound: int) -> None:
        self._bounds[memory] = min(bound, self._bounds.get(memory, bound))

    def _advanced(
        self, table: Value, indices: tuple[Value, ...], call: Call, place: int | None
    ) -> None:
        if not isinstance(table, TensorValue):
            return
        dim = 0
        for number, index in enumerate(indices):
            if isinstance(index, TensorValue) and index.dtype in ("bool", "uint8"):
                dim += len(index.shape)
                continue
            if isinstance(index, TensorValue) and dim < len(table.shape):
                self._tighten(self.flow.memory_of(index).number, table.shape[dim])
                if place is not None:
                    call.checks.append([[place, number], table.shape[dim]])
                    self._asked.append((call.checks[-1], self.flow.memory_of(index).number))
            dim += 1

    def _ask_offsets(self, offsets: TensorValue, given: dict[str, Value]) -> None:
        indices = given.get(_OFFSETS["offsets"])
        if isinstance(indices, TensorValue) and offsets.dtype.startswith("int"):
            number = self.flow.memory_of(offsets).number
            ends = bool(given.get("include_last_offset"))
            self._offsets[number] = (indices.elements, int(ends))

    def _floats_for(
        self, base: str, name: str, value: Value, recorded: dict[int, tuple[float, float]]
    ) -> None:
        fill: list[Any] | None = None
        if name in _CONSTANTS:
            fill = ["c", _CONSTANTS[name]]
        elif name in _MOMENTS or (base == "_foreach_sqrt" and name == "self"):
            fill = ["c", 0.0]
        elif name in _AFFINE and any(kind in base for kind in _NORMALISATIONS):
            fill = ["c", _AFFINE[name]]
        elif name in _POSITIVE_NAMES or (base in _POSITIVE and name == "self"):
            fill = ["p"]
        elif (base, name) in _SHARES:
            fill = ["u"]
        values = value if isinstance(value, tuple) else (value,)
        for tensor in tensors_in(values):
            memory = self.flow.memory_of(tensor).number
            if fill is not None and not tensor.dtype.startswith(_WHOLE):
                self._floats.setdefault(memory, fill)
            elif tensor.tensor in recorded and tensor.dtype.startswith(("int", "uint")):
                low, high = recorded[tensor.tensor]
                self._lows.setdefault(memory, int(low))
                self._bounds.setdefault(memory, int(high) + 1)

    def _count_trues(self, node: Node, given: dict[str, Value]) -> None:
        mask = given.get("mask", given.get("self"))
        found = next(iter(tensors_in(node.outputs)), None)
        if isinstance(mask, TensorValue) and mask.dtype == "bool" and found and found.shape:
            self._trues.setdefault(self.flow.memory_of(mask).number, found.shape[0])

    def settle(self, calls: Iterable[Call]) -> None:
        """Passes demands back through copies, then sets what each storage is filled with."""
        for memory in reversed(self.flow.memories):
            call = memory.made_by
            if call is None:
                continue
            base = call.does.split(".")[1].removesuffix("_") if "." in call.does else ""
            if call.role == "collective" or (call.does.startswith("aten.") and base in _COPIES):
                for source in call.reads:
                    self._hand_back(memory.number, source)
        written = {number for call in calls for number in call.writes}
        for check, number in self._asked:
            if self.flow.memories[number].storage is not None and number in written:
                check.append(1)  # it changes from step to step
        for memory in self.flow.memories:
            if memory.storage is not None:
                storage = self.flow.storages[memory.storage]
                storage.fill = self._fill(memory.number, storage.fill)

    def _hand_back(self, memory: int, source: int) -> None:
        if memory in self._bounds:
            self._tighten(source, self._bounds[memory])
        if memory in self._lows:
            self._lows[source] = max(self._lows[memory], self._lows.get(source, 0))
        everything: tuple[dict[int, Any], ...] = (self._offsets, self._floats, self._trues)
        for asked in everything:
            if memory in asked:
                asked.setdefault(source, asked[memory])

    def _fill(self, memory: int, before: list[Any]) -> list[Any]:
        """What memory is filled with: indices before offsets before the rest; see `run.py`."""
        if memory in self._offsets:
            return ["o", *self._offsets[memory]]
        if memory in self._bounds:
            bound, low = self._bounds[memory], self._lows.get(memory, 0)
            if before[:1] == ["i"]:
                bound, low = min(bound, before[2]), max(low, before[1])
            return ["i", min(low, bound - 1), bound]
        if memory in self._trues:
            return ["t", self._trues[memory]]
        return before or self._floats.get(memory, [])


def _recorded_ranges(node: Node) -> dict[int, tuple[float, float]]:
    if not node.ranges:
        return {}
    tensors = list(tensors_in(node.inputs))
    return {tensors[at].tensor: span for at, span in node.ranges.items() if at < len(tensors)}
