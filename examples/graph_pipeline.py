"""Build a two-stage pipeline by hand, find its bubble, and add micro-batches until it shrinks.

Scenario: two stages, forward only; each micro-batch goes through stage 0, then stage 1.
"""

from gnomon.graph import GraphBuilder
from gnomon.sim import replay


def pipeline(micro_batches: int):
    """A forward pass of two stages."""
    build = GraphBuilder()
    for number in range(micro_batches):
        first = build.task("stage 0", 10_000, kind="compute", name=f"forward {number}")
        send = build.task("link", 2_000, kind="comm", name=f"send {number}")
        second = build.task("stage 1", 12_000, kind="compute", name=f"forward {number}")
        build.edge(first, send)
        build.edge(send, second)
    return build.build()


for micro_batches in (1, 4, 16):
    line = replay(pipeline(micro_batches))
    busy = line.utilisation(line.makespan_ns, lanes=[2])[0, 0]
    path = line.critical_path()
    print(
        f"{micro_batches:2} micro-batches: {line.makespan_ns / 1e3:6.1f} us, "
        f"stage 1 busy {busy:.0%}, path tied by {path.by_link}"
    )
