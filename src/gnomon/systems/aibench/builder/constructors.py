"""Operators that torch does not have, and those who know how to make them.

A user's file has functions that do the work of such operators with torch, and a table of them:

    def fused_thing(x, weight, eps): ...

    CONSTRUCTORS = {"mylib::fused_thing": fused_thing}

A function gets the recorded arguments in order, tensors and plain values, and returns what the
operator returns. The file goes into the benchmark, so it may need torch and nothing else. Names of
operators do not go along: in the program and in the file they become `custom.0`, `custom.1` and so
on. Functions run in `torch.inference_mode()`; nothing of the file is run when building.

Packages bring such files by an entry point of the group `gnomon.aibench.constructors`: its name is
the namespace of the operators (`mylib`), its object a function that returns the path of the file.
The operators of recommendation models are known without. What a user gives goes first, then what
packages bring.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import Value
from gnomon.registry import Registry
from gnomon.systems.aibench.builder.operators import Argument, Operator
from gnomon.systems.aibench.builder.provided import (
    find_table,
    provided_constructors,
    read_table,
    sources_of,
)

#: Files that other packages bring, by namespace.
packages: Registry[Path] = Registry("file of constructors", group="gnomon.aibench.constructors")
_TABLE = "CONSTRUCTORS"
#: Names that a user's file has to leave to the benchmark.
_TAKEN = ("ready", "OPERATORS")
_FOOT = """

OPERATORS = {{
{rows}
}}


def ready(bench):
    return OPERATORS
"""


class Constructor(msgspec.Struct, frozen=True):
    """Who makes an operator.

    Attributes:
        key: How the program names it.
        takes: The arguments it takes, by name; None for all that were recorded, in order.
    """

    operator: str
    key: str
    module: str
    function: str
    takes: tuple[str, ...] | None = None

    def arguments(
        self, recorded: Sequence[Value], operator: Operator | None
    ) -> list[tuple[Value, Argument | None]]:
        """What the function is given: recorded values, and what the schema has for each."""
        described = list(operator.arguments) if operator is not None else []
        described += [None] * (len(recorded) - len(described))
        given = list(zip(recorded, described))
        if self.takes is None or operator is None:
            return given
        by_name = {argument.name: (value, argument) for value, argument in given if argument}
        return [by_name.get(name, (None, None)) for name in self.takes]


class Constructors(msgspec.Struct, frozen=True):
    """Constructors for the operators of one trace, by operator; and the files of users."""

    by_operator: Mapping[str, Constructor]
    users: Mapping[str, str]

    @property
    def names(self) -> frozenset[str]:
        """The operators that can be made."""
        return frozenset(self.by_operator)

    def sources_for(self, keys: Collection[str]) -> dict[str, str]:
        """What has to lie beside `run.py` for a program that calls these, by module."""
        files: dict[str, str] = {}
        for module in {c.module: None for c in self.by_operator.values() if c.key in keys}:
            files |= {module: self.users[module]} if module in self.users else sources_of([module])
        return files


def gather(operators: Collection[str], files: Sequence[Path] = ()) -> Constructors:
    """Constructors for some of these operators."""
    known: dict[str, Constructor] = {}
    users: dict[str, str] = {}
    namespaces = {name.split("::")[0] for name in operators if "::" in name}
    brought = [packages.create(name) for name in packages.names() if name in namespaces]
    for path in [*files, *brought]:
        module = f"user_ops_{len(users) + 1}" if users else "user_ops"
        own, source = _read(path, module, set(operators) - set(known), len(known))
        if own:
            known |= own
            users[module] = source
    for name, (module, row) in provided_constructors().items():
        if name in operators and name not in known:
            key = f"{name.replace('::', '.')}.default"
            known[name] = Constructor(name, key, module, row.function, row.takes)
    return Constructors(known, users)


def _read(
    path: Path, module: str, wanted: set[str], first: int
) -> tuple[dict[str, Constructor], str]:
    """Constructors of a user's file, and the file without the names of the operators."""
    try:
        source = Path(path).read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(f"cannot be read ({error})", where=str(path)) from error
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for row in (rows := read_table(source, _TABLE, str(path))):
        if row.function not in defined:
            raise InputError(
                f"{row.name!r} is not given a function of this file", where=str(path),
                hint=f'write "{row.name}": NAME, and def NAME(...) above it',
            )  # fmt: skip
    if clash := sorted(defined & set(_TAKEN)):
        raise InputError(
            f"{clash[0]!r} is a name that the benchmark needs", where=str(path), hint="rename it"
        )
    known = {
        row.name: Constructor(row.name, f"custom.{first + number}", module, row.function)
        for number, row in enumerate(row for row in rows if row.name in wanted)
    }
    return known, _without_names(source, tree, known.values(), str(path))


def _without_names(
    source: str, tree: ast.Module, constructors: Iterable[Constructor], where: str
) -> str:
    """The file with another table in the place of the user's."""
    table = find_table(tree, _TABLE)
    assert table is not None
    assert table.end_lineno is not None
    lines = source.split("\n")
    before, after = lines[: table.lineno - 1], lines[table.end_lineno :]
    kept = "\n".join([*before, *after]).rstrip()
    if len(ast.parse(kept).body) != len(tree.body) - 1:
        raise InputError(f"{_TABLE} shares a line with something else", where=where)
    if any(isinstance(node, ast.Name) and node.id == _TABLE for node in ast.walk(ast.parse(kept))):
        raise InputError(f"{_TABLE} is used in the file, but does not come along", where=where)
    rows = "\n".join(f'    "{one.key}": {one.function},' for one in constructors)
    return kept + _FOOT.format(rows=rows)
