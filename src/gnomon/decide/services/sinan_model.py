"""What Sinan's models see of an application, and a trained pair of them as its manager asks it.

The features here are those of training and of every decision, so that both see the same numbers.
Sinan: Zhang et al., ASPLOS 2021.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.services.policy import current_limit
from gnomon.decide.services.state import PERCENTILES, Floats, Window
from gnomon.errors import InputError
from gnomon.graph.application import Application
from gnomon.model.latency_net import Inputs, LatencyNet
from gnomon.model.trees import Trees

Singles = NDArray[np.float32]

#: Windows that a prediction looks back on.
PAST = 5
#: Percentiles that are predicted, and the place of the one that an SLA is judged by.
PREDICTED, JUDGED = PERCENTILES[1:], PERCENTILES[1:].index(99.0)
#: Rows that give the latencies of the last PAST windows, gaps filled as in training.
KEPT = 2 * PAST - 1
#: What stands for the latency of requests that failed, over its bound.
_FAILED = 2.0
#: Usage under this many cores is noise.
_LEAST_CORES = 2e-3

MODEL_FILE, NET_FILE, TREES_FILE = "model.json", "net.pt", "trees.txt"


class Bound(NamedTuple):
    """The SLA of a class; a bound of inf where it has none."""

    name: str
    bound_ms: float
    percentile: float


class Subject(msgspec.Struct, frozen=True):
    """What a model was made for: columns of data are in this order."""

    services: tuple[str, ...]
    classes: tuple[Bound, ...]

    @classmethod
    def of(cls, app: Application) -> Self:
        """Services and SLAs; what requests cost and how often they come may change."""
        slas = ((name, one.sla) for name, one in app.classes.items())
        bounds = (Bound(name, sla.bound_ms if sla else 0.0, sla.percentile if sla else 99.0)
                  for name, sla in slas)  # fmt: skip
        return cls(tuple(app.services), tuple(bounds))

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    def new_classes(self, other: Subject) -> list[str]:
        """Those that the other lacks, if the services are the same."""
        known = {one.name for one in other.classes}
        lacking = [one.name for one in self.classes if one.name not in known]
        return lacking if self.services == other.services else []

    def check(self, other: Subject, where: str) -> None:
        """Raises an InputError that says what differs."""
        if self.services != other.services:
            strange = sorted({*self.services} ^ {*other.services})
            what = f"{', '.join(strange[:3])}" if strange else "their order"
            raise InputError(f"is for other services: {what}", where=where,
                             hint="collect and train for this application")  # fmt: skip
        if self.classes != other.classes:
            raise InputError("is for other classes or SLAs", where=where,
                             hint="collect and train for this application")  # fmt: skip


class History(msgspec.Struct, frozen=True, eq=False):
    """Windows one after another: the first axis of every column is the window.

    Attributes:
        limit: Of a replica, in cores.
        peak: Cores used in the busiest slice of the window; the mean where there are no slices.
        class_ms: Windows x percentiles x classes.
        class_failed: Failed requests per second.
        class_late: Share of requests over the bound or without an answer.
    """

    limit: Floats
    replicas: Floats
    usage: Floats
    peak: Floats
    queue: Floats
    throttled: Floats
    class_rate: Floats
    class_ms: Floats
    class_failed: Floats
    class_late: Floats

    @classmethod
    def of(cls, app: Application, window: Window) -> Self:
        usage = np.nan_to_num(window.usage)
        slices = np.nan_to_num(window.usage_samples)
        peak = np.maximum(slices.max(axis=0), usage) if len(slices) else usage
        columns = (
            np.maximum(current_limit(app, window), _LEAST_CORES),
            np.maximum(window.replicas, 1).astype(float), usage, peak,
            np.nan_to_num(window.queue), np.nan_to_num(window.throttled),
            np.nan_to_num(window.class_rate), window.class_ms, np.nan_to_num(window.class_errors),
            np.nan_to_num(window.class_violations),
        )  # fmt: skip
        return cls(*(column[None] for column in columns))

    def __len__(self) -> int:
        return len(self.limit)

    def then(self, later: Self) -> Self:
        """These windows and later ones; only as many as predictions need."""
        return self.join([self, later]).last(KEPT)

    def last(self, count: int) -> Self:
        return type(self)(*(getattr(self, name)[-count:] for name in self.__struct_fields__))

    @classmethod
    def join(cls, parts: list[Self]) -> Self:
        columns = ([getattr(part, name) for part in parts] for name in cls.__struct_fields__)
        return cls(*(np.concatenate(column) for column in columns))

    def channels(self) -> Singles:
        """Windows x channels x services: request rate, replicas, limit, usage, queue, throttled.

        The paper has resident memory and page cache in place of the last two; windows hold no
        memory figures. What spans orders of magnitude is a logarithm.
        """
        rate = np.broadcast_to(self.class_rate.sum(axis=1, keepdims=True), self.limit.shape)
        columns = (
            np.log1p(rate), self.replicas, np.log(self.limit),
            np.log(np.maximum(self.usage, _LEAST_CORES)), np.log1p(self.queue), self.throttled,
        )  # fmt: skip
        return np.stack(columns, axis=1).astype(np.float32)

    def ratios(self, classes: tuple[Bound, ...]) -> Singles:
        """Windows x predicted percentiles: the worst class's latency over its bound.

        So one number serves several classes, and 1 is where an SLA breaks. Each class is read at
        the percentile of its SLA in the place of p99, and at no higher one in the other places
        where its SLA is of a lower percentile, such as a median. A class without answers keeps
        its last value for PAST - 1 windows; one of which more fail than the SLA lets be late
        counts as at least twice its bound.
        """
        worst = np.zeros((len(self), len(PREDICTED)))
        for c, (_, bound_ms, percentile) in enumerate(classes):
            if not bound_ms > 0:
                continue
            read = np.array([_read_at(place, percentile) for place in range(len(PREDICTED))])
            ratio = self.class_ms[:, read, c] / bound_ms
            allowed = (1 - percentile / 100) * np.maximum(self.class_rate[:, c], 1e-9)
            is_failing = self.class_failed[:, c] > allowed
            ratio[is_failing] = np.fmax(ratio[is_failing], _FAILED)
            worst = np.fmax(worst, _filled(ratio))
        return worst.astype(np.float32)

    def violated(self, classes: tuple[Bound, ...]) -> NDArray[np.bool_]:
        """Whether more requests of a class were late than its SLA lets be, PAST windows together.

        The paper judges each second by its own p99. Of the classes here some get a few requests a
        second, and one that is late would be a violation whatever is allocated.
        """
        found = np.zeros(len(self), bool)
        for c, (_, bound_ms, percentile) in enumerate(classes):
            if bound_ms > 0:
                count = _summed(self.class_rate[:, c])
                late = _summed(self.class_rate[:, c] * self.class_late[:, c])
                found |= late > (1 - percentile / 100) * count + 1e-9
        return found

    def candidates(self, limits: Floats) -> Singles:
        """Features of allocations after the last window: rows x (4 x services)."""
        back = self.last(PAST)
        return candidate_features(
            limits, back.limit[-1], back.replicas[-1], back.usage.mean(axis=0),
            back.peak.max(axis=0),
        )  # fmt: skip


def candidate_features(
    limits: Floats, now: Floats, replicas: Floats, usage: Floats, peak: Floats
) -> Singles:
    """An allocation in four ways: limit, over mean usage, over peak usage, over the limit now.

    The paper repeats the limit for the four seconds after the next; equal columns teach trees
    nothing, so the four columns of a service say four things here. All are logarithms.
    """
    cores = limits * replicas
    columns = (
        np.log(limits), np.log(cores / np.maximum(usage, _LEAST_CORES)),
        np.log(cores / np.maximum(peak, _LEAST_CORES)), np.log(limits / now),
    )  # fmt: skip
    return np.concatenate(columns, axis=-1).astype(np.float32)


def _read_at(place: int, percentile: float) -> int:
    """Which measured percentile stands in a place of the prediction."""
    wanted = PREDICTED[place]
    if place == JUDGED or percentile > wanted > PREDICTED[JUDGED]:
        wanted = percentile
    elif percentile < PREDICTED[JUDGED]:
        wanted = min(wanted, percentile)
    return min(int(np.searchsorted(PERCENTILES, wanted)), len(PERCENTILES) - 1)


def _summed(values: Floats) -> Floats:
    """Of each row and those before it, PAST in all."""
    total = np.cumsum(values)
    total[PAST:] -= total[:-PAST].copy()
    return total


def _filled(values: Floats) -> Floats:
    """NaN rows take the last value above, at most PAST - 1 rows up."""
    filled = values.copy()
    for back in range(1, min(PAST, len(values))):
        gaps = np.isnan(filled[back:])
        filled[back:][gaps] = values[:-back][gaps]
    return filled


class Metrics(msgspec.Struct, frozen=True):
    """How well models predict windows that they were not trained on.

    Attributes:
        rmse: Of latency over its bound, squeezed as in the loss, all percentiles.
        rmse_p99: Of the judged percentile alone, where it is not past the region of interest.
        accuracy_pct: Of yes or no: a violation within the next windows.
        false_positive_pct: Of all windows; so `false_negative_pct`.
        majority_pct: Accuracy of always giving the more frequent answer.
        auc: The chance that a window before a violation is ranked above one that is not. Where
            violations are rare and partly luck, it says more than accuracy.
    """

    rmse: float
    rmse_p99: float
    accuracy_pct: float
    false_positive_pct: float
    false_negative_pct: float
    majority_pct: float
    auc: float = 0.5


class Card(msgspec.Struct, frozen=True):
    """What `model.json` holds.

    Attributes:
        margin: A prediction has to be this far under 1 to pass.
        p_down: The greatest violation probability of a reduction that passes.
        p_up: Of a hold or growth.
        metrics: By split: `run`, `random`; and by other net: `mlp`, `lstm`.
    """

    application: str
    subject: Subject
    margin: float
    p_down: float
    p_up: float
    samples: int
    metrics: dict[str, Metrics]
    versions: dict[str, str]
    fingerprint: str = ""
    kind: str = "gnomon sinan model"


class Forecast(NamedTuple):
    """For each candidate: latency over its bound at the judged percentile, chance to violate."""

    ratio: Floats
    probability: Floats


class SinanModel:
    """A network for the next window and trees for those after it."""

    def __init__(self, card: Card, net: LatencyNet, trees: Trees) -> None:
        self.card, self.net, self.trees = card, net, trees

    def predict(self, history: History, limits: Floats) -> Forecast:
        """What comes of each allocation (a row of limits); the history is looked at once."""
        candidates = history.candidates(limits)
        ratios, latent = self.net.predict_candidates(self.inputs(history, candidates))
        chance = self.trees.predict(np.concatenate([latent, candidates], axis=1))
        return Forecast(ratios[:, JUDGED].astype(float), chance)

    def inputs(self, history: History, candidates: Singles) -> Inputs:
        channels = history.last(PAST).channels()
        ratios = history.ratios(self.card.subject.classes)[-PAST:]
        return Inputs(channels.transpose(1, 2, 0)[None], ratios.T[None], candidates)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes a model folder; `model.json` comes last, so that half a folder is no model."""
        from gnomon.table.atomic import atomic_file, make_folder

        place = make_folder(folder)
        self.net.save(place / NET_FILE)
        self.trees.save(place / TREES_FILE)
        with atomic_file(place / MODEL_FILE) as file:
            file.write(msgspec.json.format(msgspec.json.encode(self.card)) + b"\n")
        return place


