"""Traces whose true waits are known: random graphs on streams, and captured against eager steps.

    python benchmarks/collect_streams.py OUT      # needs torch and a CUDA device; half a minute

Made `tests/data/h200`. A graph's products wait for others through events, on streams of their own;
`truth.json` says for which. Each is profiled without and with sync events.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule

Step = Callable[[], None]
#: Products, streams, sizes to draw from, chance of a wait.
GRAPHS = (
    (80, 4, (1024, 1536, 2048, 3072, 4096), 0.7),
    (60, 3, (2048, 3072, 4096), 0.9),
    (100, 6, (1024, 2048, 4096), 0.6),
    (60, 2, (4096, 6144), 0.8),
    (120, 4, (512, 1024), 0.7),
    (50, 4, (4096, 8192), 0.9),
    (80, 8, (2048, 4096), 0.5),
)


def main() -> None:
    """Collects everything into a folder a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    for number, (products, streams, sizes, chance) in enumerate(GRAPHS):
        folder = out / f"streams-{number}"
        collect_graph(folder, random.Random(100 + number), products, streams, sizes, chance)
    collect_captured(out, "cg-small", layers=6, hidden=256, heads=4, batch=4, length=128)


def collect_graph(
    folder: Path, rng: random.Random, products: int, streams: int, sizes: tuple[int, ...],
    chance: float,
) -> None:  # fmt: skip
    """A random graph: each product waits for up to two of the dozen before it."""
    tasks = []
    for number in range(products):
        waits = {
            rng.randrange(max(0, number - 12), number)
            for _ in range(rng.choice([1, 1, 2]))
            if number and rng.random() < chance
        }
        tasks.append(
            {"stream": rng.randrange(streams), "size": rng.choice(sizes), "deps": sorted(waits)}
        )
    made = {s: torch.randn(2, s, s, device="cuda", dtype=torch.bfloat16) for s in sizes}
    lanes = [torch.cuda.Stream() for _ in range(streams)]

    def step() -> None:
        current = torch.cuda.current_stream()
        done: dict[int, torch.cuda.Event] = {}
        for lane in lanes:
            lane.wait_stream(current)
        for number, task in enumerate(tasks):
            lane = lanes[task["stream"]]
            for other in task["deps"]:
                if tasks[other]["stream"] != task["stream"]:
                    lane.wait_event(done[other])
            with torch.cuda.stream(lane):
                torch.mm(*made[task["size"]])
                done[number] = torch.cuda.Event()
                done[number].record(lane)
        for lane in lanes:
            current.wait_stream(lane)

    write_meta(folder, step)
    (folder / "truth.json").write_text(json.dumps({"tasks": tasks}))
    write_trace(step, folder / "plain.json.gz")
    write_trace(step, folder / "sync.json.gz", sync_events=True)


class Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One block."""
        batch, length, hidden = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, hidden // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


def collect_captured(
    out: Path, name: str, *, layers: int, hidden: int, heads: int, batch: int, length: int
) -> None:
    """One training step, run eagerly and replayed as a CUDA graph."""
    net = nn.Sequential(*[Block(hidden, heads) for _ in range(layers)])
    net = net.to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True, capturable=True)
    x = torch.randn(batch, length, hidden, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        net(x).square().mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()  # capturing wants the first steps on another stream
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    write_meta(out / f"{name}-eager", step)
    write_trace(step, out / f"{name}-eager" / "shapes.json.gz", shapes=True)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    write_meta(out / name, captured.replay)
    write_trace(captured.replay, out / name / "shapes.json.gz", shapes=True)


def write_meta(folder: Path, step: Step, repeats: int = 30) -> None:
    """The step without the profiler: wall time of many, and each by events."""
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(5):
        step()
    events = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        events.append(begin.elapsed_time(end))
    began = time.perf_counter()
    for _ in range(repeats):
        step()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - began) / repeats * 1e3
    meta = {"name": folder.name, "step_ms_median": wall, "event": statistics.median(events)}
    (folder / "meta.json").write_text(json.dumps(meta))
    print(folder.name, meta, flush=True)


def write_trace(
    step: Step, path: Path, *, shapes: bool = False, sync_events: bool = False
) -> None:
    """Three profiled steps."""
    options = {}
    if sync_events:
        options["experimental_config"] = torch._C._profiler._ExperimentalConfig(
            enable_cuda_sync_events=True
        )
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=shapes,
        schedule=schedule(wait=1, warmup=2, active=3), **options,
    ) as profiler:  # fmt: skip
        for _ in range(6):
            step()
            profiler.step()
        torch.cuda.synchronize()
    raw = path.with_suffix("")
    profiler.export_chrome_trace(str(raw))
    trace = json.loads(raw.read_text())
    trace.pop("traceName", None)
    path.write_bytes(gzip.compress(json.dumps(trace).encode(), 9, mtime=0))
    raw.unlink()


if __name__ == "__main__":
    main()
