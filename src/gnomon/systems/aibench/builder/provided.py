"""What the modules that may lie beside `run.py` provide, read from their sources.

A module of the runtime has a table `OPERATORS` from names to functions. It is read without running
the module, so that a benchmark can be built where nothing of it could run, and so that there is
one such table and no copy of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

from gnomon.errors import InputError

_RUNTIME = resources.files("gnomon.systems.aibench.runtime")
#: Equivalents of operators that torch has for some devices only.
_SUBSTITUTES = ("attention", "recurrent", "substitutes")
#: Operators that torch does not have.
_CONSTRUCTORS = ("jagged", "embedding_tables")
_TABLE = "OPERATORS"


class Function(msgspec.Struct, frozen=True):
    """A row of a table: a name, the function for it, and the names of what it takes.

    `takes` is None for a function that takes whatever comes, in order.
    """

    name: str
    function: str
    takes: tuple[str, ...] | None


def read_table(source: str, table: str, where: str) -> tuple[Function, ...]:
    """The rows of a table that is written out at the top of a file."""
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    row = find_table(tree, table)
    if row is None or not isinstance(row.value, ast.Dict):
        raise InputError(
            f"there is no table {table}",
            where=where,
            hint=f'write {table} = {{"lib::op": function}}',
        )
    found = []
    for key, value in zip(row.value.keys, row.value.values):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise InputError(
                f"a key of {table} is not a name in quotes", where=f"{where}:{row.lineno}"
            )
        function = value.id if isinstance(value, ast.Name) else ""
        takes = None
        if function in functions and functions[function].args.vararg is None:
            takes = tuple(argument.arg for argument in functions[function].args.args)
        found.append(Function(key.value, function, takes))
    return tuple(found)


def find_table(tree: ast.Module, table: str) -> ast.Assign | None:
    """The statement that writes a table."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == [table]:
            return node
    return None


@cache
def substitutes() -> dict[str, str]:
    """Operators of torch, as a program names them, that have an equivalent: its module.

    >>> substitutes()["aten.cudnn_batch_norm.default"]
    'substitutes'
    """
    return {
        f"aten.{row.name}": module
        for module in _SUBSTITUTES
        for row in read_table(_source(module), _TABLE, f"{module}.py")
    }


@cache
def provided_constructors() -> dict[str, tuple[str, Function]]:
    """Operators that torch lacks and the runtime can make: the module and the function."""
    return {
        row.name: (module, row)
        for module in _CONSTRUCTORS
        for row in read_table(_source(module), _TABLE, f"{module}.py")
    }


def modules_for(keys: Iterable[str]) -> tuple[str, ...]:
    """The modules with equivalents for some of these operators of torch.

    >>> modules_for(["aten.mm.default", "aten._cudnn_rnn.default"])
    ('recurrent',)
    """
    needed = {substitutes()[key] for key in keys if key in substitutes()}
    return tuple(module for module in _SUBSTITUTES if module in needed)


def sources_of(modules: Iterable[str]) -> dict[str, str]:
    """The sources of modules, and of those that they import from beside them, by name.

    >>> list(sources_of(["embedding_tables"]))
    ['embedding_tables', 'jagged']
    """
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop(0)
        if module not in found:
            found[module] = _source(module)
            names = []
            for node in ast.parse(found[module]).body:
                if isinstance(node, ast.Import):
                    names += [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.append(node.module)
            waiting += [name for name in names if _file(name).is_file()]
    return found


def _file(module: str) -> Traversable:
    return _RUNTIME / f"{module}.py"


def _source(module: str) -> str:
    return _file(module).read_text(encoding="utf-8")
