"""Which tier a prediction hangs on: a linear model of it on perturbed inputs (LIME).

Section 5.6 of Sinan (Zhang et al., ASPLOS 2021) found a store's snapshots as the cause of latency
spikes in this way.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.services.sinan_model import JUDGED, PAST, History, SinanModel
from gnomon.errors import InputError
from gnomon.model.latency_net import Inputs

Floats = NDArray[np.float64]

#: Perturbations are log-normal with this spread; the kernel is as wide as a typical distance.
_SPREAD = 0.2
#: Penalty of the regression, relative to what its data weigh.
_RIDGE = 0.01


class Influence(NamedTuple):
    """How the predicted p99 over its bound changes if one number grows by a tenth."""

    service: str
    what: Literal["limit", "usage"]
    change: float


def explain(
    model: SinanModel, history: History, limits: Floats, *, samples: int = 500, seed: int = 0
) -> list[Influence]:
    """What matters for one prediction, the greatest influence first.

    Limits and usage of the past windows are perturbed with those of the candidate, by tier; the
    answers are fitted by a ridge regression that weighs samples by how near they are.

    Args:
        history: PAST windows or more.
        limits: The allocation that is asked about.
    """
    services = model.card.subject.services
    if len(history) < PAST or limits.shape != (len(services),):
        raise InputError(f"an explanation needs {PAST} windows and a limit for each service")
    rng = np.random.default_rng([seed, 0x11E])
    changes = rng.normal(0.0, _SPREAD, (samples, 2 * len(services)))
    # Each sample changes some tiers only, so that influences can be separated.
    changes *= rng.random(changes.shape) < 0.3
    parts = [_perturbed(model, history, limits, change) for change in changes]
    inputs = Inputs(*(np.concatenate(part) for part in zip(*parts)))
    answers = model.net.predict(inputs)[0][:, JUDGED].astype(float)
    slopes = _ridge(changes, answers)
    names = [(service, "limit") for service in services] + [(one, "usage") for one in services]
    found = [
        Influence(service, "limit" if what == "limit" else "usage", float(slope * np.log(1.1)))
        for (service, what), slope in zip(names, slopes)
    ]
    return sorted(found, key=lambda one: -abs(one.change))


def _perturbed(model: SinanModel, history: History, limits: Floats, change: Floats) -> Inputs:
    of_limit, of_usage = np.exp(np.split(change, 2))
    moved = msgspec.structs.replace(
        history, limit=history.limit * of_limit, usage=history.usage * of_usage,
        peak=history.peak * of_usage,
    )  # fmt: skip
    return model.inputs(moved, moved.candidates((limits * of_limit)[None]))


def _ridge(changes: Floats, answers: Floats) -> Floats:
    distance = np.linalg.norm(changes, axis=1)
    weight = np.exp(-((distance / max(float(np.median(distance)), 1e-9)) ** 2))
    centred = changes - np.average(changes, axis=0, weights=weight)
    wanted = answers - np.average(answers, weights=weight)
    weighted = (centred * weight[:, None]).T
    gram = weighted @ centred
    gram += _RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
    return np.asarray(np.linalg.solve(gram, weighted @ wanted))
