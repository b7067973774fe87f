"""gnomon compare: a gate for pipelines."""

from __future__ import annotations

from gnomon.cli.output import Output, show
from gnomon.cli.sources import Source


def compare(
    before: Source,
    after: Source,
    *,
    max_regress: str = "0%",
    output: Output = Output(),  # noqa: B008
) -> int:
    """Compare two results; exit 3 when the second is worse by more than allowed.

    Args:
        before: A saved result, a profiler trace, a graph or a timeline.
        after: Another of the same kind.
        max_regress: How much worse a figure may be: 3%, 0.03.
        output: Where the answer goes.
    """
    from gnomon import report
    from gnomon.cli.sources import load_result
    from gnomon.units import parse_percent

    allowed = parse_percent(max_regress)
    found = report.compare(load_result(before, "compare"), load_result(after, "compare"), allowed)
    show(found.to_result(), output)
    return 3 if found.regressed else 0
