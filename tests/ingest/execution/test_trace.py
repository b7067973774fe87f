"""Execution traces of every schema, whole and broken."""

from __future__ import annotations

import copy
import gzip
import io
import json
import math
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import (
    DeviceValue,
    OpaqueValue,
    TensorValue,
    looks_like_execution_trace,
    read_execution_trace,
)
from gnomon.ingest.execution.value import ValueReader, dtype_name, split_types
from gnomon.ingest.formats import identify

CHAKRA = "1.1.1-chakra.0.0.4"


def side(*entries, strides=True):
    """One side of a node from (value, shape, type, strides) entries."""
    written = {
        "values": [entry[0] for entry in entries],
        "shapes": [entry[1] for entry in entries],
        "types": [entry[2] for entry in entries],
    }
    return written | {"strides": [entry[3] for entry in entries]} if strides else written


def node(id, name, parent, inputs=(), outputs=(), strides=True, **attributes):
    given = {"rf_id": id, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0,
             "op_schema": "", **attributes}  # fmt: skip
    return {
        "id": id, "name": name, "ctrl_deps": parent,
        "inputs": side(*inputs, strides=strides), "outputs": side(*outputs, strides=strides),
        "attrs": [{"name": k, "type": "string", "value": v} for k, v in given.items()],
    }  # fmt: skip


def flat(written):
    """The same node as schema 1.0.1 spells it."""
    attributes = {each["name"]: each["value"] for each in written["attrs"]}
    result = {"name": written["name"], "id": written["id"], "parent": written["ctrl_deps"]}
    for key in ("inputs", "outputs"):
        result |= {
            key: written[key]["values"],
            f"{key[:-1]}_shapes": written[key]["shapes"],
            f"{key[:-1]}_types": written[key]["types"],
        }
    names = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")
    return result | {name: attributes[name] for name in names}


WEIGHT = ([14, 15, 8, 12, 2, "cuda:0"], [3, 4], "Tensor(c10::BFloat16)", [4, 1])
INPUTS = (
    WEIGHT,
    ([2, True], [[], []], "GenericList[Int,Bool]", [[], []]),
    ("<None>", [], "None", []),
    ("cuda:0", [], "Device", []),
    (1e-05, [], "Double", []),
    ("tanh", [], "String", []),
    ("<Generator>", [], "Generator", []),
    ([7, 0, 0, 0, 0, ""], [], "Tensor(nullptr (uninitialized))", []),
)
ROOT = node(1, "[pytorch|profiler|execution_trace|process]", 1)
NODES = [
    node(
        4, "aten::mm", 3, INPUTS, [WEIGHT], seq_id=9, op_schema="aten::mm(Tensor self) -> Tensor"
    ),
    node(3, "## forward ##", 2),
    node(2, "[pytorch|profiler|execution_trace|thread]", 1),
    ROOT,
]


def write(path, nodes=NODES, schema=CHAKRA, **top):
    path.write_text(json.dumps({"schema": schema, "pid": 7, "nodes": nodes, **top}))
    return path


def read(path, *nodes, schema=CHAKRA):
    return read_execution_trace(write(path / "et.json", [*nodes, ROOT], schema))


def without_strides(nodes):
    nodes = copy.deepcopy(nodes)
    for each in nodes:
        del each["inputs"]["strides"], each["outputs"]["strides"]
    return nodes


def half_flat(nodes):
    """Chakra's tree and attributes with the older spelling of the arguments."""
    kept = ("ctrl_deps", "attrs", "id", "name")
    return [flat(each) | {key: each[key] for key in kept} for each in nodes]


