"""Cut: a rank's steps taken apart into layers, ends and optimiser, by what repeats in them.

A step is passes: forward or backward, of one micro-batch, between two messages to other stages.
The layers of a pass are what comes again in it back to back and holds an attention (`repeats`).
What stands before the layers of a forward pass is the embedding, what stands after them is the
head with its loss; in a backward pass the other way round. A pipeline's stages hold some of it
only. What ranks communicate is in none of it: that is put together anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph.column_types import Flags, Floats, Ints
from gnomon.graph.repeats import Repeat, find_repeats
from gnomon.model.accelerator.operator_family import WORK_FAMILIES
from gnomon.systems.training.prediction.recorded.growth import gemm_sizes
from gnomon.systems.training.prediction.recorded.units import Phase, Units

_MESSAGES = ("send", "recv")
#: Of the units of two layers, the share that has to do the same for them to be of one kind.
_ALIKE = 0.8
#: The share of a layer that has to be there for a stretch to be one.
_MOST_OF_IT = 0.6
#: What may follow a layer's last GEMM: it adds, drops out, casts.
_TRAILS = tuple(WORK_FAMILIES.index(family) for family in ("elementwise", "copy", "other"))
_NORMALISATION = WORK_FAMILIES.index("normalisation")
_EMBEDDING = WORK_FAMILIES.index("embedding")


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
    before: Ints
    layers: tuple[Ints, ...]
    after: Ints


class CutRank(msgspec.Struct, frozen=True, eq=False):
    """The units of a rank, taken apart.

    Attributes:
        units: The units.
        slots: Passes through the layers.
        optimizer: Units of the optimiser, a row of places a step.
        gradients: Units that communicate gradients.
        in_layers: Units that communicate inside the layers of forward passes.
        steps: The steps that were taken apart.
        layers: How many a rank holds.
    """

    units: Units
    slots: tuple[Slot, ...]
    optimizer: tuple[Ints, ...]
    gradients: Ints
    in_layers: Ints
    steps: tuple[int, ...]
    layers: int

    @property
    def micro_batches(self) -> int:
        """Forward passes in a step."""
        return sum(slot.is_forward for slot in self.slots) // max(len(self.steps), 1)

    @property
    def holds_embedding(self) -> bool:
        """Whether the rank is the first of its pipeline."""
        return not self.sends or self.embeds > 0

    @property
    def embeds(self) -> int:
        """Forward passes that begin with an embedding."""
        embeds = self.units.is_family("embedding")
        return sum(slot.is_forward and bool(embeds[slot.before].any()) for slot in self.slots)

    @property
    def holds_head(self) -> bool:
        """Whether the rank is the last of its pipeline: it computes the loss, whatever that is."""
        if not self.sends:
            return True
        ends = self.units.is_family("softmax", "gemm")
        return any(slot.is_forward and ends[slot.after].any() for slot in self.slots)

    @property
    def ends_waiting(self) -> bool:
        """Whether the host waits for the device between steps, as to read the loss."""
        first = [int(np.flatnonzero(self.units.step == step)[0]) for step in self.steps[1:]]
        return len(first) > 0 and float(np.mean(self.units.waits[first])) > 0.5

    @property
    def sends(self) -> bool:
        """Whether it sends messages to other stages."""
        return bool(_messages(self.units).any())


def cut_rank(units: Units, where: str, steps: Sequence[int] = ()) -> CutRank:
    """Takes the steps of a rank apart.

    Args:
        units: Its units.
        where: The trace, for messages.
        steps: Which steps; all unless given.

    Raises:
        InputError: No layers were found, or layers of several kinds.
    """
    seen = np.unique(units.step).tolist()
    chosen = tuple(step for step in steps or seen if step in seen)
    cutter = _Cutter(units, where)
    slots: list[Slot] = []
    optimizer = []
    for step in chosen:
        places = np.flatnonzero((units.step == step) & ~cutter.talk)
        optimizer.append(places[units.phase[places] == Phase.OPTIMIZER])
        slots += cutter.slots(step, places[units.phase[places] != Phase.OPTIMIZER])
    if not slots:
        raise InputError(
            "no attention in what repeats: predictions are for transformers", where=where,
            hint="give a transformer's training steps, recorded with shapes",
        )  # fmt: skip
    held = Counter(len(slot.layers) for slot in slots if slot.is_forward)
    most = max(held, key=lambda n: held[n]) if held else 0
    gradients, in_layers = _communication(units, cutter.talk & np.isin(units.step, chosen), slots)
    return CutRank(
        units, tuple(slots), tuple(optimizer), gradients, in_layers, chosen, most
    )  # fmt: skip


def is_score_softmax(units: Units, unit: int) -> bool:
    """Whether a softmax is over an attention's scores: queries by keys, not a loss."""
    name = f"{units.operator_name(unit)} {units.name[unit]}".lower()
    return (
        "softmax" in name
        and "log_softmax" not in name
        and any(len(s) >= 3 and s[-1] == s[-2] > 1 for s in units.shapes(unit))
    )


