"""What a node of a trace communicates: which collective, on which tensors, among which ranks.

Operators of `c10d` write into tensors they are given, those of `_c10d_functional` return new ones;
which is which is inferred from the names of their arguments, which have changed less over the
years than their order. Ranks and sequence numbers are in a node of their own below,
`record_param_comms`, whose list of inputs has only ever grown around the name of the collective:

    [tensors,] sequence, group, rank, NAME, in splits, out splits [, first, stride, size [, async]]
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from gnomon.ingest.execution.trace import ExecutionTrace, Node, TensorValue, Value
from gnomon.model.accelerator.collective_names import collective_kind
from gnomon.systems.aibench.builder.select import tensors_in

DETAILS = "record_param_comms"
#: Kinds whose result lies where the input lay.
IN_PLACE = ("all_reduce", "broadcast", "reduce")
_ROOTS = ("root_rank", "src")
_ASYNC = ("async_op", "asyncOp")
_NOT_A_GROUP = ("", "mpi::undefined")


class Group(msgspec.Struct, frozen=True):
    """Ranks that communicate among themselves.

    Attributes:
        key: What the trace calls it; never written.
        ranks: Who they are; empty where only their number is known.
        size: How many they are.
        is_world: Whether they are all ranks of the job.
    """

    key: object
    ranks: tuple[int, ...]
    size: int
    is_world: bool

    def runs(self) -> list[int]:
        """The ranks as first, stride and count of each run; nothing for all of them.

        >>> Group("tp", (4, 5, 6, 7), 4, False).runs(), Group("x", (0, 1, 5), 3, False).runs()
        ([4, 1, 4], [0, 1, 2, 5, 1, 1])
        """
        if self.is_world or not self.ranks:
            return []
        runs: list[int] = []
        at = 0
        while at < len(self.ranks):
            end = at + 1
            step = self.ranks[end] - self.ranks[at] if end < len(self.ranks) else 1
            while end < len(self.ranks) and self.ranks[end] - self.ranks[end - 1] == step:
                end += 1
            runs += [self.ranks[at], step, end - at]
            at = end
        return runs


class Collective(msgspec.Struct, frozen=True):
    """What one node communicates.

    Attributes:
        kind: `all_reduce`, `all_gather`, ..., `send`, `recv`, `barrier`, `wait`, or `alias` for
            what only passes a tensor on.
        ins: What is sent.
        outs: What is received.
        makes: Whether the outs are new tensors, not given ones.
        group: Among whom.
        shares: Elements that go to the rank itself, the next one, ...; empty for even shares.
        how: How numbers are reduced.
        root: Who sends or gets.
        is_async: Whether the caller goes on meanwhile.
        sequence: What a wait calls it by; never written.
    """

    kind: str
    ins: tuple[TensorValue, ...]
    outs: tuple[TensorValue, ...]
    makes: bool
    group: Group
    shares: tuple[int, ...]
    how: str
    root: int
    is_async: bool
    sequence: object

    @property
    def bytes_in(self) -> int:
        """Bytes that this rank puts in."""
        return sum(tensor.elements * tensor.item_bytes for tensor in self.ins or self.outs)

    @property
    def bytes_out(self) -> int:
        """Bytes that this rank gets out."""
        return sum(tensor.elements * tensor.item_bytes for tensor in self.outs or self.ins)


class _Details(msgspec.Struct, frozen=True):
    """The fields of a `record_param_comms` node."""

    name: str
    sequence: object
    key: object
    rank: int
    in_splits: tuple[Value, ...]
    first: int
    stride: int
    size: int


class Groups:
    """The process groups of a trace."""

    def __init__(self, trace: ExecutionTrace) -> None:
        self._ranks: dict[object, tuple[int, ...]] = {g.name: g.ranks for g in trace.groups}
        self._sizes: dict[object, int] = {g.name: len(g.ranks) for g in trace.groups}
        for node in trace.nodes:
            if node.name == DETAILS and (details := _details_of(node)) is not None:
                self._note(details)
        highest = max((rank for ranks in self._ranks.values() for rank in ranks), default=0)
        #: Ranks of the recorded job, as far as its groups show.
        self.world = max(highest + 1, *self._sizes.values(), 1)

    def _note(self, details: _Details) -> None:
        if details.key is None or details.name == "wait":
            return
        size = max(details.size, len(details.in_splits))
        self._sizes[details.key] = max(size, self._sizes.get(details.key, 0))
        if (
            details.key not in self._ranks
            and min(details.size, details.stride) > 0 <= details.first
        ):
            end = details.first + details.stride * details.size
            self._ranks[details.key] = tuple(range(details.first, end, details.stride))

    def of(self, key: object) -> Group:
        """The group that goes by a key; the whole job where the trace does not name it."""
        ranks = tuple(sorted(self._ranks.get(key, ())))
        size = len(ranks) or self._sizes.get(key, 0) or self.world
        return Group(key, ranks, size, size == self.world)


def describe(trace: ExecutionTrace, at: int, groups: Groups) -> Collective | None:
    """What a node communicates; None where its name is unknown."""
    node = trace.nodes[at]
    details, waiting = None, [at]
    while waiting and details is None:  # at the node, or below it
        details = _details_of(trace.nodes[place := waiting.pop()])
        waiting += reversed(trace.children_at[place])
    name = details.name if node.name == DETAILS and details else node.name
    kind = collective_kind(name)
    if kind is None:
        return None
    given = dict(zip(_argument_names(node.schema), node.inputs))
    ins, outs, makes = _sides(kind, node, given)
    splits = given.get("input_split_sizes") or (details.in_splits if details else ())
    how = given.get("reduce_op")
    roots = [root for name in _ROOTS if isinstance(root := given.get(name), int)]
    is_async = [given[name] for name in _ASYNC if name in given]
    key: object = details.key if details else None
    if key is None and isinstance(given.get("group_name"), str):
        key = given["group_name"]
    return Collective(
        kind, ins, outs, makes, groups.of(key),
        _shares(splits, ins, details.rank if details else 0) if kind == "all_to_all" else (),
        how.upper() if isinstance(how, str) else "SUM", roots[0] if roots else 0,
        not is_async or is_async[0] is not False, details.sequence if details else None,
    )  # fmt: skip


def _sides(
    kind: str, node: Node, given: dict[str, Value]
) -> tuple[tuple[TensorValue, ...], tuple[TensorValue, ...], bool]:
    """What goes in, what comes out, and whether that is new."""
    if not given:  # no schema: the details themselves
        ins = tuple(tensors_in(node.inputs))
        outs, makes = tuple(tensors_in(node.outputs)), False
        same = {tensor.storage for tensor in ins} == {tensor.storage for tensor in outs}
        ins = () if kind in IN_PLACE and same else ins
    else:
        by_side: dict[str, list[TensorValue]] = {"in": [], "out": [], "both": []}
        for name, value in given.items():
            side = "in" if name.startswith("input") else "both"
            by_side["out" if name.startswith("out") else side] += tensors_in((value,))
        both = tuple(by_side["both"])
        ins, outs = (*by_side["in"], *both), (*by_side["out"], *both)
        makes = not outs and node.name.startswith("_c10d_functional")
        if makes:
            outs = tuple(tensors_in(node.outputs))
            known = {tensor.storage for tensor in ins}
            makes = not all(tensor.storage in known for tensor in outs if tensor.elements)
    if kind == "barrier":
        return (), (), False
    if kind == "send":
        return ins or outs, (), False
    if kind == "recv" or (kind in IN_PLACE and not makes):
        return (), outs or ins, False
    return ins, outs, makes


@lru_cache(maxsize=256)
def _argument_names(schema: str) -> tuple[str, ...]:
    """The names of a schema's arguments, in order.

    >>> _argument_names("c10d::send(Tensor[] tensors, int dst, int tag=0) -> Work")
    ('tensors', 'dst', 'tag')
    """
    inside = schema.partition("(")[2].rpartition(") ->")[0]
    parts = (part.partition("=")[0].split() for part in inside.split(","))
    return tuple(part[-1] for part in parts if part and part[-1] != "*")


def _shares(splits: Value, ins: tuple[TensorValue, ...], rank: int) -> tuple[int, ...]:
    """Elements by how far away the rank is that gets them; none where all get the same."""
    if len(ins) > 1:
        counts = [tensor.elements for tensor in ins]
    elif ins and isinstance(splits, tuple):
        rows = [rows for rows in splits if isinstance(rows, int)]
        width = ins[0].elements // sum(rows) if sum(rows) else 0
        counts = [number * width for number in rows]
    else:
        return ()
    if len(set(counts)) < 2 or sum(counts) != sum(tensor.elements for tensor in ins):
        return ()
    return tuple(counts[(rank + distance) % len(counts)] for distance in range(len(counts)))


def _details_of(node: Node) -> _Details | None:
    """The fields of a `record_param_comms` node; None for another, or one in an unknown form."""
    if node.name != DETAILS:
        return None
    values = node.inputs
    for at in range(3, len(values) - 2):
        name, sends, gets = values[at : at + 3]
        if isinstance(name, str) and isinstance(sends, tuple) and isinstance(gets, tuple):
            rank = values[at - 1]
            rest = [value if type(value) is int else 0 for value in (*values[at + 3 :], 0, 0, 0)]
            return _Details(
                name, values[at - 3], _group_key(values[at - 2]),
                rank if type(rank) is int else 0, sends, rest[0], rest[1], rest[2],
            )  # fmt: skip
    return None


def _group_key(value: Value) -> object:
    """A name with or without a description, or in old traces an address."""
    if isinstance(value, tuple):
        value = value[0] if value else None
    return None if value in _NOT_A_GROUP or value == 0 else value
