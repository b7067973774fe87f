"""Fit the parameters of the generators of batch jobs on public measurements.

usage: fit_batch_jobs.py [--data FOLDER] [--out FILE]

FOLDER holds `decima-tpch/` (154 stage graphs with durations) and `alibaba-dag/` (a sample of the
cluster trace of 2018); without it, they are looked for under batch/ in $GNOMON_DATA, or in
../shared/data. The same data give the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.datasets._job_parameters import (
    QUANTILES,
    AlibabaParameters,
    Durations,
    JobParameters,
    QueryShape,
    TpchParameters,
)
from gnomon.graph.jobs import WAVES, JobKinds
from gnomon.ingest.stages.decima_tpch import read_tpch

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "src" / "gnomon" / "datasets" / "batch_jobs.json"
TPCH = "decima-tpch/tpch_decima_154jobs.json.gz"
ALIBABA = "alibaba-dag/sorted_batch_task.csv"
SIZES_GB = (2, 5, 10, 20, 50, 80, 100)
REST = WAVES.index("rest")
SHUFFLE_TASKS = 200
#: Queries of fewer tables join one after the other.
MANY_TABLES = 5
#: Tables by the tasks of their scans at 100 GB, largest first.
TABLES = {"lineitem": 593, "orders": 133, "partsupp": 91, "part": 19, "small": 2}
#: As published for the jobs that PCAPS was tried on.
ALIBABA_STAGES, ALIBABA_WORK_S = 66.0, 7989.0
#: Assumed: the sample does not say.
ALIBABA_ROOTS = 0.35
NOTICE = (
    "Fitted on the TPC-H measurements of the authors of Decima (hongzimao/decima-sim) and on a "
    "sample of Alibaba's cluster-trace-v2018 (in umass-solar/carbon-aware-dag); no measurement is "
    "in here. The mean stages and work of the Alibaba jobs are those of arXiv 2502.09717."
)
Floats = NDArray[np.float64]


def main(arguments: list[str]) -> int:
    """Read, fit, write, and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.data is None or not (options.data / TPCH).is_file():
        print("no data: give --data FOLDER, or set GNOMON_DATA", file=sys.stderr)
        return 2
    fitted = fit(options.data)
    content = msgspec.json.encode(fitted) + b"\n"
    options.out.write_bytes(content)
    print(f"wrote {options.out.name}: {len(content):,} bytes")
    return 0


def default_data() -> Path | None:
    """The folder of batch data, where there is one."""
    for candidate in (os.environ.get("GNOMON_DATA"), ROOT.parent / "shared" / "data"):
        if candidate and (Path(candidate) / "batch").is_dir():
            return Path(candidate) / "batch"
    return None


def fit(folder: Path) -> JobParameters:
    """All parameters from a folder of data."""
    tpch = fit_tpch(read_tpch(folder / TPCH))
    return JobParameters(NOTICE, QUANTILES, tpch, fit_alibaba(folder / ALIBABA))


# -- queries ---------------------------------------------------------------------------------


def fit_tpch(kinds: JobKinds) -> TpchParameters:
    """Shapes from the queries at 100 GB, where tables can be told apart; durations from all."""
    size = np.array([float(name.split("g-")[0]) for name in kinds.names])
    query = np.array([int(name.split("-q")[1]) for name in kinds.names])
    graphs = {
        int(query[k]): Graph(kinds, int(k)) for k in np.flatnonzero(size == SIZES_GB[-1]).tolist()
    }
    labels = np.array([label for k in range(len(kinds)) for label in graphs[int(query[k])].labels])
    size_of_stage = size[kinds.kind_of_stage]
    classes = {
        label: fit_durations(kinds, labels == label, size_of_stage)
        for label in sorted(set(labels.tolist()))
    }
    return TpchParameters(
        tuple(float(size) for size in SIZES_GB),
        tuple(kinds.levels.tolist()),
        fit_shape(list(graphs.values())),
        rounded(fit_likeness(kinds, labels, size_of_stage, query[kinds.kind_of_stage])),
        classes,
    )


