"""Queries like TPC-H's: joins of scans, aggregations, a last stage; durations by wave."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.datasets._balanced import balanced, even_ranks, quantile
from gnomon.datasets._job_parameters import Durations, QueryShape, TpchParameters
from gnomon.graph.jobs import WAVES, Stage, Waves

_MS = 1e6
_REST = WAVES.index("rest")
#: So many durations of a stage are kept at each number of executors.
_SAMPLES = 24
_Floats = NDArray[np.float64]


class QueryNode(msgspec.Struct):
    """A stage of a query whose data have no size yet."""

    kind: str
    parents: list[int]
    tasks: int = 0  # 0: by the size of the data


class Query(msgspec.Struct):
    """Stages, parents first, numbered as Spark does: each right after what it waits for."""

    nodes: list[QueryNode]


def draw_queries(rng: np.random.Generator, shape: QueryShape, count: int) -> list[Query]:
    """Shapes of queries with the mix of tables and lengths that was seen."""
    names, largest = list(shape.largest), list(shape.largest.values())
    first = [names[i] for i in balanced(rng, largest, count)]
    more = balanced(rng, shape.more_scans, count)
    others = list(shape.other)
    drawn = iter(balanced(rng, list(shape.other.values()), int(more.sum())).tolist())
    tails = balanced(rng, shape.tail, count)
    last_names, last_weights = list(shape.last_tasks), list(shape.last_tasks.values())
    last = balanced(rng, last_weights, count)
    collects = balanced(rng, (1.0 - shape.collected, shape.collected), count)
    # What is read once a value is known is never the largest table.
    read_on = [0.0, *list(shape.other.values())[1:]]
    collected = balanced(rng, read_on, count)
    return [
        _Drawing(rng, shape).query(
            [first[i], *(others[next(drawn)] for _ in range(more[i]))],
            tail=int(tails[i]),
            last_tasks=last_names[last[i]],
            collects=bool(collects[i]),
            collected=others[collected[i]],
        )
        for i in range(count)
    ]


class _Drawing:
    """A query while it is drawn."""

    def __init__(self, rng: np.random.Generator, shape: QueryShape) -> None:
        self.rng, self.shape = rng, shape
        self.nodes: list[QueryNode] = []

    def query(
        self, tables: Sequence[str], *, tail: int, last_tasks: int, collects: bool, collected: str
    ) -> Query:
        top = self._join([self._scan(table) for table in self.rng.permutation(tables)])
        if collects:
            value = self._add("last", [top], tasks=1)
            top = self._add("join", [value, self._add(collected, [value])])
        for _ in range(tail):
            top = self._add("aggregate", [top])
        self._add("last", [top], tasks=last_tasks)
        return Query(_as_spark_numbers(self.nodes))

    def _add(self, kind: str, parents: list[int], tasks: int = 0) -> int:
        is_shuffle = kind in ("join", "aggregate")
        self.nodes.append(
            QueryNode(kind, parents, self.shape.shuffle_tasks if is_shuffle else tasks)
        )
        return len(self.nodes) - 1

    def _scan(self, table: str) -> int:
        scan = self._add(str(table), [])
        while self.rng.random() < self.shape.scan_aggregated / (1 + self.shape.scan_aggregated):
            scan = self._add("aggregate", [scan])
        return scan

    def _join(self, sides: list[int]) -> int:
        """Mostly one more side at a time; a bushy join puts two other sides together first."""
        scans = list(sides)
        bushy = self.shape.bushy if len(scans) >= self.shape.many else 0.0
        while len(sides) > 1:
            begin = 1 if len(sides) > 2 and self.rng.random() < bushy else 0
            many = 3 if len(sides) - begin > 2 and self.rng.random() < self.shape.three_way else 2
            parents = sides[begin : begin + many]
            if self.rng.random() < self.shape.shared * len(scans) / max(len(scans) - 1, 1):
                parents.append(scans[int(self.rng.integers(len(scans)))])
            sides[begin : begin + many] = [self._add("join", sorted(set(parents)))]
        return sides[0]


def _as_spark_numbers(nodes: Sequence[QueryNode]) -> list[QueryNode]:
    """From the last stage backwards, what it waits for before it."""
    number: dict[int, int] = {}

    def visit(node: int) -> None:
        for parent in nodes[node].parents:
            if parent not in number:
                visit(parent)
        number[node] = len(number)

    visit(len(nodes) - 1)
    return [
        QueryNode(nodes[old].kind, sorted(number[p] for p in nodes[old].parents), nodes[old].tasks)
        for old in number
    ]


def scan_tasks(shape: QueryShape, table: str, size_gb: float) -> int:
    """Tasks of a scan: one for each block of its table."""
    return max(shape.least_tasks, int(np.ceil(shape.tasks_per_gb[table] * size_gb)))


def draw_durations(
    rng: np.random.Generator,
    given: TpchParameters,
    at: Sequence[float],
    queries: Sequence[Query],
    sizes_gb: Sequence[float],
) -> list[list[list[Stage]]]:
    """Stages of each query at each size.

    A stage is as much slower or faster than others of its class at every size, wave and number of
    executors, and stages of one query tend to be so together.
    """
    places = _places_of_stages(rng, given.likeness, queries)
    classes = {
        (name, size): _Class(given, durations, at, size)
        for name, durations in given.classes.items()
        for size in sizes_gb
    }
    return [
        [
            [
                classes[node.kind, size].stage(rng, node, place, size)
                for node, place in zip(query.nodes, of_query)
            ]
            for size in sizes_gb
        ]
        for query, of_query in zip(queries, places)
    ]


def _places_of_stages(
    rng: np.random.Generator, likeness: float, queries: Sequence[Query]
) -> list[_Floats]:
    """Where each stage lies among those of its class, from 0 for the fastest to 1."""
    lengths = [len(query.nodes) for query in queries]
    shared = np.repeat(rng.standard_normal(len(queries)), lengths)
    own = rng.standard_normal(sum(lengths))
    scores = np.sqrt(likeness) * shared + np.sqrt(1.0 - likeness) * own
    kinds = np.array([node.kind for query in queries for node in query.nodes])
    places = np.empty(len(scores))
    for kind in np.unique(kinds):
        places[kinds == kind] = even_ranks(rng, scores[kinds == kind])
    return np.split(places, np.cumsum(lengths)[:-1])


class _Class:
    """Stages of one class at one size of the data."""

    def __init__(
        self, given: TpchParameters, durations: Durations, at: Sequence[float], size_gb: float
    ) -> None:
        self.given, self.durations, self.at = given, durations, at
        known = np.log(given.sizes_gb)
        where = float(np.interp(np.log(size_gb), known, np.arange(len(known))))
        low = int(where)
        high, part = min(low + 1, len(known) - 1), where - low
        # Between two sizes, straight in logarithms.
        means = np.log(np.array(durations.mean_ms))
        self.mean_ns = np.exp((1 - part) * means[:, low] + part * means[:, high]) * _MS
        spread = np.array(durations.spread)
        self.spread = (1 - part) * spread[:, low] + part * spread[:, high]
        evenly = (np.arange(400) + 0.5) / 400
        self.mean_factor = [self._factors(wave, evenly).mean() for wave in range(len(WAVES))]

    def _factors(self, wave: int, places: _Floats) -> _Floats:
        logs = quantile(self.at, self.durations.between[wave], places)
        return np.asarray(np.exp(self.spread[wave] * logs))

    def stage(
        self, rng: np.random.Generator, node: QueryNode, place: float, size_gb: float
    ) -> Stage:
        """One of them, which lies at this place among all: the class keeps its mean."""
        tasks = node.tasks or scan_tasks(self.given.shape, node.kind, size_gb)
        drawn_ns = []
        for wave in range(len(WAVES)):
            factor = self._factors(wave, np.array([place]))[0] / self.mean_factor[wave]
            relative = self._relative(rng, wave, min(tasks, _SAMPLES))
            drawn_ns.append((relative * (self.mean_ns[wave] * factor)[:, None]).astype(np.int64))
        waves = {
            level: Waves(*(by_level[row] for by_level in drawn_ns))
            for row, level in enumerate(self.given.executors)
        }
        cpu_ns = int(np.median(drawn_ns[_REST][0]))
        return Stage(tasks, waves, tuple(node.parents), cpu_ns=cpu_ns, name=node.kind)

    def _relative(self, rng: np.random.Generator, wave: int, count: int) -> _Floats:
        places = (np.arange(count) + rng.random((len(self.given.executors), count))) / count
        values = np.maximum(quantile(self.at, self.durations.within[wave], places), 1e-3)
        return np.asarray(values / values.mean(axis=1, keepdims=True))
