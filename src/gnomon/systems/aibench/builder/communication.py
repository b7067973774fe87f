"""Collectives as calls of a program: where they start, and who waits for them.

In a program every collective works in place: what a functional one returns is made first. A
collective that lets its caller go on gives a handle, and a later call waits for it: the wait that
was recorded, or one put before the first call that touches what the collective still moves.
Collectives of a group never overtake one another, whichever threads start them, because all ranks
have to start them in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from gnomon.ingest.execution.trace import ExecutionTrace, TensorValue
from gnomon.systems.aibench.builder.collectives import IN_PLACE, Collective, Groups, describe
from gnomon.systems.aibench.builder.flow import Flow, strides_of
from gnomon.systems.aibench.builder.operators import load_torch
from gnomon.systems.aibench.builder.select import tensors_in
from gnomon.systems.aibench.program import Call

PREFIX = "collective."
#: The argument for how long an emulated collective takes, in tenths of a microsecond;
#: below zero for a real one.
TENTHS = 5
#: Return a view where they can, and copy elsewhere.
_MAY_COPY = ("reshape", "contiguous", "to", "flatten", "reshape_as", "unflatten")
#: Where collectives run when no profiler trace shows their stream.
_STREAM = 1

Emit = Callable[[Call], None]


class _Pending(msgspec.Struct, eq=False):
    collective: Collective
    register: int
    token: int
    received: set[int]
    sent: set[int]


class Communication:
    """Turns nodes that communicate into calls, in order of start."""

    def __init__(self, trace: ExecutionTrace, flow: Flow) -> None:
        self.trace, self.flow = trace, flow
        self.groups = Groups(trace)
        self._numbers: dict[object, int] = {}
        self._orders: dict[object, int] = {}
        self._pending: list[_Pending] = []
        self._tokens = 0

    def encode(self, call: Call, emit: Emit) -> None:
        """Fills a call from its node, and binds what the node returned."""
        node = self.trace.nodes[call.at]
        collective = describe(self.trace, call.at, self.groups)
        if collective is None:
            for tensor in tensors_in(node.inputs):
                call.reads.add(self.flow.memory_of(tensor).number)
            self.flow.give(node.outputs, call)
        elif collective.kind == "wait":
            self._wait(collective, call, emit)
        elif collective.kind == "alias":
            self._alias(collective, call, emit)
        else:
            self._collective(collective, call, emit)

    def due(self, call: Call) -> list[Call]:
        """The waits that have to come before a call, because it touches what is under way."""
        if not self._pending or _only_looks(call.does):
            return []
        touched = call.reads | call.writes
        waits = []
        for one in list(self._pending):
            if one.received & touched or one.sent & call.writes:
                waits.append(_helper(PREFIX + "wait", [], call))
                self._end(one, waits[-1])
        return waits

    def _collective(self, collective: Collective, call: Call, emit: Emit) -> None:
        ins, outs = self._operands(collective, call, emit)
        kind = collective.kind
        call.does = PREFIX + kind
        group = collective.group
        number = self._numbers.setdefault(group.key, len(self._numbers))
        call.args = [
            ["L", *ins], ["L", *outs], [number, *group.runs()], _detail(collective),
            list(collective.shares), -1, int(not collective.is_async),
        ]  # fmt: skip
        for wait in self.due(call):
            emit(wait)
        # All collectives of a group write one token, so that they keep their order.
        if group.key not in self._orders:
            self._orders[group.key] = self._token()
        call.writes.add(self._orders[group.key])
        if collective.is_async:
            self._promise(collective, call)
            call.stream = _STREAM

    def _operands(
        self, collective: Collective, call: Call, emit: Emit
    ) -> tuple[list[Any], list[Any]]:
        ins = [self._take(tensor, call, emit, call.reads) for tensor in collective.ins]
        if collective.makes:
            outs = [
                self._make(tensor, source, collective.kind, call, emit)
                for tensor, source in zip(collective.outs, [*ins, *[None] * len(collective.outs)])
            ]
            ins = [] if collective.kind in IN_PLACE else ins
        else:
            outs = [self._take(tensor, call, emit, call.writes) for tensor in collective.outs]
        sent = {tensor.storage for tensor in collective.ins}
        for tensor in collective.outs:
            if sent and tensor.elements and tensor.storage not in sent:
                # What has to hold of what is received has to hold of what is sent.
                self.flow.memory_of(tensor).made_by = call
        return ins, outs

    def _take(self, tensor: TensorValue, call: Call, emit: Emit, used: set[int]) -> Any:
        operand = self.flow.take(tensor, emit, call)
        used.add(self.flow.memory_of(tensor).number)
        return operand

    def _make(self, tensor: TensorValue, source: Any, kind: str, call: Call, emit: Emit) -> Any:
        """A new tensor for a result: a copy of the input where the collective works in place."""
        if kind in IN_PLACE and source is not None:
            helper = _helper("aten.clone.default", [source], call)
            helper.reads = set(call.reads)
        else:
            args = [list(tensor.shape), list(strides_of(tensor))]
            helper = _helper("aten.empty_strided.default", args, call)
            device = ["v", int(tensor.device != "cpu")]
            helper.kwargs = {"dtype": ["d", tensor.dtype], "device": device}
        self.flow.give((tensor,), helper)
        for wait in self.due(helper):
            emit(wait)
        emit(helper)
        call.writes.add(self.flow.memory_of(tensor).number)
        return ["r", helper.outs]

    def _promise(self, collective: Collective, call: Call) -> None:
        register, token = self.flow.register(), self._token()
        call.outs = register
        call.metas = [self.flow.meta(_NOTHING)]
        received = {number for number in call.writes if number >= 0}
        call.writes.add(token)
        self._pending.append(_Pending(collective, register, token, received, set(call.reads)))

    def _wait(self, collective: Collective, call: Call, emit: Emit) -> None:
        """A recorded wait; for nothing where it belongs to a step that was not recorded."""
        call.does, call.args = PREFIX + "wait", [None]
        memories = {self.flow.memory_of(tensor).number for tensor in collective.outs}
        for one in self._pending:
            if one.received & memories or (
                collective.sequence is not None and one.collective.sequence == collective.sequence
            ):
                self._end(one, call)
                break
        for tensor in tensors_in(self.trace.nodes[call.at].outputs):
            if collective.ins and tensor.storage != collective.ins[0].storage:
                helper = _helper("aten.alias.default", [], call)
                helper.args = [self._take(collective.ins[0], helper, emit, helper.reads)]
                self.flow.give((tensor,), helper)
                emit(helper)

    def _end(self, one: _Pending, wait: Call) -> None:
        self._pending.remove(one)
        wait.args = [["r", one.register]]
        wait.reads |= {one.token, *one.received}

    def _alias(self, collective: Collective, call: Call, emit: Emit) -> None:
        """A wrapper around a tensor, under another name: using it uses the tensor."""
        before = self.flow.memory_of(collective.ins[0]).number
        call.does = "aten.alias.default"
        call.args = [self._take(collective.ins[0], call, emit, call.reads)]
        self.flow.give(collective.outs, call)
        for one in self._pending:
            if before in one.received and collective.outs:
                one.received.add(self.flow.memory_of(collective.outs[0]).number)

    def _token(self) -> int:
        """A number of no memory, for what has to wait for something else than data."""
        self._tokens += 1
        return -self._tokens


_NOTHING = TensorValue(0, 0, 0, 0, 1, "cpu", "uint8", (0,), None)


def _helper(does: str, args: list[Any], call: Call) -> Call:
    """A call beside another, with no time of its own."""
    return Call(does, args, {}, None, [], call.at, call.thread, "view", "communication",
                checks=[], reads=set(), writes=set(), frees=[], extra={})  # fmt: skip


def _detail(collective: Collective) -> Any:
    if collective.kind == "reduce":
        return ["L", collective.root, ["s", collective.how]]
    if collective.kind in ("all_reduce", "reduce_scatter"):
        return ["s", collective.how]
    return collective.root if collective.kind in ("broadcast", "gather", "scatter") else None


@lru_cache(maxsize=1 << 10)
def _only_looks(does: str) -> bool:
    """Whether an operator gives another view of a tensor, and touches no data."""
    namespace, _, rest = does.partition(".")
    base, _, overload = rest.rpartition(".")
    if namespace != "aten" or base in _MAY_COPY:
        return False
    torch = load_torch()
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{base}"):
        if (schema.overload_name or "default") == overload:
            return bool(schema.returns) and all(
                one.alias_info is not None and not one.alias_info.is_write
                for one in schema.returns
            )
    return False
