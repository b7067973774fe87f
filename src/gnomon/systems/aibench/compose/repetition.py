"""Blocks that repeat: the longest stretch of calls that is one sequence several times over."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnomon.graph.repeats import Repeat, longest_repeat
from gnomon.ingest.execution.trace import Node
from gnomon.systems.aibench.builder.select import tensors_in

#: A repetition that covers less of the calls than this, or fewer calls, is an accident.
_SHARE = 0.1
_CALLS = 6


def repeated_blocks(nodes: Sequence[Node]) -> list[range]:
    """The places of each block of the longest repetition; none where hardly anything repeats.

    Shapes that depend on data (how many tokens an expert gets) differ from block to block. Where
    no sequence repeats with its shapes, names are compared alone.
    """
    for signature in (_name_and_shapes, _name_and_ranks):
        numbers: dict[object, int] = {}
        codes = [numbers.setdefault(signature(node), len(numbers)) for node in nodes]
        found = longest_repeat(np.asarray(codes, np.int32))
        if found is None or found.period * found.times < max(_SHARE * len(nodes), _CALLS):
            continue
        start = found.start + _best_shift(nodes, found)
        begins = range(start, start + found.period * found.times, found.period)
        return [range(begin, begin + found.period) for begin in begins]
    return []


def _name_and_shapes(node: Node) -> object:
    return (
        node.name,
        tuple(tensor.shape for tensor in tensors_in(node.inputs)),
        tuple(tensor.shape for tensor in tensors_in(node.outputs)),
    )


def _name_and_ranks(node: Node) -> object:
    return node.name, tuple(len(tensor.shape) for tensor in tensors_in(node.inputs))


def _best_shift(nodes: Sequence[Node], found: Repeat) -> int:
    """Where blocks begin: where the fewest tensors are handed from one to the next.

    A block that begins one call too early or late shares more with its neighbour than its result.
    """
    shifts = range(min(found.slack, found.period - 1) + 1)
    middle = found.start + found.period * (found.times // 2)
    return min(shifts, key=lambda shift: _handed_on(nodes, middle + shift, found.period))


def _handed_on(nodes: Sequence[Node], cut: int, period: int) -> int:
    """How many tensors the calls before a cut made that those behind it read."""
    made: set[int] = set()
    for node in nodes[max(cut - period, 0) : cut]:
        made |= {tensor.storage for tensor in tensors_in(node.outputs) if tensor.elements}
    read: set[int] = set()
    for node in nodes[cut : cut + period]:
        read |= {tensor.storage for tensor in tensors_in(node.inputs) if tensor.elements} & made
        made -= {tensor.storage for tensor in tensors_in(node.outputs) if tensor.elements}
    return len(read)
