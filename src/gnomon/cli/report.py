"""gnomon report: a saved result, shown again."""

from __future__ import annotations

from gnomon.cli.output import Output, show
from gnomon.cli.sources import Source


def report(path: Source, *, output: Output = Output()) -> None:  # noqa: B008
    """Show a saved result, or compute and show the one that fits a trace, graph or timeline.

    Args:
        path: A result folder, a profiler trace, a graph or a timeline.
        output: Where the answer goes; --html writes the page.
    """
    from gnomon.cli.sources import load_result

    show(load_result(path), output)
