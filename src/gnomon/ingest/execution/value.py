"""What an operator took and gave, as an execution trace writes it: a value, a shape, a type text.

A type text nests as its value does: `GenericList[Tensor(float),None]` belongs to a list of a
tensor and of nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias, cast

import msgspec


class TensorValue(msgspec.Struct, frozen=True, gc=False):
    """A tensor: which one, where in which storage, and how it lies there.

    `offset` and `elements` count elements; `strides` is None where the schema has none. `dtype`
    is torch's name for it, or what was written, after a "?", when nobody knows it.
    """

    tensor: int
    storage: int
    offset: int
    elements: int
    item_bytes: int
    device: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None


class DeviceValue(msgspec.Struct, frozen=True, gc=False):
    """A device, such as "cuda:0"."""

    name: str


class OpaqueValue(msgspec.Struct, frozen=True, gc=False):
    """Something of which the trace keeps only the kind: a generator, a stream, an object."""

    kind: str


#: Anything an operator takes or gives.
Value: TypeAlias = (
    "bool | int | float | str | TensorValue | DeviceValue | OpaqueValue | tuple[Value, ...] | None"
)


class MalformedValue(ValueError):
    """A value, its shape and its type do not belong together; the message says how."""


_DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16",
    "complex<half>": "complex32", "complex<float>": "complex64", "complex<double>": "complex128",
    "complexhalf": "complex32", "complexfloat": "complex64", "complexdouble": "complex128",
    "bool": "bool",
    "char": "int8", "signed char": "int8", "int8_t": "int8",
    "short": "int16", "short int": "int16", "int16_t": "int16",
    "int": "int32", "int32_t": "int32",
    "long": "int64", "long int": "int64", "long long": "int64", "long long int": "int64",
    "int64_t": "int64",
    "byte": "uint8", "unsigned char": "uint8", "uint8_t": "uint8",
    "unsigned short": "uint16", "short unsigned int": "uint16", "uint16_t": "uint16",
    "unsigned int": "uint32", "uint32_t": "uint32",
    "unsigned long": "uint64", "long unsigned int": "uint64", "unsigned long long": "uint64",
    "long long unsigned int": "uint64", "uint64_t": "uint64",
}  # fmt: skip
#: Names that torch itself uses, whatever their case was.
_TORCH = frozenset(_DTYPES.values()) | {
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2", "qint8", "quint8", "qint32", "quint4x2", "quint2x4",
    "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16",
}  # fmt: skip


@lru_cache(1024)
def dtype_name(spelling: str) -> str:
    """The name torch gives to an element type that compilers spell in many ways.

    >>> dtype_name("c10::BFloat16"), dtype_name("long int"), dtype_name("posit16")
    ('bfloat16', 'int64', '?posit16')
    """
    plain = " ".join(spelling.replace("c10::", "").replace("at::", "").lower().split())
    known = _DTYPES.get(plain, plain)
    return known if known in _TORCH else f"?{spelling}"


def split_types(text: str) -> tuple[str, ...]:
    """The types between the brackets of a list's or tuple's type.

    >>> split_types("GenericList[Tuple[Int,Int],Tensor(float)],None")
    ('GenericList[Tuple[Int,Int],Tensor(float)]', 'None')
    """
    return tuple(_split(text)) if text.strip() else ()


def _split(text: str) -> Iterator[str]:
    depth = start = 0
    for at, letter in enumerate(text):
        if letter in "[(<":
            depth += 1
        elif letter in "])>":
            depth -= 1
        elif letter == "," and depth <= 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


#: From a written value, its shape and its strides.
_Convert: TypeAlias = Callable[[object, object, object], Value]

#: Deeper than any operator's arguments; a damaged file may ask for more than the stack holds.
_DEEPEST = 32
#: What the trace writes of a tensor: tensor, storage, offset, elements, item bytes, device.
_TENSOR_PARTS = 6


class ValueReader:
    """Turns written values into values. Keeps what it saw: traces repeat themselves."""

    def __init__(self) -> None:
        self._converts: dict[str, _Convert] = {}
        self._tensors: dict[object, TensorValue] = {}
        self._sizes: dict[tuple[object, ...], tuple[int, ...]] = {}

    def read(
        self, values: list[object], shapes: list[object], types: list[str],
        strides: list[object] | None,
    ) -> tuple[Value, ...]:  # fmt: skip
        """The values of one side of a node; MalformedValue where they do not belong together."""
        if not len(values) == len(shapes) == len(types):
            raise MalformedValue(_lengths(values, shapes, types))
        if strides is not None:
            if len(strides) > len(types):
                raise MalformedValue(f"{len(types)} types but {len(strides)} strides")
            # Compiled kernels add their stream to the arguments, without strides.
            strides = [*strides, *[None] * (len(types) - len(strides))]
        converts = [self._convert_of(text) for text in types]
        return tuple(
            [
                convert(value, shape, stride)
                for convert, value, shape, stride in zip(
                    converts, values, shapes, strides or [None] * len(types), strict=True
                )
            ]
        )

    def _convert_of(self, text: str, depth: int = 0) -> _Convert:
        convert = self._converts.get(text)
        if convert is None:
            convert = self._converts[text] = self._compile(text.strip(), depth)
        return convert

    def _compile(self, text: str, depth: int) -> _Convert:
        if text.startswith("Tensor(") and text.endswith(")"):
            inside = text.removeprefix("Tensor(").removesuffix(")")
            return _nothing if inside.startswith("nullptr") else self._tensor(inside)
        if text.endswith("]") and "[" in text:
            if depth > _DEEPEST:
                raise MalformedValue(f"its lists nest deeper than {_DEEPEST}")
            return self._list(split_types(text.partition("[")[2][:-1]), depth)
        return _PLAIN.get(text) or _opaque(text)

    def _list(self, types: tuple[str, ...], depth: int) -> _Convert:
        converts = [self._convert_of(text, depth + 1) for text in types]
        size = len(converts)

        def convert(value: object, shape: object, strides: object) -> Value:
            if not (isinstance(value, list) and isinstance(shape, list)):
                raise MalformedValue("a list was expected")
            if not len(value) == len(shape) == size:
                raise MalformedValue(_lengths(value, shape, types))
            if strides is None:
                strides = [None] * size
            if not isinstance(strides, list) or len(strides) != size:
                raise MalformedValue(f"the strides of a list of {size} are {strides!r:.40}")
            parts = zip(converts, value, shape, strides, strict=True)
            return tuple([one(v, s, t) for one, v, s, t in parts])

        return convert

    def _tensor(self, spelling: str) -> _Convert:
        dtype, seen, size = dtype_name(spelling), self._tensors, self._size

        def convert(value: object, shape: object, strides: object) -> Value:
            if not isinstance(value, list) or len(value) != _TENSOR_PARTS:
                raise MalformedValue(
                    f"a tensor is written as {_TENSOR_PARTS} parts, not as {value!r:.60}"
                )
            steps = None if strides is None else size(strides)
            key = (*value, dtype, sizes := size(shape), steps)
            try:
                tensor = seen.get(key)
            except TypeError:
                raise MalformedValue(f"{value!r:.60} is no tensor") from None
            if tensor is None:
                id, storage, offset, elements, item, device = value
                if any(type(n) is not int for n in value[:-1]) or not isinstance(device, str):
                    raise MalformedValue(f"{value!r:.60} is no tensor")
                tensor = seen[key] = TensorValue(
                    id, storage, offset, elements, item, device, dtype, sizes, steps
                )
            return tensor

        return convert

    def _size(self, written: object) -> tuple[int, ...]:
        if not isinstance(written, list):
            raise MalformedValue(f"{written!r:.60} is no shape")
        key = tuple(written)
        try:
            known = self._sizes.get(key)
        except TypeError:
            raise MalformedValue(f"{written!r:.60} is no shape") from None
        if known is None:
            if any(type(n) is not int for n in written):
                raise MalformedValue(f"{written!r:.60} is no shape")
            known = self._sizes[key] = key
        return known


def _lengths(
    values: list[object], shapes: list[object], types: list[str] | tuple[str, ...]
) -> str:
    return f"{len(values)} values, {len(shapes)} shapes and {len(types)} types"


def _nothing(_value: object, _shape: object, _strides: object) -> Value:
    return None


def _opaque(kind: str) -> _Convert:
    opaque = OpaqueValue(kind)
    return lambda _value, _shape, _strides: opaque


def _exactly(kind: str, wanted: type[Any], make: Callable[[Any], Value] | None = None) -> _Convert:
    def convert(value: object, _shape: object, _strides: object) -> Value:
        if type(value) is not wanted:
            return OpaqueValue(kind)
        return make(value) if make else cast("Value", value)

    return convert


def _double(value: object, _shape: object, _strides: object) -> Value:
    # Infinities and what is no number come as text: JSON has no word for them.
    if isinstance(value, str | int | float):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return OpaqueValue("Double")


_PLAIN: dict[str, _Convert] = {
    "None": _nothing, **dict.fromkeys(("Bool", "SymBool"), _exactly("Bool", bool)),
    **dict.fromkeys(("Int", "SymInt"), _exactly("Int", int)), "Double": _double,
    "SymFloat": _double, "String": _exactly("String", str),
    "Device": _exactly("Device", str, DeviceValue),
}  # fmt: skip