@pytest.mark.parametrize(
    ("schema", "nodes", "strides"),
    [
        ("1.0.1", [flat(each) for each in NODES], None),
        ("1.0.2-chakra.0.0.4", half_flat(NODES), None),
        ("1.0.2-chakra.0.0.4", without_strides(NODES), None),
        ("1.0.3-chakra.0.0.4", without_strides(NODES), None),
        ("1.0.4-chakra.0.0.4", without_strides(NODES), None),
        ("1.1.0-chakra.0.0.4", without_strides(NODES), None),
        ("1.1.1-chakra.0.0.4", NODES, (4, 1)),
    ],
)
def test_every_schema_gives_the_same_nodes(tmp_path, schema, nodes, strides):
    trace = read_execution_trace(write(tmp_path / "et.json", nodes, schema))
    assert trace.schema == schema
    assert [each.id for each in trace.nodes] == [1, 2, 3, 4]
    assert trace.parent_at == (-1, 0, 1, 2)
    assert trace.children_at == ((1,), (2,), (3,), ())
    call = trace.node_at(4)
    weight = TensorValue(14, 15, 8, 12, 2, "cuda:0", "bfloat16", (3, 4), strides)
    assert call.inputs == (
        weight, (2, True), None, DeviceValue("cuda:0"), 1e-05, "tanh", OpaqueValue("Generator"),
        None,
    )  # fmt: skip
    assert call.inputs[1][1] is True
    assert call.outputs == (weight,)
    assert (call.sequence, call.thread, call.record_id, call.scope) == (9, 1, 4, 0)
    assert call.schema == "aten::mm(Tensor self) -> Tensor"
    assert (call.kernel_backend, call.kernel_file, call.ranges, call.attributes) == (
        "",
        "",
        {},
        {},
    )


def test_what_else_a_node_says(tmp_path):
    trace = read(
        tmp_path,
        node(2, "triton_poi_fused_0", 1, kernel_backend="triton", kernel_file="/x/c.py",
             tensor_range='{"0":[1,3],"2":[-4,9]}', fw_parent=5, fw_tid=2),
        node(3, "record_param_comms", 1, collective_name="all_reduce", pg_name="0",
             in_msg_nelems=53120, in_split_size="[]", pg_desc=""),
    )  # fmt: skip
    kernel, collective = trace.nodes[1:]
    assert (kernel.kernel_backend, kernel.kernel_file) == ("triton", "/x/c.py")
    assert (kernel.forward_parent, kernel.forward_thread) == (5, 2)
    assert kernel.ranges == {0: (1.0, 3.0), 2: (-4.0, 9.0)}
    assert collective.attributes == {
        "collective_name": "all_reduce", "pg_name": "0", "in_msg_nelems": 53120,
        "in_split_size": "[]",
    }  # fmt: skip


def test_process_groups(tmp_path):
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 3},
        {"pg_name": "7", "ranks": [0, 2], "group_size": 2},
    ]
    made = node(2, "## process_group:init ##", 1, [(json.dumps(groups), [], "String", [])])
    trace = read(tmp_path, made)
    assert [(g.name, g.ranks) for g in trace.groups] == [("0", (0, 1, 2)), ("7", (0, 2))]
    odd = node(2, "## process_group:init ##", 1, [("[{", [], "String", [])])
    assert read(tmp_path, odd).groups == ()


@pytest.mark.parametrize(
    ("written", "type", "expected"),
    [
        ("inf", "Double", math.inf),
        ("-inf", "Double", -math.inf),
        ("Infinity", "Double", math.inf),
        (3, "Double", 3.0),
        (2**63, "Int", 2**63),
        (-(2**63), "Int", -(2**63)),
        ("<Int>", "Int", OpaqueValue("Int")),
        ("soon", "Double", OpaqueValue("Double")),
        (None, "String", OpaqueValue("String")),
        (5, "SymInt", 5),
        ("<Future>", "Future", OpaqueValue("Future")),
        ({"a": [1]}, "Dict(str, Tensor)", OpaqueValue("Dict(str, Tensor)")),
    ],
)
def test_plain_values(tmp_path, written, type, expected):
    assert read(tmp_path, node(2, "f", 1, [(written, [], type, [])])).nodes[1].inputs == (
        expected,
    )


def test_no_number_is_still_a_double(tmp_path):
    (value,) = read(tmp_path, node(2, "f", 1, [("nan", [], "Double", [])])).nodes[1].inputs
    assert isinstance(value, float)
    assert math.isnan(value)


