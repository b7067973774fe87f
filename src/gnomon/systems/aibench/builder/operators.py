"""Operators as torch's dispatcher describes them: arguments, what they alias, what they return.

An execution trace carries the schema of every operator that it saw. It is parsed by torch itself,
and set beside the schema that this torch has registered under the same name: arguments are
matched by name, so that a trace of another version keeps its meaning.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gnomon.errors import MissingExtra

if TYPE_CHECKING:
    from types import ModuleType


class Argument(msgspec.Struct, frozen=True):
    """One argument.

    Attributes:
        name: Its name.
        kind: What it takes: `tensor`, `int`, `float`, `scalar`, `bool`, `str`, `dtype`, `layout`,
            `memory_format`, `device`, `generator`, `stream`, or torch's own word for others.
        by_name: Whether it has to be given by name.
        writes: Whether the operator writes into it.
        has_default: Whether it may be left out.
    """

    name: str
    kind: str
    by_name: bool
    writes: bool
    has_default: bool


class Operator(msgspec.Struct, frozen=True):
    """An operator, in the order in which the trace recorded its arguments.

    Attributes:
        name: With its namespace, as in `aten::add`.
        overload: Which of several, `default` for the first.
        arguments: What was recorded, in order; None for what this torch no longer takes.
        is_registered: Whether this torch has it; the arguments are then this torch's.
        picks_shape: Whether the shape of the result depends on values.
        lacks: An argument that this torch needs and the trace does not have, or "".
        is_pointwise: Whether it works element by element.
    """

    name: str
    overload: str
    arguments: tuple[Argument | None, ...]
    is_registered: bool
    picks_shape: bool
    lacks: str = ""
    is_pointwise: bool = False

    @property
    def key(self) -> str:
        """As it is found in `torch.ops`: `aten.add.Tensor`.

        >>> Operator("aten::add", "Tensor", (), True, False).key
        'aten.add.Tensor'
        """
        return f"{self.name.replace('::', '.')}.{self.overload}"


def load_torch() -> ModuleType:
    """Torch, or the line that installs it."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MissingExtra("torch", "torch", "making benchmarks from execution traces") from None


_KINDS = {
    "Tensor": "tensor", "int": "int", "SymInt": "int", "float": "float", "bool": "bool",
    "str": "str", "number": "scalar", "Scalar": "scalar", "Device": "device",
    "ScalarType": "dtype", "Layout": "layout", "MemoryFormat": "memory_format",
    "Generator": "generator", "Stream": "stream",
}  # fmt: skip


@lru_cache(maxsize=1 << 14)
def operator_of(schema: str) -> Operator | None:
    """The operator of a recorded schema; None where torch cannot read the schema."""
    torch = load_torch()
    try:
        recorded = torch._C.parse_schema(schema)
    except RuntimeError:
        return None
    overload = recorded.overload_name or "default"
    schemas = torch._C._jit_get_schemas_for_operator(recorded.name)
    known = next((s for s in schemas if s.overload_name == recorded.overload_name), None)
    if known is None:
        arguments = tuple(_argument(argument) for argument in recorded.arguments)
        return Operator(recorded.name, overload, arguments, False, False)
    by_name = {argument.name: argument for argument in known.arguments}
    given = [argument.name for argument in recorded.arguments]
    lacks = [
        argument.name
        for argument in known.arguments
        if argument.name not in given and not argument.has_default_value()
    ]
    return Operator(
        recorded.name,
        overload,
        tuple(_argument(by_name[name]) if name in by_name else None for name in given),
        True,
        _has_tag(torch, recorded.name, overload, "dynamic_output_shape"),
        lacks[0] if lacks else "",
        _has_tag(torch, recorded.name, overload, "pointwise"),
    )


def _argument(argument: Any) -> Argument:
    kind = argument.real_type
    while kind.kind() in ("OptionalType", "ListType"):
        kind = kind.getElementType()
    word = str(kind)
    writes = argument.alias_info is not None and argument.alias_info.is_write
    return Argument(
        argument.name, _KINDS.get(word, word), argument.kwarg_only, writes,
        argument.has_default_value(),
    )  # fmt: skip


def _has_tag(torch: Any, name: str, overload: str, tag: str) -> bool:
    namespace, _, base = name.partition("::")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), base), overload)
        return getattr(torch.Tag, tag) in found.tags
    except (AttributeError, RuntimeError):
        return False
