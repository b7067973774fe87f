"""What a bundle says about a service: its counts, and in plain words what they amount to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gnomon.systems.clone.bundle import SLOWER, Bundle, read_bundle

#: What was counted less often tells about single events.
FEWEST = 5


def bundle_counts(path: Path) -> Iterator[tuple[str, float]]:
    """Everything in a bundle that was counted: what, and how often.

    Raises:
        InputError: It is no bundle.
    """
    yield from counts_of(read_bundle(path))


def counts_of(bundle: Bundle) -> Iterator[tuple[str, float]]:
    """The same of one that is read."""
    server, traffic = bundle.server, bundle.traffic
    for i, script in enumerate(server.scripts):
        yield f"requests of script {i}", script.share * server.covered * server.requests
        for size, count in script.reply_sizes:
            yield f"replies of {size} bytes, script {i}", count
    for i, (_, count) in enumerate(server.timers):
        yield f"timer {i}", count
    for one in bundle.edges:
        slower = SLOWER if bundle.is_background(one) else 1.0
        yield f"edge {one.before} to {one.after}", one.per_request * server.requests * slower
    kept = server.requests * (1.0 - traffic.left_out)
    for row in traffic.classes:
        what = f"{row.verb} of {row.request_bytes} bytes, answered by {row.reply_bytes}"
        yield f"requests {what}", row.weight * kept


def reveals(bundle: Bundle) -> list[str]:
    """What somebody who has the bundle knows about the service."""
    server, traffic, skeleton = bundle.server, bundle.traffic, bundle.skeleton
    steps = " ".join(step.label for step in server.scripts[0].steps)
    workers = f"{server.processes} processes, {server.threads} threads that serve"
    found = [
        f"The protocol ({bundle.protocol}), and shares and sizes of "
        f"{len(traffic.classes)} classes of requests: "
        + ", ".join(sorted({one.verb for one in traffic.classes})),
        f"About {traffic.keys:,} distinct keys, {traffic.connections} connections; no key, no "
        "value",
        f"System calls of a request, in order and with sizes: {steps}",
        f"How it waits ({server.wait}), {workers}, {len(server.timers)} timers, "
        f"{len(server.background)} threads in the background and how long they sleep",
        f"{bundle.instructions:,.0f} instructions a request by class, between {len(bundle.edges)} "
        "pairs of system calls; how often branches are taken; how far apart reuses are",
    ]
    if skeleton.blocks:
        found.append(
            f"The shape of its code where it is hot: {len(skeleton.blocks):,} blocks with their "
            f"sizes, places in a page and how they end, {len(skeleton.paths):,} ways through "
            "them; no instruction, no address"
        )
    return found