def test_lists_nest(tmp_path):
    tensor, other = [1, 2, 0, 6, 4, "cpu"], [3, 4, 1, 1, 8, "cpu"]
    entry = (
        [tensor, "<None>", [other, ["a", "b"]], [5, 0, 0, 0, 0, ""], []],
        [[2, 3], [], [[], [[], []]], [], []],
        "GenericList[Tensor(float),None,Tuple[Tensor(c10::complex<float>),Tuple[String,String]],"
        "Tensor(nullptr (uninitialized)),OptionalList[]]",
        [[3, 1], [], [[], [[], []]], [], []],
    )
    (value,) = read(tmp_path, node(2, "f", 1, [entry])).nodes[1].inputs
    first = TensorValue(1, 2, 0, 6, 4, "cpu", "float32", (2, 3), (3, 1))
    second = TensorValue(3, 4, 1, 1, 8, "cpu", "complex64", (), ())
    assert value == (first, None, (second, ("a", "b")), None, ())


def test_arguments_a_compiled_kernel_adds_have_no_strides(tmp_path):
    """Torch writes the stream behind the arguments: a value, a shape and a type, but no strides."""
    call = node(2, "triton_poi_fused_0", 1, [WEIGHT, (0, [], "Int", [])])
    del call["inputs"]["strides"][1]
    weight, stream = read(tmp_path, call).nodes[1].inputs
    assert (weight.strides, stream) == ((4, 1), 0)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("float", "float32"), ("double", "float64"), ("c10::Half", "float16"),
        ("c10::BFloat16", "bfloat16"), ("long int", "int64"), ("long", "int64"),
        ("int", "int32"), ("short int", "int16"), ("signed char", "int8"),
        ("unsigned char", "uint8"), ("short unsigned int", "uint16"),
        ("long unsigned int", "uint64"), ("bool", "bool"), ("c10::complex<float>", "complex64"),
        ("c10::complex<double>", "complex128"), ("c10::complex<c10::Half>", "complex32"),
        ("c10::Float8_e4m3fn", "float8_e4m3fn"), ("c10::Float8_e5m2fnuz", "float8_e5m2fnuz"),
        ("c10::Float8_e8m0fnu", "float8_e8m0fnu"), ("c10::qint8", "qint8"),
        ("Float", "float32"), ("bfloat16", "bfloat16"), ("ComplexFloat", "complex64"),
        ("posit<8, 1>", "?posit<8, 1>"),
    ],
)  # fmt: skip
def test_element_types(spelling, name):
    assert dtype_name(spelling) == name


def test_marks_with_quotes_and_bare_infinities_are_mended(tmp_path):
    """Torch writes the names of marks as they are; older ones wrote `inf` without quotes."""
    name = 'say "hi", \\ to\nall of inf'
    path = write(tmp_path / "et.json", [node(2, "NAME", 1, [(0.5, [], "Double", [])]), ROOT])
    path.write_text(path.read_text().replace("0.5", "-inf").replace("NAME", name))
    mark = read_execution_trace(path).nodes[1]
    assert (mark.name, mark.inputs) == (name, (-math.inf,))
    old = [flat(node(2, "NAME", 1)), flat(ROOT)]
    old = [{"name": n["name"], "id": n["id"], "rf_id": 0} | n for n in old]
    path = write(tmp_path / "old.json", old, "1.0.1")
    path.write_text(path.read_text().replace("NAME", 'a "b"'))
    assert read_execution_trace(path).nodes[1].name == 'a "b"'


# --- files ---------------------------------------------------------------------------------------


def pack(path, **members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name.replace("__", "/") + ".json")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def test_compressed_and_archived(tmp_path):
    raw = write(tmp_path / "et.json").read_bytes()
    (tmp_path / "et.json.gz").write_bytes(gzip.compress(raw))
    assert len(read_execution_trace(tmp_path / "et.json.gz")) == 4
    one = pack(tmp_path / "one.tar.gz", sub__et=raw, about=b"{}")
    assert read_execution_trace(one).source == f"{one}:sub/et.json"
    two = pack(
        tmp_path / "two.tar.gz", run__r0=raw, run__r1=raw.replace(b"aten::mm", b"aten::bmm")
    )
    with pytest.raises(InputError, match=r"holds r0\.json, r1\.json.*name one as two\.tar\.gz:r0"):
        read_execution_trace(two)
    for trace in (
        read_execution_trace(two, "run/r1.json"),
        read_execution_trace(two, member="r1.json"),
        read_execution_trace(f"{two}:run/r1.json"),
    ):
        assert trace.nodes[3].name == "aten::bmm"
    with pytest.raises(InputError, match=r"holds no 'r7\.json'; it holds r0"):
        read_execution_trace(f"{two}:r7.json")
    with pytest.raises(InputError, match="is no archive"):
        read_execution_trace(tmp_path / "et.json", "r1.json")
    named = tmp_path / "two.tar.gz:r1.json"
    named.write_bytes(raw)  # a file of that very name comes first
    assert read_execution_trace(named).nodes[3].name == "aten::mm"
    two.write_bytes(gzip.compress(gzip.decompress(two.read_bytes())[:2000]))
    with pytest.raises(InputError):
        read_execution_trace(two, "r1.json")


