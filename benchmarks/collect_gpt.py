"""Records training steps of many transformers on one GPU, to examine predictions with.

    python benchmarks/collect_gpt.py OUT [NAME...]

Needs torch and a GPU, nothing else. Each workload runs in a process of its own and writes
OUT/NAME/{kineto.json.gz,meta.json}: a profiler trace of three steps with shapes, and the step
times and the peak of memory of sixty steps before it, without the profiler.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclasses.dataclass(frozen=True)
class Shape:
    """A transformer and its batch."""

    layers: int = 12
    hidden: int = 2048
    heads: int = 16
    seq: int = 2048
    batch: int = 4
    vocab: int = 50304
    ffn: int = 0
    kv_heads: int = 0
    accumulation: int = 1
    llama: bool = False
    fused_attention: bool = True
    fused_optimizer: bool = True
    tp: int = 1  # one rank's share of every matrix, without the exchanges
    recompute: bool = False
    compiled: bool = False


WORKLOADS = {
    "base": Shape(),
    "l24": Shape(layers=24),
    "l3": Shape(layers=3),
    "h4096": Shape(hidden=4096, heads=32, layers=6),
    "h1536": Shape(hidden=1536, heads=12),
    "s1024": Shape(seq=1024),
    "s4096": Shape(seq=4096, batch=2),
    "b8": Shape(batch=8),
    "b1": Shape(batch=1),
    "v8192": Shape(vocab=8192),
    "v131072": Shape(vocab=131072),
    "heads32": Shape(heads=32),
    "ffn5632": Shape(ffn=5632),
    "accum4": Shape(batch=2, accumulation=4),
    "tiny": Shape(layers=12, hidden=512, heads=8, seq=256, batch=2, vocab=8192),
    "tiny-l24": Shape(layers=24, hidden=512, heads=8, seq=256, batch=2, vocab=8192),
    "tiny-h1024": Shape(layers=12, hidden=1024, heads=16, seq=256, batch=2, vocab=8192),
    "foreach": Shape(layers=6, fused_optimizer=False),
    "foreach-l12": Shape(fused_optimizer=False),
    "unfused": Shape(seq=1024, fused_attention=False, layers=6),
    "unfused-l12": Shape(seq=1024, fused_attention=False),
    "shard2": Shape(tp=2),
    "shard4": Shape(tp=4),
    "recompute": Shape(layers=6, recompute=True),
    "recompute-l12": Shape(recompute=True),
    "compiled": Shape(layers=6, compiled=True),
    "compiled-l12": Shape(compiled=True),
    "compiled-h1024": Shape(layers=6, hidden=1024, heads=8, compiled=True),
    "llama": Shape(layers=8, hidden=2048, heads=16, kv_heads=4, ffn=5632, vocab=32000, llama=True),
    "llama-l16": Shape(
        layers=16, hidden=2048, heads=16, kv_heads=4, ffn=5632, vocab=32000, llama=True
    ),
    "llama-h4096": Shape(
        layers=4, hidden=4096, heads=32, kv_heads=8, ffn=11264, vocab=32000, batch=2, llama=True
    ),
}


class Attention(nn.Module):
    """Causal attention with one matrix for queries, keys and values, or three."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.heads = shape.heads // shape.tp
        self.keys = (shape.kv_heads or shape.heads) // shape.tp
        self.width, self.fused = shape.hidden // shape.heads, shape.fused_attention
        inner = self.heads * self.width
        bias = not shape.llama
        if shape.llama:
            self.q = nn.Linear(shape.hidden, self.heads * self.width, bias)
            self.k = nn.Linear(shape.hidden, self.keys * self.width, bias)
            self.v = nn.Linear(shape.hidden, self.keys * self.width, bias)
        else:
            self.qkv = nn.Linear(shape.hidden, 3 * inner, bias)
        self.out = nn.Linear(inner, shape.hidden, bias)

    def forward(self, x):
        batch, seq, _ = x.shape
        if hasattr(self, "qkv"):
            parts = self.qkv(x).view(batch, seq, 3, self.heads, self.width).unbind(2)
        else:
            parts = [p(x).view(batch, seq, -1, self.width) for p in (self.q, self.k, self.v)]
        q, k, v = (part.transpose(1, 2) for part in parts)
        if self.fused:
            y = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=self.keys != self.heads
            )
        else:
            scores = (q @ k.transpose(-2, -1)) * self.width**-0.5
            mask = torch.ones(seq, seq, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, seq, -1))


