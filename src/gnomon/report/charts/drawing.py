"""An SVG under way: elements, text, marks with tooltips, and a legend."""

from __future__ import annotations

import html
from collections.abc import Sequence

from gnomon.report.charts.palette import CHART_STYLE, SERIES

# Width of a mean character and height of a line, generous: which font it will be is not known.
CHAR, LINE = 6.9, 17.0


def escape(text: object) -> str:
    """Text made safe for markup and attributes."""
    return html.escape(str(text), quote=True)


def coordinate(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough, and keeps files small."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def point(x: float, y: float) -> str:
    """A place in a path."""
    return f"{coordinate(x)} {coordinate(y)}"


def fit(text: str, room: float) -> str:
    """The text, cut with an ellipsis where it is wider than the room."""
    most = max(3, int(room / CHAR))
    return text if len(text) <= most else text[: most - 1] + "…"


def with_unit(label: str, unit: str) -> str:
    """An axis label."""
    return f"{label}, {unit}" if label and unit else label or unit


def hue_class(i: int) -> str:
    """The class that gives series `i` its colour."""
    return f"s{i % SERIES}" + (" alt" if i >= SERIES else "")


class Drawing:
    """SVG under way: elements in order, and the height once it is known."""

    def __init__(self, width: float) -> None:
        self.width, self.height = width, 0.0
        self.parts: list[str] = []

    def add(self, tag: str, inner: str = "", **attributes: object) -> None:
        names = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()}
        text = "".join(
            f' {k}="{coordinate(v) if isinstance(v, float) else escape(v)}"'
            for k, v in names.items()
        )
        self.parts.append(f"<{tag}{text}>{inner}</{tag}>" if inner else f"<{tag}{text}/>")

    def text(self, x: float, y: float, text: str, class_: str = "", **attributes: object) -> None:
        more = {"class_": class_} if class_ else {}
        self.add("text", escape(text), x=float(x), y=float(y), **more, **attributes)

    def mark(self, tag: str, tip: str, at: tuple[float, float], class_: str, **a: object) -> None:
        title = f"<title>{escape(tip)}</title>"
        self.add(tag, title, class_=f"mark {class_}", data_x=at[0], data_y=at[1], **a)

    def legend(self, names: Sequence[str], top: float) -> float:
        """Swatches in as many lines as they take; returns where the drawing may go on."""
        x, y = 0.0, top + 10
        for i, name in enumerate(names):
            name = fit(name, self.width - 20)
            size = 32 + len(name) * CHAR
            if x and x + size > self.width:
                x, y = 0.0, y + LINE
            self.add("rect", x=x, y=y - 8, width=10.0, height=10.0, rx=2.0, class_=hue_class(i))
            self.text(x + 15, y + 1, name)
            x += size
        return y + 14

    def finish(self, title: str, standalone: bool) -> str:
        size = f"0 0 {coordinate(self.width)} {coordinate(self.height)}"
        xmlns = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
        style = f"<style>{CHART_STYLE}</style>" if standalone else ""
        return (
            f'<svg{xmlns} class="chart" viewBox="{size}" role="img" aria-label="{escape(title)}">'
            f"{style}{''.join(self.parts)}</svg>"
        )


def present(*columns: Sequence[float | None] | None) -> list[float]:
    """All values that are there."""
    return [v for column in columns for v in column or () if v is not None]


def value_at(values: Sequence[float | None], i: int) -> float:
    """A value known to be there."""
    return values[i] or 0.0
