"""PyTorch execution traces: every operator a job called, with what it took and gave.

Schemas 1.0.x and 1.1.x, with or without Chakra's spelling. Which spelling a node has follows from
the node, not from the schema's number: versions and spellings do not always go together.
"""

from __future__ import annotations

import itertools
import os
import re
from functools import cached_property

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.archive import read_document
from gnomon.ingest.execution.json_text import WrittenNode, WrittenSide, WrittenTrace, decode_trace
from gnomon.ingest.execution.value import (
    DeviceValue,
    MalformedValue,
    OpaqueValue,
    TensorValue,
    Value,
    ValueReader,
)
from gnomon.ingest.profiler.kineto import ProcessGroup

__all__ = [
    "DeviceValue",
    "ExecutionTrace",
    "Node",
    "OpaqueValue",
    "TensorValue",
    "Value",
    "looks_like_execution_trace",
    "read_execution_trace",
]

#: Schemas begin with one of these; what follows has only ever added fields.
_KNOWN = ("1.0.", "1.1.")
_GROUPS = "## process_group:init ##"
_THREAD = "|thread]"
_BACKWARD_SCOPE = 1


class Node(msgspec.Struct, frozen=True, gc=False):
    """One call of an operator, or a mark around calls.

    `parent` is the id of the node it was called from (its own id for the root), `forward_parent`
    and `forward_thread` lead from a backward operator to its forward one, `record_id` is what a
    Kineto trace of the same run calls "Record function id". `ranges` are least and greatest
    elements of integer tensors, by place among the tensors of the inputs, those in lists counted
    one by one. `attributes` is what else the trace says, such as a collective's sizes.
    """

    id: int
    name: str
    parent: int
    thread: int
    forward_thread: int
    forward_parent: int
    sequence: int
    scope: int
    record_id: int
    schema: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    kernel_backend: str
    kernel_file: str
    ranges: dict[int, tuple[float, float]]
    attributes: dict[str, object]


class ExecutionTrace(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The nodes of one process, in the order they started (that of their ids).

    `adopted` counts nodes whose caller was aborted, and so never written: activation recompute
    stops its last operator half-way. They hang from their thread.
    """

    source: str
    schema: str
    nodes: tuple[Node, ...]
    groups: tuple[ProcessGroup, ...]
    adopted: int = 0

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def _places(self) -> dict[int, int]:
        return {node.id: place for place, node in enumerate(self.nodes)}

    def node_at(self, id: int) -> Node:
        """The node with this id; KeyError where there is none."""
        return self.nodes[self._places[id]]

    @cached_property
    def parent_at(self) -> tuple[int, ...]:
        places = self._places
        return tuple(-1 if n.parent == n.id else places[n.parent] for n in self.nodes)

    @cached_property
    def children_at(self) -> tuple[tuple[int, ...], ...]:
        """Where in `nodes` each node's children are, in the order they started."""
        children: list[list[int]] = [[] for _ in self.nodes]
        for place, parent in enumerate(self.parent_at):
            if parent >= 0:
                children[parent].append(place)
        return tuple(tuple(places) for places in children)


def looks_like_execution_trace(head: bytes) -> bool:
    """Whether the first bytes of a file are those of an execution trace.

    >>> looks_like_execution_trace(b'{"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": [')
    True
    >>> looks_like_execution_trace(b'{"schemaVersion": 1, "traceEvents": [')
    False
    """
    return head.lstrip().startswith(b"{") and (
        _SCHEMA.search(head) is not None or (b'"nodes"' in head and b'"ctrl_deps"' in head)
    )


_SCHEMA = re.compile(rb'"schema"\s*:\s*"\d+\.\d+\.\d+')


def read_execution_trace(
    path: str | os.PathLike[str], member: str | None = None
) -> ExecutionTrace:
    """Reads .json, as it is or as .gz, .zst, .tar, .tar.gz; `FILE:MEMBER` names a member."""
    raw, source = read_document(path, member, "execution trace", looks_like_execution_trace)
    return _trace(decode_trace(raw, source), source)


def _trace(written: WrittenTrace, where: str) -> ExecutionTrace:
    schema = written.schema
    known = "known are 1.0.x and 1.1.x, with or without '-chakra...'"
    if schema is None:
        raise InputError("says no schema", where=where, hint=known)
    if not schema.startswith(_KNOWN):
        raise InputError(f"its schema {schema!r:.40} is not known", where=where, hint=known)
    if not written.nodes:
        hint = "was anything recorded?"
        raise InputError("the trace has no nodes", where=where, hint=hint)
    values = ValueReader()
    nodes = [_node(node, at, values, where) for at, node in enumerate(written.nodes)]
    nodes.sort(key=lambda node: node.id)
    nodes, adopted = _adopt(nodes)
    _check_tree(nodes, where)
    return ExecutionTrace(where, schema, tuple(nodes), _groups(nodes), adopted)


def _node(written: WrittenNode, at: int, values: ValueReader, where: str) -> Node:
    id, name = written.id, written.name
    if id is None or name is None:
        missing = "'id'" if id is None else "'name'"
        label = f" ({name!r:.60})" if name is not None else ""
        raise InputError(f"node {at + 1:,} of the file{label} has no {missing}", where=where)
    attributes = {each.name: each.value for each in written.attrs}
    try:
        return Node(
            id, name, _parent(written),
            _number(attributes, "tid", written.tid),
            _number(attributes, "fw_tid", written.fw_tid),
            _number(attributes, "fw_parent", written.fw_parent),
            _number(attributes, "seq_id", written.seq_id),
            _number(attributes, "scope", written.scope),
            _number(attributes, "rf_id", written.rf_id),
            _text(attributes, "op_schema", written.op_schema),
            _side(written, "input", values), _side(written, "output", values),
            _text(attributes, "kernel_backend"), _text(attributes, "kernel_file"),
            _ranges(_text(attributes, "tensor_range")),
            {key: value for key, value in attributes.items() if value not in ("", None, [])},
        )  # fmt: skip
    except MalformedValue as error:
        raise InputError(f"node {id} ({name!r:.60}): {error}", where=where) from None


def _parent(written: WrittenNode) -> int:
    parent = written.parent if written.ctrl_deps is None else written.ctrl_deps
    if isinstance(parent, list):
        parent = parent[0] if len(parent) == 1 else None
    if parent is None:
        raise MalformedValue("it does not say its one parent")
    return parent


def _number(attributes: dict[str, object], name: str, otherwise: int) -> int:
    value = attributes.pop(name, otherwise)
    if type(value) is not int:
        raise MalformedValue(f"its {name!r} is {value!r:.40}, not a number")
    return value


def _text(attributes: dict[str, object], name: str, otherwise: str = "") -> str:
    value = attributes.pop(name, otherwise)
    if not isinstance(value, str):
        raise MalformedValue(f"its {name!r} is {value!r:.40}, not a text")
    return value


def _side(written: WrittenNode, name: str, values: ValueReader) -> tuple[Value, ...]:
    side = getattr(written, f"{name}s")
    if isinstance(side, WrittenSide):
        return values.read(side.values, side.shapes, side.types, side.strides)
    flat = (getattr(written, f"{name}_{part}") for part in ("shapes", "types", "strides"))
    return values.read(side, *flat)


def _ranges(text: str) -> dict[int, tuple[float, float]]:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[int, tuple[float, float]])
    except (msgspec.DecodeError, UnicodeError):
        raise MalformedValue(f"its 'tensor_range' is {text!r:.40}") from None


