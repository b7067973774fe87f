"""Small models, recorded here and now: an execution trace, and a profiler trace of the same steps."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnomon.systems.aibench.benchmark import Benchmark, build

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional


def record(folder: Path, step: Callable[[], Any], steps: int = 3) -> Path:
    """Writes et.json.gz of one step and kineto.json.gz of several."""
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        step()
    trace = folder / "kineto.json"
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(trace)),
    ) as running:  # fmt: skip
        for _ in range(steps + 1):
            step()
            running.step()
    observer = ExecutionTraceObserver()
    observer.register_callback(str(folder / "et.json"))
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    for name in ("et.json", "kineto.json"):
        raw = (folder / name).read_bytes()
        (folder / f"{name}.gz").write_bytes(gzip.compress(raw))
        (folder / name).unlink()
    return folder


def run(bench: Path, *options: str) -> dict[str, Any]:
    """Runs a benchmark and reads its answer."""
    done = execute(bench, "--device", "cpu", "--steps", "2", "--json", *options)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def execute(bench: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(bench / "run.py"), *options], capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip


def build_and_run(folder: Path, out: Path, *options: str) -> tuple[Benchmark, dict[str, Any]]:
    made = build(folder, out)
    return made, run(out, *options)


def program_of(bench: Path) -> dict[str, Any]:
    program: dict[str, Any] = json.loads(gzip.decompress((bench / "program.json.gz").read_bytes()))
    return program


# -- models ----------------------------------------------------------------------------------


def trainer(model: Any, optimizer: Any, *batch: Any, loss: Any = None) -> Callable[[], None]:
    def step() -> None:
        out = model(*batch)
        value = loss(out) if loss else out.square().mean()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def mlp() -> Callable[[], None]:
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
    return trainer(model, torch.optim.SGD(model.parameters(), 0.01), torch.randn(4, 16))


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv = torch.nn.LayerNorm(width), torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        b, s, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, 2, w // 2).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.dropout(F.gelu(self.out(a.transpose(1, 2).reshape(b, s, w))), 0.1)


class Gpt(torch.nn.Module):
    def __init__(self, layers: int = 2, width: int = 16, vocabulary: int = 50) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(layers))
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens)
        for number, block in enumerate(self.blocks):
            with torch.profiler.record_function(f"## SecretLayer {number} ##"):
                x = block(x)
        return self.head(x)


def gpt(optimizer: str = "adamw") -> Callable[[], None]:
    model = Gpt()
    tokens, targets = torch.randint(50, (2, 8)), torch.randint(50, (2, 8))
    kinds = {
        "adamw": lambda: torch.optim.AdamW(model.parameters(), 1e-3, fused=True),
        "adam": lambda: torch.optim.Adam(model.parameters(), 1e-3, foreach=True),
        "sgd": lambda: torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, foreach=False),
    }
    return trainer(
        model, kinds[optimizer](), tokens,
        loss=lambda out: F.cross_entropy(out.flatten(0, 1), targets.flatten()),
    )  # fmt: skip


def cnn() -> Callable[[], None]:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 4, 2, stride=2), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 10),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    batch = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    return trainer(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), batch)


def autocast() -> Callable[[], None]:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 8)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batch = torch.randn(2, 3, 8, 8)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            value = model(batch).float().square().mean()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def lstm() -> Callable[[], None]:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(6, 5, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.lstm(x)[0]

    model = Model()
    return trainer(model, torch.optim.Adagrad(model.parameters(), 0.01), torch.randn(2, 4, 6))


def recommender() -> Callable[[], None]:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = torch.nn.EmbeddingBag(30, 4, mode="sum")
            self.top = torch.nn.Linear(4, 1)

        def forward(self, indices: Any, offsets: Any) -> Any:
            return torch.sigmoid(self.top(self.bags(indices, offsets)))

    model = Model()
    indices, offsets = torch.randint(30, (12,)), torch.tensor([0, 3, 7, 9])
    return trainer(model, torch.optim.Adagrad(model.parameters(), 0.1), indices, offsets)


def router() -> Callable[[], None]:
    table, scores = torch.randn(10, 8, requires_grad=True), torch.randn(6, 10)

    def step() -> None:
        best = scores.topk(2, dim=1).indices
        rows = table.index_select(0, best.flatten())
        spread = torch.zeros(10, 8).index_add(0, best.flatten(), rows)
        picked = spread[torch.nonzero(scores[:, 0] > 0).squeeze(1)]
        (spread.gather(0, best[:, :1].expand(-1, 8)).sum() + picked.sum()).backward()
        table.grad = None

    return step


def spectrum() -> Callable[[], None]:
    filters = torch.randn(9, dtype=torch.complex64, requires_grad=True)
    signal = torch.randn(3, 16)

    def step() -> None:
        (torch.fft.irfft(torch.fft.rfft(signal) * filters).square().sum()).backward()
        filters.grad = None

    return step


def drifting() -> Callable[[], None]:
    """An index that the program itself changes, and one that is reshaped in place."""
    table, at, row = torch.randn(20, 4), torch.randint(5, (3,)), torch.randn(3, 4)

    def step() -> None:
        at.add_(1).remainder_(20)
        row.t_()
        (table.index_select(0, at) @ row).sum()
        row.t_()

    return step


MODELS: dict[str, Callable[[], Callable[[], None]]] = {
    "mlp": mlp, "gpt-adamw": gpt, "gpt-adam": lambda: gpt("adam"), "gpt-sgd": lambda: gpt("sgd"),
    "cnn": cnn, "autocast": autocast, "lstm": lstm, "recommender": recommender, "router": router,
    "spectrum": spectrum, "drifting": drifting,
}  # fmt: skip
