"""What the profiler costs: many kinds of training step, each timed plain and then profiled.

    PYTHONPATH=src python benchmarks/training_record_gpu.py --out DIR [--device cpu] [--quick]

Needs torch and this source tree, nothing built and nothing else installed. Every recording is made
by `gnomon.systems.training.record` in a process of its own, because a profiler that has run once
leaves its traces in the unprofiled steps of whatever follows. Prints a line a recording; DIR gets a folder
each, `<workload>.<options>.<repeat>`, with the trace and `meta.json`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
import torch.nn.functional as F
from torch import nn

from gnomon.systems.training import record

OPTIONS = {
    "plain": {},
    "shapes": {"shapes": True},
    "sync": {"sync_events": True},
}
Step = Callable[[], None]


class Attention(nn.Module):
    """Causal attention and a feed-forward block, from library calls or from many small ones."""

    def __init__(self, hidden: int, heads: int, fused: bool):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self.out(self.attend(self.normalize(self.norm_1, x)))
        return x + self.down(self.activate(self.up(self.normalize(self.norm_2, x))))

    def attend(self, x):
        batch, length, hidden = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(hidden, dim=2)
        )
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            score = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            y = torch.softmax(score.masked_fill(~mask, float("-inf")), dim=-1) @ v
        return y.transpose(1, 2).reshape(batch, length, hidden)

    def normalize(self, norm, x):
        if self.fused:
            return norm(x)
        centred = x - x.mean(-1, keepdim=True)
        spread = centred.pow(2).mean(-1, keepdim=True)
        return centred * torch.rsqrt(spread + norm.eps) * norm.weight + norm.bias

    def activate(self, x):
        if self.fused:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


class Transformer(nn.Module):
    def __init__(self, layers, hidden, heads, vocab, length, fused=True):
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, hidden), nn.Embedding(length, hidden)
        self.layers = nn.ModuleList(Attention(hidden, heads, fused) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())


def precision(device):
    return torch.bfloat16 if device == "cuda" else torch.float32


def adamw(model, device, kind="fused"):
    chosen = {
        "fused": {"fused": device == "cuda"},
        "foreach": {"foreach": True},
        "loop": {"foreach": False},
    }[kind]
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **chosen)


def training(loss_of, optimizer, *, every_loss=False) -> Step:
    def step():
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if every_loss:
            loss.item()

    return step


def gpt(
    device,
    layers,
    hidden,
    heads,
    length,
    batch,
    vocab,
    *,
    fused=True,
    optimizer="fused",
    every_loss=False,
) -> Step:
    model = Transformer(layers, hidden, heads, vocab, length, fused).to(device, precision(device))
    tokens = torch.randint(vocab, (batch, length), device=device)
    targets = torch.randint(vocab, (batch, length), device=device)
    return training(
        lambda: model(tokens, targets), adamw(model, device, optimizer), every_loss=every_loss
    )


def mlp(device, layers, width, batch, *, optimizer="sgd") -> Step:
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*parts).to(device)
    chosen = (
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9) if optimizer == "sgd"
        else adamw(model, device, optimizer)
    )  # fmt: skip
    x, y = torch.randn(batch, width, device=device), torch.randn(batch, width, device=device)
    return training(lambda: F.mse_loss(model(x), y), chosen)


class Residual(nn.Module):
    def __init__(self, inward, outward, stride):
        super().__init__()
        self.conv_1 = nn.Conv2d(inward, outward, 3, stride, 1, bias=False)
        self.conv_2 = nn.Conv2d(outward, outward, 3, 1, 1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(outward), nn.BatchNorm2d(outward)
        same = inward == outward and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(inward, outward, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm_1(self.conv_1(x)))
        return F.relu(self.norm_2(self.conv_2(y)) + self.skip(x))


def convolutions(device, blocks, width, batch, side) -> Step:
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    inward = width
    for stage in range(4):
        outward = width << stage
        for block in range(blocks):
            layers.append(Residual(inward, outward, 2 if block == 0 and stage else 1))
            inward = outward
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inward, 1000)]
    model = nn.Sequential(*layers).to(device).to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, side, side, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss_of():
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            return F.cross_entropy(model(images), labels)

    return training(loss_of, optimizer)


def streams(device, layers, width, batch) -> Step:
    """Gradients are reduced on a side stream while the backward pass goes on; copies on a third."""
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).to(device)
    optimizer = adamw(model, device)
    x = torch.randn(batch, width, device=device)
    if device != "cuda":
        return training(lambda: model(x).square().mean(), optimizer)
    side, loading = torch.cuda.Stream(), torch.cuda.Stream()
    host = torch.randn(batch, width, device="cpu").pin_memory()
    incoming = torch.empty_like(x)

    def reduce(parameter):
        ready = torch.cuda.Event()
        ready.record()
        side.wait_event(ready)
        with torch.cuda.stream(side):
            for _ in range(3):
                parameter.grad.mul_(0.5).add_(parameter.grad)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce)

    def step():
        with torch.cuda.stream(loading):
            incoming.copy_(host, non_blocking=True)
        torch.cuda.current_stream().wait_stream(loading)
        model(incoming).square().mean().backward()
        torch.cuda.current_stream().wait_stream(side)
        optimizer.step()
        loading.wait_stream(torch.cuda.current_stream())
        optimizer.zero_grad(set_to_none=False)

    return step


def embeddings(device, tables, rows, width, batch) -> Step:
    """A recommender: many tables, sparse lookups, small GEMMs, a loss read by the host."""
    bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)).to(
        device
    )
    top = nn.Sequential(nn.Linear(tables * width, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    indices = [torch.randint(rows, (batch, 8), device=device) for _ in range(tables)]
    labels = torch.rand(batch, 1, device=device).round()
    optimizer = torch.optim.Adagrad([*bags.parameters(), *top.parameters()], lr=0.01)

    def loss_of():
        looked_up = torch.cat([bag(index) for bag, index in zip(bags, indices)], dim=1)
        return F.binary_cross_entropy_with_logits(top(looked_up), labels)

    return training(loss_of, optimizer, every_loss=True)


#: Name, how to build it for a device, and again small; which options; how often.
WORKLOADS: dict[str, tuple[Callable[[str, bool], Step], tuple[str, ...], int]] = {
    "gpt-tiny": (lambda d, q: gpt(d, 2 if q else 4, 64 if q else 128, 4, 64, 2, 1000), ("plain", "shapes", "sync"), 3),
    "gpt-narrow": (lambda d, q: gpt(d, 2 if q else 12, 64 if q else 256, 4, 128, 4, 8000), ("plain", "shapes", "sync"), 3),
    "tiny-ops": (lambda d, q: gpt(d, 1 if q else 6, 64 if q else 256, 4, 64, 2, 1000, fused=False, optimizer="loop"), ("plain", "shapes", "sync"), 3),
    "adamw-foreach": (lambda d, q: mlp(d, 4 if q else 40, 32 if q else 256, 16, optimizer="foreach"), ("plain",), 3),
    "adamw-fused": (lambda d, q: mlp(d, 4 if q else 40, 32 if q else 256, 16, optimizer="fused"), ("plain",), 3),
    "gpt-mid": (lambda d, q: gpt(d, 2 if q else 12, 64 if q else 1024, 8, 128 if q else 512, 4, 1000 if q else 32000, every_loss=True), ("plain", "shapes", "sync"), 1),
    "gpt-large": (lambda d, q: gpt(d, 2 if q else 8, 64 if q else 2048, 16, 128 if q else 2048, 1 if q else 8, 1000 if q else 50304), ("plain", "shapes", "sync"), 1),
    "mlp": (lambda d, q: mlp(d, 2 if q else 16, 64 if q else 4096, 16 if q else 2048), ("plain", "shapes"), 1),
    "conv": (lambda d, q: convolutions(d, 1 if q else 3, 8 if q else 64, 2 if q else 128, 32 if q else 192), ("plain", "shapes"), 1),
    "streams": (lambda d, q: streams(d, 2 if q else 24, 64 if q else 2048, 16 if q else 1024), ("plain", "shapes", "sync"), 1),
    "embedding": (lambda d, q: embeddings(d, 4 if q else 26, 100 if q else 200_000, 16 if q else 64, 16 if q else 4096), ("plain", "shapes", "sync"), 1),
}  # fmt: skip


def plan(only: list[str], quick: bool) -> list[tuple[str, str, int]]:
    """Workload, options and repeat. Every first repeat comes before any second one."""
    repeats = 1 if quick else max(times for _, _, times in WORKLOADS.values())
    return [
        (name, options, repeat)
        for repeat in range(repeats)
        for name, (_, variants, times) in WORKLOADS.items()
        for options in variants
        if repeat < times and (not only or name in only)
    ]


def make_recording(folder: Path, name: str, options: str, device: str, quick: bool) -> None:
    torch.manual_seed(0)
    with torch.device(device):  # weights are made where they stay: seconds less for large ones
        step = WORKLOADS[name][0](device, quick)
    counts = (
        {"skip": 2, "plain": 3, "after": 2, "steps": 2}
        if quick
        else {"skip": 8, "plain": 30, "after": 15, "steps": 3}
    )
    with record(
        folder, name=folder.name, overwrite=True, **counts, **OPTIONS[options]
    ) as recorder:
        while True:
            step()
            if recorder.step():
                break


def in_process(*arguments) -> bool:
    """True when a recording was made. Forked: torch is loaded once, CUDA anew in each child."""
    child = multiprocessing.get_context("fork").Process(target=_reporting, args=arguments)
    child.start()
    child.join(120)
    if child.is_alive():
        child.kill()
        child.join()
        return False
    return child.exitcode == 0


def _reporting(*arguments) -> None:
    try:
        make_recording(*arguments)
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def line(folder: Path, seconds: float) -> str:
    meta = json.loads((folder / "meta.json").read_text())
    plain = meta.get("step_ms_event") or meta.get("step_ms")
    after = meta.get("step_ms_event_2") or meta.get("step_ms_2") or [float("nan")]
    median, profiled = statistics.median(plain), meta["profiled_step_ms"]
    traces = sum(path.stat().st_size for path in folder.glob("*.json.gz"))
    return (
        f"{folder.name:<24} plain {median:9.3f} ms ({min(plain):.3f}..{max(plain):.3f})  "
        f"profiled {profiled:9.3f} ({100 * (profiled / median - 1):+6.1f} %)  "
        f"after {statistics.median(after):9.3f}  {traces / 1e6:5.2f} MB  {seconds:5.1f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one repeat")
    parser.add_argument("--only", action="append", default=[], choices=list(WORKLOADS))
    parser.add_argument("--minutes", type=float, default=7.0, help="begin nothing new after these")
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {args.device}", flush=True)
    began, failed, todo = time.monotonic(), 0, plan(args.only, args.quick)
    for number, (name, options, repeat) in enumerate(todo):
        if time.monotonic() - began > args.minutes * 60:
            print(f"time is up: {len(todo) - number} of {len(todo)} recordings were not begun")
            break
        folder, start = args.out / f"{name}.{options}.{repeat}", time.monotonic()
        if in_process(folder, name, options, args.device, args.quick):
            print(line(folder, time.monotonic() - start), flush=True)
        else:
            failed += 1
            print(f"{folder.name:<24} failed", flush=True)
    print(f"{time.monotonic() - began:.0f} s in all, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