def _adopt(nodes: list[Node]) -> tuple[list[Node], int]:
    """Hangs what an aborted operator called from its thread, on threads that recompute.

    There operators inside the backward pass are recorded for a backward pass of their own.
    Anywhere else a missing caller means a damaged trace.
    """
    parents = {node.id: node.parent for node in nodes}
    if all(node.parent in parents for node in nodes):
        return nodes, 0
    backward: set[int] = set()
    recompute: set[int] = set()
    for node in nodes:  # parents come before their children
        if node.scope == _BACKWARD_SCOPE or node.parent in backward:
            backward.add(node.id)
            if node.schema and node.sequence >= 0:
                recompute.add(node.thread)
    roots = {node.thread: node.id for node in reversed(nodes) if node.name.endswith(_THREAD)}
    adopted = 0
    for at, node in enumerate(nodes):
        if node.parent not in parents and node.thread in recompute and node.thread in roots:
            nodes[at] = msgspec.structs.replace(node, parent=roots[node.thread])
            adopted += 1
    return nodes, adopted


def _check_tree(nodes: list[Node], where: str) -> None:
    known = {node.id for node in nodes}
    if len(known) < len(nodes):
        twice = next(a for a, b in itertools.pairwise(nodes) if a.id == b.id)
        raise InputError(f"two nodes have the id {twice.id} ({twice.name!r:.60})", where=where)
    for node in nodes:
        if node.parent not in known:
            what = f"node {node.id} ({node.name!r:.60}) was called from node {node.parent}"
            hint = "was the recording stopped inside an operator, or did its observer warn of one?"
            raise InputError(f"{what}, which is not there", where=where, hint=hint)
    # A parent starts before its children, so ids alone show almost every trace to be a tree.
    if any(node.parent > node.id for node in nodes):
        _check_no_cycle(nodes, where)


def _check_no_cycle(nodes: list[Node], where: str) -> None:
    parent = {node.id: node.parent for node in nodes}
    sound: set[int] = set()
    for node in nodes:
        path: list[int] = []
        id, seen = node.id, set[int]()
        while id not in sound:
            if id in seen:
                what = f"node {node.id} ({node.name!r:.60}) is called from itself"
                raise InputError(f"{what}, through node {parent[id]}", where=where)
            seen.add(id)
            path.append(id)
            if parent[id] == id:
                break
            id = parent[id]
        sound.update(path)


class _Group(msgspec.Struct, gc=False):
    pg_name: str = ""
    ranks: list[int] = []
    group_size: int = 0


def _groups(nodes: list[Node]) -> tuple[ProcessGroup, ...]:
    groups: dict[str, ProcessGroup] = {}
    for node in nodes:
        if node.name == _GROUPS and node.inputs and isinstance(text := node.inputs[0], str):
            try:
                found = msgspec.json.decode(text, type=list[_Group], strict=False)
            except (msgspec.DecodeError, UnicodeError):
                continue  # nice to have: a trace is not refused for want of it
            for group in found:
                # No ranks are written for a group of all of them.
                ranks = tuple(group.ranks) or tuple(range(min(group.group_size, 1 << 20)))
                groups[group.pg_name] = ProcessGroup(group.pg_name, ranks)
    return tuple(groups.values())
