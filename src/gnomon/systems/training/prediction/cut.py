"""Cut: a rank's steps taken apart into layers, ends and optimiser, by what repeats in them.

Layers are what comes again back to back and holds an attention (`repeats`). What stands before
the layers of a forward pass is the embedding, what stands after them is the head with its loss;
in a backward pass the other way round. A pipeline's stages hold some of it only.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.systems.training.prediction.repeats import Repeat, find_repeats
from gnomon.systems.training.prediction.units import Phase, Units

__all__ = ["CutRank", "Slot", "Template", "cut_rank", "median_part"]

_MESSAGES = ("send", "recv")
#: Of the half of a layer that follows a run, the share of units that have to do the same.
_ALIKE = 0.8


class Slot(msgspec.Struct, frozen=True, eq=False):
    """One pass of one micro-batch through the layers of a rank: places among its units.

    Attributes:
        step: The step it belongs to.
        is_forward: Forward or backward.
        before, after: What stands before and after the layers, messages to other stages left out.
        layers: The layers, one after the other.
    """

    step: int
    is_forward: bool
    before: NDArray[np.int64]
    layers: tuple[NDArray[np.int64], ...]
    after: NDArray[np.int64]


class CutRank(msgspec.Struct, frozen=True, eq=False):
    """The units of a rank, taken apart.

    Attributes:
        units: The units.
        slots: Passes through the layers.
        optimizer: Units of the optimiser, a row of places a step.
        gradients: Units that exchange gradients.
        steps: The steps that were taken apart.
        layers: How many a rank holds.
        chunks: How many stretches of them (virtual stages) there are.
    """

    units: Units
    slots: tuple[Slot, ...]
    optimizer: tuple[NDArray[np.int64], ...]
    gradients: NDArray[np.int64]
    steps: tuple[int, ...]
    layers: int

    @property
    def micro_batches(self) -> int:
        """Forward passes in a step."""
        return sum(slot.is_forward for slot in self.slots) // max(len(self.steps), 1)

    @property
    def holds_embedding(self) -> bool:
        """Whether the rank is the first of its pipeline."""
        embeds = self.units.is_family("embedding")
        return any(slot.is_forward and embeds[slot.before].any() for slot in self.slots)

    @property
    def holds_head(self) -> bool:
        """Whether the rank is the last of its pipeline: it computes the loss."""
        softmax = self.units.is_family("softmax")
        return any(slot.is_forward and softmax[slot.after].any() for slot in self.slots)

    @property
    def ends_waiting(self) -> bool:
        """Whether the host waits for the device between steps, as to read the loss."""
        first = [int(np.flatnonzero(self.units.step == step)[0]) for step in self.steps[1:]]
        return len(first) > 0 and float(np.mean(self.units.waits[first])) > 0.5

    @property
    def sends(self) -> bool:
        """Whether it exchanges messages with other stages."""
        return bool(_messages(self.units).any())


def cut_rank(units: Units, where: str, steps: Sequence[int] = ()) -> CutRank:
    """Takes the steps of a rank apart.

    Args:
        units: Its units.
        where: The trace, for messages.
        steps: Which steps; all unless given.

    Raises:
        InputError: No layers were found.
    """
    chosen = tuple(steps) or tuple(np.unique(units.step).tolist())
    message = _messages(units)
    gradient = units.is_family("communication") & ~message & (units.phase != Phase.FORWARD)
    if _talks_in_layers(units):
        # Tensor parallelism: what is exchanged inside layers belongs to them.
        gradient &= units.phase == Phase.OPTIMIZER
    slots: list[Slot] = []
    optimizer = []
    for step in chosen:
        places = np.flatnonzero((units.step == step) & ~gradient)
        optimizer.append(places[units.phase[places] == Phase.OPTIMIZER])
        passes = places[units.phase[places] != Phase.OPTIMIZER]
        slots += _slots(units, step, passes, message)
    if not slots:
        raise InputError(
            "no layers that repeat were found in it", where=where,
            hint="predictions need a transformer's training steps, recorded with shapes",
        )  # fmt: skip
    layers = Counter(len(slot.layers) for slot in slots if slot.is_forward)
    held = max(layers, key=lambda n: layers[n]) if layers else 0
    gradients = np.flatnonzero(gradient & np.isin(units.step, chosen))
    return CutRank(units, tuple(slots), tuple(optimizer), gradients, chosen, held)


def _messages(units: Units) -> NDArray[np.bool_]:
    """Messages between two ranks, as a pipeline sends them."""
    talk = units.is_family("communication")
    names = [name.lower() for name in units.name]
    told = np.asarray([any(word in name for word in _MESSAGES) for name in names], bool)
    return np.asarray(talk & told)


def _talks_in_layers(units: Units) -> bool:
    forward = units.is_family("communication") & (units.phase == Phase.FORWARD)
    return bool((forward & ~_messages(units)).any())


def _slots(
    units: Units, step: int, places: NDArray[np.int64], message: NDArray[np.bool_]
) -> list[Slot]:
    anchor = units.is_family("attention")[places]
    if not anchor.any():
        anchor = units.is_family("product")[places]
    found = find_repeats(units.token[places], anchor)
    torn = [_torn_layer(run, places, units, anchor, message) for run in found]
    runs = _with_singles(found, torn, places, units, message)
    if not runs:
        return []
    bounds = _bounds(runs, places, units, message)
    slots = []
    for run, (begin, end) in zip(runs, bounds, strict=True):
        layers = tuple(
            places[run.start + i * run.period : run.start + (i + 1) * run.period]
            for i in range(run.times)
        )
        front, back = torn[found.index(run)] if run in found else (0, 0)
        first, last = run.start - front, run.stop + back
        if front + back:
            layers = (
                np.concatenate([places[first : run.start], places[run.stop : last]]),
                *layers,
            )
        before, after = places[begin:first], places[last:end]
        forward = int((units.phase[np.concatenate(layers)] == Phase.FORWARD).sum())
        slots.append(
            Slot(
                step,
                2 * forward > run.period * run.times,
                before[~message[before]],
                layers,
                after[~message[after]],
            )
        )
    return slots


def _torn_layer(
    run: Repeat,
    places: NDArray[np.int64],
    units: Units,
    anchor: NDArray[np.bool_],
    message: NDArray[np.bool_],
) -> tuple[int, int]:
    """How many units before and after a run make one more layer, in two halves.

    A compiler fuses the first layer's beginning with the embedding, so that what repeats exactly
    starts inside a layer. What kernels do still matches: the end of a layer before the run, and
    the beginning of one after it.
    """
    kind = units.family[places].astype(np.int64) * 3 + units.phase[places]
    kind[message[places]] = -1
    front = 0
    while front < min(run.period - 1, run.start):
        if kind[run.start - 1 - front] != kind[run.start + run.period - 1 - front]:
            break
        front += 1
    back = run.period - front
    if front == 0 or run.stop + back > len(places):
        return 0, 0
    halves = np.r_[run.start - front : run.start, run.stop : run.stop + back]
    if not anchor[halves].any() or (kind[run.stop : run.stop + back] < 0).any():
        return 0, 0
    alike = kind[run.stop : run.stop + back] == kind[run.start : run.start + back]
    return (front, back) if alike.mean() > _ALIKE else (0, 0)


def _with_singles(
    runs: list[Repeat],
    torn: list[tuple[int, int]],
    places: NDArray[np.int64],
    units: Units,
    message: NDArray[np.bool_],
) -> list[Repeat]:
    """Adds layers that stand alone: a stage of one layer has nothing to repeat next to it."""
    covered = np.zeros(len(places), bool)
    for run, (front, back) in zip(runs, torn, strict=True):
        covered[run.start - front : run.stop + back] = True
    attention = np.flatnonzero(units.is_family("attention")[places] & ~covered)
    phase = units.phase[places]
    is_end = units.is_family("embedding", "softmax")[places] | message[places] | covered
    singles: list[Repeat] = []
    for at in attention.tolist():
        if singles and at < singles[-1].stop:
            continue
        start, stop = at, at + 1
        while start > 0 and not is_end[start - 1] and phase[start - 1] == phase[at]:
            start -= 1
        while stop < len(places) and not is_end[stop] and phase[stop] == phase[at]:
            stop += 1
        singles.append(Repeat(start, stop - start, 1))
    return sorted([*runs, *singles])


def _bounds(
    runs: list[Repeat], places: NDArray[np.int64], units: Units, message: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Where each pass begins and ends: where the phase turns, or after a message."""
    cuts = [0]
    for one, other in itertools.pairwise(runs):
        between = np.arange(one.stop, other.start)
        phase = units.phase[places[between]]
        turns = np.flatnonzero(phase != units.phase[places[one.stop - 1]])
        sent = np.flatnonzero(message[places[between]])
        if len(turns):
            cuts.append(one.stop + int(turns[0]))
        elif len(sent):
            cuts.append(one.stop + int(sent[0]) + 1)
        else:
            cuts.append(one.stop)
    cuts.append(len(places))
    return list(itertools.pairwise(cuts))


