"""Records steps of models of many kinds on one GPU, to make benchmarks from and examine them with.

    python benchmarks/collect_models.py OUT [NAME...] [--device cpu] [--small] [--timeout 60]

Needs torch and a GPU, nothing else. Each workload runs in a process of its own and writes
OUT/NAME/{kineto.json.gz,et.json.gz,meta.json}: a profiler trace of three steps with shapes, an
execution trace of one step, and the step times, the peak of memory and the power of steps before
them, without the profiler. Where NAME ends in "-files" the sources of the compiled kernels are
kept in OUT/NAME/et_resources. A workload that fails or outlasts its time is named and passed over.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from collect_gpt import timed as timed_on_device
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function
from torch.profiler import schedule as profiler_schedule
from torch.utils.checkpoint import checkpoint

NOT_HERE = 75  # exit status of a workload that this device cannot run
WARM_UP, TIMED, POWER_SECONDS = 8, 30, 2.5

Step = Callable[[], None]
device = "cuda"


class NotHere(Exception):
    """A workload that the chosen device cannot run."""


# Transformers


@dataclasses.dataclass(frozen=True)
class Gpt:
    """A decoder-only transformer, its batch and how it is trained."""

    layers: int = 6
    hidden: int = 1024
    heads: int = 8
    seq: int = 2048
    batch: int = 4
    vocab: int = 50304
    dropout: float = 0.0
    masked: bool = False  # an explicit float mask in place of is_causal
    recompute: bool = False
    compiled: bool = False
    optimizer: str = "adamw"
    generated: int = 0  # tokens that an inference step decodes


MINI_GPT = {"layers": 3, "hidden": 128, "heads": 4, "seq": 64, "batch": 4, "vocab": 512}
SMALL_GPT = {"layers": 2, "hidden": 32, "heads": 2, "seq": 16, "batch": 2, "vocab": 64}


class CausalAttention(nn.Module):
    """Causal attention, which continues from earlier keys and values where they are given."""

    def __init__(self, shape: Gpt):
        super().__init__()
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.hidden)
        self.heads, self.dropout = shape.heads, shape.dropout

    def forward(self, x, mask=None, past=None):
        batch, seq, hidden = x.shape
        split = self.qkv(x).view(batch, seq, 3, self.heads, hidden // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=mask is None and past is None,
        )
        return self.out(y.transpose(1, 2).reshape(batch, seq, hidden)), (k, v)


class DecoderLayer(nn.Module):
    """A pre-norm layer."""

    def __init__(self, shape: Gpt):
        super().__init__()
        self.before, self.between = nn.LayerNorm(shape.hidden), nn.LayerNorm(shape.hidden)
        self.attention = CausalAttention(shape)
        self.up = nn.Linear(shape.hidden, 4 * shape.hidden)
        self.down = nn.Linear(4 * shape.hidden, shape.hidden)
        self.dropout = nn.Dropout(shape.dropout) if shape.dropout else nn.Identity()

    def with_past(self, x, mask=None, past=None):
        attended, kept = self.attention(self.before(x), mask, past)
        x = x + self.dropout(attended)
        y = self.down(F.gelu(self.up(self.between(x)), approximate="tanh"))
        return x + self.dropout(y), kept

    def forward(self, x, mask=None):
        return self.with_past(x, mask)[0]


class Decoder(nn.Module):
    """A decoder-only transformer with learned places."""

    def __init__(self, shape: Gpt):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.places = nn.Embedding(shape.seq + shape.generated, shape.hidden)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        self.recompute, self.marked = shape.recompute, not shape.compiled

    def embed(self, tokens, first=0):
        places = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        return self.tokens(tokens) + self.places(places)

    def forward(self, tokens, wanted, mask=None):
        x = self.embed(tokens)
        for number, layer in enumerate(self.layers):
            # A mark inside a compiled model would split its graph at every layer.
            mark = record_function(f"## layer {number} ##") if self.marked else None
            with mark or contextlib.nullcontext():
                if self.recompute:
                    x = checkpoint(layer, x, mask, use_reentrant=False)
                else:
                    x = layer(x, mask)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    def continued(self, tokens, past):
        """The logits of the last place, and the keys and values up to it."""
        x, kept = self.embed(tokens, past[0][0].shape[2] if past else 0), []
        for number, layer in enumerate(self.layers):
            x, pair = layer.with_past(x, past=past[number] if past else None)
            kept.append(pair)
        return self.head(self.norm(x[:, -1])).float(), kept


def optimizer_of(name: str, parameters) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, foreach=False)


def training(loss_of: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer) -> Step:
    """A step with marks around its three parts."""

    def step():
        with record_function("## forward ##"):
            loss = loss_of()
        with record_function("## backward ##"):
            loss.backward()
        with record_function("## optimizer ##"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def gpt(**sizes) -> tuple[Step, nn.Module]:
    shape = Gpt(**sizes)
    model = Decoder(shape).to(device, torch.bfloat16)
    tokens = torch.randint(shape.vocab, (shape.batch, shape.seq), device=device)
    wanted = torch.randint(shape.vocab, (shape.batch, shape.seq), device=device)
    mask = distance_mask(shape) if shape.masked else None
    forward = torch.compile(model) if shape.compiled else model
    optimizer = optimizer_of(shape.optimizer, model.parameters())

    def loss_of():
        if mask is None:
            return forward(tokens, wanted)
        # Which backend takes a mask by default changes with the version: this one is wanted.
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            return forward(tokens, wanted, mask)

    return training(loss_of, optimizer), model


def distance_mask(shape: Gpt) -> torch.Tensor:
    """Scores fall with the distance, by each head's own slope; what comes later is barred."""
    places = torch.arange(shape.seq, device=device)
    distance = (places[:, None] - places[None, :]).float()
    slopes = 2.0 ** -torch.arange(1, shape.heads + 1, device=device).float()
    falling = -slopes[:, None, None] * distance
    return falling.masked_fill(distance < 0, float("-inf")).to(torch.bfloat16)[None]


