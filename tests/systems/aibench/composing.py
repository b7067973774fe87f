"""Parts of traces, other batches and mixes, made without the command line; and models to try."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from gnomon.ingest.execution.trace import ExecutionTrace, TensorValue, read_execution_trace
from gnomon.systems.aibench.builder.lower import lower
from gnomon.systems.aibench.builder.provided import modules_for, sources_of
from gnomon.systems.aibench.builder.schedule import number_registers, order
from gnomon.systems.aibench.builder.select import Chosen, choose
from gnomon.systems.aibench.compose.calls import Composed, Selection, compose, weigh
from gnomon.systems.aibench.compose.parts import parts_of
from gnomon.systems.aibench.folder import describe, write_bench
from gnomon.systems.aibench.program import Call, Program
from gnomon.systems.aibench.rescale.trace import scale_batch

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
nn = torch.nn


def record_et(path: Path, step: Callable[[], Any]) -> ExecutionTrace:
    """The execution trace of a step that has run before."""
    from torch.profiler import ExecutionTraceObserver

    step()
    step()
    observer = ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    return read_execution_trace(path)


def composed(trace: ExecutionTrace, selection: Selection) -> tuple[list[Chosen], Composed]:
    chosen = choose(trace)
    parts = parts_of(trace, [one.at for one in chosen])
    return chosen, compose(trace, chosen, parts, selection)


def make_bench(
    trace: ExecutionTrace, out: Path, selection: Selection | None = None, *,
    factor: Fraction | None = None, batch: int | None = None, device: str = "cpu",
) -> list[Call]:  # fmt: skip
    """Writes a benchmark of some of a trace, maybe with another batch; gives its calls."""
    chosen, picked = composed(trace, selection or Selection())
    if factor is not None:
        trace = scale_batch(trace, chosen, factor, batch).trace
    lowering = lower(trace, chosen, kept=picked.kept)
    calls, flow = lowering.calls, lowering.flow
    weigh(calls, picked.times)
    rows, signals, events = order(calls, {})
    number_registers(calls)
    program = Program(
        flow.storages, flow.made, flow.metas, [rows], [[0] * picked.repeat], {"device": device},
        1, signals, events,
    )  # fmt: skip
    modules = sources_of(modules_for({call.does for call in calls}))
    write_bench(out, program, describe({}), modules=modules)
    return calls


def look(value: Any) -> Any:
    """A recorded value without addresses and without numbers that are no sizes."""
    if isinstance(value, TensorValue):
        return value.dtype, value.shape, value.offset, value.strides
    if isinstance(value, tuple):
        return tuple(look(part) for part in value)
    return value if isinstance(value, str) else type(value).__name__


def sizes(value: Any) -> Any:
    """Lists of whole numbers among arguments."""
    if isinstance(value, tuple) and value and all(type(part) is int for part in value):
        return value
    return None


# -- models by batch -----------------------------------------------------------------------------


def train(parameters: list[Any], loss: Callable[[], Any], kind: str = "SGD") -> Callable[[], None]:
    how = {"fused": True} if kind == "AdamW" else {}
    optimizer = getattr(torch.optim, kind)(parameters, lr=0.01, **how)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        b, s, w = x.shape
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = (part.view(b, s, 2, w // 2).transpose(1, 2) for part in parts)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, w))
        return x + self.wide(self.after(x))


def gpt(batch: int, length: int = 8, width: int = 16, layers: int = 3) -> Callable[[], None]:
    words = 40
    table, places = nn.Embedding(words, width), nn.Embedding(length, width)
    blocks = nn.ModuleList(Block(width) for _ in range(layers))
    head = nn.Linear(width, words, bias=False)
    data = torch.randint(words, (batch, length + 1))

    def loss() -> Any:
        x = table(data[:, :-1]) + places(torch.arange(length))
        for block in blocks:
            x = block(x)
        return F.cross_entropy(head(x).view(-1, words), data[:, 1:].reshape(-1))

    parts = (table, places, blocks, head)
    return train([p for part in parts for p in part.parameters()], loss, "AdamW")


def mlp(batch: int) -> Callable[[], None]:
    model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(8, 8), nn.ReLU())])
    x, y = torch.randn(batch, 8), torch.randn(batch, 8)
    return train(list(model.parameters()), lambda: F.mse_loss(model(x), y))


def cnn(batch: int) -> Callable[[], None]:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, stride=2),
        nn.GroupNorm(2, 6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(6 * 3 * 3, 5),
    )  # fmt: skip
    x, y = torch.randn(batch, 3, 16, 16), torch.randint(5, (batch,))
    return train(list(model.parameters()), lambda: F.cross_entropy(model(x), y), "Adam")


def sequence_first(batch: int, length: int = 6) -> Callable[[], None]:
    """The batch is the second dimension, and the inner part of a product."""
    table, head = nn.Embedding(20, 8), nn.Linear(8, 20)
    words = torch.randint(20, (length, batch))

    def loss() -> Any:
        x = table(words).view(length * batch, 8)
        x = F.relu(x).view(length, batch, 8).cumsum(0)
        return F.cross_entropy(head(x).view(length * batch, 20), words.view(length * batch))

    return train([*table.parameters(), *head.parameters()], loss)


def heads(batch: int, length: int = 6, width: int = 8) -> Callable[[], None]:
    """Batch and heads in one dimension; new tensors of the batch's size."""
    layer = nn.Linear(width, 3 * width)
    x = torch.randn(batch, length, width)

    def loss() -> Any:
        parts = layer(x).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4).unbind(0)
        q, k, v = (part.reshape(batch * 2, length, width // 2) for part in parts)
        scores = torch.baddbmm(torch.zeros(batch * 2, length, length), q, k.transpose(1, 2))
        y = torch.bmm(scores.softmax(-1), v).view(batch, 2, length, width // 2)
        y = y.transpose(1, 2).contiguous().view(batch, length, width).mean(1)
        return (y + torch.zeros(batch, width)).square().sum()

    return train(list(layer.parameters()), loss)


def recommender(batch: int) -> Callable[[], None]:
    """Bags of indices: as many times as many."""
    tables = nn.ModuleList(nn.EmbeddingBag(30, 8, mode="sum") for _ in range(3))
    dense, out = nn.Linear(13, 8), nn.Linear(8 + 6, 1)
    x, y = torch.randn(batch, 13), torch.rand(batch)
    bags = [(torch.randint(30, (batch * 3,)), torch.arange(0, batch * 3, 3)) for _ in range(3)]

    def loss() -> Any:
        parts = [dense(x), *(table(*bag) for table, bag in zip(tables, bags))]
        both = torch.stack(parts, 1)
        left, right = torch.tril_indices(4, 4, -1)
        pairs = torch.bmm(both, both.transpose(1, 2))[:, left, right]
        found = out(torch.cat([parts[0], pairs], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(found, y)

    parts = (tables, dense, out)
    return train([p for part in parts for p in part.parameters()], loss, "Adagrad")


def experts(batch: int) -> Callable[[], None]:
    """Shapes that depend on data; the data of a larger batch is the same again."""
    gate, layers = nn.Linear(8, 2), nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
    x = torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(7)).repeat(batch // 2, 1, 1)
    with torch.no_grad():
        gate.weight.copy_(torch.eye(2, 8))
        gate.bias.zero_()

    def loss() -> Any:
        flat = x.view(-1, 8)
        choice, out = gate(flat).argmax(-1), torch.zeros_like(flat)
        for number, layer in enumerate(layers):
            (mine,) = torch.where(choice == number)
            out = out.index_add(0, mine, layer(flat[mine]))
        return out.view(batch, 8, 8).square().mean()

    return train([*gate.parameters(), *layers.parameters()], loss)


MODELS: dict[str, Callable[[int], Callable[[], None]]] = {
    "gpt": gpt, "mlp": mlp, "cnn": cnn, "sequence-first": sequence_first, "heads": heads,
    "recommender": recommender, "experts": experts,
}  # fmt: skip
