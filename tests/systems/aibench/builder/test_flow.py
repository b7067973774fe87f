"""Memory has generations, views share it, and what nobody made comes from outside."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from gnomon.ingest.execution.trace import TensorValue
from gnomon.systems.aibench.builder.flow import Flow, extent_bytes
from gnomon.systems.aibench.program import Call


def call() -> Call:
    return Call(
        "aten.x.default", [], {}, None, [], 0, 1, "operator", "x", reads=set(), writes=set()
    )


def tensor(number, storage, shape=(4, 4), strides=None, offset=0, dtype="float32"):
    count = 1
    for size in shape:
        count *= size
    strides = strides or tuple(4**at for at in reversed(range(len(shape))))
    return TensorValue(
        number, storage, offset, count, 4, "cuda:0", dtype, tuple(shape), tuple(strides)
    )


def take(flow, value, emitted=None):
    who = call()
    return flow.take(value, (emitted if emitted is not None else []).append, who)


def make(flow, *values):
    who = call()
    flow.give(values, who)
    return who


def test_what_nobody_made_comes_from_outside_once():
    flow = Flow()
    assert take(flow, tensor(1, 10)) == ["x", 0]
    assert take(flow, tensor(1, 10)) == ["x", 0]
    assert take(flow, tensor(2, 10, (16,), (1,))) == ["x", 1]
    assert len(flow.storages) == 1
    assert flow.storages[0].nbytes == 64


def test_a_result_is_read_from_its_register():
    flow = Flow()
    made = make(flow, tensor(1, 10))
    assert take(flow, tensor(1, 10)) == ["r", made.outs]


def test_the_same_view_under_another_name_is_the_same_register():
    flow = Flow()
    made = make(flow, tensor(1, 10))
    assert take(flow, tensor(7, 10)) == ["r", made.outs]


def test_another_view_of_made_memory_is_cut_from_it():
    flow, emitted = Flow(), []
    make(flow, tensor(1, 10))
    operand = take(flow, tensor(7, 10, (2, 4), (4, 1), offset=8), emitted)
    assert operand[0] == "r"
    assert len(emitted) == 1
    assert emitted[0].does == "aten.as_strided.default"
    assert emitted[0].args[1:] == [[2, 4], [4, 1], 8]
    assert take(flow, tensor(8, 10, (2, 4), (4, 1), offset=8)) == operand


def test_memory_that_is_used_again_is_new():
    flow = Flow()
    first = make(flow, tensor(1, 10))
    second = make(flow, tensor(1, 10, (2, 2), (2, 1)))
    assert take(flow, tensor(1, 10, (2, 2), (2, 1))) == ["r", second.outs]
    assert first.outs != second.outs
    # The old shape does not fit into what is there now: it must be something else.
    assert take(flow, tensor(9, 10))[0] == "x"


def test_a_view_that_is_returned_keeps_the_memory():
    flow = Flow()
    outside = tensor(1, 10)
    take(flow, outside)
    who = call()
    who.reads.add(flow.memory_of(outside).number)
    flow.give((tensor(2, 10, (16,), (1,)),), who)
    assert flow.memory_of(tensor(2, 10, (16,), (1,))) is flow.memory_of(outside)


def test_outside_floats_at_one_address_share_memory_but_whole_numbers_do_not():
    flow = Flow()
    take(flow, tensor(1, 10))
    make(flow, tensor(2, 10, (1,), (1,)))  # the address is used again, by a smaller one
    take(flow, tensor(3, 10))
    assert len(flow.storages) == 1
    take(flow, tensor(4, 20, dtype="int64"))
    make(flow, tensor(5, 20, (1,), (1,), dtype="int64"))
    take(flow, tensor(6, 20, dtype="int64"))
    assert len(flow.storages) == 3


def test_how_far_a_tensor_reaches():
    assert extent_bytes(tensor(1, 1, (4, 4), (4, 1))) == 64
    assert extent_bytes(tensor(1, 1, (4, 4), (1, 4), offset=2)) == 72
    assert extent_bytes(tensor(1, 1, (4, 4), (0, 1))) == 16
