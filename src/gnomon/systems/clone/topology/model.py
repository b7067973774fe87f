"""The model of a topology: shapes without names, an application, and what the original did."""

from __future__ import annotations

import msgspec

from gnomon.errors import InputError
from gnomon.graph.application import Application
from gnomon.graph.request_shape import Shapes
from gnomon.ingest.spans.call_graph import CallGraph, call_graph
from gnomon.ingest.spans.calls import Visit, Visits, find_visits
from gnomon.ingest.spans.infer import infer_application
from gnomon.ingest.spans.limits import with_limits
from gnomon.ingest.spans.shapes import find_shapes
from gnomon.ingest.spans.spans import Spans
from gnomon.systems.clone.topology.compare import compare
from gnomon.systems.clone.topology.reduce import reduce_shapes


class Model(msgspec.Struct, frozen=True, eq=False):
    """What a topology is cloned from. Names are pseudonyms: tier-1, op-1 ...

    Attributes:
        shapes: The requests.
        app: The same for `gnomon services`: classes, call trees, distributions.
        original: The original's call graph and latency.
        cpu_share: Of a tier's own time that is CPU time.
        notes: What was left out, merged or assumed.
        names: What pseudonyms stand for; never part of what is written to the folder.
    """

    shapes: Shapes
    app: Application
    original: CallGraph
    cpu_share: float
    notes: tuple[str, ...]
    names: dict[str, str]


def make_model(
    spans: Spans, *, name: str, cpu_share: float = 0.0, least: int = 3, hold_out: float = 0.0
) -> Model:
    """The model of recorded spans.

    Args:
        spans: As they were read.
        name: Of the application.
        cpu_share: Of a tier's own time, what is CPU time. Spans do not say it; the rest is wait.
        least: Kinds of requests that were seen fewer times are merged into the nearest.
        hold_out: Share of requests that no shape is made of: the clone is compared with those.
    """
    if not 0 <= least <= 1000:
        raise InputError(f"--least {least}", hint="from 0 to 1000")
    if not 0 <= hold_out <= 0.9:
        raise InputError(f"--hold-out {hold_out:g}", hint="a share from 0 to 0.9")
    found = find_visits(spans)
    names = _rename(found)
    used, held = _split(found, hold_out)
    inferred = infer_application(used, name=name, cpu_share=cpu_share)
    app, limits = with_limits(inferred)
    seen = find_shapes(used, rate=round(inferred.app.rate / (1 - hold_out), 3))
    kept, notes = reduce_shapes(seen.shapes, least=least)
    original = call_graph(held if hold_out else found)
    if hold_out:
        spread = compare(original, call_graph(used))
        notes.append(f"Shapes are of {len(seen.shapes):,} requests; the clone is compared with "
                     f"{original.requests:,} others. The two sets themselves are "
                     f"{spread.worst_error_pct(50):+.1f} % apart at the p50 and "
                     f"{spread.worst_error_pct(99):+.1f} % at the p99.")  # fmt: skip
    dropped = [f"{what[0].upper()}{what[1:]}: {n:,}." for what, n in found.counts.items()]
    shapes = msgspec.structs.replace(seen, shapes=kept)
    return Model(shapes, app, original, cpu_share, (*notes, *dropped, *limits), names)


def _rename(found: Visits) -> dict[str, str]:
    """Gives visits pseudonyms, in the order in which names come up; answers what they are for."""
    tiers: dict[str, str] = {}
    operations: dict[tuple[str, str], str] = {}
    for visit in found.visits:
        own = visit.service, visit.operation
        visit.operation = operations.setdefault(own, f"op-{len(operations) + 1}")
        visit.service = tiers.setdefault(visit.service, f"tier-{len(tiers) + 1}")
    names = {pseudonym: tier for tier, pseudonym in tiers.items()}
    return names | {pseudonym: f"{tier}: {one}" for (tier, one), pseudonym in operations.items()}


def _split(found: Visits, hold_out: float) -> tuple[Visits, Visits]:
    """Visits of requests to make shapes of, and of those to compare with, evenly spread."""
    parts: tuple[list[Visit], list[Visit]] = ([], [])
    place: list[tuple[int, int]] = []  # of each visit: which part, and where in it
    count = 0
    for visit in found.visits:
        if visit.parent < 0:
            part, parent = int((count + 1) * hold_out) - int(count * hold_out), -1
            count += 1
        else:
            part, parent = place[visit.parent]
        place.append((part, len(parts[part])))
        parts[part].append(msgspec.structs.replace(visit, parent=parent))
    if not parts[0] or (hold_out and not parts[1]):
        raise InputError(f"{count} requests are too few for --hold-out {hold_out:g}")
    return Visits(parts[0], found.counts), Visits(parts[1], {})
