"""The running clone: every tier a process, requests dealt from the shapes, its own spans."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.act.local import Lab, OpenLoop
from gnomon.act.local.shape_layout import MOST_BYTES, ShapeLayout, shape_application
from gnomon.errors import ActuationError, InputError
from gnomon.graph.request_shape import QUEUED, Shape, play
from gnomon.ingest.spans.call_graph import CallGraph, call_graph
from gnomon.ingest.spans.calls import find_visits
from gnomon.ingest.spans.read import read_spans
from gnomon.systems.clone.topology.model import Model
from gnomon.systems.clone.topology.reduce import kinds_of
from gnomon.units import MILLISECOND_NS, SECOND_NS

Ints = NDArray[np.int64]
Say = Callable[[str], None]

#: Without --rate, so many requests at least: a p99 of fewer says little.
_FEWEST = 500
#: Of the machine's cores, what a run may use: more, and requests wait for one another.
_BUSY = 0.5
_PILOT, _PILOT_S = 60, 2.0
_MOST_TIERS = 500
#: A request that takes longer is worth a word.
_LONG_S = 20.0
#: A client that is later than this at its p99 measures itself.
_LATE_MS = 5.0
_FOREIGN_CORES = 0.25


class Ran(msgspec.Struct, frozen=True, eq=False):
    """A run of a clone.

    Attributes:
        seen: Its call graph and latency, by its own spans.
        spans: Lines of OTLP JSON.
        rate: Requests per second that were sent.
        seconds: For how long.
        cores: CPU time of the tiers and the client, in cores.
        notes: What was changed, and what disturbed it.
    """

    seen: CallGraph
    spans: list[bytes]
    rate: float
    seconds: float
    cores: float
    notes: tuple[str, ...]


def run(
    model: Model, *, seconds: float, rate: float | None = None, seed: int = 0,
    say: Say = lambda what: None,
) -> Ran:  # fmt: skip
    """Run a clone under load and read its spans.

    Args:
        model: What is cloned.
        seconds: How long requests are sent.
        rate: Per second; as recorded unless given, or as many as are needed for a comparison. A
            rate that would overload this machine is lowered.
        seed: Of arrivals and of the order of shapes.
        say: Told what happens.
    """
    if not 1 <= seconds <= 86_400:
        raise InputError("--run takes a second to a day")
    if rate is not None and not 0 < rate <= 1e5:
        raise InputError(f"--rate {rate:g}: requests per second, over 0 and at most 100,000")
    shapes, rng = model.shapes.shapes, np.random.default_rng(seed)
    wanted = _wanted_rate(model, seconds) if rate is None else rate
    notes = []
    longest_s = max(map(_whole_us, shapes)) / 1e6
    if longest_s > max(seconds, _LONG_S):
        notes.append(f"The longest request takes {longest_s:.0f} s with all that it queues, and "
                     "the run as much longer.")  # fmt: skip
        say(notes[-1])
    if any(max(call.request_bytes, call.response_bytes) > MOST_BYTES
           for shape in shapes for call in shape.calls):  # fmt: skip
        notes.append("Messages of over 1 MiB are sent with 1 MiB.")
    if rate is None and wanted > model.shapes.rate:
        notes.append(f"Sent at {wanted:.3g}/s, not at the recorded {model.shapes.rate:.3g}/s: "
                     "fewer requests would say less about the p99.")  # fmt: skip
    with _running(model, seed) as lab:
        say(f"{len(model.shapes.tiers)} tiers run")
        per_request_s = _pilot(lab, shapes, wanted, rng)
        most = _BUSY * (os.cpu_count() or 1) / per_request_s
        sent = min(wanted, most)
        if sent < wanted:
            notes.append(f"Slowed down from {wanted:.3g}/s to {sent:.3g}/s: a request takes "
                         f"{1e3 * per_request_s:.2g} ms of CPU time, and more would overload this "
                         f"machine's {os.cpu_count()} cores.")  # fmt: skip
        dealt = deal(shapes, max(1, round(sent * seconds)), rng)
        due_ns = np.sort(rng.integers(0, round(seconds * SECOND_NS), len(dealt)))
        say(f"{len(dealt):,} requests at {sent:.3g}/s")
        lab.sample_share = 1.0
        before = lab.read()
        load = _send(lab, shapes, due_ns, dealt)
        passed = lab.read().since(before)
        elapsed_s = passed.elapsed_ns / SECOND_NS
        cores = (int(passed.usage_ns.sum()) + load.cpu_time().usage_ns) / passed.elapsed_ns
        notes += _disturbances(load, passed.foreign_ns / passed.elapsed_ns)
        lab.flush_spans()
        files = lab.span_files()
        seen = call_graph(find_visits(read_spans([one for one in files if one.stat().st_size])))
        lines = [line for file in files for line in file.read_bytes().splitlines()]
        notes += [lab.note] if lab.note else []
    return Ran(seen, lines, len(dealt) / seconds, elapsed_s, cores, tuple(notes))


def serve(model: Model, *, seed: int, say: Say, wait: Callable[[], None]) -> None:
    """Keep a clone running until `wait` returns; `say` is told the addresses of requests."""
    with _running(model, seed) as lab:
        for name, one in lab.app.classes.items():
            for address in lab.addresses(one.call.service):
                say(f"http://{address}/{name}")
        wait()


@contextmanager
def _running(model: Model, seed: int) -> Iterator[Lab]:
    if len(model.shapes.tiers) > _MOST_TIERS:
        raise InputError(f"{len(model.shapes.tiers)} tiers are too many for one machine",
                         hint=f"{_MOST_TIERS} at most")  # fmt: skip
    runs = ShapeLayout(model.shapes, cpu_share=model.cpu_share)
    with Lab(shape_application(model.shapes, "clone"), seed=seed, runs=runs) as lab:
        yield lab


def deal(shapes: tuple[Shape, ...], count: int, rng: np.random.Generator) -> Ints:
    """So many places of shapes, each as often as its weight says, in random order.

    Every kind of request comes up at least once: then every call of the call graph does. Shapes
    are dealt by their length, so that the lengths of few requests are spread as those of all.
    """
    lengths = [play(shape)[0].end_us for shape in shapes]
    entries = [shape.calls[0].operation for shape in shapes]
    order = np.lexsort((lengths, entries))
    reached = np.cumsum([shapes[i].weight for i in order])
    at = (np.arange(count) + rng.uniform()) / count * reached[-1]
    dealt = order[np.searchsorted(reached, at, side="right").clip(max=len(order) - 1)]
    kinds = np.array(kinds_of(shapes))
    _, first = np.unique(kinds, return_index=True)
    missing = [i for i in first.tolist() if kinds[i] not in set(kinds[dealt].tolist())]
    return rng.permutation(np.concatenate([dealt, np.array(missing, np.int64)]))


def _wanted_rate(model: Model, seconds: float) -> float:
    needed = max(_FEWEST, min(model.original.requests, len(model.shapes.shapes)))
    return max(model.shapes.rate, needed / seconds)


def _pilot(lab: Lab, shapes: tuple[Shape, ...], rate: float, rng: np.random.Generator) -> float:
    """CPU time of a request, in seconds. It also makes the connections that later ones use."""
    count = max(5, min(_PILOT, round(rate * _PILOT_S)))
    # Not the longest: some traces are whole sessions with pauses of minutes.
    quick = sorted(range(len(shapes)), key=lambda i: _whole_us(shapes[i]))
    quick = quick[: max(1, round(0.9 * len(quick)))]
    dealt = np.array(quick)[rng.integers(0, len(quick), count)]
    before = lab.read()
    load = _send(lab, shapes, np.arange(count) * round(_PILOT_S * SECOND_NS / count), dealt)
    used_ns = int(lab.read().since(before).usage_ns.sum()) + load.cpu_time().usage_ns
    return max(used_ns, 1) / count / SECOND_NS


def _send(lab: Lab, shapes: tuple[Shape, ...], due_ns: Ints, dealt: Ints) -> OpenLoop:
    """Sends requests and waits until all, and all that they queued, have ended."""
    expected = sum(len(shapes[i].calls) for i in dealt.tolist())
    longest_s = max(_whole_us(shapes[i]) for i in set(dealt.tolist())) / 1e6
    before = lab.read()
    load = lab.load(due_ns, dealt, grace_s=longest_s + 30.0)
    load.wait(float(due_ns[-1]) / SECOND_NS + longest_s + 60.0)
    deadline = time.monotonic() + longest_s + 30.0
    while True:
        passed = lab.read().since(before)
        ended = int(passed.ok.sum() + passed.errors.sum())
        if ended >= expected:
            return load
        if time.monotonic() > deadline:
            raise ActuationError(f"{expected - ended:,} of {expected:,} calls have not ended; "
                                 "give a lower --rate")  # fmt: skip
        time.sleep(0.02)


def _whole_us(shape: Shape) -> int:
    """Until the work that a request queued has ended too."""
    played = play(shape)
    queued = any(call.marks & QUEUED for call in shape.calls)
    return max(one.end_us for one in played) if queued else played[0].end_us


def _disturbances(load: OpenLoop, foreign_cores: float) -> list[str]:
    notes = []
    late_ms = float(np.percentile(load.lateness_ns, 99)) / MILLISECOND_NS
    if late_ms > _LATE_MS:
        notes.append(f"The client sent requests {late_ms:.1f} ms late at the p99: the machine was "
                     "busy.")  # fmt: skip
    if foreign_cores > _FOREIGN_CORES:
        notes.append(f"Other processes used {foreign_cores:.1f} cores meanwhile, and latency may "
                     "be partly theirs: run again on a quiet machine.")  # fmt: skip
    return notes
