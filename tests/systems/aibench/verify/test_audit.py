"""Nothing of a trace may appear in its benchmark."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.systems.aibench.verify import vocabulary as vocabulary_module
from gnomon.systems.aibench.verify.audit import Finding, audit
from gnomon.systems.aibench.verify.trace_strings import json_strings, read_strings
from gnomon.systems.aibench.verify.vocabulary import Vocabulary

RUN = '''"""Runs the program of this folder."""
import torch

def forward_all(steps):
    for step in steps:
        tag = step["k"]
        torch.ops.aten.mm(*step["inputs"])
'''
README = "# A benchmark\nrun: `python run.py --device cuda`\n"
TEMPLATES = {"run.py": RUN, "README.md": README}
PROGRAM = {
    "operators": ["aten::mm", "aten::_scaled_dot_product_flash_attention", "aten::add.Tensor"],
    "k": [[0, [["r", 5], 1.0, "bfloat16"]], [1, [["d", "cuda:0"], 3.5]]],
}


def node(id, name, parent=1, inputs=(), scope=0, **attributes):
    given = {"rf_id": id, "scope": scope, "op_schema": "", **attributes}
    return {
        "id": id, "name": name, "ctrl_deps": parent,
        "inputs": {
            "values": [each[0] for each in inputs], "shapes": [[] for _ in inputs],
            "types": [each[1] for each in inputs],
        },
        "outputs": {"values": [], "shapes": [], "types": []},
        "attrs": [{"name": k, "type": "string", "value": v} for k, v in given.items()],
    }  # fmt: skip


GROUPS = json.dumps([{"pg_name": "tensor_group", "pg_desc": "secret_desc", "ranks": [0, 1]}])
NODES = [
    node(1, "[pytorch|profiler|execution_trace|process]", 1, scope=7),
    node(2, "## PrivateNet.block ##", scope=7),
    node(3, "aten::mm", 2, [(0.0123, "Double"), ([0.25, 1.0], "GenericList[Double,Double]")],
         op_schema="aten::mm(Tensor self, Tensor mat2) -> Tensor"),
    node(4, "acme::fused_thing", 2, [("weird mode", "String")]),
    node(5, "triton_poi_fused_7", 2, kernel_backend="triton",
         kernel_file="/home/bob/.inductor/c4/ck7zzq.py"),
    node(6, "## process_group:init ##", 1, [(GROUPS, "String")], scope=7),
    node(7, "atten", 2, scope=7),
    node(8, "record_param_comms", 2, pg_name="default_pg"),
    node(9, 'say "hé"\t', 2, scope=7),
]  # fmt: skip
EVENTS = [
    {"ph": "X", "cat": "kernel", "name": "void acme_gemm<128>()", "ts": 1, "dur": 1},
    {"ph": "X", "cat": "user_annotation", "name": "epoch-loop", "ts": 1, "dur": 1},
    {"ph": "X", "cat": "python_function", "name": "proj/net/zeta.py(12): fwd_x", "ts": 1, "dur": 1},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1,
     "args": {"Concrete Inputs": ["0.777", "[64, 128]", "True"], "Process Group Name": "pg77"}},
]  # fmt: skip


@pytest.fixture
def traces(tmp_path):
    execution, kineto = tmp_path / "job-et.json", tmp_path / "job-kineto.json.gz"
    execution.write_text(json.dumps({"schema": "1.1.0-chakra.0.0.4", "nodes": NODES}))
    top = {"traceEvents": EVENTS, "hostname": "node-17.internal", "baseTimeNanoseconds": 5}
    kineto.write_bytes(gzip.compress(json.dumps(top).encode()))
    return [execution, kineto]


def write_bench(folder, program=PROGRAM, **files):
    folder.mkdir(exist_ok=True)
    packed = gzip.compress(json.dumps(program).encode())
    (folder / "program.json.gz").write_bytes(packed)
    for name, content in {"run.py": RUN, "README.md": README, **files}.items():
        (folder / name).write_text(content)
    return folder


def check(bench, traces, **more):
    return audit(bench, traces, templates=TEMPLATES, **more)


def test_a_clean_benchmark(tmp_path, traces):
    result = check(write_bench(tmp_path / "bench"), traces)
    assert result.is_clean
    assert result.files == 3
    assert result.bytes == len(RUN) + len(README) + len(json.dumps(PROGRAM))
    # aten::mm and cuda are in both, and so do inputs, device, ... of the formats.
    assert result.allowed >= 2
    assert result.searched > 60


@pytest.mark.parametrize(
    ("string", "kind"),
    [
        ("## PrivateNet.block ##", "annotation"),
        ("acme::fused_thing", "name"),
        ("triton_poi_fused_7", "name"),
        ("/home/bob/.inductor/c4/ck7zzq.py", "path"),
        ("ck7zzq.py", "path"),
        ("ck7zzq", "path"),
        (".inductor", "path"),
        ("tensor_group", "group"),
        ("secret_desc", "group"),
        ("default_pg", "group"),
        ("pg77", "group"),
        ("weird mode", "value"),
        ("atten", "annotation"),
        ('say "hé"\t', "annotation"),
        ("void acme_gemm<128>()", "kernel"),
        ("epoch-loop", "annotation"),
        ("zeta.py(12): fwd_x", "path"),
        ("zeta.py", "path"),
        ("fwd_x", "path"),
        ("proj", "path"),
        ("node-17.internal", "name"),
        ("job-et.json", "path"),
        ("job-kineto", "path"),
    ],
)
@pytest.mark.parametrize("place", ["program.json.gz", "README.md", "run.py", "folder/notes.txt"])
def test_a_planted_string_is_found(tmp_path, traces, string, kind, place):
    bench = write_bench(tmp_path / "bench")
    if place == "program.json.gz":
        write_bench(bench, PROGRAM | {"k": [string]})
    else:
        (bench / "folder").mkdir()
        path = bench / place
        path.write_text((path.read_text() if path.exists() else "") + f"# {string}\n")
    assert Finding(string, place, kind) in check(bench, traces).found


def test_file_names_and_twice_packed_files(tmp_path, traces):
    bench = write_bench(tmp_path / "bench", **{"epoch-loop.txt": ""})
    found = check(bench, traces).found
    assert [finding.text for finding in found] == [
        "annotation 'epoch-loop' appears in epoch-loop.txt"
    ]
    bench = write_bench(tmp_path / "packed")
    (bench / "more.bin").write_bytes(gzip.compress(gzip.compress(b"\0epoch-loop\1")))
    (bench / "odd.gz").write_bytes(b"\x1f\x8bepoch-loop")
    assert [finding.file for finding in check(bench, traces).found] == ["more.bin", "odd.gz"]


def test_short_strings_only_as_whole_ones(tmp_path, traces):
    """`c4` is a folder of the trace; in a word it is chance."""
    bench = write_bench(tmp_path / "bench", PROGRAM | {"k": ["c45"]}, **{"x.txt": "c4"})
    assert check(bench, traces).is_clean
    bench = write_bench(bench, PROGRAM | {"k": ["c4"]})
    assert check(bench, traces).found == (Finding("c4", "program.json.gz", "path"),)


def test_parts_of_public_words_are_chance(tmp_path, traces):
    """`atten` is a mark of the trace; `..._attention` is an operator of torch."""
    assert "atten" in json.dumps(PROGRAM)
    assert check(write_bench(tmp_path / "bench"), traces).is_clean
    bench = write_bench(tmp_path / "bench", PROGRAM | {"k": ["atten", "attenuation"]})
    assert check(bench, traces).found == (Finding("atten", "program.json.gz", "annotation"),)


@pytest.mark.parametrize("number", [0.0123, 0.25, 0.777])
def test_numbers_of_the_original(tmp_path, traces, number):
    bench = write_bench(tmp_path / "bench", PROGRAM | {"k": [[{"a": [number]}]]})
    assert check(bench, traces).found == (Finding(repr(number), "program.json.gz", "value"),)
    assert check(bench, traces, neutral=[number]).is_clean
    # Whole numbers are sizes, and 1.0 is anybody's.
    assert check(write_bench(bench, PROGRAM | {"k": [64, 128, 1.0, -0.5]}), traces).is_clean


def test_without_torch_operators_are_told_by_their_namespace(tmp_path, traces, monkeypatch):
    monkeypatch.setattr(vocabulary_module, "_registered", lambda: (frozenset(), frozenset()))
    bench = write_bench(tmp_path / "bench", {"operators": ["aten::mm"], "words": ["mat2", "self"]})
    assert check(bench, traces).is_clean
    bench = write_bench(bench, {"operators": ["acme::fused_thing"]})
    assert [finding.string for finding in check(bench, traces).found] == ["acme::fused_thing"]


def test_only_operators_that_torch_registers_are_public():
    pytest.importorskip("torch")
    words = Vocabulary({})
    public = ("aten::mm", "aten::mm.out", "mm", "Tensor(float)", "cuda:3", "c10d::allreduce_")
    assert all(words.has(text) for text in public)
    assert not any(words.has(text) for text in ("aten::my_layer", "acme::mm", "aten::mm.mine"))
    assert not any(words.has(text) for text in ("Tuple[Mine]", "cuda:x", "", "embed_block"))


def test_a_mark_with_quotes_is_searched_too(tmp_path):
    """Torch does not escape the names of marks; the rest of the file must not be lost for it."""
    trace = tmp_path / "et.json"
    text = json.dumps({"schema": "1.1.0-chakra.0.0.4", "nodes": NODES})
    trace.write_text(text.replace("## PrivateNet.block ##", 'the "inner" loop'))
    bench = write_bench(tmp_path / "bench", **{"a.txt": 'the "inner" loop', "b.txt": "ck7zzq"})
    found = {finding.string for finding in check(bench, [trace]).found}
    assert found == {'the "inner" loop', "ck7zzq"}


def test_what_cannot_be_read(tmp_path, traces):
    bench = write_bench(tmp_path / "bench")
    with pytest.raises(InputError, match="is no folder"):
        check(tmp_path / "nowhere", traces)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the folder is empty"):
        check(tmp_path / "empty", traces)
    cut = tmp_path / "cut.json"
    cut.write_bytes(traces[0].read_bytes()[:500])
    with pytest.raises(InputError, match=r"is not JSON .*was the file cut short"):
        check(bench, [cut])
    with pytest.raises(InputError, match="cannot be read"):
        check(bench, [tmp_path / "no.json"])


# --- properties ------------------------------------------------------------------------------

REAL = bundled("h200-gpt-l6") / "kineto.json.gz"


def private_strings():
    texts = read_strings([REAL]).texts
    words = Vocabulary(TEMPLATES, texts)
    return sorted(text for text in texts if len(text.encode()) >= 4 and not words.has(text))


PRIVATE = private_strings()


@given(data=st.data())
@settings(max_examples=60)
def test_prop_any_private_string_of_a_real_trace_is_found_anywhere(tmp_path_factory, data):
    string = data.draw(st.sampled_from(PRIVATE))
    place = data.draw(st.sampled_from(["run.py", "README.md", "program.json.gz", "other.bin"]))
    bench = write_bench(tmp_path_factory.mktemp("bench"), **{"other.bin": ""})
    assert check(bench, [REAL]).is_clean
    if place == "program.json.gz":
        key = data.draw(st.booleans())
        write_bench(bench, PROGRAM | ({string: 1} if key else {"k": [[0, [string]]]}))
    else:
        text = (bench / place).read_text()
        at = data.draw(st.integers(0, len(text)))
        (bench / place).write_text(text[:at] + string + text[at:])
    assert (string, place) in {(f.string, f.file) for f in check(bench, [REAL]).found}


def slow_strings(data):
    if isinstance(data, str):
        return {data}
    if isinstance(data, dict):
        return set(data).union(*map(slow_strings, data.values()))
    return set().union(*map(slow_strings, data)) if isinstance(data, list) else set()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, st.booleans())
def test_prop_json_strings_are_those_of_a_parser(data, ascii):
    raw = json.dumps(data, ensure_ascii=ascii).encode(errors="surrogatepass")
    assert set(json_strings(raw)) == slow_strings(data)


def test_json_strings_across_pieces(monkeypatch):
    monkeypatch.setattr("gnomon.systems.aibench.verify.trace_strings._PIECE", 3)
    assert set(json_strings(rb'{"ab\"cd": ["\\", "", "x\\\"y"]}')) == {'ab"cd', "\\", "", 'x\\"y'}


@pytest.mark.data
def test_all_strings_of_public_traces_are_searched(public_data):
    path = public_data / "h200/gpt-base/et.json.gz"
    found = read_strings([path])
    every = slow_strings(json.loads(gzip.decompress(path.read_bytes())))
    missing = every - found.texts
    assert all(not any(c.isalpha() for c in text) for text in missing - {"True", "False", "None"})
    assert {"## layer 11 ##", "Optimizer.step#AdamW.step"} <= found.texts
    assert found.kind_of("## layer 11 ##") == "annotation"
    assert 1e-05 in found.numbers
