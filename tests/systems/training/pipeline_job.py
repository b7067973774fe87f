"""Made-up pipeline jobs whose truth is known: schedules played by hand, written as a log.

A rank runs items one by one: compute, or a batch of sends, receives and collectives. Sends and
receives of a link meet in the order in which they are launched. Played again with other compute
times, the same job tells what a what-if should have answered.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

BEHIND = ("layernorm-grads-all-reduce", "embedding-grads-all-reduce", "grads-reduce-scatter",
          "optimizer-clip-main-grad", "optimizer")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Op:
    name: str
    meets: tuple = ()  # what all who meet have in common
    size: int = 1  # how many they are
    chunk: int = -1
    micro: int = -1


@dataclasses.dataclass(frozen=True)
class Job:
    pp: int
    dp: int = 1
    vpp: int = 1
    micro: int = 4
    steps: int = 2
    seed: int = 0
    spread: float = 0.3  # of compute between ranks and micro-batches
    hidden: bool = True  # ranks of the last stage average their loss, unseen by the log

    def ranks(self) -> Iterator[tuple[int, int, int]]:
        for stage in range(self.pp):
            for dp in range(self.dp):
                yield stage * self.dp + dp, dp, stage

    def play(self, factor: Callable[[int, int], float] = lambda rank, step: 1.0):
        """Rows of the log and seconds of each step, compute taking `factor` times as long."""
        rows, seconds = [], []
        for step in range(self.steps):
            found = play_step(self, step, lambda rank, s=step: factor(rank, s))
            begin = min(row["start_ts"] for row in found)
            seconds.append(max(r["start_ts"] + r["duration"] for r in found) - begin)
            rows += found
        return rows, np.asarray(seconds)

    def write(self, folder: Path, rows=None) -> Path:
        meta = (
            f"trial_name: made-up\ndp_size: {self.dp}\npp_size: {self.pp}\n"
            f"vpp_size: {self.vpp}\nworld_size: {self.dp * self.pp}\n"
        )
        (folder / "meta-job.yaml").write_text(meta)
        rows = self.play()[0] if rows is None else rows
        with open(folder / "trace-job.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return folder / "trace-job.csv"


# -- schedules -----------------------------------------------------------------------------------


def schedule(job: Job, stage: int) -> list[list[Op]]:
    inner = one_f_one_b(job, stage) if job.vpp == 1 else interleaved(job, stage)
    return [batch for batch in inner if batch]


def forward(chunk: int, micro: int) -> list[Op]:
    return [Op("forward-compute", chunk=chunk, micro=micro)]


def backward(chunk: int, micro: int) -> list[Op]:
    return [Op("backward-compute", chunk=chunk, micro=micro)]


def moves(job: Job, stage: int, **on: bool) -> list[Op]:
    """A batch of transfers; each goes to the next or the previous stage around the ring."""
    here = {
        "send_f": ("forward-send", ("f", stage)),
        "recv_f": ("forward-recv", ("f", (stage - 1) % job.pp)),
        "send_b": ("backward-send", ("b", stage)),
        "recv_b": ("backward-recv", ("b", (stage + 1) % job.pp)),
    }
    return [Op(*here[name], size=2) for name, wanted in on.items() if wanted]


def one_f_one_b(job: Job, stage: int) -> Iterator[list[Op]]:
    first, last = stage == 0, stage == job.pp - 1
    warm = min(job.pp - stage - 1, job.micro)
    left = job.micro - warm
    for k in range(warm):
        yield moves(job, stage, recv_f=not first)
        yield forward(0, k)
        yield moves(job, stage, send_f=not last)
    if left:
        yield moves(job, stage, recv_f=not first)
    for k in range(left):
        yield forward(0, warm + k)
        yield moves(job, stage, send_f=not last, recv_b=not last)
        yield backward(0, k)
        yield moves(job, stage, send_b=not first, recv_f=not first and k < left - 1)
    for k in range(left, job.micro):
        yield moves(job, stage, recv_b=not last)
        yield backward(0, k)
        yield moves(job, stage, send_b=not first)


def interleaved(job: Job, stage: int) -> Iterator[list[Op]]:
    pp, vpp, total = job.pp, job.vpp, job.micro * job.vpp
    first, last = stage == 0, stage == pp - 1

    def chunk_f(k: int) -> int:
        return (k % (pp * vpp)) // pp

    def chunk_b(k: int) -> int:
        return vpp - 1 - chunk_f(k)

    def micro(k: int) -> int:
        return k // (pp * vpp) * pp + k % pp

    warm = min((pp - stage - 1) * 2 + (vpp - 1) * pp, total)
    left = total - warm
    assert left > 0, "give more micro-batches"
    yield moves(job, stage, recv_f=not first)
    for k in range(warm):
        yield forward(chunk_f(k), micro(k))
        send_f = not (last and chunk_f(k) == vpp - 1)
        recv_f = not (first and chunk_f(k + 1) == 0)
        yield moves(job, stage, send_f=send_f, recv_f=recv_f, recv_b=k == warm - 1 and not last)
    for k in range(left):
        f = k + warm
        yield forward(chunk_f(f), micro(f))
        yield backward(chunk_b(k), micro(k))
        # The first stage is ahead of the last, and in the backward the last of the first.
        recv_f = chunk_f(f - (pp - 1)) != vpp - 1 if first else True
        recv_b = chunk_b(k - (pp - 1)) != 0 if last else True
        yield moves(
            job, stage,
            send_f=not (last and chunk_f(f) == vpp - 1), recv_f=recv_f and k < left - 1,
            send_b=not (first and chunk_b(k) == 0), recv_b=recv_b,
        )  # fmt: skip
    for k in range(left, total):
        yield backward(chunk_b(k), micro(k))
        recv_b = not (last and chunk_b(k + 1) == vpp - 1) and k < total - 1
        yield moves(job, stage, send_b=not (first and chunk_b(k) == 0), recv_b=recv_b)


def program(job: Job, dp: int, stage: int) -> list[list[Op]]:
    items = [[Op("params-all-gather", ("gather", stage), job.dp, chunk=0)]]
    items += [
        [dataclasses.replace(op, meets=(dp, *op.meets)) if op.meets else op for op in batch]
        for batch in schedule(job, stage)
    ]
    if job.hidden and stage == job.pp - 1:
        items.append([Op("unseen", ("loss",), job.dp)])
    meets = {
        "embedding-grads-all-reduce": (("embedding", dp), min(job.pp, 2)),
        "grads-reduce-scatter": (("reduce", stage), job.dp),
        "optimizer-clip-main-grad": (("clip",), job.dp * job.pp),
    }
    is_inner = 0 < stage < job.pp - 1
    for name in BEHIND:
        if not (name.startswith("embedding") and is_inner):
            items.append([Op(name, *meets.get(name, ()))])
    return items


# -- playing them --------------------------------------------------------------------------------


def play_step(job: Job, step: int, factor: Callable[[int], float]) -> list[dict]:
    rng = np.random.default_rng([job.seed, step])
    runs = {}
    for rank, dp, stage in job.ranks():
        items = program(job, dp, stage)
        slow = 1.0 + job.spread * rng.random()
        took = [
            0.02 * slow * (1.0 + job.spread * rng.random()) if "compute" in batch[0].name
            else 0.001 * (1.0 + rng.random())
            for batch in items
        ]  # fmt: skip
        gaps = rng.random(len(items)) * 2e-4
        runs[rank] = Run(rank, dp, stage, items, took, gaps.tolist(), factor(rank))
    rendezvous: dict[tuple, list[float]] = {}
    while any(not run.is_done for run in runs.values()):
        moved = [run.advance(rendezvous) for run in runs.values()]
        assert any(moved), "the made-up schedule is stuck"
    return [row | {"step": 10 + 3 * step} for run in runs.values() for row in run.rows]


class Run:
    """One rank in one step."""

    def __init__(self, rank, dp, stage, items, took, gaps, factor) -> None:
        self.rank, self.dp, self.stage, self.items = rank, dp, stage, items
        self.took, self.gaps, self.factor = took, gaps, factor
        self.now, self.at, self.came = 0.0, 0, None
        self.count: dict[tuple, int] = {}
        self.rows: list[dict] = []

    @property
    def is_done(self) -> bool:
        return self.at == len(self.items)

    def advance(self, rendezvous) -> bool:
        """Goes on as far as it can; whether it did."""
        moved = False
        while not self.is_done:
            batch = self.items[self.at]
            if self.came is None:
                self.came = self.now + self.gaps[self.at]
                self.keys = [self._key(op) for op in batch if op.meets]
                for key in self.keys:
                    rendezvous.setdefault(key, []).append(self.came)
                moved = True
            sizes = [op.size for op in batch if op.meets]
            if any(len(rendezvous[key]) < size for key, size in zip(self.keys, sizes)):
                return moved
            began = max([self.came, *(max(rendezvous[key]) for key in self.keys)])
            slow = self.factor if "compute" in batch[0].name else 1.0
            self._write(batch, began + slow * self.took[self.at])
            self.at, self.came, moved = self.at + 1, None, True
        return moved

    def _key(self, op: Op) -> tuple:
        """The n-th send of a link meets its n-th receive; a collective its namesakes."""
        if not op.name.endswith(("send", "recv")):
            return op.meets
        nth = self.count[op.name, *op.meets] = self.count.get((op.name, *op.meets), -1) + 1
        return (*op.meets, nth)

    def _write(self, batch: list[Op], end: float) -> None:
        self.now = end
        for op in batch:
            if op.name == "unseen":
                continue
            seq = sum(row["optype"] == op.name for row in self.rows)
            self.rows.append(
                {
                    "dp_rank": self.dp, "stage": self.stage, "rank": self.rank,
                    "optype": op.name, "start_ts": self.came, "duration": end - self.came,
                    "seq_id": seq, "mc": op.chunk, "mb_id": op.micro, "gmc": -1,
                }
            )  # fmt: skip
