"""Writes each system's claims into its page, between the marks; `--check` only compares.

python docs/claims_table.py [--check]
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = ROOT / "src" / "gnomon" / "systems"
#: The mark names the folder of the claims: `<!-- claims training/prediction -->`.
MARKS = re.compile(r"(<!-- claims (\S+) -->\n).*?(<!-- /claims -->)", re.DOTALL)


def table_of(folder: str) -> str:
    claims = tomllib.loads((SYSTEMS / folder / "claims.toml").read_text())["claim"]
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
    stale, shown = [], set()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        before = page.read_text()
        shown |= {folder for _, folder, _ in MARKS.findall(before)}
        after = MARKS.sub(lambda found: found[1] + table_of(found[2]) + found[3], before)
        if after != before:
            stale.append(str(page.relative_to(ROOT)))
            if "--check" not in sys.argv:
                page.write_text(after)
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run python docs/claims_table.py")
        return 1
    known = {str(file.parent.relative_to(SYSTEMS)) for file in SYSTEMS.rglob("claims.toml")}
    if shown != known:
        print(f"no page shows the claims of {', '.join(sorted(known - shown))}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
