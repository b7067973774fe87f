"""An audit as a Result: clean, or what of the original was found, and where."""

from __future__ import annotations

from typing import Any

from gnomon.report import Figure, Manifest, Result
from gnomon.systems.clone.audit.search import Audit
from gnomon.table import Table
from gnomon.version import __version__

_MOST_LETTERS = 160


def audit_to_result(done: Audit, command: str = "") -> Result:
    """What was searched, what was found, and what a bundle reveals all the same."""
    rows = [{"kind": one.kind, "what": one.what[:_MOST_LETTERS], "file": one.file,
             "at": "" if one.place is None else str(one.place), "why": one.why}
            for one in done.found]  # fmt: skip
    tables = [Table.from_rows("Found", rows)] if rows else []
    if done.reveals:
        told = [{"what somebody who has it knows": one} for one in done.reveals]
        tables.append(Table.from_rows("Reveals", told))
    figures = [
        Figure("found", "Found", len(done.found), better="lower"),
        Figure("searched", "Strings searched", done.searched),
        Figure("allowed", "Public words in it", done.allowed),
        Figure("files", "Files searched", done.files),
    ]
    if done.counts:
        figures.append(Figure("counts", "Counts looked at", done.counts))
    if (overlap := done.overlap) is not None:
        figures += [
            Figure("longest_run", "Longest run of instructions in common", overlap.longest),
            Figure("run_bits", "What the most telling run tells", round(overlap.bits, 1), "bits",
                   note=f"by chance {overlap.chance:.0f}, limit {overlap.limit:.0f}",
                   better="lower"),
        ]  # fmt: skip
    return Result(
        "clone", "audit", "Clean" if done.is_clean else f"{len(done.found)} findings",
        "Is anything of the original in what is handed over?",
        figures=figures, tables=tables, notes=list(done.notes),
        how=[
            "Strings of the original, words in them and its name are looked for in every file "
            "and in the built programs. **Public** is what every C program here has, the "
            "protocols' commands, and what is written in gnomon itself. Any other word in a "
            "generated text is reported, whoever's it is.",
            "Code is compared instruction by instruction, by name and kinds of operands. A run "
            "in common counts in bits: how unlikely it is in ordinary code. Unrelated programs "
            "share some; 20 bits beyond what chance explains are reported.",
            "Numbers of 29 bits and more, and eight bytes of data, are reported where both have "
            "them and no library does. Counts below 5 tell about single events.",
        ],
        manifest=Manifest(command, {}, None, __version__),
    )  # fmt: skip


def audit_to_script(done: Audit) -> dict[str, Any]:
    """The same for scripts."""
    overlap = done.overlap
    return {
        "clean": done.is_clean, "searched": done.searched, "allowed": done.allowed,
        "files": done.files, "counts": done.counts,
        "overlap": None if overlap is None else {
            "longest": overlap.longest, "bits": overlap.bits, "chance_bits": overlap.chance,
            "limit_bits": overlap.limit,
        },
        "reveals": list(done.reveals),
        "found": [{"kind": one.kind, "what": one.what, "file": one.file, "at": one.place,
                   "why": one.why} for one in done.found],
    }  # fmt: skip