def test_zstd(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "et.json.zst"
    path.write_bytes(zstandard.compress(write(tmp_path / "et.json").read_bytes()))
    assert len(read_execution_trace(path)) == 4


def test_told_from_its_first_bytes(tmp_path):
    assert identify(write(tmp_path / "et.json")).format == "execution-trace"
    assert not looks_like_execution_trace(b'{"schema": "other", "nodes": []}')
    assert not looks_like_execution_trace(b"")


CALL = NODES[0]


def changed(**more):
    return [CALL | more, *NODES[1:]]


def argument(value, shape, type, strides):
    inputs = {"values": value, "shapes": shape, "types": type, "strides": strides}
    return changed(inputs=inputs)


MALFORMED = {
    "no id": ([{"name": "aten::mm", "ctrl_deps": 1}], r"node 1 of the file \('aten::mm'\) has no 'id'"),
    "no name": ([{"id": 2, "ctrl_deps": 1}], "node 1 of the file has no 'name'"),
    "no parent": (changed(ctrl_deps=None), "node 4 .* does not say its one parent"),
    "two parents": (changed(ctrl_deps=[2, 3]), "node 4 .* does not say its one parent"),
    "parent not there": (changed(ctrl_deps=77), "node 4 .* called from node 77, which is not there"),
    "same id": (changed(id=3), "two nodes have the id 3"),
    "cycle": ([NODES[0], NODES[1] | {"ctrl_deps": 4}, *NODES[2:]], "called from itself"),
    "no nodes": ([], "the trace has no nodes; was anything recorded"),
    "lengths": (argument([1, 2], [[]], ["Int"], [[]]), "node 4 .*2 values, 1 shapes and 1 types"),
    "strides": (argument([1], [[]], ["Int"], [[], []]), "node 4 .*1 types but 2 strides"),
    "list lengths": (
        argument([[1]], [[[]]], ["GenericList[Int,Int]"], [[[]]]),
        "node 4 .*1 values, 1 shapes and 2 types",
    ),
    "list strides": (argument([[1]], [[[]]], ["GenericList[Int]"], [[]]), "node 4 .*strides"),
    "no list": (argument([1], [[]], ["GenericList[Int]"], [[]]), "node 4 .*a list was expected"),
    "tensor of five": (
        argument([[1, 2, 3, 4, 5]], [[1]], ["Tensor(float)"], [[1]]),
        r"node 4 \('aten::mm'\): a tensor is written as 6 parts, not as \[1, 2, 3, 4, 5\]",
    ),
    "tensor of words": (
        argument([["a", 2, 3, 4, 5, "cpu"]], [[1]], ["Tensor(float)"], [[1]]), "is no tensor",
    ),
    "tensor of lists": (
        argument([[[1], 2, 3, 4, 5, "cpu"]], [[1]], ["Tensor(float)"], [[1]]), "is no tensor",
    ),
    "shape": (argument([WEIGHT[0]], [["x"]], ["Tensor(float)"], [[1]]), "'x'.* is no shape"),
    "shape of lists": (argument([WEIGHT[0]], [[[3]]], ["Tensor(float)"], [[1]]), "is no shape"),
    "nested without end": (
        argument([[]], [[]], ["Tuple[" * 5000 + "]" * 5000], [[]]), "nest deeper",
    ),
    "thread": ([node(2, "f", 1, tid="x"), ROOT], "its 'tid' is 'x', not a number"),
    "schema text": ([node(2, "f", 1, op_schema=5), ROOT], "its 'op_schema' is 5, not a text"),
    "range": ([node(2, "f", 1, tensor_range="{"), ROOT], "its 'tensor_range' is '{'"),
    "types": (changed(inputs={"types": [5]}), r"expected `str`.*nodes\[0\]\.inputs\.types"),
}  # fmt: skip


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_node_is_named(tmp_path, what):
    nodes, message = MALFORMED[what]
    with pytest.raises(InputError, match=message) as caught:
        read_execution_trace(write(tmp_path / "et.json", nodes))
    assert str(caught.value).startswith(str(tmp_path / "et.json: "))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  ", "is empty"),
        (b"hello", "is not JSON; a PyTorch execution trace was expected"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b'{"schema": "1.1.1", "nodes": [{"id": 3, "na', "the JSON ends early; was the file cut"),
        (b'{"schema": "1.1.1", "nodes": [,]}', r"is not JSON \(JSON is malformed"),
        (b'{"traceEvents": []}', "is a profiler .Kineto. trace; a PyTorch execution trace was"),
        (b'[{"ph": "X", "ts": 1}]', "is a profiler .Kineto. trace"),
        (b"[1, 2]", "is JSON, but of something else"),
        (b'{"a": 1}', "is JSON without 'nodes'"),
        (b'{"nodes": []}', "says no schema; known are 1.0.x and 1.1.x"),
        (b'{"schema": "2.0.0", "nodes": []}', "its schema '2.0.0' is not known; known are 1.0.x"),
        (b'{"schema": 5, "nodes": []}', "expected `str | null`, got `int`"),
        (b'{"schema": "1.1.1", "nodes": ' + b"[" * 100_000, "expected `object`, got `array`"),
        (b'{"x": ' + b"[" * 100_000, "its JSON nests too deep"),
    ],
)
def test_files_of_something_else(tmp_path, content, message):
    (tmp_path / "et.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_execution_trace(tmp_path / "et.json")


def test_missing(tmp_path):
    for path in (tmp_path / "no.json", f"{tmp_path}/no.tar:et.json", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_execution_trace(path)


WHOLE = {
    "chakra": json.dumps({"schema": CHAKRA, "nodes": NODES}).encode(),
    "flat": json.dumps({"schema": "1.0.1", "nodes": [flat(n) for n in NODES]}).encode(),
}


@pytest.mark.parametrize("spelling", WHOLE)
@given(data=st.data())
@settings(max_examples=150)
def test_prop_a_cut_file_is_told(tmp_path_factory, spelling, data):
    raw = WHOLE[spelling]
    path = tmp_path_factory.mktemp("cut") / "et.json"
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(InputError):
        read_execution_trace(path)


@pytest.mark.parametrize("spelling", WHOLE)
@given(data=st.data())
@settings(max_examples=300)
def test_prop_a_damaged_file_is_a_trace_or_an_error(tmp_path_factory, spelling, data):
    raw = bytearray(WHOLE[spelling])
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    packed = data.draw(st.booleans())
    path = tmp_path_factory.mktemp("flip") / "et.json"
    path.write_bytes(gzip.compress(bytes(raw)) if packed else bytes(raw))
    try:
        trace = read_execution_trace(path)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert len(trace.parent_at) == len(trace.children_at) == len(trace)


# --- values: written by a generator, read back ------------------------------------------------

SPELLINGS = {"float": "float32", "c10::Half": "float16", "long int": "int64",
             "c10::complex<float>": "complex64", "c10::Float8_e4m3fn": "float8_e4m3fn"}  # fmt: skip
small = st.integers(0, 2**40)


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 9), max_size=4))
    steps = draw(st.lists(st.integers(0, 99), min_size=len(shape), max_size=len(shape)))
    spelling = draw(st.sampled_from(sorted(SPELLINGS)))
    parts = [*draw(st.tuples(small, small, small, small, st.integers(1, 16))), "cuda:1"]
    value = TensorValue(*parts, SPELLINGS[spelling], tuple(shape), tuple(steps))
    return value, parts, shape, f"Tensor({spelling})", steps


