"""A trace of the same job with another batch.

The tensors that came from outside and carry the batch get another size, and every call is tried
out, in order, on tensors that have a shape and no data: what comes out is what the job would have
made. Sizes that were recorded as numbers are rewritten (`batch_sizes`). Where nothing shows
whether a size is the batch's or only equals it, the likelier is taken, and taken back when a later
call does not work with it. What cannot be resolved is an error that names the call: a program that
is wrong in silence would be worse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import ExecutionTrace, Node, TensorValue, Value
from gnomon.systems.aibench.builder.flow import natural_strides
from gnomon.systems.aibench.builder.select import Chosen, tensors_in
from gnomon.systems.aibench.program import Call
from gnomon.systems.aibench.rescale.layout import Factor, Layout, NotWhole, multiply, rounded
from gnomon.systems.aibench.rescale.memory import Memories, Taint, as_recorded
from gnomon.systems.aibench.rescale.returns import layout_like, uneven_bags, with_factors
from gnomon.systems.aibench.rescale.sizes import (
    Change,
    Option,
    Sized,
    base_name,
    options_for,
    shape_options,
)
from gnomon.systems.aibench.rescale.steps import Source, Step, find_batch, follow
from gnomon.systems.aibench.rescale.trial import Trials

_MOST_TRIES = 2000
#: Places in time within a call: one for each tensor it reads, the last for itself.
_PLACES = 1 << 12


class Rescaled(msgspec.Struct, frozen=True, eq=False):
    """A trace with another batch.

    Attributes:
        carriers: How many tensors from outside carry it.
        others: How many have a first size that only equals it.
        twice: How many tensors have its size in two dimensions, of which the first was taken.
        changed: Places of the nodes that are changed.
    """

    trace: ExecutionTrace
    batch: int
    now: int
    carriers: int
    others: int
    twice: int
    changed: frozenset[int]

    @property
    def note(self) -> str:
        """What the owner of the trace should know."""
        rest = f"; {self.others} more begin with the same size" if self.others else ""
        if self.twice:
            rest += f"; {self.twice} tensors have that size twice, and the first was taken for it"
        return (
            f"the batch of {self.batch} is now {self.now}: {self.carriers} tensors from outside "
            f"carry it{rest}"
        )


def stretch(calls: Iterable[Call], rescaled: Rescaled) -> None:
    """Lets the recorded device time grow with the batch: placeholder kernels take it.

    Host time stays: a larger batch is no more calls.
    """
    for call in calls:
        if call.at in rescaled.changed and call.role != "view":
            call.device_ns *= rescaled.now / rescaled.batch


def scale_batch(
    trace: ExecutionTrace, chosen: Sequence[Chosen], factor: Fraction, batch: int | None = None
) -> Rescaled:
    """The trace of the same job with a batch of another size.

    Args:
        chosen: All nodes that are replayed, in order; also those that are left out later.

    Raises:
        InputError: The batch cannot be inferred, or a call does not show how its sizes follow it.
    """
    if factor <= 0:
        raise InputError(f"the batch cannot be multiplied with {factor}")
    steps, sources = follow(trace, chosen)
    size = batch if batch is not None else find_batch(sources.values(), trace.source)
    if size < 2:
        raise InputError(
            "a batch of 1 cannot be distinguished from other sizes of 1", where=trace.source,
            hint="record the job with a batch of two or more",
        )  # fmt: skip
    if (size * factor).denominator != 1:
        raise InputError(
            f"a batch of {size} times {factor} is no whole number", where=trace.source
        )
    if factor == 1:
        carriers = sum(source.tensor.shape[0] == size for source in sources.values())
        return Rescaled(trace, size, size, carriers, 0, 0, frozenset())
    return _Search(trace, steps, sources, size, factor).run()


class _Guess(msgspec.Struct, eq=False):
    """Where one of several was taken: which, of how many, and what spoke against the others."""

    taken: int
    options: int
    reasons: Taint


class _Conflict(Exception):
    """A call that does not work with what was taken before.

    `is_opaque`: it cannot be known, because the call does not show what it does with sizes.
    """

    def __init__(self, step: Step, why: str, taint: Taint, *, is_opaque: bool = False) -> None:
        super().__init__(why)
        self.step, self.why, self.taint, self.is_opaque = step, why, taint, is_opaque


class _Search:
    """Goes through the calls until every one works."""

    def __init__(
        self, trace: ExecutionTrace, steps: Sequence[Step], sources: Mapping[int, Source],
        batch: int, factor: Fraction,
    ) -> None:  # fmt: skip
        self.trace, self.steps, self.sources = trace, steps, sources
        self.batch, self.factor = batch, factor
        self.trials = Trials()
        self.guesses: dict[int, _Guess] = {}
        self.brought: dict[int, int] = {}
        self.doubts: dict[int, _Conflict] = {}
        self.furthest: _Conflict | None = None

    def run(self) -> Rescaled:
        for _ in range(_MOST_TRIES):
            attempt = _Attempt(self)
            try:
                attempt.run()
            except _Conflict as conflict:
                self._take_back(conflict)
                continue
            return self._done(attempt)
        assert self.furthest is not None
        raise self._error(self.furthest)

    def guess(self, place: int, options: int, taint: Taint) -> _Guess:
        return self.guesses.setdefault(place, _Guess(0, options, taint))

    def _take_back(self, conflict: _Conflict) -> None:
        """Takes another option at the last guess that led to a conflict."""
        if self.furthest is None or conflict.step.chosen.at > self.furthest.step.chosen.at:
            self.furthest = conflict
        if conflict.is_opaque:
            for place in conflict.taint:
                self.doubts.setdefault(place, conflict)
        taint = set(conflict.taint)
        while taint:
            place = max(taint)
            guess = self.guesses[place]
            if guess.taken + 1 < guess.options:
                guess.taken += 1
                guess.reasons |= taint - {place}
                for later in [at for at in self.guesses if at > place]:
                    del self.guesses[later]
                return
            taint |= guess.reasons
            taint.discard(place)
        raise self._error(conflict)

    def _done(self, attempt: _Attempt) -> Rescaled:
        carriers = [memory for memory in self.sources if attempt.memories.carries(memory)]
        others = [
            memory for memory, source in self.sources.items()
            if memory not in carriers and source.tensor.shape[0] == self.batch
        ]  # fmt: skip
        for memory in others:
            # It works without, but only because it is not known whether it works with.
            if (doubt := self.doubts.get(self.brought.get(memory, -1))) is not None:
                raise self._error(doubt)
        if not carriers:
            if self.furthest is not None:
                raise self._error(self.furthest)
            raise InputError(
                f"no tensor from outside carries a batch of {self.batch}",
                where=self.trace.source, hint="is it the batch of this job?",
            )  # fmt: skip
        nodes = tuple(attempt.nodes.get(at, node) for at, node in enumerate(self.trace.nodes))
        old = self.trace
        trace = ExecutionTrace(old.source, old.schema, nodes, old.groups, old.adopted)
        now = multiply(self.batch, self.factor)
        return Rescaled(
            trace, self.batch, now, len(carriers), len(others), attempt.twice,
            frozenset(attempt.nodes),
        )  # fmt: skip

    def _error(self, conflict: _Conflict) -> InputError:
        node = conflict.step.node
        return InputError(
            f"node {node.id} ({node.name}) does not show how its sizes follow the batch: "
            f"{conflict.why}",
            where=self.trace.source,
        )


class _Attempt:
    """One walk through the calls, with the guesses as they are."""

    def __init__(self, search: _Search) -> None:
        self.search, self.trials = search, search.trials
        self.memories = Memories()
        self.change = Change(search.batch, search.factor, self.memories.sizes)
        self.nodes: dict[int, Node] = {}
        self.twice = 0

    def run(self) -> None:
        for number, step in enumerate(self.search.steps):
            try:
                self._step(number, step)
            except NotWhole as error:
                taint = self.memories.taint([memory for _, memory in step.ins])
                raise _Conflict(step, str(error), taint) from None

    def _step(self, number: int, step: Step) -> None:
        for slot, (_, memory) in enumerate(step.ins):
            if memory in self.search.sources and not self.memories.is_decided(memory):
                self._bring(number * _PLACES + min(slot, _PLACES - 2), memory)
        layouts = [self.memories.read(tensor, memory) for tensor, memory in step.ins]
        taint = self.memories.taint([memory for _, memory in step.ins])
        for _, memory in step.outs:
            if memory not in step.read:
                # Also what stays as it was does so because of what was taken.
                self.memories.begin(memory, taint)
        values: Mapping[int, Value] = {}
        if step.chosen.role == "operator":
            values = self._operator(number * _PLACES + _PLACES - 1, step, layouts, taint)
        elif any(layout.shape != t.shape for (t, _), layout in zip(step.ins, layouts)):
            values = self._other(step, layouts, taint)
        self._write_down(step, layouts, values)

    def _bring(self, place: int, memory: int) -> None:
        """Decides whether something from outside carries the batch, and where."""
        source = self.search.sources[memory]
        tensor = source.tensor
        options = shape_options(tensor.shape, self.change)
        # As long as it happened to be: so many words of so many sentences.
        grown = (rounded(tensor.shape[0], self.change.by), *tensor.shape[1:])
        if grown not in [shape for shape, _ in options]:
            options.append((grown, (Factor(), *(None,) * (len(grown) - 1))))
        if source.is_ragged:
            options.sort(key=lambda option: option[0][0] == tensor.shape[0])
        self.search.brought[memory] = place
        shape, factors = options[self.search.guess(place, len(options), frozenset()).taken]
        self.memories.bring(memory, tensor, shape, factors, frozenset((place,)))
        self._count_twice(tensor.shape, shape)

    def _count_twice(self, recorded: Sequence[int], now: Sequence[int]) -> None:
        """Counts shapes that do not show which of their dimensions is the batch."""
        grown = [at for at, (a, b) in enumerate(zip(recorded, now)) if a != b]
        if len(grown) == 1 and list(recorded).count(recorded[grown[0]]) > 1:
            self.twice += 1

    def _operator(
        self, place: int, step: Step, layouts: Sequence[Layout], taint: Taint
    ) -> Mapping[int, Value]:
        assert step.chosen.operator is not None
        if base_name(step.node.name) == "as_strided":
            return self._as_strided(step)
        changed = {
            at: layout for at, (layout, (tensor, _)) in enumerate(zip(layouts, step.ins))
            if layout != as_recorded(tensor)
        }  # fmt: skip
        sized = Sized(step.node, step.chosen.operator, _by_place(step.node, layouts))
        options = options_for(sized, self.change)
        if not changed and len(options) < 2:
            return {}
        why, first = "its sizes do not fit", 0
        if len(options) > 1:
            guess = self.search.guess(place, len(options), taint)
            first, taint = guess.taken, taint | {place}
        for at in range(first, len(options)):
            why = self._fault(step, options[at], layouts, changed)
            if not why:
                if len(options) > 1:
                    guess.taken = at
                    for spot, value in options[at].values.items():
                        recorded = _whole_numbers(step.node.inputs[spot])
                        self._count_twice(recorded, _whole_numbers(value))
                self._bind(step, options[at], layouts, changed, taint)
                return options[at].values
        if len(options) > 1:
            guess.taken = len(options) - 1
        raise _Conflict(step, why, taint)

    def _fault(
        self, step: Step, option: Option, layouts: Sequence[Layout], changed: Mapping[int, Layout]
    ) -> str:
        """Why a call does not work with an option; "" where it does, or it is not known."""
        assert step.chosen.operator is not None
        if uneven_bags(step, layouts):
            return "its bags would have another size"
        outcome = self.trials.of(step.node, step.chosen.operator, option.values, changed)
        if not outcome.error:
            return ""
        # What does not work as it was recorded either proves nothing.
        return "" if self.trials.of(step.node, step.chosen.operator).error else outcome.error

    def _bind(
        self, step: Step, option: Option, layouts: Sequence[Layout],
        changed: Mapping[int, Layout], taint: Taint,
    ) -> None:  # fmt: skip
        assert step.chosen.operator is not None
        now = self.trials.of(step.node, step.chosen.operator, option.values, changed)
        then = self.trials.of(step.node, step.chosen.operator)
        nothing = (None,) * len(step.outs)
        after, before = (nothing if one.error else one.layouts for one in (now, then))
        for at, (tensor, memory) in enumerate(step.outs):
            if not tensor.elements:
                continue
            layout, tried = after[at], before[at]
            if layout is None or tried is None or tried.shape != tensor.shape:
                layout = layout_like(step, tensor, layouts, self.change)
            if at == 0 and option.factors and len(option.factors) == len(layout.shape):
                layout = msgspec.structs.replace(layout, factors=option.factors)
            else:
                layout = with_factors(step, tensor, layout, layouts, self.change)
            if memory in step.read:
                self.memories.show(memory, tensor, layout, taint)
            else:
                self.memories.begin(memory, taint)
                self.memories.make(memory, tensor, layout, tried)

    def _as_strided(self, step: Step) -> Mapping[int, Value]:
        _, memory = step.ins[0]
        result = next(iter(tensors_in(step.node.outputs)), None)
        if result is None or self.memories.is_itself(memory):
            return {}
        size, stride = (_whole_numbers(value) for value in step.node.inputs[1:3])
        layout = self.memories.cut(memory, size, stride, result.offset)
        self.memories.show(memory, result, layout, frozenset())
        values: dict[int, Value] = {1: layout.shape, 2: layout.strides}
        if len(step.node.inputs) > 3 and isinstance(step.node.inputs[3], int):
            values[3] = layout.offset
        return values

    def _other(self, step: Step, layouts: Sequence[Layout], taint: Taint) -> Mapping[int, Value]:
        """Collectives, compiled kernels, and what torch does not have."""
        role = step.chosen.role
        if role == "kernel":
            why = "compiled kernels are made for their sizes"
            raise _Conflict(step, why, taint, is_opaque=True)
        if role in ("collective", "wait"):
            return self._collective(step, layouts, taint)
        for tensor, memory in step.outs:
            if memory in step.read or not tensor.elements:
                continue
            layout = layout_like(step, tensor, layouts, self.change)
            if layout.shape == tensor.shape and tensor.elements > 1:
                raise _Conflict(step, "torch does not have it", taint, is_opaque=True)
            layout = with_factors(step, tensor, layout, layouts, self.change)
            self.memories.make(memory, tensor, layout, None)
        return {}

    def _collective(
        self, step: Step, layouts: Sequence[Layout], taint: Taint
    ) -> Mapping[int, Value]:
        """All that is sent and received grows alike."""
        moved = [(t, layout) for (t, _), layout in zip(step.ins, layouts) if t.elements]
        if len({layout.shape != tensor.shape for tensor, layout in moved}) > 1:
            raise _Conflict(step, "not all that it moves grows with the batch", taint)
        for tensor, memory in step.outs:
            if memory not in step.read and tensor.elements and tensor.shape:
                shape = (multiply(tensor.shape[0], self.change.by), *tensor.shape[1:])
                layout = Layout(shape, natural_strides(shape), 0, (None,) * len(shape))
                self.memories.make(memory, tensor, layout, None)
        rows = {tensor.shape[0] for tensor, _ in moved if tensor.shape}
        return {
            at: tuple(multiply(row, self.change.by) for row in _whole_numbers(value))
            for at, value in enumerate(step.node.inputs)
            if isinstance(value, tuple) and value and sum(_whole_numbers(value)) in rows
        }

    def _write_down(
        self, step: Step, layouts: Sequence[Layout], values: Mapping[int, Value]
    ) -> None:
        node, rows = step.node, iter(layouts)
        inputs = tuple(
            values[at] if at in values else _changed(value, rows)
            for at, value in enumerate(node.inputs)
        )
        results = (self.memories.result(tensor, memory) for tensor, memory in step.outs)
        outputs = tuple([_changed(value, results) for value in node.outputs])
        if inputs != node.inputs or outputs != node.outputs:
            self.nodes[step.chosen.at] = msgspec.structs.replace(
                node, inputs=inputs, outputs=outputs
            )


def _changed(value: Value, rows: Iterator[Layout]) -> Value:
    """A value with the tensors in it looking as they do now."""
    if isinstance(value, tuple):
        return tuple([_changed(part, rows) for part in value])
    if not isinstance(value, TensorValue):
        return value
    layout = next(rows)
    return TensorValue(
        value.tensor, value.storage, layout.offset, math.prod(layout.shape), value.item_bytes,
        value.device, value.dtype, layout.shape,
        None if value.strides is None else layout.strides,
    )  # fmt: skip


def _by_place(node: Node, layouts: Sequence[Layout]) -> dict[int, Layout]:
    """Layouts by the place of the argument; those in lists are left out."""
    rows = iter(layouts)
    found = {}
    for at, value in enumerate(node.inputs):
        own = [next(rows) for _ in tensors_in((value,))]
        if isinstance(value, TensorValue):
            found[at] = own[0]
    return found


def _whole_numbers(value: Value) -> tuple[int, ...]:
    return tuple(v for v in value if isinstance(v, int)) if isinstance(value, tuple) else ()
