"""Run one function over many items: here, on this machine's cores, or on a Ray cluster.

`pmap` gives the results in order, `as_completed` as they come. A worker that dies loses nothing,
a map that was interrupted goes on (`resume=`), and a seed gives the same results anywhere.

    results = pmap(simulate, scenarios, on="local:8", seed=1, resume="sweep/")
"""

from gnomon.parallel.call import Failure
from gnomon.parallel.mapping import Completed, MapOptions, as_completed, pmap
from gnomon.parallel.place import Place, parse_on
from gnomon.parallel.progress import Progress, RichProgress
from gnomon.parallel.results import Results

__all__ = [
    "Completed",
    "Failure",
    "MapOptions",
    "Place",
    "Progress",
    "Results",
    "RichProgress",
    "as_completed",
    "parse_on",
    "pmap",
]