def plain(values, type):
    return values.map(lambda value: (value, value, [], type, []))


LEAVES = st.one_of(
    tensors(),
    plain(st.integers(-(2**63), 2**63 - 1), "Int"),
    plain(st.booleans(), "Bool"),
    plain(st.floats(allow_nan=False, allow_infinity=False), "Double"),
    plain(st.text(max_size=5), "String"),
    st.just((None, "<None>", [], "None", [])),
    st.just((None, [3, 0, 0, 0, 0, ""], [], "Tensor(nullptr (uninitialized))", [])),
    st.just((DeviceValue("cpu"), "cpu", [], "Device", [])),
    st.just((OpaqueValue("Stream"), "<Stream>", [], "Stream", [])),
)


def nested(children):
    def join(kind, parts):
        value, written, shape, type, strides = (list(each) for each in zip(*parts, strict=True))
        return tuple(value), written, shape, f"{kind}[{','.join(type)}]", strides

    some = st.builds(
        join, st.sampled_from(["GenericList", "Tuple"]), st.lists(children, min_size=1, max_size=4)
    )
    return some | st.just(((), [], [], "GenericList[]", []))


VALUES = st.recursive(LEAVES, nested, max_leaves=12)


@given(st.lists(VALUES, max_size=5), st.booleans())
def test_prop_values_are_read_back(entries, has_strides):
    columns = [list(each) for each in zip(*entries, strict=True)] or [[], [], [], [], []]
    expected, written, shapes, types, strides = columns
    found = ValueReader().read(written, shapes, types, strides if has_strides else None)
    if has_strides:
        assert found == tuple(expected)
    assert len(found) == len(entries)
    assert [type(each) for each in found] == [type(each) for each in expected]


