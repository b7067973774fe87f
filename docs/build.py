"""Builds the documentation and fails on any warning.

python docs/build.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPLAINTS = ("warning", "error:", "could not", "not found", "traceback", "griffe:")


def main() -> int:
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [str(zensical), "build", "--clean", "--strict"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    text = done.stdout + done.stderr
    bad = [line for line in text.splitlines() if any(word in line.lower() for word in COMPLAINTS)]
    if done.returncode or bad:
        print(text)
        print(f"the documentation does not build cleanly ({len(bad)} complaints)")
        return 1
    pages = list((ROOT / "site").rglob("index.html"))
    if len(pages) < 10:
        print(f"only {len(pages)} pages were built")
        return 1
    print(f"{len(pages)} pages in site/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