def _anchors(units: Units) -> Flags:
    """What only layers hold: an attention, or the softmax over scores of an unfused one."""
    anchor = units.is_family("attention")
    for unit in np.flatnonzero(units.is_family("softmax")).tolist():
        anchor[unit] = is_score_softmax(units, unit)
    return anchor


def _messages(units: Units) -> Flags:
    """Messages between two ranks, as a pipeline sends them."""
    talk = units.is_family("communication")
    names = [name.lower() for name in units.name]
    is_message = np.asarray([any(word in name for word in _MESSAGES) for name in names], bool)
    return np.asarray(talk & is_message)


def _communication(units: Units, talk: Flags, slots: Sequence[Slot]) -> tuple[Ints, Ints]:
    """Units that communicate gradients, and those that do so inside layers of forward passes.

    Tensor parallelism communicates the same sizes in both passes; all else after a forward pass
    is gradients.
    """
    inside = np.zeros(len(units), bool)
    for slot in slots:
        if slot.is_forward:
            last = max(int(layer[-1]) for layer in slot.layers)
            inside[slot.layers[0][0] : last + 1] = True
    forward = units.phase == Phase.FORWARD
    in_layers = np.flatnonzero(talk & forward & inside)
    sizes = {_elements(units, unit) for unit in in_layers.tolist()}
    later = np.flatnonzero(talk & ~forward).tolist()
    gradients = [unit for unit in later if _elements(units, unit) not in sizes]
    return np.asarray(gradients, np.int64), in_layers


def _elements(units: Units, unit: int) -> int:
    return sum(math.prod(shape) for shape in units.shapes(unit))


