"""An application from recorded spans: classes, call trees, times and rates.

Requests are grouped into classes by service and operation of their first span. The calls of all
requests of a class are laid over one another: calls that the same caller makes for the n-th time
to the same operation are one call of the tree, made with the probability with which it occurs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.graph.application import (
    Application,
    Call,
    Milliseconds,
    RequestClass,
    Service,
    Work,
)
from gnomon.ingest.spans.calls import Visit, Visits, find_visits
from gnomon.ingest.spans.correlation import mean_correlation
from gnomon.ingest.spans.spans import Spans

Floats = NDArray[np.float64]

#: Percentiles that a measured time keeps, as far as there are enough samples for them.
_PERCENTILES = (
    0.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 97.0, 98.0, 99.0, 99.5,
    99.9, 100.0,
)  # fmt: skip
#: Kinds of requests with one first operation are separated if so few make up so much of them.
_MOST_KINDS, _COVERED, _FEWEST = 12, 0.9, 50
_MOST_CLASSES = 60
#: A class of more calls than this, or deeper, is a loop that was traced call by call.
_MOST_CALLS, _DEEPEST = 20_000, 150
#: A caller's calls are compared with so many that follow: thousands in a loop are all alike.
_NEIGHBOURS = 40
#: A pause so much longer than the usual one parts recordings.
_PAUSE_S, _PAUSE_FACTOR = 10.0, 50.0


class Inferred(msgspec.Struct, frozen=True, eq=False):
    """An application, how it was found, and what was recorded.

    Attributes:
        app: Without limits of CPU time, with as many workers as needed, without SLAs: spans do not
            say these.
        notes: What was assumed, and what was left out.
        recorded: By class: the latency in ms of each recorded request, for a comparison with the
            simulator.
        counts: What was dropped or repaired, and how often.
        joint_ms: By class: own times of a request's calls together. A row a request, a column a
            call in the order of `Call.walk`; NaN where it was not made.
    """

    app: Application
    notes: tuple[str, ...]
    recorded: dict[str, Floats]
    counts: dict[str, int]
    joint_ms: dict[str, Floats]


class _Node:
    """A call of a merged tree and what was seen of it."""

    def __init__(self, service: str, operation: str) -> None:
        self.service, self.operation = service, operation
        self.count = self.errors = self.queued = 0
        self.exclusive_ns: list[int] = []
        self.request: list[int] = []  # the number of the request that each belongs to
        self.network_ns: list[int] = []  # both ways; 0 where one end was not traced
        self.after_ns = self.until_ns = 0  # sums, since the caller began
        self.children: dict[tuple[str, str, int], _Node] = {}
        self.both: Counter[tuple[int, int]] = Counter()
        self.overlaps: Counter[tuple[int, int]] = Counter()

    def times(self) -> Iterator[tuple[list[int], list[int]]]:
        """Own times of this call and all below, with the requests they belong to."""
        left = [self]
        while left:
            node = left.pop()
            yield node.exclusive_ns, node.request
            left += node.children.values()


def infer_application(
    spans: Spans | Visits, *, name: str = "inferred", cpu_share: float = 0.0,
    cores: Mapping[str, float] | None = None, sampling: float = 1.0, rare: float = 0.005,
) -> Inferred:  # fmt: skip
    """The application that spans imply.

    Args:
        cpu_share: How much of a service's own time is CPU time, where `cores` does not say it.
            Spans alone do not: the rest is waiting (for a disk, a lock, a core).
        cores: By service: cores that it used on average while the spans were recorded.
        sampling: Of requests, how many were traced.
        rare: Classes, and calls of a caller, that are fewer than this share are left out.
    """
    _check("cpu_share", cpu_share, 0.0)
    _check("sampling", sampling, 1e-9)
    _check("rare", rare, 0.0)
    found = find_visits(spans) if isinstance(spans, Spans) else spans
    counts = Counter(found.counts)
    below: list[list[int]] = [[] for _ in found.visits]
    for i, visit in enumerate(found.visits):
        if visit.parent >= 0:
            below[visit.parent].append(i)
    classes = _classes(found.visits, below, rare, counts)
    requests = sum(len(tops) for tops in classes.values())
    trees = {one: _merge(found.visits, below, tops, counts) for one, tops in classes.items()}
    tops = [found.visits[i].start_ns for of in classes.values() for i in of]
    rate, pauses = _rate(tops)
    network_ms = _network(found.visits)
    shares, notes = _cpu_shares(trees, cores or {}, cpu_share, rate / sampling / requests)
    maker = _CallMaker(shares, cpu_share, network_ms, rare, counts)
    made, joint_ms = {}, {}
    for one, tree in trees.items():
        maker.made.clear()
        made[one] = RequestClass(
            maker.make(tree), share=round(100 * len(classes[one]) / requests, 4),
            correlation=mean_correlation(tree.times(), len(classes[one])),
        )  # fmt: skip
        joint_ms[one] = _joint(maker.made, len(classes[one]))
    names = dict.fromkeys(call.service for one in made.values() for call in one.call.walk())
    app = Application(
        name=name, classes=made, network_ms=network_ms, rate=rate / sampling,
        services={one: Service(workers=1000) for one in names},
    )  # fmt: skip
    notes += _notes(app, requests, pauses, counts)
    recorded = {
        one: np.sort([_ms(found.visits[i].end_ns - found.visits[i].start_ns) for i in of])
        for one, of in classes.items()
    }
    dropped = {what: count for what, count in counts.items() if count}
    return Inferred(app, tuple(notes), recorded, dropped, joint_ms)


def _check(name: str, value: float, least: float) -> None:
    if not least <= value <= 1.0:
        raise InputError(f"{name} is {value:g}", hint=f"it is {least:g} to 1")


def _notes(app: Application, requests: int, pauses: int, counts: Mapping[str, int]) -> list[str]:
    notes = [
        f"{requests:,} requests in {len(app.classes)} classes, {len(app.services)} services.",
        "Time that a service spent itself includes waiting for its CPU while it was recorded.",
        "Workers, limits of CPU time, pools and SLAs are not in spans: none limits anything here.",
    ]
    if pauses:
        notes.append(f"The rate leaves out {pauses:,} pauses between recordings.")
    return notes + [
        f"{what[0].upper()}{what[1:]}: {count:,}." for what, count in counts.items() if count
    ]


# -- classes --------------------------------------------------------------------------------------


def _classes(
    visits: Sequence[Visit], below: Sequence[Sequence[int]], rare: float, counts: Counter[str]
) -> dict[str, list[int]]:
    """Tops of requests by class, the most frequent class first."""
    grouped: dict[tuple[str, str], list[int]] = {}
    for i, visit in enumerate(visits):
        if visit.parent < 0:
            grouped.setdefault((visit.service, visit.operation), []).append(i)
    operations = Counter(operation for _, operation in grouped)
    total = sum(map(len, grouped.values()))
    named: dict[str, list[int]] = {}
    for (service, operation), tops in grouped.items():
        title = operation if operation and operations[operation] == 1 else f"{service} {operation}"
        kinds = _kinds(visits, below, tops)
        for number, (callee, kind) in enumerate(kinds, 1):
            one = title.strip() if len(kinds) == 1 else f"{title} {callee or number}".strip()
            while one in named:  # an operation that is called as another with its number
                one += "*"
            named[one] = kind
        if len(kinds) > 1:
            counts["classes with one first operation, separated by whom they call"] += len(kinds)
    ordered = sorted(named.items(), key=lambda item: -len(item[1]))
    kept = {
        title: tops for title, tops in ordered[:_MOST_CLASSES] if len(tops) >= rare * total
    } or dict(ordered[:1])
    if left := len(named) - len(kept):
        counts["rare classes left out"] += left
        counts["requests of rare classes left out"] += total - sum(map(len, kept.values()))
    return kept


def _kinds(
    visits: Sequence[Visit], below: Sequence[Sequence[int]], tops: list[int]
) -> list[tuple[str, list[int]]]:
    """Requests with one first operation, separated by what they call first-hand.

    One entry point may serve many pages. Where few sets of callees make up nearly all requests,
    each set is a kind of its own, and a rare set counts to the nearest. The text is the operation
    that a kind calls where it calls a single one, as behind a gateway.
    """
    sets: dict[frozenset[tuple[str, str]], list[int]] = {}
    for i in tops:
        called = frozenset((visits[j].service, visits[j].operation) for j in below[i])
        sets.setdefault(called, []).append(i)
    ordered = sorted(sets, key=lambda called: -len(sets[called]))
    common = [one for one in ordered[:_MOST_KINDS] if len(sets[one]) >= 0.02 * len(tops)]
    if len(tops) < _FEWEST or sum(len(sets[one]) for one in common) < _COVERED * len(tops):
        return [("", tops)]
    kinds = {one: sets[one] for one in common}
    for one in ordered:
        if one not in kinds:
            nearest = max(common, key=lambda known: len(one & known) - len(one ^ known) / 1e3)
            kinds[nearest] = kinds[nearest] + sets[one]
    return [
        (next(iter(called))[1] if len(called) == 1 else "", rows) for called, rows in kinds.items()
    ]


# -- trees ----------------------------------------------------------------------------------------


def _merge(
    visits: Sequence[Visit], below: Sequence[Sequence[int]], tops: list[int], counts: Counter[str]
) -> _Node:
    """The calls of requests laid over one another."""
    root = _Node(visits[tops[0]].service, visits[tops[0]].operation)
    left, nodes = [(i, root, 1, number) for number, i in enumerate(tops)], 1
    while left:
        i, node, depth, number = left.pop()
        _note(node, visits, i)
        node.request.append(number)
        seen: Counter[tuple[str, str]] = Counter()
        positions = []
        for j in sorted(below[i], key=lambda j: visits[j].call_start_ns):
            key = visits[j].service, visits[j].operation
            seen[key] += 1
            child = node.children.get((*key, seen[key]))
            if child is None:
                if nodes == _MOST_CALLS or depth == _DEEPEST:
                    counts["calls left out of trees that are too large"] += 1
                    continue
                child = node.children[*key, seen[key]] = _Node(*key)
                nodes += 1
            left.append((j, child, depth + 1, number))
            positions.append((id(child), visits[j]))
        for a, (one, earlier) in enumerate(positions):
            for other, later in positions[a + 1 : a + 1 + _NEIGHBOURS]:
                pair = (one, other) if one < other else (other, one)
                node.both[pair] += 1
                node.overlaps[pair] += later.call_start_ns < earlier.call_end_ns
    return root


def _note(node: _Node, visits: Sequence[Visit], i: int) -> None:
    """Add what was seen of one call."""
    visit = visits[i]
    node.count += 1
    node.errors += visit.is_error
    node.queued += visit.is_queued
    node.network_ns.append(visit.network_ns if visit.has_pair else 0)
    node.exclusive_ns.append(visit.exclusive_ns)
    if visit.parent >= 0:
        node.after_ns += visit.call_start_ns - visits[visit.parent].start_ns
        node.until_ns += visit.call_end_ns - visits[visit.parent].start_ns


class _CallMaker:
    """Merged trees to calls."""

    def __init__(
        self, shares: Mapping[str, float], cpu_share: float, network_ms: float, rare: float,
        counts: Counter[str],
    ) -> None:  # fmt: skip
        self.shares, self.cpu_share, self.network_ms = shares, cpu_share, network_ms
        self.rare, self.counts = rare, counts
        self.made: list[_Node] = []  # in the order of `Call.walk`

    def make(self, node: _Node, callers: int = 0) -> Call:
        """The call of a node whose caller was seen so many times; 0 for a root."""
        self.made.append(node)
        kept = [one for one in node.children.values() if one.count >= self.rare * node.count]
        self.counts["rare calls left out of the trees"] += len(node.children) - len(kept)
        then = tuple(
            tuple(self.make(one, node.count) for one in stage) for stage in _stages(node, kept)
        )
        own_ms = np.array(node.exclusive_ns) / 1e6
        share = self.shares.get(node.service, self.cpu_share)
        wait_ms = (1.0 - share) * own_ms
        is_queued = callers > 0 and 2 * node.queued > node.count
        cpu_ms = share * own_ms
        if callers and not is_queued:  # what the network took beyond what every call has
            wait_ms += np.array(node.network_ns) / 1e6 - 2 * self.network_ms
            # A call that was only seen from its caller took no network: it is in its own time.
            cpu_ms = np.maximum(cpu_ms + np.minimum(wait_ms, 0.0), 0.0)
        return Call(
            node.service,
            cpu_ms=_measured(cpu_ms),
            wait_ms=_measured(np.maximum(wait_ms, 0.0)),
            then=then,
            mode="queue" if is_queued else "rpc",
            probability=min(1.0, round(node.count / callers, 6)) if callers else 1.0,
            error_share=round(node.errors / node.count, 6),
            operation=node.operation,
        )


def _joint(nodes: Sequence[_Node], requests: int) -> Floats:
    joint = np.full((requests, len(nodes)), np.nan)
    for column, node in enumerate(nodes):
        joint[node.request, column] = np.array(node.exclusive_ns) / 1e6
    return joint


def _stages(node: _Node, kept: list[_Node]) -> list[list[_Node]]:
    """Calls in the order in which they are made; those of a stage overlap with its longest."""
    stages: list[list[_Node]] = []
    last: _Node | None = None  # of the current stage: the one that is answered last
    for one in sorted(kept, key=lambda one: one.after_ns / one.count):
        pair = (min(id(one), id(last)), max(id(one), id(last)))
        # A call that nobody waits for overlaps with whatever follows: it orders nothing.
        is_free = last is not None and 2 * last.queued > last.count
        if last is not None and 2 * node.overlaps[pair] > node.both[pair] and not is_free:
            stages[-1].append(one)
            last = max(last, one, key=lambda each: each.until_ns / each.count)
        else:
            stages.append([one])
            last = one
    return stages


# -- times and rates ------------------------------------------------------------------------------


def _ms(ns: int) -> float:
    return ns / 1e6


def _measured(samples_ms: Floats) -> Milliseconds:
    """A time with the percentiles and the mean of samples; a number where they are all alike."""
    least, most = float(samples_ms.min()), float(samples_ms.max())
    if most - least <= 1e-6 or len(samples_ms) < 3:
        return round(float(samples_ms.mean()), 6)
    # A percentile that fewer than two samples lie beyond is the greatest itself.
    kept = [p for p in _PERCENTILES if p in (0.0, 100.0) or len(samples_ms) * (100 - p) >= 200]
    values = np.quantile(samples_ms, np.array(kept) / 100).tolist()
    points = dict(zip(kept, values))
    # Straight lines to the greatest overstate a long tail. The mean has to be met, for it is what
    # a service needs: the tail is shortened for it, and all is scaled where that is not enough.
    mean_ms = float(samples_ms.mean())
    excess_ms = Work(quantiles=points).average - mean_ms
    width = (kept[-1] - kept[-2]) / 100
    points[100.0] = max(points[kept[-2]], most - max(0.0, 2 * excess_ms / width))
    scale = mean_ms / Work(quantiles=points).average
    return Work(quantiles={p: round(value * scale, 6) for p, value in points.items()})


def _network(visits: Sequence[Visit]) -> float:
    """One way between two services, in ms: half of what nearly all calls took on the network."""
    calls = [visit for visit in visits if visit.parent >= 0 and not visit.is_queued]
    pairs = [visit for visit in calls if visit.has_pair]
    if 2 * len(pairs) < len(calls) or not pairs:
        return 0.0
    return round(float(np.quantile([visit.network_ns for visit in pairs], 0.1)) / 2e6, 6)


def _rate(starts_ns: Sequence[int]) -> tuple[float, int]:
    """Requests per second, and how many pauses were left out of the time."""
    if len(starts_ns) < 2:
        return 1.0, 0
    gaps_s = np.diff(np.sort(starts_ns)) / 1e9
    is_pause = gaps_s > max(_PAUSE_S, _PAUSE_FACTOR * float(np.median(gaps_s)))
    busy_s = float(gaps_s[~is_pause].sum())
    rate = float((~is_pause).sum()) / busy_s if busy_s > 0 else 1.0
    return min(max(rate, 1e-6), 1e9), int(is_pause.sum())


def _cpu_shares(
    trees: Mapping[str, _Node], cores: Mapping[str, float], cpu_share: float, per_request: float
) -> tuple[dict[str, float], list[str]]:
    """How much of each service's own time is CPU time, where its use of cores is known."""
    busy_ns: Counter[str] = Counter()
    left = list(trees.values())
    for node in itertools.chain(left):
        busy_ns[node.service] += sum(node.exclusive_ns)
        left += node.children.values()
    busy_cores = {name: ns / 1e9 * per_request for name, ns in busy_ns.items()}
    known = {one: cores[one] / busy for one, busy in busy_cores.items() if busy and one in cores}
    notes = []
    if over := sorted(one for one, share in known.items() if share > 1):
        notes.append(
            f"Used more CPU time than their spans took, so all of that counts: {', '.join(over)}."
        )
    guessed = len(busy_cores) - len(known)
    if guessed:
        notes.append(
            f"Spans do not tell CPU time from waiting: {cpu_share:.0%} of the time of {guessed} "
            "services counts as CPU time."
        )
    return {one: min(1.0, share) for one, share in known.items()}, notes
