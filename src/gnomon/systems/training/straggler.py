"""What if nobody were late? The cost of stragglers, and who or what makes them.

After "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025). A
straggler is any operation that takes longer than its kind usually does, on whichever rank and in
whichever step. The job without stragglers is the same graph with usual durations: the mean of its
kind for compute, the median for communication (a transfer now and then takes very long, and a
median does not see it), over all ranks and steps. Gaps are left out of both sides, so that the
difference is stragglers alone; what gaps cost is a figure of its own.

What a group of operations adds is found by giving them alone their recorded durations back
(equations 2 and 4, S_t and S_w); what it explains of the slow-down, by taking theirs alone
away (M_S for the last stage, M_W for the worst three workers of a hundred). Where we differ from
the paper's tool: a send blocks its rank where the log shows that it did, and gaps are replayed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph import WorkGraph
from gnomon.graph.column_types import Flags, Floats, Ints
from gnomon.ingest.profiler.operation_log import OperationLog
from gnomon.report import Figure, Line, LineChart, Manifest, Result, hash_input
from gnomon.sim import replay
from gnomon.sim.trace.graph import TraceGraph
from gnomon.systems.training.operations import (
    COLLECTIVES,
    COMPUTE,
    FENCE,
    GAP,
    RENDEZVOUS,
    TRANSFERS,
    build_operations_graph,
    fence_tasks,
)
from gnomon.table import Table
from gnomon.version import __version__

#: Usual is the median of their kind; everything else is compute, where it is the mean.
_COMMUNICATION = (*TRANSFERS, *COLLECTIVES, "layernorm-grads-all-reduce")
#: The two ends of a transfer are one thing to whoever looks for a cause.
_NOT_OPERATIONS = (GAP, FENCE, RENDEZVOUS)
_MERGED = {name: f"{name.split('-')[0]}-pp-comm" for name in TRANSFERS}
#: The workers whose share in the slow-down is asked for, of a hundred (equation 5).
_WORST_OF_HUNDRED = 3


class Decomposition(msgspec.Struct, frozen=True, eq=False):
    """How much slower than ideal the job is when only one group of operations is as recorded.

    `slowdown` has one value per label; `by_step` a row per label and a column per step.
    """

    labels: tuple[str, ...]
    slowdown: Floats
    by_step: Floats

    def as_dict(self) -> dict[str, float]:
        """Slow-downs by label, the worst first."""
        order = np.argsort(-self.slowdown, kind="stable").tolist()
        return {self.labels[i]: float(self.slowdown[i]) for i in order}


class Share(msgspec.Struct, frozen=True):
    """What some ranks explain of the slow-down of a job.

    Attributes:
        removed_s: Mean step when they alone are ideal.
        added_s: Mean step when they alone are as recorded.
        removed: Share of the slow-down that goes when they are ideal; over 1 when the step then
            is shorter than with everybody ideal.
        added: Share of the slow-down that they bring by themselves.
    """

    removed_s: float
    added_s: float
    removed: float
    added: float


class StragglerReport(msgspec.Struct, frozen=True, eq=False):
    """Steps of a job as recorded, replayed, without gaps and without stragglers; and why.

    Attributes:
        steps: The job's own numbers of the steps; all times are a value per step.
        recorded_s: From the first start to the last end.
        replayed_s: The graph as it is.
        no_delay_s: Without gaps: launch delays and host time between operations.
        ideal_s: Without gaps, and every operation as long as its kind usually is.
        by_dp_rank: Slow-down that each data-parallel rank brings by itself.
        by_stage: The same by pipeline stage.
        by_operation: The same by kind of operation; the ends of a transfer count as one.
        by_rank: Slow-down of each rank: the lesser of those of its stage and data-parallel rank.
        last_stage: What the last stage explains (M_S).
        worst_ranks: The worst three of a hundred ranks.
        worst_share: What these explain (M_W).
    """

    source: str
    steps: Ints
    recorded_s: Floats
    replayed_s: Floats
    no_delay_s: Floats
    ideal_s: Floats
    by_dp_rank: Decomposition
    by_stage: Decomposition
    by_operation: Decomposition
    by_rank: dict[int, float]
    last_stage: Share
    worst_ranks: tuple[int, ...]
    worst_share: Share

    @property
    def replay_error(self) -> float:
        """Mean difference of replayed from recorded steps, without sign, as a fraction."""
        return _mean_error(self.replayed_s, self.recorded_s)

    @property
    def no_delay_error(self) -> float:
        """The same without gaps: how much of a step dependencies and durations alone explain."""
        return _mean_error(self.no_delay_s, self.recorded_s)

    @property
    def straggler_slowdown(self) -> float:
        """Mean step without gaps over the ideal one (equation 1)."""
        return float(self.no_delay_s.mean() / self.ideal_s.mean())

    @property
    def delay_slowdown(self) -> float:
        """Mean step as recorded over the one without gaps."""
        return float(self.recorded_s.mean() / self.no_delay_s.mean())


def _mean_error(found: Floats, recorded: Floats) -> float:
    """Mean difference without sign; steps without length do not count."""
    there = recorded > 0.0
    return float(np.mean(np.abs(found[there] / recorded[there] - 1.0))) if there.any() else 0.0


def straggler_report(log: OperationLog, training: TraceGraph | None = None) -> StragglerReport:
    """Replays a job as it was and as it could have been.

    Args:
        log: The job's operations.
        training: Its graph, where it has been built already.
    """
    training = build_operations_graph(log) if training is None else training
    bench = _Bench(log, training)
    by_dp_rank = bench.decompose([str(d) for d in range(log.layout.dp_size)], bench.dp_rank)
    by_stage = bench.decompose([str(s) for s in range(log.layout.pp_size)], bench.stage)
    scores = bench.rank_scores(by_dp_rank, by_stage)
    count = -(-len(scores) * _WORST_OF_HUNDRED // 100)
    worst = sorted(scores, key=lambda rank: (-scores[rank], rank))[:count]
    return StragglerReport(
        log.source, log.steps, log.step_ns / 1e9, bench.play(training.graph.duration_ns),
        bench.no_delay_s, bench.ideal_s, by_dp_rank, by_stage, bench.by_operation(), scores,
        bench.share(bench.stage == int(log.stage.max())), tuple(worst),
        bench.share(np.isin(bench.rank, worst)),
    )  # fmt: skip


def usual_durations(training: TraceGraph) -> Ints:
    """Every operation as long as its kind usually is, and no gaps."""
    graph = training.graph
    usual = np.zeros(len(graph), np.int64)
    for code, kind in enumerate(graph.kinds):
        tasks = np.flatnonzero(graph.kind == code)
        if kind in _NOT_OPERATIONS or not len(tasks):
            continue
        middle = np.median if kind in _COMMUNICATION else np.mean
        usual[tasks] = round(float(middle(graph.duration_ns[tasks])))
    return usual


class NoStragglers(msgspec.Struct, frozen=True):
    """Every operation takes what its kind usually takes; launch delays stay."""

    label: str = "no stragglers"

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        if not set(COMPUTE) & set(graph.kinds):
            raise InputError(
                "stragglers are found in operation logs, not in profiler traces",
                hint="--slow-rank and --delay-rank ask about single ranks",
            )
        keep = graph.is_kind(*_NOT_OPERATIONS)
        return graph.with_durations(np.where(keep, graph.duration_ns, usual_durations(training)))


def to_result(report: StragglerReport, command: str = "") -> Result:
    """The report as a Result: what stragglers cost, and where they are."""
    recorded, ideal = float(report.recorded_s.mean()), float(report.ideal_s.mean())
    parts = {
        "kind of operation": report.by_operation,
        "pipeline stage": report.by_stage,
        "data-parallel rank": report.by_dp_rank,
    }
    ranks = sorted(report.by_rank.items(), key=lambda item: (-item[1], item[0]))
    figures = [
        Figure("step_s", "Step, recorded", recorded, "s", "lower"),
        Figure("no_delay_s", "Step without launch delays", float(report.no_delay_s.mean()), "s"),
        Figure("ideal_s", "Step without stragglers", ideal, "s", note="nor launch delays"),
        Figure("straggler_slowdown", "Slow-down by stragglers", report.straggler_slowdown, "x"),
        Figure("delay_slowdown", "Slow-down by launch delays", report.delay_slowdown, "x"),
        Figure("last_stage", "The last stage explains", 100.0 * report.last_stage.removed, "%"),
        Figure("worst_ranks", "The worst ranks explain", 100.0 * report.worst_share.removed, "%",
               note="ranks " + ", ".join(str(rank) for rank in report.worst_ranks)),
        Figure("replay_error", "Replay error", 100.0 * report.replay_error, "%"),
    ]  # fmt: skip
    tables = [
        Table.from_rows(
            f"By {what}",
            [{what.replace(" ", "_"): label, "slowdown": round(x, 4)}
             for label, x in found.as_dict().items()],
            units={"slowdown": "x"},
            caption="Against the ideal job, with only these as recorded.",
        )
        for what, found in parts.items()
    ]  # fmt: skip
    tables.append(
        Table.from_rows(
            "By rank", [{"rank": r, "slowdown": round(x, 4)} for r, x in ranks],
            units={"slowdown": "x"},
            caption="The lesser of the slow-downs of its stage and its data-parallel rank.",
        )
    )  # fmt: skip
    steps = [float(step) for step in report.steps.tolist()]
    lines = [
        Line(name, steps, values.tolist())
        for name, values in (
            ("recorded", report.recorded_s),
            ("no launch delays", report.no_delay_s),
            ("no stragglers", report.ideal_s),
        )
    ]
    chart = LineChart("Steps", lines, x_label="step", y_label="time", y_unit="s")
    return Result(
        "training", "stragglers", "Stragglers of a training job",
        "What do stragglers cost, and who are they?", figures, tables, [chart],
        how=["After *Understanding Stragglers in Large Model Training Using What-if Analysis* "
             "(OSDI 2025): the job is replayed with each operation as long as its kind usually is "
             "(the mean for compute, the median for communication), and with one group of "
             "operations at a time as recorded."],
        manifest=Manifest(command, {}, None, __version__, [hash_input(report.source)]),
    )  # fmt: skip


class _Bench:
    """One graph, played under many durations."""

    def __init__(self, log: OperationLog, training: TraceGraph) -> None:
        self.graph, self.fences = training.graph, fence_tasks(training)
        self.usual = usual_durations(training)
        self.found = np.where(self.graph.is_kind("gap"), 0, self.graph.duration_ns)
        seat = np.full((2, int(log.rank.max()) + 1), -1, np.int64)
        seat[:, log.rank] = log.dp_rank, log.stage
        self.ranks: list[int] = np.unique(log.rank).tolist()
        assert self.graph.rank is not None  # a graph of an operation log always has ranks
        self.rank, self.seat = self.graph.rank, seat
        self.dp_rank, self.stage = seat[0][self.rank], seat[1][self.rank]
        self.no_delay_s = self.play(self.found)
        self.ideal_s = self.play(self.usual)

    def play(self, duration_ns: Ints) -> Floats:
        """Seconds per step."""
        line = replay(self.graph.with_durations(duration_ns), causes=False)
        return np.diff(line.start_ns[self.fences]) / 1e9

    def decompose(self, labels: Sequence[str], group: Ints) -> Decomposition:
        """One group at a time as recorded, all others ideal."""
        played = [
            self.play(np.where(group == number, self.found, self.usual))
            for number in range(len(labels))
        ]
        by_step = np.asarray(played).reshape(len(labels), -1)
        slowdown = by_step.mean(axis=1) / self.ideal_s.mean()
        return Decomposition(tuple(labels), slowdown, by_step / self.ideal_s)

    def by_operation(self) -> Decomposition:
        """By kind of operation."""
        merged = [_MERGED.get(kind, kind) for kind in self.graph.kinds]
        labels = sorted({name for name in merged if name not in _NOT_OPERATIONS})
        number = np.asarray([labels.index(m) if m in labels else -1 for m in merged])
        return self.decompose(labels, number[self.graph.kind])

    def rank_scores(self, by_dp_rank: Decomposition, by_stage: Decomposition) -> dict[int, float]:
        """A rank is as slow as its stage and its data-parallel rank both are (equation 4)."""
        return {
            rank: float(min(by_dp_rank.slowdown[self.seat[0, rank]],
                            by_stage.slowdown[self.seat[1, rank]]))
            for rank in self.ranks
        }  # fmt: skip

    def share(self, tasks: Flags) -> Share:
        """What these tasks explain of the slow-down."""
        found, ideal = float(self.no_delay_s.mean()), float(self.ideal_s.mean())
        removed_s = float(self.play(np.where(tasks, self.usual, self.found)).mean())
        added_s = float(self.play(np.where(tasks, self.found, self.usual)).mean())
        slower = found - ideal
        if slower == 0.0:
            return Share(removed_s, added_s, 0.0, 0.0)
        return Share(removed_s, added_s, (found - removed_s) / slower, (added_s - ideal) / slower)