class Layer(nn.Module):
    """One layer."""

    def __init__(self, shape: Shape):
        super().__init__()
        norm = nn.RMSNorm if shape.llama else nn.LayerNorm
        ffn = (shape.ffn or 4 * shape.hidden) // shape.tp
        self.before, self.between = norm(shape.hidden), norm(shape.hidden)
        self.attention = Attention(shape)
        self.up = nn.Linear(shape.hidden, ffn, bias=not shape.llama)
        self.gate = nn.Linear(shape.hidden, ffn, bias=False) if shape.llama else None
        self.down = nn.Linear(ffn, shape.hidden, bias=not shape.llama)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        y = self.between(x)
        if self.gate is not None:
            return x + self.down(F.silu(self.gate(y)) * self.up(y))
        return x + self.down(F.gelu(self.up(y), approximate="tanh"))


class Model(nn.Module):
    """A transformer and its loss."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab // shape.tp, shape.hidden)
        self.places = None if shape.llama else nn.Embedding(shape.seq, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = (nn.RMSNorm if shape.llama else nn.LayerNorm)(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab // shape.tp, bias=False)
        self.recompute = shape.recompute

    def forward(self, tokens, wanted):
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def steps_of(shape: Shape):
    """The step of a workload, ready to be called."""
    torch.manual_seed(0)
    model = Model(shape).to("cuda", torch.bfloat16)
    options = {"fused": True} if shape.fused_optimizer else {"foreach": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)
    held = shape.vocab // shape.tp
    tokens = torch.randint(held, (shape.batch, shape.seq), device="cuda")
    wanted = torch.randint(held, (shape.batch, shape.seq), device="cuda")
    forward = torch.compile(model) if shape.compiled else model

    def step():
        for _ in range(shape.accumulation):
            (forward(tokens, wanted) / shape.accumulation).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def timed(step, number: int) -> tuple[float, list[float]]:
    """Milliseconds a step by the host's clock, and of each by the device's."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(number + 1)]
    torch.cuda.synchronize()
    begun = time.perf_counter()
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - begun) / number * 1e3
    return wall, [a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def collect(out: Path, name: str) -> None:
    """Times a workload, then profiles it."""
    from torch.profiler import ProfilerActivity, profile, schedule

    shape = WORKLOADS[name]
    step = steps_of(shape)
    for _ in range(8):
        step()
    walls, events = zip(*(timed(step, 30) for _ in range(2)), strict=True)
    peak = torch.cuda.max_memory_allocated()
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "kineto.json"
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        record_shapes=True,
        schedule=schedule(wait=1, warmup=2, active=3),
        on_trace_ready=lambda p: p.export_chrome_trace(str(trace)),
    ) as profiler:
        for _ in range(6):
            step()
            profiler.step()
    with trace.open("rb") as plain, gzip.open(f"{trace}.gz", "wb", 6) as packed:
        shutil.copyfileobj(plain, packed)
    trace.unlink()
    every = [ms for row in events for ms in row]
    meta = {
        "name": name, "torch": torch.__version__, "gpu": torch.cuda.get_device_name(),
        "configuration": dataclasses.asdict(shape), "step_ms_wall": walls[0],
        "step_ms_wall_2": walls[1], "step_ms_event": every,
        "step_ms_median": statistics.median(every), "peak_bytes": peak,
    }  # fmt: skip
    (folder / "meta.json").write_text(json.dumps(meta))
    print(f"{name:14} {statistics.median(every):9.3f} ms  {peak / 2**30:7.2f} GiB", flush=True)


def main() -> None:
    """Collects what is asked for, a process each."""
    out, names = Path(sys.argv[1]), sys.argv[2:] or list(WORKLOADS)
    if len(names) == 1:
        collect(out, names[0])
        return
    for name in names:
        subprocess.run([sys.executable, __file__, str(out), name], check=False, timeout=180)


if __name__ == "__main__":
    main()
