"""What each call of a trace is part of: a phase of the step, a family of operators, a layer.

Phases are inferred from the caller: the autograd engine, or a mark that names the optimizer; and
where there is no mark, by data: what works on gradients without recording new ones is the
optimizer's. Layers are inferred from marks with a number in their name, else by repetition
(`repetition`). A backward call belongs to the layer of the forward call that left it to be done:
autograd numbers both alike.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from gnomon.ingest.execution.trace import ExecutionTrace, Node
from gnomon.model.accelerator.operator_family import FRAMEWORK, operator_family
from gnomon.systems.aibench.builder.select import is_collective, tensors_in
from gnomon.systems.aibench.compose.repetition import repeated_blocks

Phase = Literal["forward", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer")
FAMILIES = (
    "allocation", "attention", "communication", "compiled", "copy", "elementwise", "embedding",
    "gemm", "normalisation", "optimizer", "other", "reduction", "view",
)  # fmt: skip

_BACKWARD_SCOPE = 1
_ENGINE = "autograd::engine::evaluate_function"
#: The roots of a process and of its threads are written in brackets.
_ROOT = "["
_OPTIMIZES = re.compile(r"optimi[sz]er|zero_grad", re.IGNORECASE)
_ALLOCATES = re.compile(r"aten::(new_)?empty")
#: Work on how tensors lie in memory, though their schemas do not say so.
_LOOKS = ("aten::_unsafe_view", "aten::detach_", "aten::set_", "aten::resize_", "aten::transpose_")
_FETCHES = ("aten::item", "aten::_local_scalar_dense")
#: A result that shares the memory of an argument, and is not written: `Tensor(a)`, `Tensor(a)[]`.
_SHARES = re.compile(r"\([a-z]( -> \*)?\)")
_NUMBER = re.compile(r"([A-Za-z_]*)[\s._:#/\[(-]*?(\d+)")
#: Words before a number that counts blocks of a model.
_BLOCKS = frozenset((
    "layer", "layers", "block", "blocks", "h", "resblock", "resblocks", "encoderlayer",
    "decoderlayer", "transformerblock", "encoder_layer", "decoder_layer", "transformer_block",
    "encoder_layers", "decoder_layers",
))  # fmt: skip
#: Words before a number that counts time, not blocks.
_TIMES = ("step", "iter", "iteration", "epoch", "batch", "token", "request", "sample")


class Part(msgspec.Struct, frozen=True):
    """What a call is part of; `layer` is None outside of repeated blocks."""

    phase: Phase
    family: str
    layer: int | None


def parts_of(trace: ExecutionTrace, chosen: Sequence[int]) -> dict[int, Part]:
    """What each of the chosen nodes is part of, by place."""
    phases = phases_of(trace)
    layers = layers_of(trace, chosen, phases)
    return {at: Part(phases[at], family_of(trace.nodes[at]), layers[at]) for at in chosen}


def family_of(node: Node) -> str:
    """The family of a node: one of `FAMILIES`."""
    if is_collective(node):
        return "communication"
    if node.kernel_backend:
        return "compiled"
    if _ALLOCATES.match(node.name):
        return "allocation"
    if node.name in _FETCHES:
        return "copy"
    family = operator_family(node.name)
    if family == "other" and node.name in _LOOKS:
        return "view"
    if family == "other" and _SHARES.search(node.schema.rpartition("->")[2]):
        return "view"
    return "other" if family == FRAMEWORK else family


def phases_of(trace: ExecutionTrace) -> list[Phase]:
    """The phase of every node."""
    marked: list[Phase | None] = []
    for node, parent in zip(trace.nodes, trace.parent_at):
        own = _own_phase(node)
        above = marked[parent] if 0 <= parent < len(marked) else None
        marked.append(own or above)
    engine = set(_engine_threads(trace, marked))
    found: list[Phase | None] = [
        "backward" if phase is None and node.thread in engine else phase
        for node, phase in zip(trace.nodes, marked)
    ]
    _follow_gradients(trace, found)
    return [phase or "forward" for phase in found]


def _is_mark(node: Node) -> bool:
    return not node.schema and not node.kernel_backend and node.scope != _BACKWARD_SCOPE


def _own_phase(node: Node) -> Phase | None:
    """The phase that begins with a node; None where it goes on as before."""
    if node.scope == _BACKWARD_SCOPE or node.name.startswith(_ENGINE):
        return "backward"
    if not _is_mark(node):
        return None
    if _OPTIMIZES.search(node.name):
        return "optimizer"
    # A mark around both says nothing, and one around forward calls that the engine makes again
    # does not change that it is the engine that makes them.
    name = node.name.lower()
    return "backward" if "backward" in name and "forward" not in name else None


def _engine_threads(trace: ExecutionTrace, marked: Sequence[Phase | None]) -> Iterator[int]:
    """Threads of the autograd engine: they begin with a backward call."""
    seen: set[int] = set()
    for node, phase in zip(trace.nodes, marked):
        if node.schema and node.thread not in seen:
            seen.add(node.thread)
            if phase == "backward":
                yield node.thread


def _follow_gradients(trace: ExecutionTrace, phases: list[Phase | None]) -> None:
    """Finds what works on gradients outside of the backward pass, where there is no mark.

    Only calls without a sequence number are looked at: where autograd takes notes, gradients are
    part of a computation that goes on.
    """
    gradients: set[int] = set()
    for at, node in enumerate(trace.nodes):
        if not node.schema:
            continue
        read = {tensor.storage for tensor in tensors_in(node.inputs) if tensor.elements}
        made = {t.storage for t in tensors_in(node.outputs) if t.elements} - read
        if phases[at] is None and node.sequence < 0 and read & gradients:
            phases[at] = "optimizer"
        if phases[at] in ("backward", "optimizer"):
            gradients |= made
        else:
            gradients -= made


def layers_of(
    trace: ExecutionTrace, chosen: Sequence[int], phases: Sequence[Phase]
) -> list[int | None]:
    """The layer of every node, as far as it is in one."""
    layers = _marked(trace)
    if not any(layers[at] is not None for at in chosen):
        layers = _repeated(trace, chosen, phases)
    _hand_to_backward(trace, phases, layers)
    return [None if phase == "optimizer" else layer for phase, layer in zip(phases, layers)]


def _marked(trace: ExecutionTrace) -> list[int | None]:
    """Layers by the nearest mark that has a number."""
    numbers = _numbered_marks(trace)
    layers: list[int | None] = []
    is_block: list[bool] = []
    for at, parent in enumerate(trace.parent_at):
        layer, block = (layers[parent], is_block[parent]) if 0 <= parent < at else (None, False)
        if at in numbers and (numbers[at][1] or not block):
            layer, block = numbers[at]
        layers.append(layer)
        is_block.append(block)
    return layers


def _numbered_marks(trace: ExecutionTrace) -> dict[int, tuple[int, bool]]:
    """Marks that differ from others in a number only: the number, and whether it counts blocks."""
    found: dict[str, list[tuple[int, int, bool]]] = defaultdict(list)
    for at, node in enumerate(trace.nodes):
        if not _is_mark(node) or node.name.startswith((_ENGINE, _ROOT)):
            continue
        for match in _NUMBER.finditer(node.name):
            word = match[1].lower().strip("_")
            if not word.endswith(_TIMES):
                rest = f"{node.name[: match.start(2)]}#{node.name[match.end(2) :]}"
                found[rest].append((at, int(match[2]), word in _BLOCKS))
    numbers: dict[int, tuple[int, bool]] = {}
    for marks in found.values():
        if len({number for _, number, _ in marks}) < 2:
            continue
        for at, number, is_block in marks:
            if is_block or not numbers.get(at, (0, False))[1]:
                numbers[at] = number, is_block
    return numbers


def _repeated(
    trace: ExecutionTrace, chosen: Sequence[int], phases: Sequence[Phase]
) -> list[int | None]:
    """Layers by repetition among the forward calls, and of what is below them."""
    layers: list[int | None] = [None] * len(trace.nodes)
    for stretch in _stretches(trace, chosen, phases):
        for number, block in enumerate(repeated_blocks([trace.nodes[at] for at in stretch])):
            for place in block:
                layers[stretch[place]] = number
    for at, parent in enumerate(trace.parent_at):
        if 0 <= parent < at and layers[at] is None:
            layers[at] = layers[parent]
    return layers


def _stretches(
    trace: ExecutionTrace, chosen: Sequence[int], phases: Sequence[Phase]
) -> Iterator[list[int]]:
    """Forward calls with no other phase between them, and under the same outermost mark."""
    marks = _outermost_marks(trace)
    stretch: list[int] = []
    before: int | None = None
    for at in chosen:
        under = marks[at] if phases[at] == "forward" else -1
        if stretch and under != before:
            yield stretch
            stretch = []
        if under >= 0:
            stretch.append(at)
        before = under
    if stretch:
        yield stretch


def _outermost_marks(trace: ExecutionTrace) -> list[int]:
    """The outermost mark that each node is under; the thread's root where there is none."""
    marks: list[int] = []
    for at, parent in enumerate(trace.parent_at):
        if not 0 <= parent < at:
            marks.append(at)
            continue
        above = marks[parent]
        is_first = _is_mark(trace.nodes[at]) and trace.nodes[above].name.startswith(_ROOT)
        marks.append(at if is_first else above)
    return marks


