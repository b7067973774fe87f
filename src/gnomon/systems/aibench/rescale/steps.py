"""The calls of a trace with the memory they work on, and what comes from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import ExecutionTrace, Node, TensorValue
from gnomon.systems.aibench.builder.flow import Flow
from gnomon.systems.aibench.builder.select import Chosen, tensors_in
from gnomon.systems.aibench.compose.parts import phases_of
from gnomon.systems.aibench.program import Call

#: Arguments that are parameters of a model, whatever their size.
PARAMETERS = ("weight", "bias", "running_mean", "running_var", "weights", "params")


class Step(msgspec.Struct, frozen=True, eq=False):
    """A chosen node, and the number of the memory that each of its tensors lies in.

    Tensors in lists are counted one by one; one without elements lies nowhere (-1).
    """

    chosen: Chosen
    node: Node
    ins: tuple[tuple[TensorValue, int], ...]
    outs: tuple[tuple[TensorValue, int], ...]

    @property
    def read(self) -> set[int]:
        """The memory it is given."""
        return {memory for _, memory in self.ins}


class Source(msgspec.Struct, eq=False):
    """Memory from outside that may carry the batch.

    Attributes:
        tensor: The first tensor that is read from it.
        is_ragged: Whether it holds so and so many indices of each of a batch.
    """

    tensor: TensorValue
    is_forward: bool
    is_ragged: bool = False


def follow(
    trace: ExecutionTrace, chosen: Sequence[Chosen]
) -> tuple[list[Step], dict[int, Source]]:
    """The chosen nodes, and the memory that comes from outside and is no parameter."""
    flow = Flow()
    steps = list(_steps(trace, chosen, flow))
    outside = {memory.number for memory in flow.memories if memory.storage is not None}
    return steps, sources_of(trace, steps, outside)


def _steps(trace: ExecutionTrace, chosen: Sequence[Chosen], flow: Flow) -> Iterator[Step]:
    for one in chosen:
        node = trace.nodes[one.at]
        ins = tuple((t, flow.memory_of(t).number) for t in tensors_in(node.inputs))
        call = Call("", [], {}, None, [], one.at, node.thread, one.role, node.name,
                    reads={number for _, number in ins}, writes=set())  # fmt: skip
        flow.give(node.outputs, call)
        outs = tuple(
            (t, flow.memory_of(t).number if t.elements else -1) for t in tensors_in(node.outputs)
        )
        yield Step(one, node, ins, outs)


def sources_of(
    trace: ExecutionTrace, steps: Iterable[Step], outside: set[int]
) -> dict[int, Source]:
    """Memory from outside that is no parameter and no state of the optimizer."""
    phases = phases_of(trace)
    found: dict[int, Source] = {}
    kept: set[int] = set()
    for step in steps:
        phase = phases[step.chosen.at]
        is_bag = "embedding_bag" in step.node.name
        for (tensor, memory), name in zip(step.ins, argument_names(step)):
            if memory not in outside:
                continue
            if name in PARAMETERS or phase == "optimizer":
                kept.add(memory)
            known = found.setdefault(memory, Source(tensor, phase == "forward"))
            known.is_ragged |= is_bag and name in ("indices", "per_sample_weights")
    return {
        memory: source for memory, source in found.items()
        if memory not in kept and source.tensor.elements > 1 and source.tensor.shape
    }  # fmt: skip


def argument_names(step: Step) -> list[str]:
    """The name of the argument that each tensor is given as; "" where it has none."""
    operator = step.chosen.operator
    arguments = operator.arguments if operator is not None else ()
    names: list[str] = []
    for at, value in enumerate(step.node.inputs):
        argument = arguments[at] if at < len(arguments) else None
        count = sum(1 for _ in tensors_in((value,)))
        names += [argument.name if argument else ""] * count
    return names


def find_batch(sources: Iterable[Source], where: str) -> int:
    """The most common first size of what comes from outside to the forward pass."""
    tensors = [
        source.tensor for source in sources
        if source.is_forward and not source.is_ragged and source.tensor.shape[0] > 1
    ]  # fmt: skip
    if not tensors:
        raise InputError(
            "nothing that comes from outside shows the size of the batch", where=where,
            hint="give it with --batch",
        )  # fmt: skip
    counts = Counter(tensor.shape[0] for tensor in tensors)
    # Of equals what looks like indices, then the largest: inputs are larger than tables.
    likeliest = max(
        tensors,
        key=lambda t: (counts[t.shape[0]], t.dtype in ("int64", "int32"), t.elements),
    )
    return likeliest.shape[0]