class Graph:
    """A query's stages by class: a table's name, join, aggregate, last."""

    def __init__(self, kinds: JobKinds, kind: int) -> None:
        stages = kinds.stages_of(kind)
        self.tasks = [int(kinds.tasks[stage]) for stage in stages]
        self.parents = [[int(p) - stages[0] for p in kinds.parents_of(stage)] for stage in stages]
        self.children: list[list[int]] = [[] for _ in stages]
        for child, parents in enumerate(self.parents):
            for parent in parents:
                self.children[parent].append(child)
        self.labels = [self._label(stage) for stage in range(len(stages))]

    def _label(self, stage: int) -> str:
        tasks, parents = self.tasks[stage], self.parents[stage]
        if parents and (tasks == 1 or not self.children[stage]):
            return "last"
        if parents and tasks == SHUFFLE_TASKS:
            return "join" if len(parents) > 1 else "aggregate"
        return min(TABLES, key=lambda name: abs(TABLES[name] - tasks))

    def of(self, *labels: str) -> list[int]:
        """Stages of these classes."""
        return [stage for stage, label in enumerate(self.labels) if label in labels]

    def scans(self) -> list[int]:
        """Scans that wait for nothing."""
        return [stage for stage in self.of(*TABLES) if not self.parents[stage]]

    def join_chain(self) -> int:
        """The most joins that wait for one another."""
        longest: list[int] = []
        for stage, parents in enumerate(self.parents):
            before = max((longest[parent] for parent in parents), default=0)
            longest.append(before + (self.labels[stage] == "join"))
        return max(longest)

    def is_before_join(self, stage: int) -> bool:
        """Whether a join comes after it."""
        return any(
            self.labels[child] == "join" or self.is_before_join(child)
            for child in self.children[stage]
        )


def fit_shape(graphs: Sequence[Graph]) -> QueryShape:
    """How stages of queries hang together."""
    largest, other, more = Counter[str](), Counter[str](), list[int]()
    for graph in graphs:
        tables = sorted((graph.labels[s] for s in graph.scans()), key=list(TABLES).index)
        largest[tables[0]] += 1
        other.update(tables[1:])
        more.append(len(tables) - 1)
    joins = [(graph, stage) for graph in graphs for stage in graph.of("join")]
    aggregates = [(graph, stage) for graph in graphs for stage in graph.of("aggregate")]
    early = sum(graph.is_before_join(stage) for graph, stage in aggregates)
    late = [sum(not g.is_before_join(s) for s in g.of("aggregate")) for g in graphs]
    scans = [(graph, stage) for graph in graphs for stage in graph.scans()]
    ends = [g.tasks[s] for g in graphs for s in g.of("last") if not g.children[s]]
    waits = sum(any(g.children[s] for s in g.of("last")) for g in graphs)
    large = [graph for graph in graphs if len(graph.scans()) >= MANY_TABLES]
    off_chain = 1 - sum(g.join_chain() for g in large) / sum(len(g.of("join")) for g in large)
    return QueryShape(
        largest={name: float(largest[name]) for name in TABLES if largest[name]},
        more_scans=weights(more),
        other={name: float(other[name]) for name in TABLES if other[name]},
        tasks_per_gb={name: tasks / SIZES_GB[-1] for name, tasks in TABLES.items()},
        least_tasks=2,
        shuffle_tasks=SHUFFLE_TASKS,
        scan_aggregated=rounded(early / len(scans)),
        bushy=rounded(off_chain),
        many=MANY_TABLES,
        three_way=rounded(sum(len(g.parents[s]) > 2 for g, s in joins) / len(joins)),
        shared=rounded(sum(len(g.children[s]) - 1 for g, s in scans) / len(scans)),
        collected=rounded(waits / len(graphs)),
        tail=weights(late),
        last_tasks={tasks: float(count) for tasks, count in sorted(Counter(ends).items())},
    )


def fit_durations(kinds: JobKinds, chosen: NDArray[np.bool_], size: Floats) -> Durations:
    """Of one class: its mean by wave, size and executors, and how far stages and tasks spread."""
    mean, spread, between, within = [], [], [], []
    for wave in range(len(WAVES)):
        by_size, deviations, scores = [], [], []
        for gb in SIZES_GB:
            ms = kinds.mean_ns[chosen & (size == gb), wave] / 1e6
            by_size.append(tuple(rounded(value) for value in ms.mean(axis=0)))
            logs = np.log(np.maximum(ms, 1e-3) / ms.mean(axis=0)).mean(axis=1)
            logs -= np.median(logs)
            deviations.append(max(rounded(logs.std()), 1e-3))
            scores.append(logs / deviations[-1])
        mean.append(tuple(by_size))
        spread.append(tuple(deviations))
        between.append(quantiles(np.concatenate(scores)))
        within.append(quantiles(relative_durations(kinds, chosen, wave)))
    return Durations(tuple(mean), tuple(spread), tuple(between), tuple(within))


