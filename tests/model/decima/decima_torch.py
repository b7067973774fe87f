"""Decima in torch, in float64: autograd is the oracle of the native gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.functional import leaky_relu

from gnomon.model.decima.network import NETS


class TorchDecima:
    """All of a record's decisions, one after the other, on one leaf tensor of parameters."""

    def __init__(self, parameters: np.ndarray) -> None:
        self.parameters = torch.tensor(parameters, dtype=torch.float64, requires_grad=True)

    def net(self, name: str, x: torch.Tensor) -> torch.Tensor:
        at = 0
        for other, sizes in NETS.items():
            for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False)):
                end = at + inputs * outputs
                if other == name:
                    weight = self.parameters[at:end].reshape(inputs, outputs)
                    x = x @ weight + self.parameters[end : end + outputs]
                    if outputs > 1 or i + 2 < len(sizes):
                        x = leaky_relu(x, 0.2)
                at = end + outputs
        return x

    def log_chances(self, record: dict[str, Any], d: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Logarithms of the chances of decision d's stages and limits."""

        def part(name: str, first: str) -> np.ndarray:
            return record[name][record[first][d] : record[first][d + 1]]

        executors = torch.tensor(part("job_executors", "first_job"), dtype=torch.float64)
        jobs = len(executors)
        own = torch.full((jobs,), -2.0, dtype=torch.float64)
        if record["source_job"][d] >= 0:
            own[record["source_job"][d]] = 2.0
        free = torch.full((jobs,), float(record["free_executors"][d]) / 20, dtype=torch.float64)
        job_inputs = torch.stack([executors / 20, own, free], dim=1)
        counts = torch.tensor(part("job_nodes", "first_job").astype(np.int64))
        job_of = torch.repeat_interleave(torch.arange(jobs), counts)
        work = torch.tensor(part("work_ms", "first_node"), dtype=torch.float64)
        tasks = torch.tensor(part("tasks", "first_node"), dtype=torch.float64)
        own_inputs = torch.stack([work / 100_000, tasks / 200], dim=1)
        inputs = torch.cat([job_inputs[job_of], own_inputs], dim=1)

        x = self.net("prepare", inputs)
        height = torch.tensor(part("height", "first_node"))
        parent = torch.tensor(part("edge_parent", "first_edge").astype(np.int64))
        child = torch.tensor(part("edge_child", "first_edge").astype(np.int64))
        for level in range(1, int(height.max()) + 1 if len(height) else 1):
            of_level = height[parent] == level
            sums = torch.zeros_like(x).index_add(
                0, parent[of_level], self.net("process", x[child[of_level]])
            )
            x = x + self.net("aggregate", sums) * (height == level)[:, None]

        embedded = self.net("summarize_job", torch.cat([inputs, x], dim=1))
        of_jobs = torch.zeros((jobs, 8), dtype=torch.float64).index_add(0, job_of, embedded)
        of_all = self.net("summarize_all", of_jobs).sum(dim=0)

        ready = torch.tensor(part("ready", "first_ready").astype(np.int64))
        state = torch.cat([inputs, x, of_jobs[job_of], of_all.expand(len(x), 8)], dim=1)[ready]
        stages = self.net("stage_head", state)[:, 0]
        j = int(record["job"][d])
        limits = torch.arange(int(record["lowest"][d]), int(record["highest"][d]) + 1)
        shared = torch.cat([job_inputs[j], of_jobs[j], of_all]).expand(len(limits), 19)
        both = torch.cat([shared, limits[:, None].double() / 50], dim=1)
        scores = self.net("limit_head", both)[:, 0]
        return stages.log_softmax(0), scores.log_softmax(0)

    def loss(
        self, record: dict[str, Any], advantage: np.ndarray, entropy_weight: float
    ) -> torch.Tensor:
        """What `_core.decima_gradient` is the gradient of."""
        total = torch.zeros((), dtype=torch.float64)
        for d, gain in enumerate(advantage):
            stage, limit = self.log_chances(record, d)
            taken = stage[record["chosen"][d]] + limit[record["limit"][d] - record["lowest"][d]]
            total = total - float(gain) * taken
            for log_p in (stage, limit):
                if len(log_p) > 1:
                    share = -(log_p.exp() * log_p).sum() / np.log(len(log_p))
                    total = total - entropy_weight * share
        return total
