"""A trace of the same job with another batch.

The tensors that came from outside and carry the batch get another size, and every call is tried
out, in order, on tensors that have a shape and no data: what comes out is what the job would have
made. Sizes that were recorded as numbers are rewritten (`batch_sizes`). Where nothing tells whether
a size is the batch's or only equals it, the likelier is taken, and taken back when a later call
does not work with it. What cannot be resolved is an error that names the call; a program that is
wrong in silence would be worse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.execution_trace import ExecutionTrace, Node, TensorValue, Value
from gnomon.systems.aibench.batch_layout import (
    Factor,
    Layout,
    NotWhole,
    Region,
    dense_strides,
    is_dense,
    multiply,
    region_of,
    restride,
    rounded,
)
from gnomon.systems.aibench.batch_sizes import (
    Change,
    Option,
    Sized,
    base_name,
    options_for,
    shape_options,
)
from gnomon.systems.aibench.batch_trial import Trials
from gnomon.systems.aibench.flow import Flow, natural_strides
from gnomon.systems.aibench.parts import phases_of
from gnomon.systems.aibench.program import Call
from gnomon.systems.aibench.select import Chosen, tensors_in

__all__ = ["Rescaled", "scale_batch"]

#: Arguments that are parameters of a model, whatever their size.
_PARAMETERS = ("weight", "bias", "running_mean", "running_var", "weights", "params")
_MOST_TRIES = 2000
#: Results as long as there are elements that fit.
_COUNTED = (
    "nonzero", "nonzero_numpy", "masked_select", "argwhere", "repeat_interleave", "where", "index",
)  # fmt: skip
_NO_TAINT: frozenset[int] = frozenset()


class Rescaled(msgspec.Struct, frozen=True, eq=False):
    """A trace with another batch.

    Attributes:
        trace: The trace; only chosen nodes are changed.
        batch: The batch that was recorded.
        now: What it is now.
        tensors: How many tensors from outside carry it.
    """

    trace: ExecutionTrace
    batch: int
    now: int
    tensors: int


class _Step(msgspec.Struct, frozen=True, eq=False):
    """A chosen node, and which memory its tensors lie in."""

    chosen: Chosen
    node: Node
    ins: tuple[tuple[TensorValue, int], ...]
    outs: tuple[tuple[TensorValue, int], ...]


class _Source(msgspec.Struct, eq=False):
    """Memory from outside that may carry the batch.

    Attributes:
        tensor: The first tensor that is read from it.
        is_forward: Whether the forward pass reads it first.
        is_ragged: Whether it holds so and so many indices of each of a batch.
    """

    tensor: TensorValue
    is_forward: bool
    is_ragged: bool = False


class _Memory(msgspec.Struct, eq=False):
    """Memory that is shown in which the batch is: how each view of it looks now.

    `region` says where in the memory the batch is, None where nobody knows. Memory that is only
    expanded along the batch (`is_same`) is itself what it was.
    """

    views: dict[object, Layout]
    region: Region | None
    taint: frozenset[int]
    is_same: bool = False


class _Guess(msgspec.Struct, eq=False):
    """A place where one of several was taken: which, of how many, and what spoke against others."""

    taken: int
    options: int
    reasons: frozenset[int]


class _Conflict(Exception):
    """A call that does not work with what was taken before."""

    def __init__(self, step: _Step, why: str, taint: frozenset[int]) -> None:
        super().__init__(why)
        self.step, self.why, self.taint = step, why, taint


def scale_batch(
    trace: ExecutionTrace, chosen: Sequence[Chosen], factor: Fraction, batch: int | None = None
) -> Rescaled:
    """The trace of the same job with a batch of another size.

    Args:
        trace: The trace.
        chosen: All nodes that are replayed, in order; also those that are left out later.
        factor: What the batch is multiplied with.
        batch: The recorded batch; found where it is not given.

    Raises:
        InputError: The batch cannot be told, or a call does not say how its sizes follow it.
    """
    if factor <= 0:
        raise InputError(f"the batch cannot be multiplied with {factor}")
    flow = Flow()
    steps = list(_follow(trace, chosen, flow))
    outside = {memory.number for memory in flow.memories if memory.storage is not None}
    sources = _sources(trace, steps, outside)
    size = batch if batch is not None else _find_batch(sources.values(), trace.source)
    if size < 2:
        raise InputError(
            "a batch of 1 cannot be told from other sizes of 1", where=trace.source,
            hint="record the job with a batch of two or more",
        )  # fmt: skip
    if (size * factor).denominator != 1:
        raise InputError(
            f"a batch of {size} times {factor} is no whole number", where=trace.source
        )
    return _Solver(trace, steps, sources, Change(size, factor)).run()


# -- what is there -------------------------------------------------------------------------------


def _follow(trace: ExecutionTrace, chosen: Sequence[Chosen], flow: Flow) -> Iterator[_Step]:
    """The chosen nodes with the memory of each of their tensors."""
    for one in chosen:
        node = trace.nodes[one.at]
        ins = tuple((t, flow.memory_of(t).number) for t in tensors_in(node.inputs))
        call = Call("", [], {}, None, [], one.at, node.thread, one.role, node.name,
                    reads={number for _, number in ins}, writes=set())  # fmt: skip
        flow.give(node.outputs, call)
        outs = tuple(
            (t, flow.memory_of(t).number if t.elements else -1) for t in tensors_in(node.outputs)
        )
        yield _Step(one, node, ins, outs)


def _sources(
    trace: ExecutionTrace, steps: Iterable[_Step], outside: set[int]
) -> dict[int, _Source]:
    """Memory from outside that is no parameter and no state of the optimizer."""
    phases = phases_of(trace)
    found: dict[int, _Source] = {}
    kept: set[int] = set()
    for step in steps:
        phase = phases[step.chosen.at]
        is_bag = "embedding_bag" in step.node.name
        for (tensor, memory), name in zip(step.ins, _names(step)):
            if memory not in outside:
                continue
            if name in _PARAMETERS or phase == "optimizer":
                kept.add(memory)
            known = found.setdefault(memory, _Source(tensor, phase == "forward"))
            known.is_ragged |= is_bag and name in ("indices", "per_sample_weights")
    return {
        memory: source for memory, source in found.items()
        if memory not in kept and source.tensor.elements > 1 and source.tensor.shape
    }  # fmt: skip


def _names(step: _Step) -> list[str]:
    """The name of the argument that each tensor is given as."""
    operator = step.chosen.operator
    arguments = operator.arguments if operator is not None else ()
    names: list[str] = []
    for at, value in enumerate(step.node.inputs):
        argument = arguments[at] if at < len(arguments) else None
        count = sum(1 for _ in tensors_in((value,)))
        names += [argument.name if argument else ""] * count
    return names


def _find_batch(sources: Iterable[_Source], where: str) -> int:
    """The most common first size of what comes from outside to the forward pass."""
    tensors = [
        source.tensor for source in sources
        if source.is_forward and not source.is_ragged and source.tensor.shape[0] > 1
    ]  # fmt: skip
    if not tensors:
        raise InputError(
            "nothing that comes from outside tells the size of the batch", where=where,
            hint="give it with --batch",
        )  # fmt: skip
    counts = Counter(tensor.shape[0] for tensor in tensors)
    # Of equals what looks like indices, then the largest: inputs are larger than tables.
    likeliest = max(
        tensors,
        key=lambda t: (counts[t.shape[0]], t.dtype in ("int64", "int32"), t.elements),
    )
    return likeliest.shape[0]


# -- what it becomes -----------------------------------------------------------------------------


class _Solver:
    """Goes through the calls until every one works."""

    def __init__(
        self, trace: ExecutionTrace, steps: Sequence[_Step], sources: Mapping[int, _Source],
        change: Change,
    ) -> None:  # fmt: skip
        self.trace, self.steps, self.sources, self.change = trace, steps, sources, change
        self.trials = Trials()
        #: By place in time: twice the step, for what it reads from outside; odd for itself.
        self.guesses: dict[int, _Guess] = {}
        self.memories: dict[int, _Memory] = {}
        self.decided: dict[int, frozenset[int]] = {}
        self.nodes: dict[int, Node] = {}
        self.reached = -1
        self.furthest: _Conflict | None = None

    def run(self) -> Rescaled:
        for _ in range(_MOST_TRIES):
            try:
                self._attempt()
            except _Conflict as conflict:
                self._take_back(conflict)
                continue
            break
        else:
            assert self.furthest is not None
            raise self._error(self.furthest.step, self.furthest.why)
        nodes = tuple(self.nodes.get(at, node) for at, node in enumerate(self.trace.nodes))
        changed = ExecutionTrace(
            self.trace.source, self.trace.schema, nodes, self.trace.groups, self.trace.adopted
        )
        grown = sum(1 for memory in self.sources if memory in self.memories)
        if not grown:
            # Without the batch everything works, so what spoke against it is the answer.
            if self.furthest is not None:
                raise self._error(self.furthest.step, self.furthest.why)
            raise InputError(
                f"no tensor from outside carries a batch of {self.change.batch}",
                where=self.trace.source, hint="is it the batch of this job?",
            )  # fmt: skip
        now = multiply(self.change.batch, self.change.by)
        return Rescaled(changed, self.change.batch, now, grown)

    def _take_back(self, conflict: _Conflict) -> None:
        """Takes another option at the last guess that led to a conflict."""
        if conflict.step.chosen.at > self.reached:
            self.reached, self.furthest = conflict.step.chosen.at, conflict
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
        raise self._error(conflict.step, conflict.why)

    def _error(self, step: _Step, why: str) -> InputError:
        name, at = step.node.name, step.node.id
        return InputError(
            f"node {at} ({name}) does not say how its sizes follow the batch: {why}",
            where=self.trace.source,
        )

    def _attempt(self) -> None:
        self.memories.clear()
        self.decided.clear()
        self.nodes.clear()
        for number, step in enumerate(self.steps):
            try:
                self._step(number, step)
            except NotWhole as error:
                raise _Conflict(step, str(error), self._taint(step)) from None

    def _guess(self, place: int, options: int, taint: frozenset[int]) -> int:
        """Which of several options to take."""
        if options < 2:
            return 0
        guess = self.guesses.setdefault(place, _Guess(0, options, taint))
        return guess.taken

    def _taint(self, step: _Step) -> frozenset[int]:
        """The guesses that a call depends on."""
        taint = _NO_TAINT
        for _, memory in step.ins:
            taint |= self.decided.get(memory, _NO_TAINT)
            if memory in self.memories:
                taint |= self.memories[memory].taint
        return taint

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, number: int, tensor: TensorValue, memory: int, slot: int) -> Layout:
        """How a tensor looks now."""
        if memory in self.sources and memory not in self.decided:
            self._decide(number, memory, slot)
        known = self.memories.get(memory)
        if known is None:
            return _as_recorded(tensor)
        found = known.views.get(_key(tensor))
        if found is None and tensor.strides is None:
            found = next(
                (v for k, v in known.views.items() if k[:3] == _key(tensor)[:3]),
                None,  # type: ignore[index]
            )
        if found is None and known.is_same:
            return _as_recorded(tensor)
        if found is None:
            if known.region is None:
                raise NotWhole("it reads a part of a tensor in which the batch cannot be found")
            found = restride(tensor.shape, tensor.strides, tensor.offset, known.region)
            known.views[_key(tensor)] = found
        return found

    def _decide(self, number: int, memory: int, slot: int) -> None:
        """Whether something from outside carries the batch, and where."""
        source = self.sources[memory]
        tensor = source.tensor
        shapes = shape_options(tensor.shape, self.change)
        # As long as it happened to be: so many words of so many sentences.
        grown = (rounded(tensor.shape[0], self.change.by), *tensor.shape[1:])
        if grown not in [shape for shape, _ in shapes]:
            shapes.append((grown, (Factor(), *(None,) * (len(grown) - 1))))
        if source.is_ragged:
            shapes.sort(key=lambda option: option[0][0] == tensor.shape[0])
        place = (number << 12) + min(slot, 4094)
        taken = self._guess(place, len(shapes), _NO_TAINT)
        shape, factors = shapes[taken]
        taint = frozenset((place,)) if len(shapes) > 1 else _NO_TAINT
        self.decided[memory] = taint
        if shape != tensor.shape:
            dim = next(d for d, (a, b) in enumerate(zip(shape, tensor.shape)) if a != b)
            factor = factors[dim]
            strides = tensor.strides or natural_strides(tensor.shape)
            region = None
            if factor is not None:
                region = region_of(tensor.shape, shape, strides, dim, factor)
                layout = restride(tensor.shape, strides, tensor.offset, region)
            else:
                layout = Layout(shape, dense_strides(shape, strides), tensor.offset, factors)
            self.memories[memory] = _Memory({_key(tensor): layout}, region, taint)

    # -- calls -----------------------------------------------------------------------------------

    def _step(self, number: int, step: _Step) -> None:
        layouts = [
            self._read(number, tensor, memory, slot)
            for slot, (tensor, memory) in enumerate(step.ins)
        ]
        taint = self._taint(step)
        read = {memory for _, memory in step.ins}
        for _, memory in step.outs:
            if memory not in read:
                # Also what stays as it was does so because of what was taken.
                self.decided[memory] = taint
                self.memories.pop(memory, None)
        values: Mapping[int, Value] = {}
        if step.chosen.role == "operator":
            values = self._operator(number, step, layouts, taint)
        elif any(layout.shape != t.shape for (t, _), layout in zip(step.ins, layouts)):
            values = self._other(step, layouts, taint)
        self._write_down(step, layouts, values)

    def _operator(
        self, number: int, step: _Step, layouts: Sequence[Layout], taint: frozenset[int]
    ) -> Mapping[int, Value]:
        operator = step.chosen.operator
        assert operator is not None
        grown = {
            at: layout
            for at, (layout, (tensor, _)) in enumerate(zip(layouts, step.ins))
            if layout != _as_recorded(tensor)
        }
        if base_name(step.node.name) == "as_strided":
            return self._as_strided(step, layouts, taint)
        sized = Sized(step.node, operator, _by_place(step.node, layouts))
        options = options_for(sized, self.change)
        if not grown and len(options) < 2:
            return {}
        if not options:
            raise _Conflict(step, "its sizes do not fit", taint)
        why = "it does not work"
        place = (number << 12) + 4095
        taken = self._guess(place, len(options), taint)
        for at in range(taken, len(options)):
            why = self._try(step, options[at], layouts, grown)
            if not why:
                if len(options) > 1:
                    guess = self.guesses[place]
                    guess.taken = at
                    taint |= {place}
                self._bind(step, options[at], layouts, grown, taint)
                return options[at].values
        raise _Conflict(step, why, taint)

    def _try(
        self, step: _Step, option: Option, layouts: Sequence[Layout], grown: Mapping[int, Layout]
    ) -> str:
        """Why a call does not work with an option; "" where it does, or nobody can tell."""
        operator = step.chosen.operator
        assert operator is not None
        why = _uneven(step, layouts)
        if why:
            return why
        outcome = self.trials.of(step.node, operator, option.values, grown)
        if not outcome.error:
            return ""
        # What does not work as it was recorded either says nothing.
        return "" if self.trials.of(step.node, operator).error else outcome.error

    def _bind(
        self, step: _Step, option: Option, layouts: Sequence[Layout],
        grown: Mapping[int, Layout], taint: frozenset[int],
    ) -> None:  # fmt: skip
        """Notes how the results look."""
        operator = step.chosen.operator
        assert operator is not None
        now = self.trials.of(step.node, operator, option.values, grown)
        then = self.trials.of(step.node, operator)
        nothing = (None,) * len(step.outs)
        told = now.layouts if not now.error else nothing
        before = then.layouts if not then.error else nothing
        read = {memory for _, memory in step.ins}
        for at, (tensor, memory) in enumerate(step.outs):
            if not tensor.elements:
                continue
            layout, recorded = told[at], before[at]
            is_same = recorded is not None and recorded.shape == tensor.shape
            if layout is None or not is_same:
                layout = self._guess_layout(step, tensor, layouts, grown, taint)
            factors = option.factors if at == 0 else None
            if factors is None or len(factors) != len(layout.shape):
                factors = _inherited(step, tensor, layout, layouts, self.change)
            layout = msgspec.structs.replace(layout, factors=factors)
            if memory in read:
                self._bind_view(memory, tensor, layout, taint)
            else:
                self._bind_new(memory, tensor, layout, recorded, taint)

    def _bind_view(
        self, memory: int, tensor: TensorValue, layout: Layout, taint: frozenset[int]
    ) -> None:
        self.decided[memory] = self.decided.get(memory, _NO_TAINT) | taint
        known = self.memories.get(memory)
        if known is None:
            if layout.shape == tensor.shape:
                return
            known = self.memories[memory] = _Memory({}, None, taint, is_same=True)
        known.taint |= taint
        known.views.setdefault(_key(tensor), layout)

    def _bind_new(
        self, memory: int, tensor: TensorValue, layout: Layout, recorded: Layout | None,
        taint: frozenset[int],
    ) -> None:  # fmt: skip
        self.decided[memory] = taint
        if layout.shape == tensor.shape:
            return
        strides, offset = layout.strides, tensor.offset
        old = tensor.strides or natural_strides(tensor.shape)
        region = None
        if is_dense(tensor.shape, old):
            strides = dense_strides(layout.shape, old)
            grown = [d for d, (a, b) in enumerate(zip(layout.shape, tensor.shape)) if a != b]
            factor = layout.factors[grown[0]]
            if len(grown) == 1 and factor is not None:
                region = region_of(tensor.shape, layout.shape, old, grown[0], factor)
        elif recorded is not None and recorded.strides == old:
            offset = layout.offset
        now = Layout(layout.shape, strides, offset, layout.factors)
        self.memories[memory] = _Memory({_key(tensor): now}, region, taint)

    def _as_strided(
        self, step: _Step, layouts: Sequence[Layout], taint: frozenset[int]
    ) -> Mapping[int, Value]:
        _, memory = step.ins[0]
        known = self.memories.get(memory)
        if known is None or known.is_same:
            return {}
        result = next(iter(tensors_in(step.node.outputs)), None)
        if result is None or known.region is None:
            raise _Conflict(step, "the batch cannot be found in its memory", taint)
        size, stride = (_whole_numbers(value) for value in step.node.inputs[1:3])
        layout = restride(size, stride, result.offset, known.region)
        known.views.setdefault(_key(result), layout)
        values: dict[int, Value] = {1: layout.shape, 2: layout.strides}
        if len(step.node.inputs) > 3 and isinstance(step.node.inputs[3], int):
            values[3] = layout.offset
        return values

    def _guess_layout(
        self, step: _Step, tensor: TensorValue, layouts: Sequence[Layout],
        grown: Mapping[int, Layout], taint: frozenset[int],
    ) -> Layout:  # fmt: skip
        """How a result looks that torch cannot tell: from sizes it has in common with arguments."""
        base = base_name(step.node.name)
        first = _counted_dim(step) if base in _COUNTED else None
        sizes = list(tensor.shape)
        for dim, size in enumerate(tensor.shape):
            if dim == first:
                sizes[dim] = rounded(size, self.change.by)
                continue
            news = {
                layout.shape[at]
                for (source, _), layout in zip(step.ins, layouts)
                for at in range(len(source.shape))
                if source.shape[at] == size and size > 1
            }
            if len(news) > 1:
                aligned = {
                    layout.shape[dim]
                    for (source, _), layout in zip(step.ins, layouts)
                    if dim < len(source.shape) and source.shape[dim] == size
                }
                news = aligned or news
            if len(news) > 1:
                raise _Conflict(step, f"a size of {size} may be the batch's or not", taint)
            sizes[dim] = news.pop() if news else size
        strides = dense_strides(sizes, tensor.strides or natural_strides(tensor.shape))
        return Layout(tuple(sizes), strides, tensor.offset, (None,) * len(sizes))

    # -- what is no operator of torch ------------------------------------------------------------

    def _other(
        self, step: _Step, layouts: Sequence[Layout], taint: frozenset[int]
    ) -> Mapping[int, Value]:
        """Collectives, compiled kernels, and what torch does not have."""
        role = step.chosen.role
        if role == "kernel":
            raise _Conflict(step, "compiled kernels are made for their sizes", taint)
        if role in ("collective", "wait"):
            return self._collective(step, layouts, taint)
        read = {memory for _, memory in step.ins}
        for tensor, memory in step.outs:
            if memory in read or not tensor.elements:
                continue
            layout = self._guess_layout(step, tensor, layouts, {}, taint)
            if layout.shape == tensor.shape and tensor.elements > 1:
                raise _Conflict(step, "torch does not have it", taint)
            factors = _inherited(step, tensor, layout, layouts, self.change)
            layout = msgspec.structs.replace(layout, factors=factors)
            self._bind_new(memory, tensor, layout, None, taint)
        return {}

    def _collective(
        self, step: _Step, layouts: Sequence[Layout], taint: frozenset[int]
    ) -> Mapping[int, Value]:
        """All that is sent and received grows alike."""
        is_grown = {
            layout.shape != t.shape for (t, _), layout in zip(step.ins, layouts) if t.shape
        }
        if is_grown == {True, False}:
            raise _Conflict(step, "not all that it moves grows with the batch", taint)
        read = {memory for _, memory in step.ins}
        for tensor, memory in step.outs:
            if memory not in read and tensor.elements:
                shape = (multiply(tensor.shape[0], self.change.by), *tensor.shape[1:])
                layout = Layout(shape, natural_strides(shape), 0, (None,) * len(shape))
                self._bind_new(memory, tensor, layout, None, taint)
        values: dict[int, Value] = {}
        for at, value in enumerate(step.node.inputs):
            rows = _whole_numbers(value) if isinstance(value, tuple) else ()
            if (
                rows
                and len(rows) == len(value)
                and any(  # type: ignore[arg-type]
                    t.shape and sum(rows) == t.shape[0] for t, _ in step.ins
                )
            ):
                values[at] = tuple(multiply(row, self.change.by) for row in rows)
        return values

    # -- writing down ----------------------------------------------------------------------------

    def _write_down(
        self, step: _Step, layouts: Sequence[Layout], values: Mapping[int, Value]
    ) -> None:
        rows = iter(layouts)
        node = step.node
        inputs = tuple(
            values[at] if at in values else _changed(value, rows)
            for at, value in enumerate(node.inputs)
        )
        outs = [self._result(tensor, memory) for tensor, memory in step.outs]
        rows = iter(outs)
        outputs = tuple(_changed(value, rows) for value in node.outputs)
        if inputs != node.inputs or outputs != node.outputs:
            self.nodes[step.chosen.at] = msgspec.structs.replace(
                node, inputs=inputs, outputs=outputs
            )

    def _result(self, tensor: TensorValue, memory: int) -> Layout:
        known = self.memories.get(memory)
        found = known.views.get(_key(tensor)) if known is not None else None
        return found if found is not None else _as_recorded(tensor)


def _key(tensor: TensorValue) -> tuple[object, ...]:
    return (tensor.dtype, tensor.shape, tensor.offset, tensor.strides)


def _as_recorded(tensor: TensorValue) -> Layout:
    strides = tensor.strides or natural_strides(tensor.shape)
    return Layout(tensor.shape, strides, tensor.offset, (None,) * len(tensor.shape))


def _changed(value: Value, rows: Iterator[Layout]) -> Value:
    """A value with the tensors in it looking as they do now."""
    if isinstance(value, tuple):
        return tuple(_changed(part, rows) for part in value)
    if not isinstance(value, TensorValue):
        return value
    layout = next(rows)
    count = 1
    for size in layout.shape:
        count *= size
    return TensorValue(
        value.tensor, value.storage, layout.offset, count, value.item_bytes, value.device,
        value.dtype, layout.shape, None if value.strides is None else layout.strides,
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


def _uneven(step: _Step, layouts: Sequence[Layout]) -> str:
    """Bags of an embedding keep their size: twice the bags are twice the indices."""
    if "embedding_bag" not in step.node.name:
        return ""
    names = _names(step)
    sizes = {
        name: (tensor.elements, layout.shape)
        for name, (tensor, _), layout in zip(names, step.ins, layouts)
    }
    if "indices" not in sizes or "offsets" not in sizes:
        return ""
    (many, now), (bags, then) = sizes["indices"], sizes["offsets"]
    # Offsets are as many as bags, or one more.
    ratios = [Fraction(then[0] - end, bags - end) for end in (0, 1) if bags > end]
    is_even = any(now[0] == rounded(many, ratio) for ratio in ratios)
    return "" if is_even else "its bags would have another size"


def _counted_dim(step: _Step) -> int | None:
    """The dimension of a result that is as long as there are elements that fit."""
    base = base_name(step.node.name)
    if base == "where":
        return 0 if len(step.ins) == 1 else None
    if base != "index":
        return 0
    lists = [value for value in step.node.inputs if isinstance(value, tuple)]
    for place, index in enumerate(lists[0] if lists else ()):
        if isinstance(index, TensorValue):
            return place if index.dtype in ("bool", "uint8") else None
    return None


def _inherited(
    step: _Step, tensor: TensorValue, layout: Layout, layouts: Sequence[Layout], change: Change
) -> tuple[Factor | None, ...]:
    """Where the batch is in a result: where it was in arguments of the same size."""
    base = base_name(step.node.name)
    factors: list[Factor | None] = []
    for dim, (old, new) in enumerate(zip(tensor.shape, layout.shape)):
        if old == new:
            factors.append(None)
            continue
        alike = _alike(step, layouts, dim, old)
        if alike is None and old == change.batch:
            alike = Factor()
        if alike is None and base in _COUNTED:
            alike = Factor()
        if alike is None and base in ("cat", "concat", "stack"):
            alike = _stacked(step, layouts, dim, old)
        factors.append(alike)
    return tuple(factors)


def _alike(step: _Step, layouts: Sequence[Layout], dim: int, size: int) -> Factor | None:
    """The factor of a dimension of an argument that has a size, the one in the same place first."""
    found: list[Factor] = []
    for (tensor, _), layout in zip(step.ins, layouts):
        for at, (old, new) in enumerate(zip(tensor.shape, layout.shape)):
            factor = layout.factors[at]
            if old == size and new != old and factor is not None:
                if at == dim:
                    return factor
                found.append(factor)
    return found[0] if len(set(found)) == 1 else None


def _stacked(step: _Step, layouts: Sequence[Layout], dim: int, size: int) -> Factor | None:
    """The factor of several tensors one behind the other: as many blocks as there are tensors."""
    parts = {
        (tensor.shape[dim], layout.factors[dim])
        for (tensor, _), layout in zip(step.ins, layouts)
        if dim < len(tensor.shape)
    }
    if len(parts) != 1:
        return None
    length, factor = parts.pop()
    if factor is None or factor.outer != 1 or length * len(step.ins) != size:
        return None
    return Factor(len(step.ins), factor.inner)