class _Cutter:
    """Finds passes and their layers in one rank's units.

    Attributes:
        talk: Units that communicate, messages of a pipeline left out.
    """

    def __init__(self, units: Units, where: str) -> None:
        self._units = units
        self._where = where
        self._anchor = _anchors(units)
        self._message = _messages(units)
        self.talk = units.is_family("communication") & ~self._message
        # GEMMs outside the layers of a forward pass come again in the backward pass.
        self._ends: set[tuple[int, int, int]] = set()

    def slots(self, step: int, places: Ints) -> list[Slot]:
        """The passes of one step."""
        return [
            self._slot(step, stretch, is_forward) for stretch, is_forward in self._passes(places)
        ]

    def _passes(self, places: Ints) -> Iterator[tuple[Ints, bool]]:
        """Each pass through layers, and whether it goes forward.

        What holds no attention is no pass: it goes with the pass beside it that is of the same
        phase, or else with the next one.
        """
        rows = self._stretches(places)
        held = [row for row, (stretch, _) in enumerate(rows) if self._anchor[stretch].any()]
        mine: dict[int, list[Ints]] = {row: [] for row in held}
        for row, (stretch, phase) in enumerate(rows):
            near = [max((h for h in held if h <= row), default=-1),
                    min((h for h in held if h >= row), default=-1)]  # fmt: skip
            known = [h for h in near if h >= 0]
            same = [h for h in known if rows[h][1] == phase]
            if known:
                mine[(same or known[::-1])[0]].append(stretch)
        for row in held:
            yield np.concatenate(mine[row]), rows[row][1] == Phase.FORWARD

    def _stretches(self, places: Ints) -> list[tuple[Ints, int]]:
        """Rows of places without a message between them, of one phase each, with the phase."""
        rows: list[tuple[Ints, int]] = []
        for between in np.split(places, np.flatnonzero(self._message[places])):
            row = between[~self._message[between]]
            phase = self._units.phase[row]
            parts = np.split(row, np.flatnonzero(np.diff(phase)) + 1) if len(row) else []
            rows += self._without_blips(parts)
        return rows

    def _without_blips(self, parts: Sequence[Ints]) -> list[tuple[Ints, int]]:
        """Joins what no name tells to belong to the backward pass around it."""
        rows: list[tuple[Ints, int]] = []
        for number, part in enumerate(parts):
            phase = int(self._units.phase[part[0]])
            blip = phase == Phase.FORWARD and 0 < number < len(parts) - 1
            if blip and not self._anchor[part].any():
                phase = Phase.BACKWARD
            if rows and rows[-1][1] == phase:
                rows[-1] = (np.concatenate([rows[-1][0], part]), phase)
            else:
                rows.append((part, phase))
        return rows

    def _slot(self, step: int, places: Ints, is_forward: bool) -> Slot:
        """One pass: its layers, and what stands before and after them."""
        runs = find_repeats(self._units.token[places], self._anchor[places])
        if runs:
            layers = [layer for run in runs for layer in self._layers(run, places)]
            odd = self._odd_layers(places, layers)
        else:
            layers, odd = [self._lone_layer(places, is_forward)], []
        every = np.sort(np.concatenate([*layers, *odd]))
        rest = places[~np.isin(places, every)]
        between = rest[(rest > every[0]) & (rest < every[-1])]
        self._check_kinds(layers, between, is_forward)
        layers += odd
        if is_forward:
            self._ends |= {sizes for _, sizes in self._gemms(rest)}
        layers.sort(key=lambda layer: int(layer[0]))
        return Slot(
            step, is_forward, rest[rest < every[0]], tuple(layers), rest[rest > every[0]]
        )  # fmt: skip

    def _layers(self, run: Repeat, places: Ints) -> list[Ints]:
        layers = [
            places[run.start + i * run.period : run.start + (i + 1) * run.period]
            for i in range(run.times)
        ]
        front, back = self._torn_layer(run, places)
        if front + back:
            ahead, behind = places[run.start - front : run.start], places[run.stop :][:back]
            layers.insert(0, np.concatenate([ahead, behind]))
        return layers

    def _torn_layer(self, run: Repeat, places: Ints) -> tuple[int, int]:
        """How many units before and after a run make one more layer, in two halves.

        A compiler fuses the first layer's beginning with the embedding, so that what repeats
        exactly starts inside a layer. What kernels do still matches: the end of a layer before
        the run, and the beginning of one after it.
        """
        family = self._units.family[places]
        front = 0
        while front < min(run.period - 1, run.start):
            if family[run.start - 1 - front] != family[run.start + run.period - 1 - front]:
                break
            front += 1
        back = run.period - front
        if front == 0 or run.stop + back > len(places):
            return 0, 0
        halves = np.r_[run.start - front : run.start, run.stop : run.stop + back]
        if not self._anchor[places[halves]].any():
            return 0, 0
        alike = family[run.stop : run.stop + back] == family[run.start : run.start + back]
        return (front, back) if alike.mean() > _ALIKE else (0, 0)

    def _odd_layers(self, places: Ints, layers: Sequence[Ints]) -> list[Ints]:
        """Layers that do something a little different, or lack a beginning that was fused away."""
        usual = layers[-1]
        covered = np.isin(places, np.concatenate(layers))
        found = []
        for row in np.split(np.arange(len(places)), np.flatnonzero(np.diff(covered)) + 1):
            free = places[row[~covered[row]]]
            while self._anchor[free].any():
                layer = self._like(usual, free)
                if not len(layer):
                    raise self._several_kinds()
                found.append(layer)
                free = free[free > layer[-1]]
        return found

    def _like(self, usual: Ints, free: Ints) -> Ints:
        """The first stretch that does as a layer does, attention over attention; none if none."""
        units = self._units
        shift = int(np.argmax(self._anchor[free])) - int(np.argmax(self._anchor[usual]))
        at = np.arange(len(usual)) + shift
        inside = (at >= 0) & (at < len(free))
        ours, theirs = usual[inside], free[at[inside]]
        same = units.family[ours] == units.family[theirs]
        # GEMMs are of the same sizes, lest a head's is taken for a layer's.
        same &= ~units.is_family("gemm")[ours] | (units.token[ours] == units.token[theirs])
        if same.sum() < _MOST_OF_IT * len(usual):
            return free[:0]
        kept = np.flatnonzero(same)
        return theirs[kept[0] : kept[-1] + 1]

    def _check_kinds(self, layers: Sequence[Ints], between: Ints, is_forward: bool) -> None:
        """Refuses what is no row of equal layers, such as an encoder with a decoder."""
        bags = [Counter(self._units.family[layer].tolist()) for layer in layers]
        calls = [
            len(set(self._units.like[layer[self._anchor[layer]]].tolist())) for layer in layers
        ]
        alike = min(2 * (bags[0] & bag).total() / (bags[0] + bag).total() for bag in bags)
        if alike < _ALIKE or len(set(calls)) > 1 or (is_forward and max(calls) > 1):
            raise self._several_kinds()
        if self._units.is_family("gemm")[between].any():
            raise self._several_kinds()
        names = [self._units.operator_name(unit) for unit in between.tolist()]
        if is_forward and any(name.endswith("embedding") for name in names):
            raise InputError(
                "its layers are passed several times before a backward pass", where=self._where,
                hint="predictions understand one forward and one backward pass a micro-batch",
            )  # fmt: skip

    def _several_kinds(self) -> InputError:
        return InputError(
            "it has layers of several kinds, which predictions do not understand",
            where=self._where,
            hint="they need a transformer of equal layers: an encoder or a decoder, not both",
        )

    def _lone_layer(self, places: Ints, is_forward: bool) -> Ints:
        """A layer that stands alone: what its GEMMs are tells where it begins and ends."""
        begin, end = self._lone_forward(places) if is_forward else self._lone_backward(places)
        held = np.flatnonzero(self._anchor[places])
        return places[min(begin, int(held[0])) : max(end, int(held[-1]) + 1)]

    def _lone_forward(self, places: Ints) -> tuple[int, int]:
        """From the norm before the first GEMM to what is added after the last onto hidden."""
        family = self._units.family[places]
        gemms = self._gemms(places)
        anchor = int(np.flatnonzero(self._anchor[places])[0])
        if not gemms:
            return 0, len(places)
        start, (tokens, _, hidden) = gemms[0]
        into_hidden = [
            at for at, sizes in gemms if at > anchor and sizes[:2] == (tokens, hidden)
        ]  # fmt: skip
        end = into_hidden[-1] + 1 if into_hidden else anchor + 1
        has_head = any(at >= end for at, _ in gemms)
        while end < len(places) and (family[end] in _TRAILS or not has_head):
            end += 1
        embedded = np.flatnonzero(family[:start] == _EMBEDDING)
        begin = int(embedded[-1]) + 1 if len(embedded) else 0
        norms = np.flatnonzero(family[begin:start] == _NORMALISATION)
        return (begin + int(norms[-1]) if len(norms) and begin else begin), end

    def _lone_backward(self, places: Ints) -> tuple[int, int]:
        """From the first GEMM that is not the head's to the embedding."""
        family = self._units.family[places]
        gemms = self._gemms(places)
        own = [at for at, sizes in gemms if not self._is_of_ends(sizes)]
        has_head = any(self._is_of_ends(sizes) for _, sizes in gemms)
        begin = own[0] if own and has_head else 0
        after = own[-1] if own else begin
        embedded = np.flatnonzero(family[after:] == _EMBEDDING)
        return begin, after + int(embedded[0]) if len(embedded) else len(places)

    def _gemms(self, places: Ints) -> list[tuple[int, tuple[int, int, int]]]:
        """Rows, columns and inner size of each GEMM with weights, by place in a row."""
        found = []
        is_gemm = self._units.is_family("gemm")
        for at, unit in enumerate(places.tolist()):
            if is_gemm[unit]:
                sizes = gemm_sizes(self._units.operator_name(unit), self._units.shapes(unit))
                if sizes is not None and sizes[3] == 1:
                    found.append((at, sizes[:3]))
        return found

    def _is_of_ends(self, sizes: tuple[int, int, int]) -> bool:
        return any(sorted(sizes) == sorted(one) for one in self._ends)