def gpt_inference(**sizes) -> tuple[Step, nn.Module]:
    """Reads a prompt, then decodes: every second token is drawn, the others are the likeliest."""
    shape = Gpt(**sizes)
    model = Decoder(shape).to(device, torch.bfloat16).eval()
    prompt = torch.randint(shape.vocab, (shape.batch, shape.seq), device=device)

    @torch.no_grad()
    def step():
        with record_function("## prompt ##"):
            logits, past = model.continued(prompt, None)
        answer = prompt
        for number in range(shape.generated):
            with record_function("## token ##"):
                if number % 2:
                    drawn = torch.multinomial((logits / 0.8).softmax(-1), 1)
                else:
                    drawn = logits.argmax(-1, keepdim=True)
                answer = torch.cat((answer, drawn), dim=1)
                logits, past = model.continued(drawn, past)

    return step, model


def ddp1(**sizes) -> tuple[Step, nn.Module]:
    """One rank of data parallel training: buckets and collectives, and nobody to talk with."""
    shape = Gpt(**sizes)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    meeting = Path(tempfile.mkdtemp()) / "store"
    torch.distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{meeting}",
        rank=0,
        world_size=1,
    )
    inner = Decoder(shape).to(device, torch.bfloat16)
    places = [0] if device == "cuda" else None
    model = nn.parallel.DistributedDataParallel(
        inner, device_ids=places, gradient_as_bucket_view=True
    )
    tokens = torch.randint(shape.vocab, (shape.batch, shape.seq), device=device)
    wanted = torch.randint(shape.vocab, (shape.batch, shape.seq), device=device)
    optimizer = optimizer_of("adamw", model.parameters())
    return training(lambda: model(tokens, wanted), optimizer), model


class EncoderLayer(nn.Module):
    """A post-norm layer whose attention is written out, with dropout in three places."""

    def __init__(self, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(hidden, hidden) for _ in range(3))
        self.out = nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.dropout, self.heads = nn.Dropout(dropout), heads

    def forward(self, x, bar):
        batch, seq, hidden = x.shape
        q, k, v = (
            part(x).view(batch, seq, self.heads, -1).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-2, -1) / (hidden // self.heads) ** 0.5 + bar
        y = self.dropout(scores.softmax(-1)) @ v
        y = self.out(y.transpose(1, 2).reshape(batch, seq, hidden))
        x = self.first(x + self.dropout(y))
        return self.second(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Encoder(nn.Module):
    """A masked language model."""

    def __init__(self, layers: int, hidden: int, heads: int, seq: int, vocab: int):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden, padding_idx=0)
        self.places, self.kinds = nn.Embedding(seq, hidden), nn.Embedding(2, hidden)
        self.norm, self.dropout = nn.LayerNorm(hidden), nn.Dropout(0.1)
        self.layers = nn.ModuleList(EncoderLayer(hidden, heads, 0.1) for _ in range(layers))
        self.dense, self.last = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, tokens, kinds, present, wanted):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.places(places) + self.kinds(kinds)
        x = self.dropout(self.norm(x))
        bar = (1.0 - present[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bar)
        x = self.last(F.gelu(self.dense(x)))
        logits = F.linear(x, self.tokens.weight, self.bias)
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-100)


