"""Training Sinan's models, measuring them, and adapting them to a changed deployment."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.services.sinan_model import JUDGED, Card, Metrics, SinanModel, Singles
from gnomon.errors import InputError
from gnomon.model.latency_net import FitOptions, Kind, LatencyNet, NetShape, squeeze
from gnomon.model.trees import TreeOptions, Trees
from gnomon.systems.services.sinan.dataset import Dataset, Split, split

Floats = NDArray[np.float64]

#: Past this latency over its bound the bandit recovers, and errors say little.
_REGION = 1.2
#: Of all windows: violations that may be missed by the threshold of holds and growth (the
#: paper's rule), and by the stricter one of reductions.
_MISSED_UP, _MISSED_DOWN = 0.01, 0.004
_LEAST_SAMPLES, _LEAST_VIOLATIONS = 100, 10
_GREATEST = 0.25


class TrainOptions(msgspec.Struct, frozen=True):
    """How the pair of models is trained; `compares` trains the random split and other nets too."""

    net: FitOptions = FitOptions()
    trees: TreeOptions = TreeOptions()
    compares: bool = False
    seed: int = 0


class _Fitted(NamedTuple):
    net: LatencyNet
    trees: Trees
    metrics: Metrics
    chance: Floats


Report = Callable[[str], None]


def train(
    data: Dataset, *, options: TrainOptions | None = None, report: Report | None = None
) -> SinanModel:
    """The network, then trees on its latent vectors, then the thresholds of the scheduler.

    The model is that of the split by run. With `compares`, the metrics of a random split and of
    the other nets are kept beside.
    """
    options = options or TrainOptions()
    rows = split(data, "run", seed=options.seed)
    _check_enough(data, rows)
    fitted = _fit(data, rows, "cnn", options, report)
    metrics = {"run": fitted.metrics}
    if options.compares:
        others: list[tuple[str, Literal["run", "random"], Kind]] = [
            ("random", "random", "cnn"), ("mlp", "run", "mlp"), ("mlp random", "random", "mlp"),
            ("lstm", "run", "lstm"), ("lstm random", "random", "lstm"),
        ]  # fmt: skip
        for name, by, kind in others:
            chosen = split(data, by, seed=options.seed)
            metrics[name] = _fit(data, chosen, kind, options, report).metrics
    return SinanModel(
        _card(data, fitted, rows, metrics, len(rows.train)), fitted.net, fitted.trees
    )


def fine_tune(
    model: SinanModel, data: Dataset, samples: int | None = None, *, epochs: int = 5,
    learning_rate: float = 2e-4, seed: int = 0,
) -> SinanModel:  # fmt: skip
    """The model, adapted to new data of the same services by a small learning rate.

    Section 5.4 of the paper: weights move little, new trees are added to the old. The thresholds
    are set again by a tenth of the windows, unless too few of them violate an SLA.

    Args:
        samples: Only so many of the new ones, evenly spread.
    """
    data.subject.check(model.card.subject, "new data")
    count = len(data) if samples is None else min(samples, len(data))
    if count < 20:
        raise InputError(f"{count} samples are too few to adapt a model to")
    # Spread over all loads: the first samples are of one run.
    kept = np.linspace(0, len(data) - 1, count).astype(np.int64)
    is_held = np.arange(count) % 10 == 9
    rows = Split(kept[~is_held], kept[is_held])
    options = FitOptions(epochs=epochs, learning_rate=learning_rate, batch=64)
    part = data.take(rows.train)
    net = model.net.copy().fit(part.inputs, part.latency, options=options, seed=seed,
                               keep_scale=True)  # fmt: skip
    trees = _fit_trees(net, data, rows, TreeOptions(rounds=60, patience=10), seed, model.trees)
    fitted = _measure(net, trees, data, rows)
    metrics = {**model.card.metrics, "tuned": fitted.metrics}
    card = _card(data, fitted, rows, metrics, model.card.samples + count)
    if np.count_nonzero(data.is_violated[rows.check]) < _LEAST_VIOLATIONS:
        card = msgspec.structs.replace(card, p_down=model.card.p_down, p_up=model.card.p_up)
    return SinanModel(card, net, trees)


class CurvePoint(NamedTuple):
    """How well a model does after so many new samples."""

    samples: int
    metrics: Metrics


def learning_curve(
    model: SinanModel, data: Dataset, sizes: Sequence[int], *, seed: int = 0
) -> list[CurvePoint]:
    """Fine tuning with ever more samples, measured on the last quarter of the data."""
    edge = 3 * len(data) // 4
    held = Split(np.arange(edge), np.arange(edge, len(data)))
    points = []
    for size in sizes:
        tuned = (
            model if size == 0 else fine_tune(model, data.take(slice(0, edge)), size, seed=seed)
        )
        points.append(CurvePoint(size, _measure(tuned.net, tuned.trees, data, held).metrics))
    return points


def evaluate(model: SinanModel, data: Dataset) -> Metrics:
    """How well a model does on data that it has not seen."""
    data.subject.check(model.card.subject, "data")
    rows = np.arange(len(data))
    return _measure(model.net, model.trees, data, Split(rows[:0], rows)).metrics


def _check_enough(data: Dataset, rows: Split) -> None:
    if len(rows.train) < _LEAST_SAMPLES:
        raise InputError(f"{len(rows.train)} samples are too few to train on",
                         hint="collect for longer")  # fmt: skip
    share = float(data.is_violated[rows.train].mean())
    if not 0 < share < 1:
        what = "every window violates an SLA" if share else "no window violates an SLA"
        raise InputError(f"{what}: there is no border to learn",
                         hint="collect at other loads or for longer")  # fmt: skip


def _fit(
    data: Dataset, rows: Split, kind: Kind, options: TrainOptions, report: Report | None
) -> _Fitted:
    tiers, wide = len(data.subject.services), data.inputs.candidate.shape[1]
    part = data.take(rows.train)
    net = LatencyNet(NetShape(tiers, wide), kind, seed=options.seed)

    def say(epoch: int, loss: float) -> None:
        if report is not None:
            report(f"{kind}: epoch {epoch} of {options.net.epochs}, loss {loss:.5f}")

    net.fit(part.inputs, part.latency, options=options.net, seed=options.seed, on_epoch=say)
    trees = _fit_trees(net, data, rows, options.trees, options.seed)
    if report is not None:
        report(f"{kind}: {trees.count} trees")
    return _measure(net, trees, data, rows)


def _fit_trees(
    net: LatencyNet, data: Dataset, rows: Split, options: TreeOptions, seed: int,
    before: Trees | None = None,
) -> Trees:  # fmt: skip
    train, check = data.take(rows.train), data.take(rows.check)
    # More CPU never makes a violation likelier; data alone would not say so where it is thin.
    falls = [0] * net.latent_size + [-1] * data.steady.shape[1]
    return Trees.fit(
        _tree_features(net, train), train.is_violated, _tree_features(net, check),
        check.is_violated, options=options, seed=seed, before=before, monotone=falls,
    )  # fmt: skip


def _tree_features(net: LatencyNet, data: Dataset) -> Singles:
    return np.concatenate([net.predict(data.inputs)[1], data.steady], axis=1)


def _measure(net: LatencyNet, trees: Trees, data: Dataset, rows: Split) -> _Fitted:
    check = data.take(rows.check)
    answer, latent = net.predict(check.inputs)
    chance = trees.predict(np.concatenate([latent, check.steady], axis=1))
    error = squeeze(answer) - squeeze(check.latency)
    near = check.latency[:, JUDGED] <= _REGION
    says, is_so = chance > 0.5, check.is_violated
    metrics = Metrics(
        rmse=float(np.sqrt(np.mean(error**2))),
        rmse_p99=float(np.sqrt(np.mean(error[near, JUDGED] ** 2))) if near.any() else 0.0,
        accuracy_pct=100.0 * float(np.mean(says == is_so)),
        false_positive_pct=100.0 * float(np.mean(says & ~is_so)),
        false_negative_pct=100.0 * float(np.mean(~says & is_so)),
        majority_pct=100.0 * max(float(is_so.mean()), 1.0 - float(is_so.mean())),
        auc=ranked_above(chance, is_so),
    )  # fmt: skip
    return _Fitted(net, trees, metrics, chance)


def _card(
    data: Dataset, fitted: _Fitted, rows: Split, metrics: dict[str, Metrics], samples: int
) -> Card:
    is_so = data.is_violated[rows.check]
    p_up = threshold(fitted.chance, is_so, _MISSED_UP)
    p_down = min(threshold(fitted.chance, is_so, _MISSED_DOWN), p_up)
    names = ("gnomon", "torch", "lightgbm", "numpy")
    return Card(
        application=data.application, subject=data.subject, margin=fitted.metrics.rmse_p99,
        p_down=p_down, p_up=p_up, samples=samples, metrics=metrics,
        versions={name: importlib.metadata.version(name) for name in names},
        fingerprint=data.subject.fingerprint,
    )  # fmt: skip


def ranked_above(chance: Floats, is_so: NDArray[np.bool_]) -> float:
    """The chance that a yes is ranked above a no: the area under the ROC curve.

    >>> ranked_above(np.array([0.1, 0.3, 0.3, 0.9]), np.array([False, False, True, True]))
    0.875
    """
    yes, no = chance[is_so], np.sort(chance[~is_so])
    if not len(yes) or not len(no):
        return 0.5
    below = np.searchsorted(no, yes, side="left") + np.searchsorted(no, yes, side="right")
    return float(below.mean()) / (2 * len(no))


def threshold(chance: Floats, is_so: NDArray[np.bool_], missed: float) -> float:
    """The greatest threshold under which violations are at most a share of all samples.

    It is a quarter at most, that of the paper for holds in Social Network.

    >>> threshold(np.array([0.1, 0.15, 0.2, 0.9]), np.array([False, True, True, True]), 0.25)
    0.2
    """
    allowed = int(missed * len(chance) + 1e-9)
    found = np.sort(chance[is_so])
    return min(float(found[allowed]), _GREATEST) if allowed < len(found) else _GREATEST