def _hand_to_backward(
    trace: ExecutionTrace, phases: Sequence[Phase], layers: list[int | None]
) -> None:
    """Gives backward calls the layer of their forward call; the others that of the one before."""
    forward: dict[tuple[int, int], int | None] = {}
    for node, phase, layer in zip(trace.nodes, phases, layers):
        if phase == "forward" and node.sequence >= 0:
            # Whoever peeked at the number before has the same one; the last one took it.
            forward[node.thread, node.sequence] = layer
    latest: dict[int, int | None] = defaultdict(lambda: None)
    begins: dict[int, int | None] = {}
    for at, (node, parent) in enumerate(zip(trace.nodes, trace.parent_at)):
        if phases[at] != "backward":
            continue
        key = _forward_key(trace, at)
        if key in forward:
            begins[at] = latest[node.thread] = forward[key]
        elif parent in begins:
            begins[at] = begins[parent]
        elif layers[at] is None and not node.name.startswith(_ROOT):
            begins[at] = latest[node.thread]
        if at in begins:
            layers[at] = begins[at]


def _forward_key(trace: ExecutionTrace, at: int) -> tuple[int, int] | None:
    """Thread and number of the forward call that a call of the engine belongs to."""
    node = trace.nodes[at]
    if node.name.startswith(_ENGINE):
        # The engine's own frame has no number; what it evaluates does.
        below = (trace.nodes[child] for child in trace.children_at[at])
        node = next((child for child in below if child.scope == _BACKWARD_SCOPE), node)
    if node.scope != _BACKWARD_SCOPE or node.sequence < 0:
        return None
    return node.forward_thread, node.sequence
