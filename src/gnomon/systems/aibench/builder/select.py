"""Which nodes of a trace are replayed: the highest operator of each subtree that can stand alone.

Every node is judged by itself, never by its name. An operator is opened, and its children are
judged in its place, where running it whole would not be what was recorded:

- its work is all in its children (torch calls it composite), and one of them made something that
  is used later but is not among its results: what autograd saved for the backward pass;
- it, or something in it, calls itself with other types: autocast rewrote it;
- it chose an implementation by settings that the trace does not show;
- this torch does not have it, or an argument cannot be made.

What cannot be opened either gets a placeholder. Compiled kernels and collectives are leaves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Literal

import msgspec

from gnomon.ingest.execution.trace import ExecutionTrace, Node, OpaqueValue, TensorValue, Value
from gnomon.model.accelerator.collective_names import TORCH_COLLECTIVES
from gnomon.systems.aibench.builder.operators import Operator, load_torch, operator_of

Role = Literal["operator", "constructor", "collective", "wait", "kernel", "missing"]

#: Operators that pick one of their children by settings of the process.
_CHOOSERS = ("aten::scaled_dot_product_attention",)
_DETAILS = "record_param_comms"
#: Make room or look at what is there; an unknown operator that calls only these works by itself.
_PREPARES = (
    "aten::empty", "aten::new_empty", "aten::zeros", "aten::new_zeros", "aten::zero_",
    "aten::fill_",
    "aten::view", "aten::as_strided", "aten::reshape", "aten::resize", "aten::slice",
    "aten::select", "aten::contiguous", "aten::detach", "aten::item", "aten::_local_scalar_dense",
)  # fmt: skip
#: Describe the run, do no work.
_SILENT = ("profiler::", "prim::")


class Chosen(msgspec.Struct, frozen=True):
    """A node that is replayed, and how; `operator` is None where torch cannot read its schema."""

    at: int
    role: Role
    operator: Operator | None


def tensors_in(values: tuple[Value, ...]) -> Iterator[TensorValue]:
    """All tensors of some arguments, lists opened."""
    for value in values:
        if isinstance(value, TensorValue):
            yield value
        elif isinstance(value, tuple):
            yield from tensors_in(value)


def is_collective(node: Node) -> bool:
    """Whether a node is the call of a collective, or of a wait for one."""
    return node.name.startswith(TORCH_COLLECTIVES) or node.name == _DETAILS


def choose(trace: ExecutionTrace, constructors: Collection[str] = ()) -> list[Chosen]:
    """The nodes to replay, in the order in which they started."""
    return _Selection(trace, frozenset(constructors)).run()


class _Selection:
    def __init__(self, trace: ExecutionTrace, constructors: frozenset[str]) -> None:
        self.trace, self.constructors = trace, constructors
        self.first, self.last = _places(trace)
        self.uses = _uses(trace)
        self.rewritten = _rewritten(trace)
        self.chosen: list[Chosen] = []

    def run(self) -> list[Chosen]:
        for at, parent in enumerate(self.trace.parent_at):
            if parent < 0:
                self.visit(at)
        self.chosen.sort(key=lambda chosen: chosen.at)
        return self.chosen

    def visit(self, top: int) -> None:
        """Chooses below one root; a stack of its own, because traces nest deeper than Python."""
        waiting = [top]
        opened: list[tuple[int, int]] = []
        while waiting:
            at = waiting.pop()
            if at < 0:  # everything below an opened operator was seen
                node_at, before = opened.pop()
                if len(self.chosen) == before:
                    self.chosen.append(Chosen(node_at, "missing", self.operator(node_at)))
                continue
            role = self.role(at)
            if role is not None:
                self.chosen.append(Chosen(at, role, self.operator(at)))
                continue
            node = self.trace.nodes[at]
            if node.schema and not node.name.startswith(_SILENT):
                opened.append((at, len(self.chosen)))
                waiting.append(-1)
            waiting += reversed(self.trace.children_at[at])

    def operator(self, at: int) -> Operator | None:
        schema = self.trace.nodes[at].schema
        return operator_of(schema) if schema else None

    def role(self, at: int) -> Role | None:
        """What a node is replayed as; None to look at its children."""
        node = self.trace.nodes[at]
        if is_collective(node):
            is_wait = "wait" in (*node.inputs, node.attributes.get("collective_name"))
            return "wait" if is_wait else "collective"
        if node.kernel_backend:
            return "kernel"
        if node.name in self.constructors:
            return "constructor"
        if not node.schema or node.name.startswith(_SILENT):
            return None
        operator = self.operator(at)
        if operator is None or not operator.is_registered or operator.lacks:
            return None if self.delegates(at) else "missing"
        if not _can_be_given(node, operator) or at in self.rewritten:
            return None
        if not self.trace.children_at[at] or not _is_composite(operator.name, operator.overload):
            return "operator"
        return None if node.name in _CHOOSERS or self.leaks(at) else "operator"

    def delegates(self, at: int) -> bool:
        """Whether an operator that this torch lacks leaves its work to operators that it has."""
        names = (self.trace.nodes[child].name for child in self.below(at))
        return any("::" in name and not name.startswith(_PREPARES) for name in names)

    def leaks(self, at: int) -> bool:
        """Whether something made inside is used outside, and is none of the results."""
        node = self.trace.nodes[at]
        seen = {t.storage for t in tensors_in((*node.inputs, *node.outputs))}
        inside = list(self.below(at))
        for child in inside:
            held = {t.storage for t in tensors_in(self.trace.nodes[child].inputs)}
            for tensor in tensors_in(self.trace.nodes[child].outputs):
                made = tensor.storage
                if tensor.elements and made not in seen and made not in held:
                    seen.add(made)
                    if self.is_used_after(at, made):
                        return True
        return False

    def is_used_after(self, at: int, storage: int) -> bool:
        """Whether the next that touches a storage, outside a subtree, reads it."""
        uses = self.uses[storage]
        for place in range(bisect_right(uses, (at, True)), len(uses)):
            user, reads = uses[place]
            if not self.first[at] <= self.first[user] <= self.last[at]:
                return reads
        return False

    def below(self, at: int) -> Iterator[int]:
        waiting = list(self.trace.children_at[at])
        while waiting:
            child = waiting.pop()
            yield child
            waiting += self.trace.children_at[child]


def _can_be_given(node: Node, operator: Operator) -> bool:
    if len(node.inputs) > len(operator.arguments):
        return False
    for value, argument in zip(node.inputs, operator.arguments):
        if argument is None and value is not None:
            return False  # it meant something that this torch does not know
        if argument and argument.kind not in ("generator", "stream") and _is_opaque(value):
            return False
    return True


def _is_opaque(value: Value) -> bool:
    if isinstance(value, tuple):
        return any(_is_opaque(part) for part in value)
    if isinstance(value, TensorValue):
        return value.dtype.startswith("?")
    return isinstance(value, OpaqueValue)


@lru_cache(maxsize=1 << 12)
def _is_composite(name: str, overload: str) -> bool:
    """Whether all work of an operator is in the operators it calls."""
    torch = load_torch()
    full = name if overload == "default" else f"{name}.{overload}"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"))


def _places(trace: ExecutionTrace) -> tuple[list[int], list[int]]:
    """Each node's place in a walk through the tree, and the last place below it."""
    first, last = [0] * len(trace.nodes), [0] * len(trace.nodes)
    place = 0
    for top in (at for at, parent in enumerate(trace.parent_at) if parent < 0):
        waiting = [(top, False)]
        while waiting:
            at, is_done = waiting.pop()
            if is_done:
                last[at] = place - 1
                continue
            first[at] = place
            place += 1
            waiting.append((at, True))
            waiting += [(child, False) for child in trace.children_at[at]]
    return first, last


def _rewritten(trace: ExecutionTrace) -> set[int]:
    """Operators in which one calls itself with other types, as autocast makes it do."""
    found: set[int] = set()
    for at, node in enumerate(trace.nodes):
        parent = trace.parent_at[at]
        if parent < 0 or not node.schema or trace.nodes[parent].name != node.name:
            continue
        types = [tensor.dtype for tensor in tensors_in(node.inputs)]
        before = [tensor.dtype for tensor in tensors_in(trace.nodes[parent].inputs)]
        if types != before and len(types) == len(before):
            while parent >= 0 and parent not in found:
                found.add(parent)
                parent = trace.parent_at[parent]
    return found


def _uses(trace: ExecutionTrace) -> dict[int, list[tuple[int, bool]]]:
    """For each storage, the operators that touch it in order, and whether they read it."""
    uses: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for at, node in enumerate(trace.nodes):
        if not node.schema and not node.kernel_backend:
            continue
        read = {t.storage for t in tensors_in(node.inputs) if t.elements}
        for storage in read:
            uses[storage].append((at, True))
        for storage in {t.storage for t in tensors_in(node.outputs) if t.elements} - read:
            uses[storage].append((at, False))
    return uses
