"""Lists what a registry holds, with parameters: for people and for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from gnomon.registry import Registry


def print_registry(registry: Registry[Any], *, json: bool) -> None:
    """Every name with what it does; as JSON with a schema of its parameters."""
    about = [registry.describe(name) for name in registry.names()]
    if not json:
        print("\n".join(map(str, about)))
        return
    schemas = {
        one.name: {"about": one.doc, "wraps": one.is_wrapper,
                   "parameters": registry.schema(one.name)}
        for one in about
    }  # fmt: skip
    print(msgspec.json.format(msgspec.json.encode(schemas), indent=2).decode())
