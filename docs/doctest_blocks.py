"""A Griffe extension: doctests in docstrings become fenced code.

Our docstrings hold examples without a section of their own, as people read them in the source.
Markdown would take `>>>` for a quotation.
"""

from __future__ import annotations

from typing import Any

import griffe


class DoctestBlocks(griffe.Extension):
    """Fences each run of doctest lines."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)


def fence(text: str) -> str:
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line.strip("\n"))
    if inside:
        lines.append("```")
    return "\n".join(lines)
