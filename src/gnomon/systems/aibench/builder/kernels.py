"""Compiled kernels that a trace names: run from their files where it carries them.

PyTorch keeps the files of generated kernels beside an execution trace when it is asked to
(`set_extra_resource_collection`). Such a file is a module of its own; into the benchmark goes a
copy in which the kernel has a number for a name, because its name lists what was fused into it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import Node

_BACKENDS = ("triton",)


def find_resources(trace: Path) -> Path | None:
    """The folder beside a trace in which its kernels' files lie, None where there is none."""
    for stem in (trace.name.removesuffix(".gz").removesuffix(".json"), trace.name):
        folder = trace.with_name(f"{stem}_resources")
        if folder.is_dir():
            return folder
    return None


class KernelFiles:
    """The files of compiled kernels, and what becomes of them in a benchmark."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._numbers: dict[tuple[str, str], int] = {}
        #: Sources by number, renamed.
        self.sources: list[str] = []

    def key_of(self, node: Node) -> str:
        """The kernel's name in the program, "" where its file is missing."""
        if self._folder is None or node.kernel_backend not in _BACKENDS or not node.kernel_file:
            return ""
        known = (node.kernel_file, node.name)
        if known not in self._numbers:
            path = self._folder / Path(node.kernel_file).name
            if not path.is_file():
                return ""
            self._numbers[known] = len(self.sources)
            self.sources.append(_renamed(path, node.name, len(self.sources)))
        return f"kernel.{self._numbers[known]}"


def _renamed(path: Path, name: str, number: int) -> str:
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"a kernel's file cannot be read: {error}", where=str(path)) from None
    try:
        plain = ast.unparse(ast.parse(source))  # comments stay behind
    except SyntaxError as error:
        raise InputError(f"a kernel's file is not Python: {error}", where=str(path)) from None
    return re.sub(rf"\b{re.escape(name)}\b", f"kernel_{number}", plain)
