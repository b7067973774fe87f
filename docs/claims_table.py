"""Writes each system's claims into its page, between the marks; `--check` only compares.

python docs/claims_table.py [--check]
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKS = re.compile(r"(<!-- claims -->\n).*?(<!-- /claims -->)", re.DOTALL)


def table(claims: list[dict]) -> str:
    lines = ["| what | ours | to show | theirs | command |", "| --- | --- | --- | --- | --- |"]
    for claim in claims:
        lines.append(
            f"| {claim['statement']} | {claim['ours']:g} {claim['unit']} "
            f"| {bound(claim)} {claim['unit']} | {claim['theirs']} | `{claim['command']}` |"
        )
    return "\n".join(lines) + "\n"


def bound(claim: dict) -> str:
    if "at_most" in claim and "at_least" in claim:
        return f"{claim['at_least']:g} to {claim['at_most']:g}"
    return f"<= {claim['at_most']:g}" if "at_most" in claim else f">= {claim['at_least']:g}"


def main() -> int:
    stale = []
    for file in sorted((ROOT / "src" / "gnomon" / "systems").rglob("claims.toml")):
        page = ROOT / "docs" / "systems" / f"{file.parent.name}.md"
        before = page.read_text()
        text = table(tomllib.loads(file.read_text())["claim"])
        after = MARKS.sub(lambda found, text=text: found[1] + text + found[2], before)
        if after != before:
            stale.append(str(page.relative_to(ROOT)))
            if "--check" not in sys.argv:
                page.write_text(after)
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run python docs/claims_table.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
