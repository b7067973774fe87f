"""What an Arrow file says about its columns, to and from the header's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from gnomon.table._flatbuffer import FlatNode, FlatTable, Malformed, Scalar

MAGIC = b"ARROW1"
CONTINUATION = 0xFFFFFFFF
V4, V5 = 3, 4
# struct codes of Arrow's fixed-size records: FieldNode, Buffer, Block.
NODE, BUFFER, BLOCK = "qq", "qq", "qi4xq"
# Message headers.
SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = 1, 2, 3
# A header is small; these only stop a damaged or hostile one from being walked forever.
_MAX_DEPTH, _MAX_FIELDS = 16, 50_000

_INT, _FLOAT, _UTF8, _BOOL, _LIST, _STRUCT, _LARGE_UTF8, _LARGE_LIST = 2, 3, 5, 6, 12, 13, 20, 21
_CODES = {
    "int": _INT,
    "float": _FLOAT,
    "utf8": _UTF8,
    "bool": _BOOL,
    "list": _LIST,
    "struct": _STRUCT,
    "large_utf8": _LARGE_UTF8,
    "large_list": _LARGE_LIST,
}
_KINDS = {code: kind for kind, code in _CODES.items()}
_REFUSED = {
    1: "null",
    4: "binary",
    7: "decimal",
    8: "date",
    9: "time",
    10: "timestamp",
    11: "interval",
    14: "union",
    15: "fixed-size binary",
    16: "fixed-size list",
    17: "map",
    18: "duration",
    19: "large binary",
    22: "run-end encoded",
    23: "binary view",
    24: "utf8_view",
    25: "list view",
    26: "large list view",
}


class Field(msgspec.Struct, frozen=True):
    """One column: kind, number type, children, and its dictionary where it is encoded.

    For a dictionary column `kind` is the values' and `dtype` the codes'.
    """

    name: str
    kind: str
    dtype: str = ""
    children: tuple[Field, ...] = ()
    dictionary: int | None = None

    def encode(self) -> FlatNode:
        fields: dict[int, Scalar | str | FlatNode | Sequence[FlatNode]] = {
            0: self.name,
            1: Scalar("B", self.kind == "float"),
            2: Scalar("B", _CODES[self.kind]),
            3: _encode_type(self.kind, self.dtype),
            5: [child.encode() for child in self.children],
        }
        if self.dictionary is not None:
            fields[4] = FlatNode(
                {0: Scalar("q", self.dictionary), 1: _encode_type("int", self.dtype)}
            )
        return FlatNode(fields)


def _encode_type(kind: str, dtype: str) -> FlatNode:
    if kind == "int":
        number = np.dtype(dtype)
        return FlatNode({0: Scalar("i", 8 * number.itemsize), 1: Scalar("B", number.kind == "i")})
    if kind == "float":
        return FlatNode({0: Scalar("h", 1 if dtype == "<f4" else 2)})
    return FlatNode({})


def encode_schema(fields: Sequence[Field], metadata: Mapping[str, str]) -> FlatNode:
    """The header's schema table."""
    pairs = [FlatNode({0: key, 1: value}) for key, value in metadata.items()]
    return FlatNode({0: Scalar("h", 0), 1: [field.encode() for field in fields], 2: pairs})


def decode_schema(schema: FlatTable) -> tuple[list[Field], dict[str, str]]:
    """Columns and metadata; refuses what this package has no column for."""
    if schema.number(0, "h") != 0:
        raise Malformed("the file is big-endian", "write it again on a little-endian machine")
    budget = iter(range(_MAX_FIELDS))
    fields = [_decode_field(table, 0, budget) for table in schema.tables(1)]
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Malformed(f"two columns are named {twice!r}", "rename one of them")
    return fields, {pair.text(0): pair.text(1) for pair in schema.tables(2)}


def _decode_field(table: FlatTable, depth: int, budget: Iterator[int]) -> Field:
    if depth > _MAX_DEPTH or next(budget, None) is None:
        raise Malformed("the header describes too many or too deeply nested columns")
    name = table.text(0)
    code = table.number(2, "B")
    if code not in _KINDS:
        kind = _REFUSED.get(code)
        if kind is None:
            raise Malformed(f"column {name!r} has an unknown type ({code})")
        hint = "cast it to numbers or text first"
        if kind == "utf8_view":
            hint = "write it as utf8 or large_utf8 (polars: compat_level=CompatLevel.oldest())"
        raise Malformed(f"column {name!r} is of type {kind}, which is not supported", hint)
    kind = _KINDS[code]
    children = tuple(_decode_field(child, depth + 1, budget) for child in table.tables(5))
    if kind in ("list", "large_list") and len(children) != 1:
        raise Malformed(f"list column {name!r} has {len(children)} children instead of one")
    if kind == "struct" and depth == 0:
        raise Malformed(f"column {name!r} is a struct", "unnest it into plain columns first")
    encoding = table.table(4)
    if encoding is None:
        return Field(name, kind, _decode_number(name, kind, table.table(3)), children)
    if kind not in ("utf8", "large_utf8"):
        raise Malformed(
            f"dictionary column {name!r} holds {kind} values", "only text can be encoded"
        )
    index = encoding.table(1)
    dtype = _decode_number(name, "int", index) if index is not None else "<i4"
    return Field(name, kind, dtype, (), encoding.number(0, "q"))


def _decode_number(name: str, kind: str, table: FlatTable | None) -> str:
    if kind == "int" and table is not None:
        bits = table.number(0, "i")
        if bits in (8, 16, 32, 64):
            return np.dtype(f"{'i' if table.number(1, 'B') else 'u'}{bits // 8}").str
        raise Malformed(f"column {name!r} has integers of {bits} bits")
    if kind == "float" and table is not None:
        precision = table.number(0, "h")
        if precision in (1, 2):
            return "<f4" if precision == 1 else "<f8"
        if precision == 0:
            raise Malformed(f"column {name!r} is of type float16", "cast it to float32 first")
        raise Malformed(f"column {name!r} has an unknown float precision ({precision})")
    if kind in ("int", "float"):
        raise Malformed(f"column {name!r} has no number type")
    return ""