def bert_dropout(layers, hidden, heads, seq, batch, vocab) -> tuple[Step, nn.Module]:
    model = Encoder(layers, hidden, heads, seq, vocab).to(device)
    lengths = torch.randint(seq // 2, seq + 1, (batch, 1), device=device)
    present = torch.arange(seq, device=device)[None, :] < lengths
    tokens = torch.randint(1, vocab, (batch, seq), device=device) * present
    kinds = torch.randint(2, (batch, seq), device=device)
    hidden_away = (torch.rand(batch, seq, device=device) < 0.15) & present
    wanted = tokens.masked_fill(~hidden_away, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=True)
    return training(lambda: model(tokens, kinds, present, wanted), optimizer), model


class VisionTransformer(nn.Module):
    """Patches by a convolution, a class token, pre-norm layers."""

    def __init__(self, image: int, patch: int, shape: Gpt, classes: int):
        super().__init__()
        count = (image // patch) ** 2
        self.patches = nn.Conv2d(3, shape.hidden, patch, stride=patch)
        self.answer = nn.Parameter(torch.zeros(1, 1, shape.hidden))
        self.places = nn.Parameter(torch.randn(1, count + 1, shape.hidden) * 0.02)
        layer = nn.TransformerEncoderLayer(
            shape.hidden,
            shape.heads,
            4 * shape.hidden,
            0.0,
            "gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, shape.layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(shape.hidden), nn.Linear(shape.hidden, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.answer.expand(len(x), -1, -1), x), dim=1) + self.places
        return self.head(self.norm(self.layers(x)[:, 0]))


def vit_autocast(image, patch, layers, hidden, heads, batch, classes) -> tuple[Step, nn.Module]:
    shape = Gpt(layers=layers, hidden=hidden, heads=heads)
    model = VisionTransformer(image, patch, shape, classes).to(device)
    images = torch.randn(batch, 3, image, image)
    images = images.pin_memory() if device == "cuda" else images
    labels = torch.randint(classes, (batch,), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss_of():
        with torch.autocast(device, torch.bfloat16):
            answers = model(images.to(device, non_blocking=True))
            return F.cross_entropy(answers, labels, label_smoothing=0.1)

    return training(loss_of, optimizer), model


class Experts(nn.Module):
    """Each token goes to the two experts that its router likes best."""

    def __init__(self, hidden: int, experts: int):
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.SiLU(), nn.Linear(4 * hidden, hidden))
            for _ in range(experts)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        likings = self.router(flat).float().softmax(-1)
        weights, chosen = likings.topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        gates = torch.zeros_like(likings).scatter(1, chosen, weights)
        taken = F.one_hot(chosen, len(self.experts)).sum(1)
        result = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows = taken[:, number].nonzero().squeeze(1)
            share = gates[:, number].index_select(0, rows).to(flat.dtype)
            part = expert(flat.index_select(0, rows)) * share[:, None]
            result = result.index_add(0, rows, part)
        # The usual term that keeps the experts' loads alike.
        balance = (taken.float().mean(0) * likings.mean(0)).sum() * len(self.experts)
        return result.view_as(x), balance


class ExpertModel(nn.Module):
    """A decoder whose feed-forward parts are experts."""

    def __init__(self, shape: Gpt, experts: int):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.norms = nn.ModuleList(nn.RMSNorm(shape.hidden) for _ in range(2 * shape.layers + 1))
        self.attentions = nn.ModuleList(CausalAttention(shape) for _ in range(shape.layers))
        self.experts = nn.ModuleList(Experts(shape.hidden, experts) for _ in range(shape.layers))
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)

    def forward(self, tokens, wanted):
        x, balance = self.tokens(tokens), 0.0
        for number, (attention, experts) in enumerate(zip(self.attentions, self.experts)):
            x = x + attention(self.norms[2 * number](x))[0]
            y, more = experts(self.norms[2 * number + 1](x))
            x, balance = x + y, balance + more
        logits = self.head(self.norms[-1](x)).float()
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten()) + 0.01 * balance


def moe(experts, **sizes) -> tuple[Step, nn.Module]:
    shape = Gpt(**sizes)
    model = ExpertModel(shape, experts).to(device, torch.bfloat16)
    tokens = torch.randint(shape.vocab, (shape.batch, shape.seq), device=device)
    wanted = torch.randint(shape.vocab, (shape.batch, shape.seq), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
    return training(lambda: model(tokens, wanted), optimizer), model


# Other models


class Recurrent(nn.Module):
    """A language model of two recurrent layers."""

    def __init__(self, hidden: int, vocab: int):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.lstm = nn.LSTM(hidden, hidden, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens, wanted):
        logits = self.head(self.lstm(self.tokens(tokens))[0])
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def lstm(hidden, seq, batch, vocab) -> tuple[Step, nn.Module]:
    model = Recurrent(hidden, vocab).to(device)
    tokens = torch.randint(vocab, (batch, seq), device=device)
    wanted = torch.randint(vocab, (batch, seq), device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        with record_function("## forward ##"):
            loss = model(tokens, wanted)
        with record_function("## backward ##"):
            loss.backward()
        with record_function("## optimizer ##"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step, model


def perceptron(*widths: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for first, second in itertools.pairwise(widths):
        parts += [nn.Linear(first, second), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class Recommender(nn.Module):
    """Tables and a bottom network, products of all pairs, a top network."""

    def __init__(self, tables: int, rows: int, width: int, dense: int):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)
        )
        self.bottom = perceptron(dense, 4 * width, 2 * width, width)
        pairs = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("pairs", pairs)
        self.top = perceptron(width + pairs.shape[1], 8 * width, 4 * width, 1)

    def forward(self, dense, indices, offsets):
        below = self.bottom(dense)
        looked_up = [t(i, o) for t, i, o in zip(self.tables, indices, offsets)]
        every = torch.stack([below, *looked_up], dim=1)
        products = torch.bmm(every, every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat((below, products), dim=1)).squeeze(1)


def dlrm(tables, rows, width, dense, batch, pooled) -> tuple[Step, nn.Module]:
    model = Recommender(tables, rows, width, dense).to(device)
    features = torch.randn(batch, dense, device=device)
    clicked = torch.rand(batch, device=device).round()
    indices, offsets = [], []
    for _ in range(tables):
        lengths = torch.randint(1, 2 * pooled, (batch,))
        offsets.append((lengths.cumsum(0) - lengths).to(device))
        indices.append(torch.randint(rows, (int(lengths.sum()),), device=device))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)

    def loss_of():
        scores = model(features, indices, offsets)
        return F.binary_cross_entropy_with_logits(scores, clicked)

    return training(loss_of, optimizer), model


class ConvBlock(nn.Module):
    """Two normed convolutions, and the time between them."""

    def __init__(self, inner: int, outer: int, time_width: int):
        super().__init__()
        groups = min(8, inner, outer)
        self.first_norm, self.first = (
            nn.GroupNorm(groups, inner),
            nn.Conv2d(inner, outer, 3, padding=1),
        )
        self.second_norm = nn.GroupNorm(groups, outer)
        self.second = nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(time_width, outer)
        self.short = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x, when):
        y = self.first(F.silu(self.first_norm(x))) + self.time(when)[:, :, None, None]
        return self.short(x) + self.second(F.silu(self.second_norm(y)))


class UNet(nn.Module):
    """Two levels down, two up: one by a transposed convolution, one by interpolation."""

    def __init__(self, width: int):
        super().__init__()
        w, t = width, 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(w, t), nn.SiLU(), nn.Linear(t, t))
        self.enter = nn.Conv2d(3, w, 3, padding=1)
        self.down1, self.down2 = ConvBlock(w, w, t), ConvBlock(w, 2 * w, t)
        self.half1 = nn.Conv2d(w, w, 3, stride=2, padding=1)
        self.half2 = nn.Conv2d(2 * w, 2 * w, 3, stride=2, padding=1)
        self.middle = ConvBlock(2 * w, 4 * w, t)
        self.twice = nn.ConvTranspose2d(4 * w, 2 * w, 4, stride=2, padding=1)
        self.up2, self.up1 = ConvBlock(4 * w, 2 * w, t), ConvBlock(3 * w, w, t)
        self.norm, self.leave = nn.GroupNorm(min(8, w), w), nn.Conv2d(w, 3, 3, padding=1)

    def forward(self, x, when):
        half = self.width // 2
        rates = torch.exp(torch.arange(half, device=x.device) * (-9.2 / half))
        angles = when[:, None].float() * rates
        t = self.time(torch.cat((angles.sin(), angles.cos()), dim=1))
        first = self.down1(self.enter(x), t)
        second = self.down2(self.half1(first), t)
        y = self.twice(self.middle(self.half2(second), t))
        y = self.up2(torch.cat((y, second), dim=1), t)
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        y = self.up1(torch.cat((y, first), dim=1), t)
        return self.leave(F.silu(self.norm(y)))


def unet(width, image, batch) -> tuple[Step, nn.Module]:
    """Learns to tell noise; the scaler asks the device each step whether a gradient overflowed."""
    model = UNet(width).to(device)
    images = torch.randn(batch, 3, image, image, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(device)

    def step():
        with record_function("## forward ##"), torch.autocast(device, torch.float16):
            when = torch.randint(1000, (batch,), device=device)
            noise = torch.randn_like(images)
            share = (when.float() / 1000)[:, None, None, None]
            mixed = images * (1 - share) + noise * share
            loss = F.mse_loss(model(mixed, when).float(), noise)
        with record_function("## backward ##"):
            scaler.scale(loss).backward()
        with record_function("## optimizer ##"):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)

    return step, model


def mlp_graph(layers, width, batch) -> tuple[Step, nn.Module]:
    """A whole training step captured once; a step copies its inputs in and replays it."""
    if device != "cuda":
        raise NotHere("a CUDA graph needs a GPU")
    model = perceptron(*[width] * (layers + 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    inputs = torch.randn(batch, width, device=device)
    wanted = torch.randn(batch, width, device=device)
    next_inputs, next_wanted = torch.randn_like(inputs), torch.randn_like(wanted)

    def whole():
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(model(inputs), wanted).backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            whole()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        whole()

    def step():
        with record_function("## inputs ##"):
            inputs.copy_(next_inputs)
            wanted.copy_(next_wanted)
        with record_function("## replay ##"):
            graph.replay()

    return step, model


class Bottleneck(nn.Module):
    """Three convolutions beside a way past them."""

    def __init__(self, inner: int, width: int, stride: int):
        super().__init__()
        outer = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.short = nn.Identity()
        if stride != 1 or inner != outer:
            self.short = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x), inplace=True)


def residual_net(width: int, depths: list[int], classes: int) -> nn.Sequential:
    parts: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inner = width
    for level, depth in enumerate(depths):
        for number in range(depth):
            stride = 2 if level and not number else 1
            parts.append(Bottleneck(inner, width << level, stride))
            inner = 4 * (width << level)
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, classes))