def relative_durations(kinds: JobKinds, chosen: NDArray[np.bool_], wave: int) -> Floats:
    """Durations over the mean of their stage and number of executors."""
    first = kinds.sample_first.reshape(kinds.stage_count, len(WAVES), -1)[chosen, wave].ravel()
    count = kinds.sample_count.reshape(kinds.stage_count, len(WAVES), -1)[chosen, wave].ravel()
    runs = sorted({(int(f), int(c)) for f, c in zip(first, count) if c >= 4})
    values = [kinds.sample_ns[f : f + c] / kinds.sample_ns[f : f + c].mean() for f, c in runs]
    return np.concatenate(values) if values else np.ones(1)


def fit_likeness(
    kinds: JobKinds, labels: NDArray[np.str_], size: Floats, query: NDArray[np.int64]
) -> float:
    """How alike stages of one query are, among those of their class: correlation of ranks."""
    pairs: list[tuple[float, float]] = []
    for gb in SIZES_GB:
        score = np.full(kinds.stage_count, np.nan)
        for label in ("join", "aggregate"):
            chosen = np.flatnonzero((labels == label) & (size == gb))
            order = np.argsort(kinds.mean_ns[chosen, REST].mean(axis=1))
            score[chosen[order]] = (np.arange(len(chosen)) + 0.5) / len(chosen) - 0.5
        for number in np.unique(query):
            mine = score[(query == number) & (size == gb) & ~np.isnan(score)]
            pairs += [(a, b) for i, a in enumerate(mine) for b in mine[i + 1 :]]
    left, right = np.array(pairs).T
    return float(np.clip((left * right).mean() / ((left**2).mean()), 0.0, 0.99))


# -- Alibaba ---------------------------------------------------------------------------------

_NAME = re.compile(r"[^_]*?(\d+)((?:_\d+)*)(?:_Stg\d+)?")


def fit_alibaba(path: Path) -> AlibabaParameters:
    """What a sample of rows can say: each task name is in it once."""
    with open(path, newline="") as text:
        rows = [row for row in csv.DictReader(text) if row["status"] == "Terminated"]
    size, parents, distance = Counter[str](), Counter[int](), list[int]()
    for row in rows:
        if (match := _NAME.fullmatch(row["task_name"])) is None:
            continue
        number, before = int(match[1]), [int(p) for p in match[2].split("_")[1:]]
        size[row["job_id"]] = max(size[row["job_id"]], number, *before)
        parents[len(before)] += 1
        distance += [number - parent for parent in before if parent < number]
    seconds = np.array([float(row["end_time"]) - float(row["start_time"]) for row in rows])
    instances = np.array([float(row["task_count"]) for row in rows])
    stages = np.array(list(size.values()), dtype=np.float64)
    return AlibabaParameters(
        ALIBABA_STAGES,
        ALIBABA_WORK_S,
        quantiles(stages / stages.mean()),
        ALIBABA_ROOTS,
        tuple(float(parents[count]) for count in range(1, 13)),
        quantiles(np.array(distance)),
        quantiles(np.maximum(seconds, 0.5) / seconds.mean()),
        quantiles(instances),
        rounded(rank_correlation(seconds, instances)),
    )


def rank_correlation(left: Floats, right: Floats) -> float:
    """Spearman's, ties broken by their order."""
    ranks = np.array([np.argsort(np.argsort(row, kind="stable")) for row in (left, right)])
    return float(np.corrcoef(ranks)[0, 1])


# -- numbers ---------------------------------------------------------------------------------


def weights(counts: Iterable[int]) -> tuple[float, ...]:
    """How often each number from zero occurs."""
    seen: Mapping[int, int] = Counter(counts)
    return tuple(float(seen.get(number, 0)) for number in range(max(seen) + 1))


def quantiles(values: NDArray[np.float64] | NDArray[np.int64]) -> tuple[float, ...]:
    """At the places that all quantile functions are kept at."""
    return tuple(rounded(value) for value in np.quantile(values, QUANTILES))


def rounded(value: float | np.float64) -> float:
    """To four digits: a parameter is no measurement."""
    return float(f"{float(value):.4g}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
