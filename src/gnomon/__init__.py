"""gnomon reads what a datacenter workload left behind, rebuilds it, plays it again, and decides.

The names most people need, each loaded when it is first used:

| name | |
| --- | --- |
| `WorkGraph`, `GraphBuilder`, `Timeline` | a workload as columns; when it ran |
| `replay` | plays a graph natively |
| `Signal`, `Estimate` | values over time; a number that is a guess |
| `Result`, `Table` | an answer, and its tables |
| `pmap` | one function over many inputs, here or on a cluster |
| `GnomonError`, `InputError` | what is raised on purpose |

>>> import gnomon
>>> gnomon.replay(gnomon.WorkGraph.from_columns(["gpu", "gpu"], [10, 20])).makespan_ns
30
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.lazy import lazy_names

if TYPE_CHECKING:
    from gnomon.errors import GnomonError, InputError
    from gnomon.estimate import Estimate
    from gnomon.graph import GraphBuilder, Timeline, WorkGraph
    from gnomon.parallel import pmap
    from gnomon.report import Result
    from gnomon.series import Signal
    from gnomon.sim.replay import replay
    from gnomon.table import Table
    from gnomon.version import __version__

_HOME = {
    "estimate": ["Estimate"],
    "errors": ["GnomonError", "InputError"],
    "graph": ["GraphBuilder", "Timeline", "WorkGraph"],
    "report": ["Result"],
    "series": ["Signal"],
    "table": ["Table"],
    "version": ["__version__"],
    "parallel": ["pmap"],
    "sim": ["replay"],
}

__all__ = [
    "Estimate",
    "GnomonError",
    "GraphBuilder",
    "InputError",
    "Result",
    "Signal",
    "Table",
    "Timeline",
    "WorkGraph",
    "__version__",
    "pmap",
    "replay",
]


__getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