def resnet_eval(width, depths, classes, image, batch) -> tuple[Step, nn.Module]:
    model = (
        residual_net(width, depths, classes).to(device, memory_format=torch.channels_last).eval()
    )
    images = torch.randn(batch, 3, image, image, device=device)
    images = images.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def step():
        with record_function("## forward ##"):
            model(images).softmax(-1).topk(5)

    return step, model


# Recording


@dataclasses.dataclass(frozen=True)
class Workload:
    """What builds a step, and its sizes on a GPU and for a trial anywhere."""

    build: Callable[..., tuple[Step, nn.Module]]
    full: dict[str, Any]
    small: dict[str, Any]
    compiled: bool = False


def a_gpt(build=gpt, trial: dict[str, Any] | None = None, **full) -> Workload:
    """A workload of the transformer; what is no size holds in the trial too."""
    sizes = {"layers", "hidden", "heads", "seq", "batch", "vocab", "generated", "experts"}
    kept = {key: value for key, value in full.items() if key not in sizes}
    return Workload(build, full, SMALL_GPT | kept | (trial or {}), full.get("compiled", False))


WORKLOADS = {
    "bert-dropout": Workload(
        bert_dropout,
        {"layers": 8, "hidden": 768, "heads": 12, "seq": 512, "batch": 16, "vocab": 30522},
        {"layers": 2, "hidden": 32, "heads": 2, "seq": 16, "batch": 2, "vocab": 64},
    ),
    "vit-autocast": Workload(
        vit_autocast,
        {
            "image": 224,
            "patch": 16,
            "layers": 12,
            "hidden": 768,
            "heads": 12,
            "batch": 64,
            "classes": 1000,
        },
        {
            "image": 32,
            "patch": 16,
            "layers": 2,
            "hidden": 32,
            "heads": 2,
            "batch": 2,
            "classes": 10,
        },
    ),
    "lstm": Workload(
        lstm,
        {"hidden": 1024, "seq": 128, "batch": 64, "vocab": 10000},
        {"hidden": 16, "seq": 8, "batch": 2, "vocab": 32},
    ),
    "dlrm": Workload(
        dlrm,
        {"tables": 16, "rows": 200_000, "width": 128, "dense": 13, "batch": 8192, "pooled": 10},
        {"tables": 3, "rows": 50, "width": 8, "dense": 4, "batch": 8, "pooled": 3},
    ),
    "moe": a_gpt(moe, {"experts": 4}, experts=8, layers=4, vocab=32000),
    "unet": Workload(
        unet, {"width": 64, "image": 128, "batch": 32}, {"width": 8, "image": 16, "batch": 2}
    ),
    "gpt-inference": a_gpt(
        gpt_inference, {"generated": 4}, layers=12, seq=512, batch=8, generated=16
    ),
    "gpt-checkpoint": a_gpt(recompute=True),
    "gpt-sgd": a_gpt(layers=12, optimizer="sgd"),
    "gpt-mini": Workload(gpt, MINI_GPT, MINI_GPT),  # a CPU has a step of it in some 50 ms
    "mlp-graph": Workload(
        mlp_graph,
        {"layers": 12, "width": 4096, "batch": 2048},
        {"layers": 3, "width": 16, "batch": 4},
    ),
    "resnet-eval": Workload(
        resnet_eval,
        {"width": 64, "depths": [3, 4, 6, 3], "classes": 1000, "image": 224, "batch": 128},
        {"width": 8, "depths": [1, 1], "classes": 10, "image": 32, "batch": 2},
    ),
    "gpt-flash-mask": a_gpt(masked=True, dropout=0.1),
    "ddp1": a_gpt(ddp1),
    "gpt-compiled": a_gpt(compiled=True),
    "gpt-compiled-files": a_gpt(compiled=True),
}


