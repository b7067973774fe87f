"""Colours, once: eight hues that stay apart for colour-blind eyes, for light and dark paper."""

from __future__ import annotations

# Blue, orange, green, rose, sky, rust, violet, grey: neighbours differ in lightness as well as in
# hue, so a stack reads in greyscale too.
_LIGHT = ["#2f6fb5", "#e0912a", "#1a9a7f", "#c25580", "#74b9e6", "#ad4512", "#8878d0", "#8b919b"]
_DARK = ["#5b9be0", "#eda94c", "#43bb9d", "#df83a7", "#a3d4f5", "#dd7747", "#b0a3ee", "#8f96a3"]
SERIES = len(_LIGHT)

_PAPER = {
    "light": {
        "bg": "#fcfcfb", "card": "#ffffff", "ink": "#1c2126", "soft": "#5b646e",
        "faint": "#8a929b", "rule": "#e3e6e9", "grid": "#eceef0", "accent": "#2f6fb5",
        "warn": "#8a5a00", "warn-bg": "#fdf6e6", "code": "#f2f4f6",
    },
    "dark": {
        "bg": "#14171a", "card": "#1b1f23", "ink": "#e6e9ec", "soft": "#a3acb5",
        "faint": "#79828b", "rule": "#2d3338", "grid": "#272c31", "accent": "#6aa7ea",
        "warn": "#e8bd6a", "warn-bg": "#2a2418", "code": "#23282d",
    },
}  # fmt: skip


def _variables(theme: str) -> str:
    colours = _PAPER[theme] | {
        f"c{i}": hue for i, hue in enumerate(_LIGHT if theme == "light" else _DARK)
    }
    return f"color-scheme:{theme};" + "".join(f"--{k}:{v};" for k, v in colours.items())


def _theme(root: str, chosen: str) -> str:
    """Light unless the reader's system says dark; `chosen` is how a toggle overrules both."""
    return (
        f"{root}{{{_variables('light')}}}"
        f"@media(prefers-color-scheme:dark){{{root}{{{_variables('dark')}}}}}"
        + "".join(f"{chosen.format(t)}{{{_variables(t)}}}" for t in ("light", "dark"))
    )


THEME = _theme(":root", ":root[data-theme={}]")
"""Variables of a report page."""

_MARKS = (
    "svg.chart{display:block;width:100%;height:auto;font:12px system-ui,sans-serif;"
    "fill:var(--ink);overflow:visible}"
    + "".join(f".chart .s{i}{{--c:var(--c{i})}}" for i in range(SERIES))
    + ".chart rect{fill:var(--c)}.chart .alt{opacity:.55}"
    ".chart .grid{stroke:var(--grid)}.chart .base{stroke:var(--faint)}"
    ".chart .tick{fill:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}"
    ".chart .axis{fill:var(--soft);font-size:11px}"
    ".chart .value{fill:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}"
    ".chart .name{font-size:11px;paint-order:stroke;stroke:var(--card);stroke-width:3px}"
    ".chart .line{fill:none;stroke:var(--c);stroke-width:1.75;stroke-linejoin:round}"
    ".chart .dashed{stroke-dasharray:5 4}.chart .band{fill:var(--c);opacity:.16}"
    ".chart .dot{fill:var(--c)}.chart .target{fill:transparent}"
    ".chart .point{fill:var(--c);fill-opacity:.5;stroke:var(--c)}.chart .best{fill-opacity:1}"
    ".chart .front{fill:none;stroke:var(--faint);stroke-dasharray:4 3}"
    ".chart .arrow{fill:none;stroke:var(--faint);opacity:.7}"
    ".chart .box{stroke:var(--faint)}"
    ".chart .whisker{fill:none;stroke:var(--ink);opacity:.75}"
    ".chart .mark.on{stroke:var(--ink);stroke-width:1.5;fill:var(--c);fill-opacity:1}"
)
CHART_STYLE = _theme("svg.chart", "[data-theme={}] svg.chart") + _MARKS
"""Everything a chart on its own needs."""
MARK_STYLE = _MARKS
"""What a chart needs where the page has `THEME` already."""