def read_card(folder: str | os.PathLike[str]) -> Card:
    """What a model folder says of itself."""
    path = Path(folder) / MODEL_FILE
    try:
        card = msgspec.json.decode(path.read_bytes(), type=Card)
    except OSError as error:
        raise InputError(f"no model there: {error.strerror}", where=str(path),
                         hint="gnomon services train makes one") from None  # fmt: skip
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is no model: {error}", where=str(path)) from None
    numbers = (card.margin, card.p_down, card.p_up)
    if not all(math.isfinite(one) for one in numbers) or not card.subject.services:
        raise InputError("is no model: its thresholds are no numbers", where=str(path))
    return card


def load_model(folder: str | os.PathLike[str]) -> SinanModel:
    """A model folder; read once in a process, and again when it has changed."""
    path = Path(folder) / MODEL_FILE
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError:
        changed_ns = 0
    return _load(str(Path(folder).resolve()), changed_ns)


@functools.lru_cache(maxsize=8)
def _load(folder: str, changed_ns: int) -> SinanModel:
    card, place = read_card(folder), Path(folder)
    net, trees = LatencyNet.load(place / NET_FILE), Trees.load(place / TREES_FILE)
    tiers = len(card.subject.services)
    if net.shape.tiers != tiers or trees.features != net.latent_size + 4 * tiers:
        raise InputError("its parts do not fit one another", where=folder)
    return SinanModel(card, net, trees)