@given(st.lists(VALUES, min_size=1, max_size=6))
def test_prop_a_type_text_splits_where_it_was_joined(entries):
    types = [entry[3] for entry in entries]
    assert list(split_types(",".join(types))) == types
    assert list(split_types(", ".join(types))) == types


# --- public traces ---------------------------------------------------------------------------


def tensors_in(value):
    if isinstance(value, tuple):
        return sum(tensors_in(each) for each in value)
    return int(isinstance(value, TensorValue))


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "schema", "nodes", "operators", "tensors", "deepest"),
    [
        ("h200/gpt-base/et.json.gz", CHAKRA, 3593, 2452, 4638, 8),
        ("h200/resnet50/et.json.gz", CHAKRA, 3623, 2665, 4654, 7),
        ("public/hta/execution_trace/benchmark_simple_add_et.json.gz", "1.0.1", 38, 28, 24, 9),
        ("public/param/linear_et.json.gz", "1.0.1", 931, 710, 1077, 6),
        ("public/param/dlrm_pytorch_et.tar.gz:dlrm_eg_3.json", "1.0.1", 1675, 1485, 1902, 10),
        ("public/param/1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz", "1.0.3-chakra.0.0.4", 14391,
         10818, 21915, 9),
        ("public/param/1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz", "1.1.0-chakra.0.0.4", 14392,
         10818, 21915, 9),
        ("public/param/resnet_1gpu_et.json.tar.gz", CHAKRA, 14392, 10818, 21915, 9),
        ("public/param/hf_GPT2_et.json.tar.gz", "1.1.0-chakra.0.0.4", 27156, 21558, 30919, 8),
    ],
)  # fmt: skip
def test_public_traces(public_data, file, schema, nodes, operators, tensors, deepest):
    trace = read_execution_trace(f"{public_data}/{file}")
    depth = [0] * len(trace)
    for place, parent in enumerate(trace.parent_at):
        depth[place] = depth[parent] + 1 if parent >= 0 else 0
    assert (trace.schema, len(trace), max(depth)) == (schema, nodes, deepest)
    assert sum(each.schema != "" for each in trace.nodes) == operators
    assert sum(tensors_in(each.inputs) for each in trace.nodes) == tensors


@pytest.mark.data
def test_the_groups_and_collectives_of_a_public_trace(public_data):
    path = public_data / "public/param/1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz"
    trace = read_execution_trace(path)
    assert [(g.name, g.ranks) for g in trace.groups] == [("0", (0, 1))]
    comms = [each for each in trace.nodes if each.name == "record_param_comms"]
    assert len(comms) == 27
    assert comms[0].attributes["collective_name"] == "broadcast"
    assert comms[0].attributes["pg_size"] == 2
    assert comms[0].inputs[2] == ("0", "default_pg")
