"""Latency of the next window from the past ones and a candidate allocation: small networks.

The convolutional network of Sinan (Zhang et al., ASPLOS 2021, section 4.1) for any number of
tiers, and the multilayer perceptron and LSTM that it was compared with. Latencies are relative to
their bounds, so that 1 is where an SLA breaks.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError, MissingExtra
from gnomon.table.atomic import atomic_file

Singles = NDArray[np.float32]
Kind = Literal["cnn", "mlp", "lstm"]

#: Applications with fewer tiers get the smaller network, as Hotel Reservation does in the paper.
_MANY_TIERS = 20
#: Normalised inputs are held within this many standard deviations of what was trained on.
_FARTHEST = 6.0


class NetShape(msgspec.Struct, frozen=True):
    """Sizes of the inputs and of the answer.

    Attributes:
        tiers: Services.
        options: Numbers that describe a candidate.
        channels: Measurements of a tier in a window.
        windows: How many of the past are looked at.
        percentiles: Of latency, in the history and in the answer.
    """

    tiers: int
    options: int
    channels: int = 6
    windows: int = 5
    percentiles: int = 5

    def __post_init__(self) -> None:
        if min(msgspec.structs.astuple(self)) < 1 or max(msgspec.structs.astuple(self)) > 10**6:
            raise InputError(f"no network has such a shape: {self}")

    @property
    def width(self) -> int:
        """Of dense layers; the latent vector has twice as many numbers."""
        return 32 if self.tiers >= _MANY_TIERS else 16


class Inputs(NamedTuple):
    """What a prediction starts from; the first axis is the sample.

    Attributes:
        usage: Samples x channels x tiers x windows.
        latency: Samples x percentiles x windows.
        candidate: Samples x options.
    """

    usage: Singles
    latency: Singles
    candidate: Singles

    def take(self, rows: Any) -> Inputs:
        return Inputs(*(part[rows] for part in self))


class FitOptions(msgspec.Struct, frozen=True):
    """How a network is trained.

    Attributes:
        knee: Errors past this latency over its bound count less (phi of the paper).
        alpha: How much less: 0.01 per ms for a bound of 500 ms in the paper.
    """

    epochs: int = 12
    batch: int = 256
    learning_rate: float = 2e-3
    optimiser: Literal["adam", "sgd"] = "adam"
    weight_decay: float = 1e-4
    knee: float = 1.01
    alpha: float = 5.0

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2 or not 0 < self.learning_rate < 10:
            raise InputError("training takes an epoch or more, batches of two or more, a rate")


def squeeze(x: Any, knee: float = 1.01, alpha: float = 5.0) -> Any:
    """x up to the knee, then ever less: the paper's phi, of an array or a tensor.

    >>> [round(float(one), 3) for one in squeeze(np.array([0.5, 1.01, 2.01, 1e9]))]
    [0.5, 1.01, 1.177, 1.21]
    """
    over = (x - knee).clip(0.0)
    return x.clip(max=knee) + over / (1.0 + alpha * over)


class LatencyNet:
    """A network in two halves: one looks at the history, the other at a candidate.

    >>> net = LatencyNet(NetShape(tiers=3, options=3), seed=1)
    >>> rng = np.random.default_rng(0)
    >>> past = Inputs(*(rng.random(s, np.float32) for s in [(1, 6, 3, 5), (1, 5, 5), (7, 3)]))
    >>> latency, latent = net.predict_candidates(past)
    >>> latency.shape, latent.shape
    ((7, 5), (7, 32))
    """

    def __init__(self, shape: NetShape, kind: Kind = "cnn", *, seed: int = 0) -> None:
        torch = _torch()
        self.shape, self.kind = shape, kind
        self.latent_size = 2 * shape.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._parts = torch.nn.ModuleDict(_parts(torch.nn, shape, kind)).eval()
        sizes = {"usage": (shape.channels, shape.tiers), "latency": (shape.percentiles,),
                 "candidate": (shape.options,)}  # fmt: skip
        self._centre = {name: torch.zeros(size) for name, size in sizes.items()}
        self._spread = {name: torch.ones(size) for name, size in sizes.items()}

    @property
    def parameters(self) -> int:
        return sum(one.numel() for one in self._parts.parameters())

    def copy(self) -> Self:
        return copy.deepcopy(self)

    def fit(
        self, inputs: Inputs, latency: Singles, *, options: FitOptions | None = None,
        seed: int = 0, keep_scale: bool = False,
        on_epoch: Callable[[int, float], None] | None = None,
    ) -> Self:  # fmt: skip
        """Trains on samples; what it knew before is where it starts from.

        Args:
            inputs: What was seen.
            latency: Of the next window: samples x percentiles, over the bounds.
            seed: Of the order of samples.
            keep_scale: Normalise as before, for fine tuning.
            on_epoch: Called with the number of the epoch and its mean loss.
        """
        torch, options = _torch(), options or FitOptions()
        self._check(inputs)
        if len(latency) != len(inputs.usage) or len(latency) < 2:
            raise InputError(f"{len(latency)} samples to train on")
        with _one_thread(torch):
            if not keep_scale:
                self._set_scale(inputs)
            parts = self._scaled(inputs)
            wanted = squeeze(torch.from_numpy(latency), options.knee, options.alpha)
            # Fine tuning keeps the statistics of batch norm: those of few samples say little.
            self._parts.train(not keep_scale)
            loss = self._descend(torch, parts, wanted, options, seed, on_epoch)
            self._parts.eval()
        if not np.isfinite(loss):
            raise InputError("training diverged", hint="use a smaller learning rate")
        return self

    def _descend(
        self, torch: Any, parts: list[Any], wanted: Any, options: FitOptions, seed: int,
        on_epoch: Callable[[int, float], None] | None,
    ) -> float:  # fmt: skip
        weights = list(self._parts.parameters())
        if options.optimiser == "adam":
            stepper = torch.optim.AdamW(weights, options.learning_rate,
                                        weight_decay=options.weight_decay)  # fmt: skip
        else:
            stepper = torch.optim.SGD(weights, options.learning_rate, momentum=0.9,
                                      weight_decay=options.weight_decay)  # fmt: skip
        count = len(wanted)
        batches = max(1, count // options.batch)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            stepper, options.learning_rate, total_steps=options.epochs * batches + 1
        )
        rng = np.random.default_rng([seed, 0xF17])
        loss = 0.0
        for epoch in range(options.epochs):
            total = 0.0
            for rows in np.array_split(rng.permutation(count), batches):
                picked = torch.from_numpy(rows)
                answer = self._forward(*(part[picked] for part in parts))[0]
                error = squeeze(answer, options.knee, options.alpha) - wanted[picked]
                # Squeezing flattens the loss past the knee; a thousandth of the plain error
                # brings answers back that have strayed there.
                each = error.square().mean() + 1e-3 * (answer - wanted[picked]).abs().mean()
                stepper.zero_grad()
                each.backward()
                stepper.step()
                schedule.step()
                total += float(each.detach())
            loss = total / batches
            if on_epoch is not None:
                on_epoch(epoch + 1, loss)
        return loss

    def predict(self, inputs: Inputs) -> tuple[Singles, Singles]:
        """Latency over its bound and latent vector of every sample."""
        torch = _torch()
        self._check(inputs)
        found = []
        with _one_thread(torch), torch.inference_mode():
            for start in range(0, len(inputs.usage), 4096):
                parts = self._scaled(inputs.take(slice(start, start + 4096)))
                found.append([one.numpy() for one in self._forward(*parts)])
        if not found:
            sizes = (self.shape.percentiles, self.latent_size)
            return np.empty((0, sizes[0]), np.float32), np.empty((0, sizes[1]), np.float32)
        latency, latent = (np.concatenate(part) for part in zip(*found))
        return latency, latent

    def predict_candidates(self, inputs: Inputs) -> tuple[Singles, Singles]:
        """The same for one history and many candidates; the history is looked at once."""
        torch = _torch()
        self._check(inputs, is_shared=True)
        with _one_thread(torch), torch.inference_mode():
            usage, latency, candidate = self._scaled(inputs)
            past = self._past(usage, latency).expand(len(candidate), -1)
            answer, latent = self._head(past, candidate)
            return answer.numpy(), latent.numpy()

    def _forward(self, usage: Any, latency: Any, candidate: Any) -> tuple[Any, Any]:
        return self._head(self._past(usage, latency), candidate)

    def _past(self, usage: Any, latency: Any) -> Any:
        parts, torch = self._parts, _torch()
        if self.kind == "lstm":
            steps = torch.cat([usage.flatten(1, 2), latency], dim=1).transpose(1, 2)
            return parts["join"](parts["steps"](steps)[0][:, -1])
        seen = parts["usage"](usage if self.kind == "cnn" else usage.flatten(1))
        return parts["join"](torch.cat([seen, parts["latency"](latency.flatten(1))], dim=1))

    def _head(self, past: Any, candidate: Any) -> tuple[Any, Any]:
        latent = _torch().cat([past, self._parts["candidate"](candidate)], dim=1)
        return self._parts["head"](latent), latent

    def _check(self, inputs: Inputs, *, is_shared: bool = False) -> None:
        shape, count = self.shape, len(inputs.candidate)
        past = 1 if is_shared else count
        wanted = ((past, shape.channels, shape.tiers, shape.windows),
                  (past, shape.percentiles, shape.windows), (count, shape.options))  # fmt: skip
        if tuple(part.shape for part in inputs) != wanted:
            shapes = ", ".join(str(part.shape) for part in inputs)
            raise InputError(f"inputs of shapes {shapes} for a network of {shape}")

    def _set_scale(self, inputs: Inputs) -> None:
        torch = _torch()
        axes = {"usage": (0, 3), "latency": (0, 2), "candidate": (0,)}
        for name, part in inputs._asdict().items():
            values = torch.from_numpy(part)
            self._centre[name] = values.mean(dim=axes[name])
            # What never changed in training says nothing; a spread of one leaves it at zero.
            spread = values.std(dim=axes[name], correction=0)
            self._spread[name] = torch.where(spread > 1e-4, spread, torch.ones_like(spread))

    def _scaled(self, inputs: Inputs) -> list[Any]:
        torch, scaled = _torch(), []
        for name, part in inputs._asdict().items():
            values = torch.from_numpy(np.ascontiguousarray(part, np.float32))
            extra = (...,) if name == "candidate" else (..., None)
            values = (values - self._centre[name][extra]) / self._spread[name][extra]
            scaled.append(values.clip(-_FARTHEST, _FARTHEST))
        return scaled

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes weights and normalisation."""
        with atomic_file(path) as file:
            _torch().save(
                {"kind": self.kind, "shape": msgspec.structs.asdict(self.shape),
                 "weights": self._parts.state_dict(), "centre": self._centre,
                 "spread": self._spread}, file,
            )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads what `save` wrote; nothing in the file is run."""
        torch, where = _torch(), os.fspath(path)
        try:
            file = io.BytesIO(Path(path).read_bytes())
        except OSError as error:
            raise InputError(error.strerror or str(error), where=where) from None
        try:
            kept = torch.load(file, map_location="cpu", weights_only=True)
            net = cls(
                msgspec.convert(kept["shape"], NetShape), msgspec.convert(kept["kind"], Kind)
            )
            net._parts.load_state_dict(kept["weights"])
            for mine, read in ((net._centre, kept["centre"]), (net._spread, kept["spread"])):
                for name, values in mine.items():
                    values.copy_(read[name])
        except Exception as error:  # torch raises many kinds for a broken file
            what = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"holds no network: {what[:100]}", where=where) from None
        return net


def _parts(nn: Any, shape: NetShape, kind: Kind) -> dict[str, Any]:
    """The layers; each with batch norm and ReLU, as in the authors' program."""
    width, latency_size = shape.width, shape.percentiles * shape.windows
    usage_size = shape.channels * shape.tiers * shape.windows
    shared = {
        "candidate": nn.Sequential(
            *_dense(nn, shape.options, width, bias=False), *_dense(nn, width, width, bias=False)
        ),
        "head": nn.Sequential(
            *_dense(nn, 2 * width, 2 * width), nn.Linear(2 * width, shape.percentiles)
        ),
    }
    if kind == "lstm":
        steps = nn.LSTM(shape.channels * shape.tiers + shape.percentiles, 4 * width,
                        batch_first=True)  # fmt: skip
        return shared | {"steps": steps, "join": nn.Sequential(*_dense(nn, 4 * width, width))}
    join = nn.Sequential(*_dense(nn, 2 * width, width), *_dense(nn, width, width))
    latency = nn.Sequential(*_dense(nn, latency_size, width))
    if kind == "mlp":
        usage = nn.Sequential(
            *_dense(nn, usage_size, 16 * width), *_dense(nn, 16 * width, 8 * width),
            *_dense(nn, 8 * width, width),
        )  # fmt: skip
    else:
        usage = nn.Sequential(*_convolutions(nn, shape), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                              *_dense(nn, width, width))  # fmt: skip
    return shared | {"usage": usage, "latency": latency, "join": join}


