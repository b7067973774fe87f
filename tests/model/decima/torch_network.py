"""Decima's network in PyTorch: the same arithmetic over recorded decisions, with gradients."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from gnomon.model.decima.network import NETS

torch = pytest.importorskip("torch")

_SLOPE = 0.2
Record = Mapping[str, NDArray[Any]]


def gradient(
    parameters: NDArray[np.float32], record: Record, decisions: NDArray[np.int64],
    advantage: NDArray[np.float32], entropy_weight: float,
) -> tuple[NDArray[np.float64], float, float]:  # fmt: skip
    """What `_core.decima_gradient` gives, by PyTorch's own differentiation.

    Of -advantage x log p - entropy_weight x entropy over some decisions; also the sums of log p
    and of entropies.
    """
    leaf = torch.tensor(parameters, requires_grad=True)
    found = likelihood(leaf, select_decisions(record, decisions))
    log_chance = found.log_chance @ torch.tensor(advantage)
    (-log_chance - entropy_weight * found.entropy.sum()).backward()
    return (
        leaf.grad.numpy().astype(np.float64),
        float(found.log_chance.detach().sum()),
        float(found.entropy.detach().sum()),
    )


class Likelihood(NamedTuple):
    """Of each decision: the log of its chance, and its entropy over that of even chances."""

    log_chance: Any
    entropy: Any


def likelihood(parameters: Any, record: Record) -> Likelihood:
    """How likely recorded decisions are under these parameters.

    Args:
        parameters: A tensor of Decima's 4,770, laid out as `network.NETS` says.
        record: What `DecimaOrder.record()` gives: what each decision saw and drew.
    """
    seen = _Seen(torch, record)
    layers = _layers(parameters)

    def embed(name: str, x: Any) -> Any:
        for weight, bias in layers[name]:
            x = torch.nn.functional.leaky_relu(x @ weight + bias, _SLOPE)
        return x

    def score(name: str, x: Any) -> Any:
        *hidden, (weight, bias) = layers[name]
        for w, b in hidden:
            x = torch.nn.functional.leaky_relu(x @ w + b, _SLOPE)
        return (x @ weight + bias).squeeze(-1)

    x = embed("prepare", seen.node)
    # Children first: messages go up level by level.
    for parents, edge_parent, edge_child in seen.levels:
        message = torch.zeros(len(parents), 8).index_add(
            0, edge_parent, embed("process", x[edge_child])
        )
        x = x.index_add(0, parents, embed("aggregate", message))
    summary = torch.zeros(seen.jobs, 8).index_add(
        0, seen.job_of_node, embed("summarize_job", torch.cat([seen.node, x], dim=1))
    )
    whole = torch.zeros(seen.decisions, 8).index_add(
        0, seen.decision_of_job, embed("summarize_all", summary)
    )
    job = seen.job_of_node[seen.ready]
    stage = score(
        "stage_head",
        torch.cat(
            [seen.node[seen.ready], x[seen.ready], summary[job], whole[seen.decision_of_ready]],
            dim=1,
        ),
    )
    limit = score(
        "limit_head",
        torch.cat(
            [
                seen.job[seen.limit_job], summary[seen.limit_job],
                whole[seen.decision_of_limit], seen.limit[:, None] / 50.0,
            ],
            dim=1,
        ),
    )  # fmt: skip
    stages = _softmax(torch, stage, seen.decision_of_ready, seen.decisions)
    limits = _softmax(torch, limit, seen.decision_of_limit, seen.decisions)
    return Likelihood(
        stages.log[seen.chosen_ready] + limits.log[seen.chosen_limit],
        stages.entropy + limits.entropy,
    )


def _layers(parameters: Any) -> dict[str, list[tuple[Any, Any]]]:
    at = 0
    layers: dict[str, list[tuple[Any, Any]]] = {}
    for net, sizes in NETS.items():
        layers[net] = []
        for inputs, outputs in pairwise(sizes):
            bias_at = at + inputs * outputs
            weight = parameters[at:bias_at].reshape(inputs, outputs)
            at = bias_at + outputs
            layers[net].append((weight, parameters[bias_at:at]))
    return layers


class _Drawn(NamedTuple):
    log: Any
    entropy: Any


def _softmax(torch: Any, scores: Any, group: Any, groups: int) -> _Drawn:
    """Logs of chances within each group of scores, and each group's entropy."""
    most = torch.full((groups,), -torch.inf).scatter_reduce(0, group, scores.detach(), "amax")
    shifted = scores - most[group]
    total = torch.zeros(groups).index_add(0, group, torch.exp(shifted))
    log = shifted - torch.log(total)[group]
    entropy = -torch.zeros(groups).index_add(0, group, torch.exp(log) * log)
    choices = torch.bincount(group, minlength=groups)
    # Of one choice the entropy is none, whatever it is divided by.
    return _Drawn(log, entropy / torch.log(choices.clamp(min=2).to(torch.float32)))