def wait_for_device() -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def timed(step: Step, number: int) -> tuple[float, list[float]]:
    """Milliseconds a step by the host's clock, and of each by the device's (if it has one)."""
    if device != "cuda":
        moments = [time.perf_counter()]
        for _ in range(number):
            step()
            moments.append(time.perf_counter())
        each = [(b - a) * 1e3 for a, b in itertools.pairwise(moments)]
        return statistics.fmean(each), each
    return timed_on_device(step, number)


def power_of(step: Step) -> list[str]:
    """What nvidia-smi says, ten times a second, while steps run."""
    if device != "cuda" or not shutil.which("nvidia-smi"):
        return []
    columns = "--query-gpu=power.draw,utilization.gpu,utilization.memory,clocks.sm"
    watching = subprocess.Popen(
        ["nvidia-smi", columns, "--format=csv,noheader,nounits", "-lms", "100"],
        stdout=subprocess.PIPE,
        text=True,
    )
    end = time.perf_counter() + POWER_SECONDS
    while time.perf_counter() < end:
        for _ in range(5):  # few at a time: a graph's replays queue without bound
            step()
        torch.cuda.synchronize()
    watching.terminate()
    said = watching.communicate()[0].splitlines()
    return [line.strip() for line in said][5:]  # the first come before the clocks have risen


