"""Writes the list of formats into its page, between the marks; `--check` only compares.

python docs/formats_table.py [--check]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gnomon.ingest.formats import FORMATS

PAGE = Path(__file__).resolve().parent / "reference" / "formats.md"
MARKS = re.compile(r"(<!-- formats -->\n).*?(<!-- /formats -->)", re.DOTALL)


def table() -> str:
    lines = [
        "| name | what it is | files | commands | in Python |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in FORMATS:
        commands = ", ".join(f"`{command}`" for command in one.commands) or "`inspect` alone"
        reader = f"`{one.reader.replace(':', '.')}`" if one.reader else ""
        lines.append(f"| `{one.name}` | {one.title} | {one.files} | {commands} | {reader} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    before = PAGE.read_text()
    after = MARKS.sub(lambda found: found[1] + table() + found[2], before)
    if after == before:
        return 0
    if "--check" in sys.argv:
        print(f"out of date: {PAGE.name}; run python docs/formats_table.py")
        return 1
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
