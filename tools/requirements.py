"""Prints what pyproject.toml requires: the core, or the named extras, one requirement a word.

python tools/requirements.py            # the core
python tools/requirements.py torch,dev  # these extras, without the core
"""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(
    (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]


def requirements(extras: list[str]) -> list[str]:
    """The core's where no extra is named."""
    if not extras:
        return list(PROJECT["dependencies"])
    return [word for extra in extras for word in PROJECT["optional-dependencies"][extra]]


if __name__ == "__main__":
    names = [name for text in sys.argv[1:] for name in text.split(",")]
    print(*requirements(names))