def record_kineto(step: Step, trace: Path) -> None:
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities,
        record_shapes=True,
        schedule=profiler_schedule(wait=1, warmup=2, active=3),
        on_trace_ready=lambda p: p.export_chrome_trace(str(trace)),
    ) as profiler:
        for _ in range(6):
            step()
            profiler.step()
    wait_for_device()


def record_execution_trace(step: Step, observer: ExecutionTraceObserver, compiled: bool) -> None:
    """One step; compiled kernels describe themselves only to a profiler that records shapes."""
    profiler = profile(activities=[ProfilerActivity.CPU], record_shapes=True) if compiled else None
    with profiler or contextlib.nullcontext():
        observer.start()
        step()
        wait_for_device()
        observer.stop()


def keep_kernel_files(trace: Path, resources: Path) -> dict[str, Any]:
    """Adds the kernels that the observer left out; how many the trace names, and those not found.

    The observer copies the modules that this process has loaded; a kernel that a compile worker
    built is in the compiler's cache alone.
    """
    nodes = json.loads(trace.read_text())["nodes"]
    named = {
        str(attribute["value"])
        for node in nodes
        for attribute in node.get("attrs", [])
        if attribute["name"] == "kernel_file" and attribute["value"]
    }
    missing = {n for n in named if not (resources / Path(n).name).exists()}
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    cached = {path.name: path for path in Path(cache_dir()).rglob("*.py")}
    nowhere = []
    for name in sorted(missing):
        source = Path(name) if Path(name).is_file() else cached.get(Path(name).name)
        if source is None:
            nowhere.append(name)
        else:
            shutil.copyfile(source, resources / source.name)
    return {"named": len(named), "missing": nowhere}


