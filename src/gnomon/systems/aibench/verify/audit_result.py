"""An audit as a Result: clean, or what of the original was found, and where."""

from __future__ import annotations

from typing import Any

from gnomon.report import Figure, Manifest, Result
from gnomon.systems.aibench.verify.audit import Audit
from gnomon.table import Table
from gnomon.version import __version__


def to_result(done: Audit, command: str = "") -> Result:
    """What was searched, and what was found."""
    rows = [{"kind": f.kind, "string": f.string[:120], "file": f.file} for f in done.found]
    return Result(
        "aibench", "audit", "Clean" if done.is_clean else f"{len(done.found)} findings",
        "Is anything of the original in its benchmark?",
        figures=[
            Figure("found", "Found", len(done.found), better="lower"),
            Figure("searched", "Strings and numbers searched", done.searched),
            Figure("allowed", "Public words in it", done.allowed),
            Figure("files", "Files searched", done.files),
        ],
        tables=[Table.from_rows("Found", rows)] if rows else [],
        how=[
            "Every distinct string of the traces, and of its paths every part, is looked for in "
            "every file of the benchmark, unpacked, and in its name. **Public** are the words of "
            "torch's own operators, and what appears in every benchmark.",
            "Shapes, types and the order of operators are what a benchmark is made of: they stay.",
        ],
        manifest=Manifest(command, {}, None, __version__),
    )  # fmt: skip


def to_script(done: Audit) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "clean": done.is_clean, "searched": done.searched, "allowed": done.allowed,
        "files": done.files,
        "found": [{"kind": f.kind, "string": f.string, "file": f.file} for f in done.found],
    }  # fmt: skip
