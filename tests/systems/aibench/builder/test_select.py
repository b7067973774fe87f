"""Which operators are kept, on hand-made trees and on recorded ones."""

from __future__ import annotations

import json
from collections import Counter

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from gnomon.ingest.execution.trace import read_execution_trace
from gnomon.systems.aibench.builder.select import choose

LINEAR = "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor"
ADDMM = "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"
T = "aten::t(Tensor(a) self) -> Tensor(a)"
DROPOUT = "aten::dropout(Tensor input, float p, bool train) -> Tensor"
NATIVE_DROPOUT = "aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)"
EMPTY = "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor"
MUL = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor"


class Trace:
    """Writes an execution trace node by node."""

    def __init__(self) -> None:
        self.nodes = [
            self._node(1, "[process]", 1, "", [], []),
            self._node(2, "[|thread]", 1, "", [], []),
        ]

    def _node(self, id, name, parent, schema, inputs, outputs):
        def side(values):
            return {
                "values": [v[0] for v in values], "shapes": [v[1] for v in values],
                "types": [v[2] for v in values], "strides": [v[3] for v in values],
            }  # fmt: skip

        attrs = {
            "rf_id": id,
            "fw_parent": 0,
            "seq_id": -1,
            "scope": 0,
            "tid": 1,
            "fw_tid": 0,
            "op_schema": schema,
        }
        return {
            "id": id, "name": name, "ctrl_deps": parent, "inputs": side(inputs), "outputs": side(outputs),
            "attrs": [{"name": k, "type": "", "value": v} for k, v in attrs.items()],
        }  # fmt: skip

    def add(self, schema, inputs, outputs, parent=2, name=None):
        id = len(self.nodes) + 1
        self.nodes.append(
            self._node(
                id, name or schema.split("(")[0].split(".")[0], parent, schema, inputs, outputs
            )
        )
        return id

    def read(self, tmp_path):
        path = tmp_path / "et.json"
        path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": self.nodes}))
        return read_execution_trace(path)


def tensor(number, shape=(4, 4), dtype="float", device="cpu"):
    count = 1
    for size in shape:
        count *= size
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * shape[at + 1]
    size = {"float": 4, "c10::BFloat16": 2, "long int": 8, "bool": 1}[dtype]
    return [
        [number, number + 1000, 0, count, size, device],
        list(shape),
        f"Tensor({dtype})",
        strides,
    ]


def plain(value, type_):
    return [value, [], type_, []]


def names(trace, tmp_path, constructors=()):
    read = trace.read(tmp_path)
    return [(read.nodes[c.at].name, c.role) for c in choose(read, constructors)]


def test_a_closed_operator_is_kept_whole(tmp_path):
    trace = Trace()
    top = trace.add(LINEAR, [tensor(1), tensor(2), tensor(3, (4,))], [tensor(9)])
    trace.add(T, [tensor(2)], [tensor(4)], top)
    trace.add(
        ADDMM,
        [tensor(3, (4,)), tensor(1), tensor(4), plain(1, "Int"), plain(1, "Int")],
        [tensor(9)],
        top,
    )
    assert names(trace, tmp_path) == [("aten::linear", "operator")]


def dropout(trace, is_used):
    top = trace.add(DROPOUT, [tensor(1), plain(0.1, "Double"), plain(True, "Bool")], [tensor(5)])
    trace.add(
        NATIVE_DROPOUT,
        [tensor(1), plain(0.1, "Double"), plain(True, "Bool")],
        [tensor(5), tensor(6, dtype="bool")],
        top,
    )
    if is_used:
        trace.add(MUL, [tensor(5), tensor(6, dtype="bool")], [tensor(7)])


def test_an_operator_whose_inner_result_is_used_later_is_opened(tmp_path):
    trace = Trace()
    dropout(trace, is_used=True)
    assert names(trace, tmp_path) == [
        ("aten::native_dropout", "operator"),
        ("aten::mul", "operator"),
    ]


def test_the_same_operator_is_kept_where_nobody_uses_it(tmp_path):
    trace = Trace()
    dropout(trace, is_used=False)
    assert names(trace, tmp_path) == [("aten::dropout", "operator")]


def test_the_decision_is_by_node_not_by_name(tmp_path):
    trace = Trace()
    dropout(trace, is_used=False)
    dropout(trace, is_used=True)
    kept = [name for name, _ in names(trace, tmp_path)]
    # The mask of the first is made anew by the second before anybody reads it.
    assert kept == ["aten::dropout", "aten::native_dropout", "aten::mul"]


def test_autocast_is_seen_through(tmp_path):
    trace = Trace()
    half = "c10::BFloat16"
    top = trace.add(
        LINEAR, [tensor(1), tensor(2), plain("<None>", "None")], [tensor(9, dtype=half)]
    )
    inner = trace.add(
        LINEAR,
        [tensor(3, dtype=half), tensor(4, dtype=half), plain("<None>", "None")],
        [tensor(9, dtype=half)],
        top,
    )
    assert inner > top
    assert names(trace, tmp_path) == [("aten::linear", "operator")]
    assert choose(trace.read(tmp_path))[0].at == inner - 1


def test_an_operator_that_torch_lacks_gets_a_placeholder(tmp_path):
    trace = Trace()
    top = trace.add("mine::fused(Tensor x) -> Tensor", [tensor(1)], [tensor(5)])
    trace.add(
        EMPTY,
        [[[4, 4], [[], []], "GenericList[Int,Int]", [[], []]], *[plain("<None>", "None")] * 5],
        [tensor(5)],
        top,
    )
    assert names(trace, tmp_path) == [("mine::fused", "missing")]
    assert names(trace, tmp_path, ["mine::fused"]) == [("mine::fused", "constructor")]


def test_an_operator_that_torch_lacks_is_opened_where_others_do_its_work(tmp_path):
    trace = Trace()
    top = trace.add(
        "mine::wrapper(Tensor x, Tensor y) -> Tensor", [tensor(1), tensor(2)], [tensor(5)]
    )
    trace.add(MUL, [tensor(1), tensor(2)], [tensor(5)], top)
    assert names(trace, tmp_path) == [("aten::mul", "operator")]


def test_an_argument_that_cannot_be_made_opens_or_stands_in(tmp_path):
    trace = Trace()
    trace.add(MUL, [tensor(1), [["<Object>"], [], "Object", []]], [tensor(5)])
    trace.nodes[-1]["inputs"]["values"][1] = "<Object>"
    assert names(trace, tmp_path) == [("aten::mul", "missing")]


def test_recorded_models_keep_what_does_the_work(recorded):
    trace = read_execution_trace(recorded("gpt-adamw") / "et.json.gz")
    kept = Counter(trace.nodes[c.at].name for c in choose(trace))
    assert kept["aten::linear"] == 5
    assert kept["aten::native_layer_norm"] == kept["aten::native_layer_norm_backward"] == 2
    assert kept["aten::_fused_adamw_"] == 1
    assert kept["aten::layer_norm"] == kept["aten::scaled_dot_product_attention"] == 0
    assert all(c.role == "operator" for c in choose(trace))


def test_no_kept_operator_lies_inside_another(recorded):
    for name in ("cnn", "lstm", "autocast", "router"):
        trace = read_execution_trace(recorded(name) / "et.json.gz")
        kept = {c.at for c in choose(trace)}
        for at in kept:
            above = trace.parent_at[at]
            while above >= 0:
                assert above not in kept
                above = trace.parent_at[above]