def pack(plain: Path) -> None:
    with plain.open("rb") as source, gzip.open(f"{plain}.gz", "wb", 9) as packed:
        shutil.copyfileobj(source, packed)
    plain.unlink()


def collect(folder: Path, name: str, small: bool) -> None:
    """Times a workload, then profiles it, then traces its operators."""
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    workload = WORKLOADS[name]
    sizes = workload.small if small else workload.full
    step, model = workload.build(**sizes)
    for _ in range(WARM_UP):
        step()
    (wall, first), (wall_2, second) = timed(step, TIMED), timed(step, TIMED)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    power = power_of(step)

    folder.mkdir(parents=True)
    kineto, et = folder / "kineto.json", folder / "et.json"
    observer = ExecutionTraceObserver()
    observer.register_callback(str(et))
    with_files = name.endswith("-files")
    if with_files:
        observer.set_extra_resource_collection(True)
    record_kineto(step, kineto)
    record_execution_trace(step, observer, workload.compiled)
    observer.unregister_callback()
    kernels = keep_kernel_files(et, folder / "et_resources") if with_files else None
    pack(kineto)
    pack(et)
    meta = {
        "name": name, "torch": torch.__version__, "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "configuration": sizes, "params": sum(p.numel() for p in model.parameters()),
        "step_ms_wall": wall, "step_ms_wall_2": wall_2,
        "step_ms_event": first, "step_ms_event_2": second,
        "step_ms_median": statistics.median(first + second), "peak_bytes": peak,
        "smi_columns": "power W, gpu util %, mem util %, sm MHz", "smi": power,
        "et_under_profiler": workload.compiled, "kernel_files": kernels,
    }  # fmt: skip
    (folder / "meta.json").write_text(json.dumps(meta))
    kib = {path.name: path.stat().st_size >> 10 for path in folder.iterdir() if path.is_file()}
    held = f"{peak / 2**30:.2f} GiB" if peak is not None else "-"
    print(
        f"{name:20} {meta['step_ms_median']:9.3f} ms (wall {wall:.3f}) {held}  KiB {kib}",
        flush=True,
    )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def collect_apart(arguments: argparse.Namespace, name: str) -> str:
    """Collects one workload in a process of its own; returns what went wrong, or nothing."""
    target = arguments.out / name
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, __file__, str(arguments.out), name, "--inside"]
    command += ["--device", arguments.device, *(["--small"] if arguments.small else [])]
    # A group of its own, so that compile workers and nvidia-smi end with it.
    child = subprocess.Popen(command, preexec_fn=os.setpgrp)
    try:
        status = child.wait(arguments.timeout)
        problem = f"exit status {status}" if status else ""
    except subprocess.TimeoutExpired:
        status, problem = None, f"longer than {arguments.timeout:g} s"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if status != 0:
        shutil.rmtree(target, ignore_errors=True)
    if status == NOT_HERE:
        return ""
    return problem


def main() -> int:
    """Collects what is asked for, a process each."""
    global device
    parser = argparse.ArgumentParser(description="Records steps of models of many kinds.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", choices=[*WORKLOADS, []], metavar="NAME")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a trial")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each workload")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_intermixed_args()
    device = arguments.device
    if arguments.inside:
        (name,) = arguments.names
        try:
            collect(arguments.out / name, name, arguments.small)
        except NotHere as reason:
            print(f"{name:20} skipped: {reason}", flush=True)
            return NOT_HERE
        return 0
    failed = 0
    for name in arguments.names or WORKLOADS:
        begun = time.perf_counter()
        problem = collect_apart(arguments, name)
        if problem:
            failed += 1
            took = time.perf_counter() - begun
            print(f"{name:20} FAILED after {took:.0f} s: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