def _convolutions(nn: Any, shape: NetShape) -> list[Any]:
    """Over tiers and windows; padded along tiers so that a single tier fits."""

    def block(before: int, after: int, size: tuple[int, int], **how: Any) -> list[Any]:
        convolution = nn.Conv2d(before, after, size, bias=False, **how)
        return [convolution, nn.BatchNorm2d(after), nn.ReLU()]

    most = shape.width
    layers = [*block(shape.channels, 16, (1, 1)), *block(16, 16, (3, 3), padding=(2, 2)),
              *block(16, 16, (4, 3), stride=(2, 1), padding=(1, 0))]  # fmt: skip
    if shape.tiers < _MANY_TIERS:
        return [*layers, *block(16, most, (3, 3), padding=(1, 1))]
    return [*layers, *block(16, 16, (3, 3), padding=(1, 1)),
            *block(16, most, (3, 3), stride=(2, 1), padding=(1, 0)),
            *block(most, most, (3, 3), padding=(1, 1))]  # fmt: skip


def _dense(nn: Any, before: int, after: int, *, bias: bool = True) -> list[Any]:
    return [nn.Linear(before, after, bias=bias), nn.BatchNorm1d(after), nn.ReLU()]


@contextlib.contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    """More threads cost more than they bring at these sizes, and their sums would differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "learn", "latency networks") from None
    return torch