class Template(msgspec.Struct, frozen=True, eq=False):
    """What is common to many runs of one part.

    Attributes:
        place: A run of it, as places among the units of `rank`.
        rank: The rank that ran it.
        device_ns, host_ns: The median over all runs, a unit each.
        waits: Whether the host waited for the device before a unit, in most runs.
        joins: Whether a unit waited for other streams' work, in most runs.
        runs: How many there were.
        spread: Relative standard deviation of the runs' device time.
    """

    place: Ints
    rank: int
    device_ns: Floats
    host_ns: Floats
    waits: Flags
    joins: Flags
    runs: int
    spread: float


def median_part(ranks: Sequence[Units], runs: Sequence[tuple[int, Ints]]) -> Template:
    """The common run of a part: the most frequent make-up, with the median time of each unit.

    Args:
        ranks: The units of each rank.
        runs: Runs of the part: the rank's place in `ranks`, and places among its units.
    """
    if not runs:
        none = np.zeros(0)
        return Template(np.zeros(0, np.int64), 0, none, none, none > 0, none > 0, 0, 0.0)
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
    waits = np.mean([ranks[r].waits[p] for r, p in like], axis=0) > 0.5
    joins = np.mean([ranks[r].joins[p] for r, p in like], axis=0) > 0.5
    return Template(place, rank, middle, np.median(host, axis=0), waits, joins, len(runs), spread)


def _makeup(units: Units, place: Ints) -> tuple[tuple[str, str], ...]:
    """What a run is made of: names with shapes, which mean the same on every rank."""
    return tuple(_name(units, p) for p in place.tolist())


def _name(units: Units, place: int) -> tuple[str, str]:
    event = int(units.like[place])
    if event < 0:
        return units.name[place], ""
    return units.trace.name_of(event), units.trace.shapes[units.trace.shape[event]]
