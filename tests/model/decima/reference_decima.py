"""Decima's forward pass, slow and obvious: one node at a time, recursion instead of levels."""

from __future__ import annotations

import numpy as np

from gnomon.model.decima.network import NETS, DecimaView, DecimaWeights


def decima_reference(
    weights: DecimaWeights, view: DecimaView, job: int, lowest: int, highest: int
) -> tuple[np.ndarray, np.ndarray]:
    nets = {name: [] for name in NETS}
    for layer in weights.layers():
        nets[layer.net].append((layer.weight.astype(float), layer.bias.astype(float)))

    def embed(name: str, x: np.ndarray) -> np.ndarray:
        for weight, bias in nets[name]:
            x = leaky_relu(x @ weight + bias)
        return x

    def score(name: str, x: np.ndarray) -> float:
        *hidden, (weight, bias) = nets[name]
        for w, b in hidden:
            x = leaky_relu(x @ w + b)
        return float((x @ weight + bias)[0])

    jobs = range(len(view.job_executors))
    job_of = {node: j for j in jobs for node in range(view.job_first[j], view.job_first[j + 1])}
    nodes = range(len(view.tasks))

    def job_inputs(j: int) -> list[float]:
        own = 2.0 if j == view.source_job else -2.0
        return [float(view.job_executors[j]) / 20, own, view.free_executors / 20]

    def inputs(node: int) -> np.ndarray:
        own = [float(view.work_ms[node]) / 100_000, float(view.tasks[node]) / 200]
        return np.array(job_inputs(job_of[node]) + own)

    embeddings: dict[int, np.ndarray] = {}

    def embedding(node: int) -> np.ndarray:
        if node not in embeddings:
            x = embed("prepare", inputs(node))
            children = view.child[view.child_first[node] : view.child_first[node + 1]]
            if len(children):
                messages = sum(embed("process", embedding(int(child))) for child in children)
                x = x + embed("aggregate", messages)
            embeddings[node] = x
        return embeddings[node]

    summaries = [np.zeros(8) for _ in jobs]
    for node in nodes:
        both = np.concatenate([inputs(node), embedding(node)])
        summaries[job_of[node]] = summaries[job_of[node]] + embed("summarize_job", both)
    whole = sum((embed("summarize_all", summary) for summary in summaries), np.zeros(8))

    stages = [
        score(
            "stage_head",
            np.concatenate([inputs(n), embedding(n), summaries[job_of[n]], whole]),
        )
        for n in map(int, view.ready)
    ]
    limits = [
        score(
            "limit_head",
            np.concatenate([job_inputs(job), summaries[job], whole, [limit / 50]]),
        )
        for limit in range(lowest, highest + 1)
    ]
    return softmax(np.array(stages)), softmax(np.array(limits))


def leaky_relu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.2 * x)


def softmax(x: np.ndarray) -> np.ndarray:
    if not len(x):
        return x
    e = np.exp(x - x.max())
    return e / e.sum()
