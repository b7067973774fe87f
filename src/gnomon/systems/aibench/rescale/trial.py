"""Operators tried out on tensors that have a shape and no data: what comes out, if anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gnomon.ingest.execution.trace import DeviceValue, Node, OpaqueValue, TensorValue, Value
from gnomon.systems.aibench.builder.operators import Argument, Operator, load_torch
from gnomon.systems.aibench.builder.select import tensors_in
from gnomon.systems.aibench.rescale.layout import Layout
from gnomon.systems.aibench.rescale.memory import as_recorded

#: Do not change what shape comes out.
_LEFT_OUT = ("layout", "generator", "stream", "memory_format")


#: Marks an argument that is the type of the result.
_DTYPE = object()


class Outcome(msgspec.Struct, frozen=True):
    """What came out: a layout for each tensor among the recorded results; or why nothing did."""

    layouts: tuple[Layout | None, ...] = ()
    error: str = ""


class _Look(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class Trials:
    """Tries operators; the same on the same shapes is tried once."""

    def __init__(self) -> None:
        self._torch: Any = load_torch()
        self._known: dict[object, Outcome] = {}

    def of(
        self, node: Node, operator: Operator, values: Mapping[int, Value] | None = None,
        layouts: Mapping[int, Layout] | None = None,
    ) -> Outcome:  # fmt: skip
        """Tries a call.

        Args:
            node: The call, as recorded.
            operator: Its operator.
            values: Arguments that are other than recorded, by place.
            layouts: How tensors look that look other than recorded, by their place among all
                tensors of the arguments, those in lists counted one by one.
        """
        counter = iter(range(1 << 30))
        args: list[Any] = []
        kwargs: list[tuple[str, Any]] = []
        for at, (value, argument) in enumerate(zip(node.inputs, operator.arguments)):
            if argument is None:
                continue
            given = values[at] if values and at in values else value
            plain = self._argument(given, argument, layouts or {}, counter)
            if not argument.by_name:
                args.append(plain)
            elif plain is not None:
                kwargs.append((argument.name, plain))
        kwargs += [
            (argument.name, "meta") for argument in operator.arguments
            if argument is not None and argument.kind == "device" and argument.by_name
            and (argument.name, "meta") not in kwargs
        ]  # fmt: skip
        # Types are recorded by number; the result shows which one was meant.
        dtype = next((tensor.dtype for tensor in tensors_in(node.outputs)), "float32")
        key = operator.key, tuple(args), tuple(kwargs), dtype
        if key not in self._known:
            self._known[key] = self._try(operator, args, dict(kwargs), node.outputs, dtype)
        return self._known[key]

    def _argument(
        self, value: Value, argument: Argument, layouts: Mapping[int, Layout], counter: Any
    ) -> Any:
        if isinstance(value, tuple):
            return tuple(self._argument(part, argument, layouts, counter) for part in value)
        if isinstance(value, TensorValue):
            layout = layouts.get(next(counter)) or as_recorded(value)
            return _Look(value.dtype, layout.shape, layout.strides, layout.offset)
        if isinstance(value, DeviceValue) or (argument.kind == "device" and value is not None):
            return "meta"
        if isinstance(value, OpaqueValue | None) or argument.kind in _LEFT_OUT:
            return None
        if argument.name == "pin_memory":
            return None
        return _DTYPE if argument.kind == "dtype" else value

    def _try(
        self, operator: Operator, args: list[Any], kwargs: dict[str, Any],
        outputs: tuple[Value, ...], dtype: str,
    ) -> Outcome:  # fmt: skip
        torch = self._torch
        try:
            function = torch.ops
            for part in operator.key.split("."):
                function = getattr(function, part)
            with torch.no_grad():
                result = function(
                    *[self._made(arg, dtype) for arg in args],
                    **{name: self._made(arg, dtype) for name, arg in kwargs.items()},
                )
        except Exception as error:  # torch raises whatever it likes
            return Outcome(error=str(error).strip().split("\n")[0][:160] or type(error).__name__)
        return Outcome(tuple(self._layouts(result, outputs)))

    def _made(self, arg: Any, dtype: str) -> Any:
        torch = self._torch
        if isinstance(arg, _Look):
            reach = sum((size - 1) * step for size, step in zip(arg.shape, arg.strides))
            room = max(arg.offset + reach + 1, 0)
            flat = torch.empty(room, dtype=getattr(torch, arg.dtype), device="meta")
            return flat.as_strided(arg.shape, arg.strides, arg.offset)
        if isinstance(arg, tuple):
            return [self._made(part, dtype) for part in arg]
        return getattr(torch, dtype) if arg is _DTYPE else arg

    def _layouts(self, result: Any, outputs: tuple[Value, ...]) -> list[Layout | None]:
        """Layouts in the order of the recorded tensors; None where something else came out."""
        results = [result] if len(outputs) == 1 else list(result or ())
        found: list[Layout | None] = []
        for at, value in enumerate(outputs):
            part = results[at] if at < len(results) else None
            if isinstance(value, tuple):
                parts = list(part) if isinstance(part, list | tuple) else []
                found += self._layouts(parts[0] if len(parts) == len(value) == 1 else parts, value)
            elif isinstance(value, TensorValue):
                layout = None
                if isinstance(part, self._torch.Tensor):
                    where, nothing = (
                        (tuple(part.stride()), part.storage_offset()),
                        (None,) * part.dim(),
                    )
                    layout = Layout(tuple(part.shape), *where, nothing)
                found.append(layout)
        return found
