"""Edits: each takes a graph and returns a new one that shares the columns it did not change.

A task is named by its index. Because a lane runs its tasks in index order, *where* a task is put
decides when its lane runs it: `insert` and `splice` take the index they put things in front of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.errors import GraphError
from gnomon.graph._columns import as_ids, as_nanoseconds, compact_groups
from gnomon.graph._combine import concatenate, take_tasks, with_edges
from gnomon.graph._contract import bridges
from gnomon.graph.workgraph import WorkGraph

Tasks = ArrayLike | slice


def task_mask(graph: WorkGraph, tasks: Tasks) -> NDArray[np.bool_]:
    """Which tasks are meant: a mask, indices, or a slice of the index order."""
    mask = np.zeros(len(graph), bool)
    if isinstance(tasks, slice):
        mask[tasks] = True
        return mask
    chosen = np.asarray(tasks)
    if chosen.dtype == bool:
        if chosen.shape != mask.shape:
            raise GraphError(f"a mask of {chosen.size} for {len(graph)} tasks")
        return chosen
    indices = as_ids(chosen, "task")
    wrong = indices[(indices < 0) | (indices >= len(graph))]
    if len(wrong):
        raise GraphError(f"task {wrong[0]} does not exist, there are {len(graph)}")
    mask[indices] = True
    return mask


def scale(graph: WorkGraph, tasks: Tasks, factor: float) -> WorkGraph:
    """Makes tasks faster (factor below 1) or slower.

    >>> g = WorkGraph.from_columns(["a", "a"], [100, 100])
    >>> scale(g, [1], 0.5).duration_ns.tolist()
    [100, 50]
    """
    if not np.isfinite(factor) or factor < 0:
        raise GraphError(f"cannot scale by {factor}; give a factor of 0 or more")
    mask = task_mask(graph, tasks)
    durations = graph.duration_ns.copy()
    durations[mask] = as_nanoseconds(durations[mask] * factor)
    return graph.with_durations(durations)


def connect(
    graph: WorkGraph, source: ArrayLike, target: ArrayLike, kind: str = "edge"
) -> WorkGraph:
    """Adds edges; refuses those that would close a cycle.

    >>> g = WorkGraph.from_columns(["a", "b"], [1, 1])
    >>> connect(g, [0], [1]).n_edges
    1
    """
    new_source = as_ids(np.atleast_1d(np.asarray(source)), "edge source")
    new_target = as_ids(np.atleast_1d(np.asarray(target)), "edge target")
    if len(new_source) != len(new_target):
        raise GraphError(f"{len(new_source)} edge sources but {len(new_target)} targets")
    old_source, old_target, old_kind = graph.edge_list()
    kinds = tuple(graph.edge_kinds)
    if kind not in kinds:
        kinds = (*kinds, kind)
    added = np.full(len(new_source), kinds.index(kind), np.uint8)
    edited = with_edges(
        graph,
        np.concatenate([old_source, new_source]),
        np.concatenate([old_target, new_target]),
        np.concatenate([old_kind, added]),
        kinds,
    )
    edited.validate()
    return edited


def disconnect(graph: WorkGraph, edges: ArrayLike) -> WorkGraph:
    """Removes edges, named by their positions in `edge_list()` or a mask over them."""
    named = np.asarray(edges)
    mask = named
    if named.dtype != bool:
        chosen = as_ids(named, "edge")
        if len(chosen) and (int(chosen.min()) < 0 or int(chosen.max()) >= graph.n_edges):
            raise GraphError(f"edge {int(chosen.max())} does not exist, there are {graph.n_edges}")
        mask = np.zeros(graph.n_edges, bool)
        mask[chosen] = True
    if mask.shape != (graph.n_edges,):
        raise GraphError(f"a mask of {mask.size} for {graph.n_edges} edges")
    source, target, kind = graph.edge_list()
    keep = ~mask
    return with_edges(graph, source[keep], target[keep], kind[keep], graph.edge_kinds)


def select(graph: WorkGraph, tasks: Tasks) -> WorkGraph:
    """The chosen tasks and the edges between them; what led through others is lost (see drop).

    >>> g = WorkGraph.from_columns(["a", "b", "c"], [1, 2, 3], edges=([0, 1], [1, 2]))
    >>> select(g, slice(1, None)).duration_ns.tolist()
    [2, 3]
    """
    keep = task_mask(graph, tasks)
    position = np.cumsum(keep, dtype=np.int64) - 1
    source, target, kind = graph.edge_list()
    inside = keep[source] & keep[target]
    chosen = take_tasks(graph, np.flatnonzero(keep))
    return with_edges(
        chosen, position[source[inside]], position[target[inside]], kind[inside], graph.edge_kinds
    )


def drop(graph: WorkGraph, tasks: Tasks, *, bridge: bool = True) -> WorkGraph:
    """Removes tasks. With `bridge`, whatever had to come before what through them still must.

    That holds for edges and lane order. Who met a dropped task at a rendezvous no longer waits for
    it, and what a dropped synchronise call waited for is waited for no more. What a dropped task
    launched is launched by what came before it; with nothing before, from the start.

    >>> g = WorkGraph.from_columns(["a", "b", "c"], [1, 2, 3], edges=([0, 1], [1, 2]))
    >>> drop(g, [1]).successors(0).tolist(), drop(g, [1], bridge=False).successors(0).tolist()
    ([1], [])
    """
    gone = task_mask(graph, tasks)
    rest = select(graph, ~gone)
    if not bridge or not gone.any():
        return rest
    position = np.cumsum(~gone, dtype=np.int64) - 1
    for kind, (source, target) in bridges(graph, gone).items():
        rest = connect(rest, position[source], position[target], kind)
    return rest


def splice(graph: WorkGraph, other: WorkGraph, before: int) -> WorkGraph:
    """Puts all tasks of another graph in front of task `before`; lanes are matched by name.

    Nothing but lane order ties the two together yet: `connect` does.

    >>> g = WorkGraph.from_columns(["a", "a"], [1, 3])
    >>> splice(g, WorkGraph.from_columns(["a"], [2]), before=1).duration_ns.tolist()
    [1, 2, 3]
    """
    if not 0 <= before <= len(graph):
        raise GraphError(f"cannot insert before task {before}, there are {len(graph)}")
    n = len(graph)
    added = np.arange(n, n + len(other))
    order = np.concatenate([np.arange(before), added, np.arange(before, n)])
    return reorder(concatenate([graph, other]), order)


def insert(
    graph: WorkGraph,
    before: int,
    *,
    lane: str,
    duration_ns: int,
    kind: str = "task",
    name: str = "task",
    after: Sequence[int] = (),
    then: Sequence[int] = (),
    edge_kind: str = "edge",
) -> WorkGraph:
    """Puts one new task in front of task `before`, whose index it takes.

    Args:
        after: Tasks (by their index before the edit) that must end first.
        then: Tasks that must wait for the new one.

    >>> g = WorkGraph.from_columns(["gpu", "gpu"], [5, 5])
    >>> insert(g, 1, lane="net", duration_ns=7, after=[0], then=[1]).duration_ns.tolist()
    [5, 7, 5]
    """
    one = WorkGraph.from_columns([lane], as_nanoseconds([duration_ns]), kind, name)
    edited = splice(graph, one, before)
    moved = [task + (task >= before) for task in (*after, *then)]
    if not moved:
        return edited
    source = [*moved[: len(after)], *[before] * len(then)]
    target = [*[before] * len(after), *moved[len(after) :]]
    return connect(edited, source, target, edge_kind)


def clone(graph: WorkGraph, tasks: Tasks, times: int = 1, *, chain: bool = True) -> WorkGraph:
    """Repeats tasks `times` more, each copy right behind the one before: layers, steps.

    Where several threads launch onto one lane, a synchronise call among the copies may see other
    tasks than the original did; a replay that sticks names them.

    Edges among the tasks are repeated inside each copy. An edge that enters from outside enters
    each copy from the same task; with `chain`, one that comes from the stretch just before (the
    previous layer, when the tasks are one layer) comes from the copy before instead. What follows
    the tasks also follows the last copy. Rendezvous groups are repeated and must lie inside.

    >>> layer = WorkGraph.from_columns(
    ...     ["cpu", "gpu", "cpu", "gpu"], [1, 9, 1, 9], edges=([0, 2], [1, 3], "launch"))
    >>> deeper = clone(layer, slice(2, 4), times=2)
    >>> len(deeper), deeper.successors(6).tolist()
    (8, [7])
    """
    from gnomon.graph._clone import clone_tasks

    if times < 0:
        raise GraphError(f"cannot clone {times} times")
    chosen = np.flatnonzero(task_mask(graph, tasks))
    if times == 0 or not len(chosen):
        return graph
    if len(graph) + times * len(chosen) >= 2**31 - 1:
        raise GraphError(f"{times} copies of {len(chosen)} tasks are more than a graph can hold")
    copied = clone_tasks(graph, chosen, times, chain)
    copied.validate()
    return copied


def merge(graphs: Sequence[WorkGraph], ranks: Sequence[int] | None = None) -> WorkGraph:
    """Ranks side by side: lanes are prefixed with their rank, the rank column is set.

    Rendezvous groups stay apart; give the merged graph a `group` column to tie ranks together.

    >>> one = WorkGraph.from_columns(["gpu"], [5])
    >>> merge([one, one]).lanes
    ('rank 0/gpu', 'rank 1/gpu')
    """
    numbers = list(range(len(graphs))) if ranks is None else list(ranks)
    if len(numbers) != len(graphs) or len(set(numbers)) != len(numbers):
        raise GraphError(f"{len(graphs)} graphs need as many different ranks, not {numbers}")
    return concatenate(
        [
            graph.replace(
                lanes=tuple(f"rank {number}/{lane}" for lane in graph.lanes),
                rank=np.full(len(graph), number, np.int32),
            )
            for number, graph in zip(numbers, graphs)
        ]
    )


def regroup(graph: WorkGraph, group: ArrayLike | None) -> WorkGraph:
    """Sets the rendezvous groups: -1 for none, tasks of equal number start together."""
    column = None if group is None else compact_groups(as_ids(group, "group"))
    edited = graph.replace(group=column)
    edited.validate()
    return edited


def reorder(graph: WorkGraph, order: ArrayLike) -> WorkGraph:
    """The same tasks in another index order; lane order follows it."""
    new = as_ids(order, "task")
    if not np.array_equal(np.sort(new), np.arange(len(graph))):
        raise GraphError("an order must name each task once")
    position = np.empty(len(graph), np.int64)
    position[new] = np.arange(len(graph))
    source, target, kind = graph.edge_list()
    edited = with_edges(
        take_tasks(graph, new), position[source], position[target], kind, graph.edge_kinds
    )
    edited.validate()
    return edited
