"""From chosen nodes to calls: arguments written by the types that the dispatcher gives them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any, TypeGuard

from gnomon.ingest.execution.trace import (
    DeviceValue,
    ExecutionTrace,
    Node,
    OpaqueValue,
    TensorValue,
    Value,
)
from gnomon.systems.aibench.builder.communication import Communication
from gnomon.systems.aibench.builder.constructors import Constructors
from gnomon.systems.aibench.builder.flow import Flow
from gnomon.systems.aibench.builder.kernels import KernelFiles
from gnomon.systems.aibench.builder.operators import Argument, Operator
from gnomon.systems.aibench.builder.scalars import GUARD, keeps_from_zero, neutral, plain_equation
from gnomon.systems.aibench.builder.select import Chosen
from gnomon.systems.aibench.builder.values import Demands
from gnomon.systems.aibench.program import Call

#: c10::ScalarType, c10::Layout and c10::MemoryFormat by number.
_DTYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32",
    "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2",
    "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "float8_e5m2",
    "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64",
)  # fmt: skip
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr",
            "sparse_bsc")  # fmt: skip
_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_NAMED = {"dtype": ("d", _DTYPES), "layout": ("l", _LAYOUTS), "memory_format": ("m", _FORMATS)}


class Lowering:
    """Turns chosen nodes into calls, one after the other."""

    def __init__(
        self, trace: ExecutionTrace, *, kernels: KernelFiles | None = None,
        constructors: Constructors | None = None, keep_scalars: bool = False,
    ) -> None:  # fmt: skip
        self.trace, self.keep_scalars = trace, keep_scalars
        self.kernels = kernels or KernelFiles(None)
        self.constructors = constructors
        self.flow = Flow()
        self.demands = Demands(self.flow)
        self.communication = Communication(trace, self.flow)
        self.calls: list[Call] = []

    def add(self, chosen: Chosen) -> Call:
        """Appends the call of a node, behind the views it needs."""
        node = self.trace.nodes[chosen.at]
        operator = chosen.operator
        call = Call("", [], {}, None, [], chosen.at, node.thread, chosen.role, node.name,
                    checks=[], reads=set(), writes=set(), frees=[], extra={})  # fmt: skip
        if chosen.role in ("collective", "wait"):
            self.communication.encode(call, self.calls.append)
            self.calls.append(call)
            return call
        if chosen.role == "operator" and operator is not None:
            call.does = operator.key
            self._arguments(node, operator, call)
            self.demands.ask(node, operator, call)
            if operator.picks_shape:
                call.extra["y"] = 1
        elif chosen.role == "constructor" and self.constructors is not None:
            made = self.constructors.by_operator[node.name]
            call.does = made.key
            call.extra["y"] = 1  # its shapes may hang on values, which are made up
            for value, argument in made.arguments(node.inputs, operator):
                call.args.append(self._encode(value, argument or _ANY, call))
        else:
            if chosen.role == "kernel":
                call.does = self.kernels.key_of(node)
            self._operands(node, call)
            call.writes |= call.reads  # which of its arguments it writes is not known
        self.flow.give(node.outputs, call)
        self.calls += self.communication.due(call)
        self.calls.append(call)
        return call

    def _arguments(self, node: Node, operator: Operator, call: Call) -> None:
        for value, argument in zip(node.inputs, operator.arguments):
            if argument is None:
                continue
            encoded: Any
            if operator.is_pointwise and self._is_number(value, argument):
                encoded = _ONES[value.dtype]
            else:
                encoded = self._encode(value, argument, call)
            if argument.by_name:
                if encoded is not None or not argument.has_default:
                    call.kwargs[argument.name] = encoded
            else:
                call.args.append(encoded)

    def _is_number(self, value: Value, argument: Argument) -> TypeGuard[TensorValue]:
        """Whether torch wrapped a plain number into this tensor.

        Plain numbers do not take part in deciding the type of a result; tensors do.
        """
        return (
            isinstance(value, TensorValue)
            and value.device == "cpu"
            and not value.shape
            and value.dtype in _ONES
            and not argument.writes
            and self.flow.is_outside(value)
        )

    def _operands(self, node: Node, call: Call) -> None:
        """Arguments of what is not an operator of torch; of a placeholder, tensors alone."""
        for value in node.inputs:
            if call.does or isinstance(value, TensorValue | tuple):
                encoded = self._encode(value, _ANY, call)
                if call.does:
                    call.args.append(encoded)

    def _encode(self, value: Value, argument: Argument, call: Call) -> Any:
        if isinstance(value, TensorValue):
            operand = self.flow.take(value, self.calls.append, call)
            memory = self.flow.memory_of(value).number
            call.reads.add(memory)
            if argument.writes:
                call.writes.add(memory)
                if operand[0] == "x" and call.does.split(".")[1] in _RESHAPES:
                    # What is there for every step must not change its shape.
                    operand = self.flow.alias(operand, value, self.calls.append, call)
            return operand
        if isinstance(value, tuple):
            parts = [self._encode(part, argument, call) for part in value]
            is_plain = all(isinstance(part, bool | int | float) for part in parts)
            return parts if is_plain else ["L", *parts]
        return self._encode_plain(value, argument, call)

    def _encode_plain(self, value: Value, argument: Argument, call: Call) -> Any:
        if value is None or argument.kind == "generator":
            return None
        if argument.kind == "stream":
            return ["q"]
        if isinstance(value, OpaqueValue):
            return None
        if isinstance(value, DeviceValue):
            return ["v", int(value.name != "cpu")]
        if argument.kind in _NAMED and isinstance(value, int):
            letter, names = _NAMED[argument.kind]
            return [letter, names[value]] if 0 <= value < len(names) else None
        if isinstance(value, bool):
            return ["p"] if value and argument.name == "pin_memory" else value
        if isinstance(value, float):
            if value == 0.0 and keeps_from_zero(call.does, argument.name):
                return GUARD
            value = value if self.keep_scalars else neutral(value)
            return value if abs(value) < math.inf else ["f", str(value)]  # not in JSON
        if isinstance(value, str):
            is_equation = argument.name == "equation"
            return ["s", plain_equation(value) if is_equation else value]
        return value


#: What plain numbers become, by the type they were wrapped in.
_ONES = {"float64": 1.0, "int64": 1, "bool": True}
_ANY = Argument("", "any", False, False, True)
#: Change how a tensor looks, in place.
_RESHAPES = (
    "t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_",
    "resize_", "resize_as_", "set_", "detach_",
)  # fmt: skip


def lower(
    trace: ExecutionTrace, chosen: Iterable[Chosen], *, kept: Collection[int] | None = None,
    kernels: KernelFiles | None = None, constructors: Constructors | None = None,
    keep_scalars: bool = False,
) -> Lowering:  # fmt: skip
    """The calls of the chosen nodes, and the data they need."""
    lowering = Lowering(
        trace, kernels=kernels, constructors=constructors, keep_scalars=keep_scalars
    )
    for one in chosen:
        if kept is None or one.at in kept:
            lowering.add(one)
        else:
            node = trace.nodes[one.at]
            lowering.flow.forget(node.inputs, node.outputs)
    lowering.demands.settle(lowering.calls)
    return lowering