class Template(msgspec.Struct, frozen=True, eq=False):
    """What is common to many runs of one part.

    Attributes:
        place: A run of it, as places among the units of `rank`.
        rank: The rank that ran it.
        device_ns, host_ns: The median over all runs, a unit each.
        waits: Whether the host waited for the device before a unit, in most runs.
        runs: How many there were.
        like: How many of them were made of the same units.
        spread: Relative standard deviation of the runs' device time.
    """

    place: NDArray[np.int64]
    rank: int
    device_ns: NDArray[np.float64]
    host_ns: NDArray[np.float64]
    waits: NDArray[np.bool_]
    runs: int
    like: int
    spread: float


def median_part(ranks: Sequence[Units], runs: Sequence[tuple[int, NDArray[np.int64]]]) -> Template:
    """The common run of a part: the most frequent make-up, with the median time of each unit.

    Args:
        ranks: The units of each rank.
        runs: Runs of the part: the rank's place in `ranks`, and places among its units.
    """
    if not runs:
        none = np.zeros(0)
        return Template(np.zeros(0, np.int64), 0, none, none, none > 0, 0, 0, 0.0)
    makeup = Counter(_makeup(ranks[rank], place) for rank, place in runs)
    usual = max(makeup, key=lambda key: (makeup[key], len(key)))
    like = [(rank, place) for rank, place in runs if _makeup(ranks[rank], place) == usual]
    device = np.stack([ranks[rank].device_ns[place] for rank, place in like])
    host = np.stack([ranks[rank].host_ns[place] for rank, place in like])
    total = device.sum(axis=1)
    spread = float(total.std() / total.mean()) if total.mean() > 0 else 0.0
    rank, place = like[0]
    middle = np.median(device, axis=0)
    # Medians of the units add up to less than the median of their sum: noise only adds.
    if middle.sum() > 0:
        middle = middle * (np.median(total) / middle.sum())
    waits = np.mean([ranks[rank].waits[place] for rank, place in like], axis=0) > 0.5
    return Template(
        place, rank, middle, np.median(host, axis=0), waits, len(runs), len(like), spread
    )


def _makeup(units: Units, place: NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(_name(units, p) for p in place.tolist())


def _name(units: Units, place: int) -> str:
    event = int(units.like[place])
    return units.trace.name_of(event) if event >= 0 else units.name[place]