class _Seen:
    """Recorded decisions as tensors, nodes and jobs counted over all of them."""

    def __init__(self, torch: Any, record: Record) -> None:
        r = record
        self.decisions = len(r["time"])
        self.jobs = len(r["job_nodes"])
        decision_of_job = np.repeat(np.arange(self.decisions), np.diff(r["first_job"]))
        job_of_node = np.repeat(np.arange(self.jobs), r["job_nodes"])
        source = r["first_job"][:-1] + r["source_job"]
        is_source = np.zeros(self.jobs, dtype=bool)
        is_source[source[r["source_job"] >= 0]] = True
        job = np.stack(
            [
                r["job_executors"] / 20.0, np.where(is_source, 2.0, -2.0),
                r["free_executors"][decision_of_job] / 20.0,
            ],
            axis=1,
        )  # fmt: skip
        own = np.stack([r["work_ms"] / 100_000.0, r["tasks"] / 200.0], axis=1)
        self.job = torch.tensor(job, dtype=torch.float32)
        node = np.concatenate([job[job_of_node], own], axis=1)
        self.node = torch.tensor(node, dtype=torch.float32)
        self.job_of_node, self.decision_of_job = map(torch.tensor, (job_of_node, decision_of_job))
        self.levels = self._levels(torch, r)
        per_ready = np.diff(r["first_ready"])
        decision_of_ready = np.repeat(np.arange(self.decisions), per_ready)
        self.ready = torch.tensor(r["first_node"][decision_of_ready] + r["ready"])
        self.decision_of_ready = torch.tensor(decision_of_ready)
        self.chosen_ready = torch.tensor(r["first_ready"][:-1] + r["chosen"])
        many = (r["highest"] - r["lowest"] + 1).astype(np.int64)
        decision_of_limit = np.repeat(np.arange(self.decisions), many)
        first = np.concatenate([[0], np.cumsum(many)])[:-1]
        place = np.arange(many.sum()) - first[decision_of_limit]
        limit = r["lowest"][decision_of_limit] + place
        self.limit = torch.tensor(limit, dtype=torch.float32)
        self.decision_of_limit = torch.tensor(decision_of_limit)
        self.limit_job = torch.tensor((r["first_job"][:-1] + r["job"])[decision_of_limit])
        self.chosen_limit = torch.tensor(first + r["limit"] - r["lowest"])

    def _levels(self, torch: Any, r: Record) -> list[tuple[Any, Any, Any]]:
        """Of each height from 1 on: its nodes, and edges to their children."""
        decision_of_edge = np.repeat(np.arange(self.decisions), np.diff(r["first_edge"]))
        parent = r["first_node"][decision_of_edge] + r["edge_parent"]
        child = r["first_node"][decision_of_edge] + r["edge_child"]
        height = r["height"]
        levels = []
        for level in range(1, int(height.max(initial=0)) + 1):
            nodes = np.flatnonzero(height == level)
            place = np.full(len(height), -1)
            place[nodes] = np.arange(nodes.size)
            mine = height[parent] == level
            parts = (nodes, place[parent[mine]], child[mine])
            levels.append(tuple(torch.tensor(part) for part in parts))
        return levels


def select_decisions(record: Record, chosen: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Only some decisions of a record."""
    part: dict[str, NDArray[Any]] = {}
    columns = {
        "first_job": ("job_nodes", "job_executors"),
        "first_node": ("work_ms", "tasks", "height"),
        "first_edge": ("edge_parent", "edge_child"),
        "first_ready": ("ready",),
    }
    for offset, names in columns.items():
        first = record[offset]
        many = np.diff(first)[chosen]
        begin = np.concatenate([[0], np.cumsum(many)])
        rows = np.arange(begin[-1]) - np.repeat(begin[:-1] - first[chosen], many)
        part[offset] = begin
        part |= {name: record[name][rows] for name in names}
    single = (
        "source_job",
        "free_executors",
        "chosen",
        "job",
        "limit",
        "lowest",
        "highest",
        "time",
    )
    return part | {name: record[name][chosen] for name in single}
