"""Can operators that torch lacks be made, by the user's functions and by our own?"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from gnomon.errors import InputError  # noqa: E402
from gnomon.systems.aibench.builder import constructors  # noqa: E402
from gnomon.systems.aibench.builder.constructors import gather  # noqa: E402
from gnomon.systems.aibench.builder.operators import operator_of  # noqa: E402
from gnomon.systems.aibench.builder.provided import provided_constructors, read_table, sources_of  # noqa: E402
from gnomon.systems.aibench.folder import write_bench  # noqa: E402
from gnomon.systems.aibench.program import Call, Made, Meta, Program, Storage  # noqa: E402
from tests.systems.aibench.beside_run import RUNTIME, load  # noqa: E402

jagged, tables = load("jagged"), load("embedding_tables")

USER_FILE = '''\
"""Ours."""

import torch


def fused_thing(x, weight, eps):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, None, eps)


def swapped(x, y):
    return y + 0, x + 0


CONSTRUCTORS = {
    "mylib::fused_thing": fused_thing,
    "mylib::never_seen": swapped,
    "mylib::swap": swapped,
}
'''


@pytest.fixture(autouse=True)
def afresh():
    torch.manual_seed(11)
    jagged.rehearsal.begin(None)
    tables.waiting.clear()


@pytest.fixture
def user_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(USER_FILE)
    return path


# -- who makes what -------------------------------------------------------------------------------


def test_the_builder_knows_what_the_modules_have():
    known = {name: module for name, (module, _) in provided_constructors().items()}
    for name, module in (("jagged", jagged), ("embedding_tables", tables)):
        assert {one for one, home in known.items() if home == name} == set(module.OPERATORS)
        assert set(module.ready(None)) == {
            gather([one]).by_operator[one].key for one in module.OPERATORS
        }


def test_only_what_a_trace_has_is_gathered(user_file):
    found = gather(
        ["aten::mm", "mylib::swap", "mylib::fused_thing", "fbgemm::invert_permute"], [user_file]
    )
    assert found.names == {"mylib::swap", "mylib::fused_thing", "fbgemm::invert_permute"}
    keys = {name: one.key for name, one in found.by_operator.items()}
    assert keys == {
        "mylib::fused_thing": "custom.0",
        "mylib::swap": "custom.1",
        "fbgemm::invert_permute": "fbgemm.invert_permute.default",
    }
    assert list(found.sources_for(["custom.1"])) == ["user_ops"]
    assert list(found.sources_for(set(keys.values()))) == ["user_ops", "jagged"]
    assert gather(["aten::mm"], [user_file]).users == {}


def test_the_file_goes_along_without_the_names(user_file):
    found = gather(["mylib::swap", "mylib::fused_thing"], [user_file])
    source = found.sources_for(["custom.0"])["user_ops"]
    assert "mylib" not in source
    assert "never_seen" not in source
    assert source.startswith('"""Ours."""')
    names = {}
    exec(source, names)
    made = names["ready"](None)
    assert {key: one.__name__ for key, one in made.items()} == {
        "custom.0": "fused_thing",
        "custom.1": "swapped",
    }


def test_what_a_user_gives_goes_before_what_is_known(user_file, tmp_path):
    name = "fbgemm::invert_permute"
    user_file.write_text(f'def mine(x):\n    return x\nCONSTRUCTORS = {{"{name}": mine}}\n')
    other = tmp_path / "other.py"
    other.write_text(
        f'def other(x):\n    return x\nCONSTRUCTORS = {{"{name}": other, "a::b": other}}\n'
    )
    found = gather([name, "a::b"], [user_file, other])
    assert found.by_operator[name].function == "mine"
    assert [(one.key, one.module) for one in found.by_operator.values()] == [
        ("custom.0", "user_ops"),
        ("custom.1", "user_ops_2"),
    ]


def test_packages_bring_files_for_their_namespace(user_file, monkeypatch):
    brought = constructors.Registry("file of constructors")
    brought.register("mylib", lambda: user_file)
    brought.register("broken", lambda: 1 / 0)
    monkeypatch.setattr(constructors, "packages", brought)
    assert gather(["aten::mm"]).names == frozenset()
    assert gather(["mylib::swap"]).by_operator["mylib::swap"].key == "custom.0"


MALFORMED = {
    "no such file": (None, "cannot be read"),
    "no Python": ("def f(:\n", "cannot be read"),
    "no table": ("def f(x): ...\n", "there is no table CONSTRUCTORS"),
    "no dict": ("CONSTRUCTORS = make()\n", "there is no table CONSTRUCTORS"),
    "a name without quotes": ("def f(x): ...\nCONSTRUCTORS = {NAME: f}\n", "not a name in quotes"),
    "somebody else's function": (
        'import m\nCONSTRUCTORS = {"a::b": m.f}\n', "'a::b' is not given a function of this file"
    ),
    "a name that is taken": (
        'def ready(x): ...\nCONSTRUCTORS = {"a::b": ready}\n', "'ready' is a name that the benchmark needs"
    ),
    "a shared line": ('def f(x): ...\nX = 1; CONSTRUCTORS = {"a::b": f}\n', "shares a line"),
    "a table in use": (
        'def f(x): ...\nCONSTRUCTORS = {"a::b": f}\nprint(CONSTRUCTORS)\n', "is used in the file"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused_in_a_line(name, tmp_path):
    source, words = MALFORMED[name]
    path = tmp_path / "mine.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(InputError, match=words) as raised:
        gather(["a::b"], [path])
    assert "mine.py" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_arguments_are_found_by_name_whatever_the_version():
    name = "fbgemm::permute_2D_sparse_data"
    made = gather([name]).by_operator[name]
    older = "(Tensor permute, Tensor lengths, Tensor values, Tensor? weights=None, int? permuted_lengths_sum=None)"
    newer = "(Tensor permute, int extra, Tensor lengths, Tensor values)"
    returns = " -> (Tensor, Tensor, Tensor?)"
    operator = operator_of(name + older + returns)
    got = made.arguments(["p", "l", "v", None, 7], operator)
    assert [value for value, _ in got] == ["p", "l", "v", None, 7]
    assert [argument.name for _, argument in got][:3] == ["permute", "lengths", "values"]
    got = made.arguments(["p", 3, "l", "v"], operator_of(name + newer + returns))
    assert [value for value, _ in got] == ["p", "l", "v", None, None]


def test_a_user_gets_all_arguments_in_order(user_file):
    made = gather(["mylib::swap"], [user_file]).by_operator["mylib::swap"]
    operator = operator_of("mylib::swap(Tensor(a!) x, Tensor y) -> (Tensor, Tensor)")
    got = made.arguments(["x", "y"], operator)
    assert [(value, argument.writes) for value, argument in got] == [("x", True), ("y", False)]
    assert made.arguments(["x"], None) == [("x", None)]


def test_modules_bring_what_they_import():
    assert set(sources_of(["embedding_tables"])) == {"embedding_tables", "jagged"}
    source = (RUNTIME / "jagged.py").read_text()
    rows = {row.name: row for row in read_table(source, "OPERATORS", "jagged.py")}
    assert rows["fbgemm::asynchronous_complete_cumsum"].takes == ("t_in",)


def tiny_program(does, outs):
    """Two tensors made beforehand, and a call of one operator on both of them."""
    metas = [Meta("float32", (3, 4), None, 1), Meta("float32", (4,), None, 1)]
    args = [["x", 0], ["x", 1], 1e-5]
    call = Call(does, args, {}, outs, [0], 0, 1, "constructor", "", extra={"y": 1})
    return Program(
        storages=[Storage(48, True, []), Storage(16, True, [])],
        made=[Made(0, 0, 0), Made(1, 0, 1)],
        metas=metas,
        steps=[[[call]]],
        order=[[0]],
        settings={"device": "cpu"},
        streams=1,
        signals=0,
        events=0,
    )


def test_a_benchmark_runs_a_users_function(user_file, tmp_path):
    found = gather(["mylib::fused_thing"], [user_file])
    key = found.by_operator["mylib::fused_thing"].key
    bench = tmp_path / "bench"
    modules = found.sources_for([key])
    write_bench(bench, tiny_program(key, 0), "", modules=modules)
    program = json.loads(gzip.decompress((bench / "program.json.gz").read_bytes()))
    assert program["operators"] == ["custom.0"]
    assert not any("mylib" in file.read_text() for file in bench.glob("*.py"))
    command = [
        sys.executable,
        "-B",
        str(bench / "run.py"),
        "--device",
        "cpu",
        "--steps",
        "2",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["ops"], result["replayed"], result["placeholders"]) == (1, 1, 0)


# -- jagged data ----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_prop_sums(lengths):
    t = torch.tensor(lengths, dtype=torch.int32)
    ends = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    assert jagged.complete_cumsum(t).tolist() == ends
    assert jagged.exclusive_cumsum(t).tolist() == ends[:-1]
    assert jagged.inclusive_cumsum(t).tolist() == ends[1:]
    assert jagged.complete_cumsum(t).dtype == torch.int32
    assert jagged.complete_cumsum(t.unsqueeze(0)).shape == (1, len(lengths) + 1)


@st.composite
def permutations(draw):
    """Lengths of features by bags, an order of features (some twice, some never), and values."""
    features, bags = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    lengths = [[draw(st.integers(0, 4)) for _ in range(bags)] for _ in range(features)]
    order = draw(st.lists(st.integers(0, features - 1), min_size=1, max_size=6))
    return lengths, order


@given(permutations(), st.booleans(), st.booleans())
def test_prop_permuted_features_take_their_values_along(case, with_total, is_flat):
    jagged.rehearsal.begin(None)
    lengths, order = case
    if is_flat:
        lengths = [[row[0]] for row in lengths]
    values = list(range(sum(map(sum, lengths))))
    begins = [sum(map(sum, lengths[:n])) for n in range(len(lengths))]
    wanted = [v for n in order for v in values[begins[n] : begins[n] + sum(lengths[n])]]
    t = torch.tensor(lengths, dtype=torch.int32)
    got = jagged.permute_sparse_data(
        torch.tensor(order, dtype=torch.int32), t.squeeze(1) if is_flat else t, torch.arange(len(values)),
        torch.arange(len(values)) * 1.0, len(wanted) if with_total else None,
    )  # fmt: skip
    rows = [lengths[n] for n in order]
    assert got[0].tolist() == ([row[0] for row in rows] if is_flat else rows)
    if with_total or len(order) != len(lengths) or sorted(order) == list(range(len(lengths))):
        assert got[1].tolist() == wanted
        assert got[2].tolist() == wanted
        assert got[1].dtype == torch.int64


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 6), st.integers(1, 8))
def test_prop_made_up_lengths_give_the_recorded_total(available, total, features, chosen):
    jagged.rehearsal.begin(None)
    values = torch.arange(available)
    _, got, weights = jagged.permute_sparse_data(
        torch.zeros(chosen, dtype=torch.int32), torch.zeros(features, 3, dtype=torch.int32), values,
        None, total,
    )  # fmt: skip
    assert got.shape == (total,)
    assert weights is None
    assert got.min() >= 0
    assert got.max() < available


def test_nobody_looks_after_the_rehearsal():
    bench = SimpleNamespace()
    jagged.rehearsal.begin(bench)
    assert jagged.rehearsal.holds("a", lambda: True)
    assert not jagged.rehearsal.holds("b", lambda: False)
    assert not jagged.rehearsal.holds("b", lambda: True)  # a call before could not be true
    bench.code = []
    assert jagged.rehearsal.holds("a", lambda: 1 / 0)
    assert not jagged.rehearsal.holds("never seen", lambda: 1 / 0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 6))
def test_prop_jagged_to_dense_and_back(lengths, longest):
    jagged.rehearsal.begin(None)
    offsets = jagged.complete_cumsum(torch.tensor(lengths))
    values = torch.randn(sum(lengths), 3)
    dense = jagged.to_padded_dense(values, [offsets], [longest], -1.0)
    assert dense.shape == (len(lengths), longest, 3)
    for row, length in enumerate(lengths):
        begin, kept = int(offsets[row]), min(length, longest)
        assert torch.equal(dense[row, :kept], values[begin : begin + kept])
        assert (dense[row, kept:] == -1).all()
    if max(lengths) <= longest:
        back, _ = jagged.dense_to_jagged(dense, [offsets], sum(lengths))
        assert torch.equal(back, values)
        assert torch.equal(jagged.to_padded_dense_backward(dense, [offsets], sum(lengths)), values)
        added, _ = jagged.jagged_dense_add(values, [offsets], dense)
        assert torch.equal(added, values * 2)
    flat = jagged.to_padded_dense_1d(values[:, 0].contiguous(), offsets, longest, 0)
    assert flat.shape == (len(lengths), longest)


def test_ranges_inverses_and_expansions():
    offsets = torch.tensor([0, 2, 5])
    assert jagged.offsets_range(offsets, 6).tolist() == [0, 1, 0, 1, 2, 0]
    assert jagged.invert_permute(torch.tensor([2, 0, 1])).tolist() == [1, 2, 0]
    ends = torch.tensor([0, 2, 5, 6])
    got = jagged.expand_into_jagged_permute(
        torch.tensor([2, 0, 1]), ends, torch.tensor([0, 1, 3, 6]), 6
    )
    assert got.tolist() == [5, 0, 1, 2, 3, 4]
    pooled = torch.arange(12.0).reshape(2, 6)
    got = jagged.permute_pooled_embs(pooled, torch.tensor([0, 1, 3, 6]), torch.tensor([2, 0, 1]))
    assert got[0].tolist() == [3, 4, 5, 0, 1, 2]
    made_up = jagged.permute_pooled_embs(
        pooled, torch.zeros(4, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    )
    assert sorted(made_up[0].tolist()) == list(range(6))
    assert jagged.new_tensor(pooled, [3, 2]).shape == (3, 2)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 3))
def test_prop_sums_of_segments(lengths, batch):
    jagged.rehearsal.begin(None)
    ends = jagged.complete_cumsum(torch.tensor(lengths, dtype=torch.int32))
    values = torch.randint(0, 9, (sum(lengths) * batch,)).float()
    got = jagged.segment_sum_csr(batch, ends, values)
    wanted = [float(values[a * batch : b * batch].sum()) for a, b in zip(ends, ends[1:])]
    assert got.tolist() == wanted


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.data())
def test_prop_buckets(features, bags, world, data):
    jagged.rehearsal.begin(None)
    lengths = [data.draw(st.integers(0, 3)) for _ in range(features * bags)]
    indices = [data.draw(st.integers(0, 30)) for _ in range(sum(lengths))]
    sizes = [data.draw(st.integers(1, 8)) for _ in range(features)]
    wanted = [[[] for _ in range(features * bags)] for _ in range(world)]
    at, sources = 0, [[[] for _ in range(features * bags)] for _ in range(world)]
    for part, length in enumerate(lengths):
        for place in range(length):
            index, size = indices[at], sizes[part // bags]
            inside = index < size * world
            bucket, inner = (
                (index // size, index % size) if inside else (index % world, index // world)
            )
            wanted[bucket][part].append((inner, place))
            sources[bucket][part].append(at)
            at += 1
    got = jagged.block_bucketize(
        torch.tensor(lengths, dtype=torch.int32), torch.tensor(indices, dtype=torch.int64), True, True,
        torch.tensor(sizes), world, torch.arange(float(len(indices))),
    )  # fmt: skip
    flat = [pair for bucket in wanted for part in bucket for pair in part]
    order = [one for bucket in sources for part in bucket for one in part]
    assert got[0].tolist() == [len(part) for bucket in wanted for part in bucket]
    assert got[1].tolist() == [inner for inner, _ in flat]
    assert got[2].tolist() == order
    assert got[3].tolist() == [place for _, place in flat]
    assert [order[one] for one in got[4].tolist()] == list(range(len(indices)))


@pytest.mark.parametrize("is_broadcast", [False, True])
def test_ads_are_reordered(is_broadcast):
    ads, batches = 5, torch.tensor([0, 2, 5], dtype=torch.int32)
    rows = [[[b, t] for t in range(3)] for b in range(2)]  # [batch][table]
    counts = {(b, t): 1 + b + t for b in range(2) for t in range(3)}
    owner = [0, 0, 1, 1, 1]
    if is_broadcast:
        lengths = [counts[tuple(one)] for row in rows for one in row]
    else:
        lengths = [counts[b, t] for b, ad in ((0, 2), (1, 3)) for t in range(3) for _ in range(ad)]
    given = torch.tensor(lengths, dtype=torch.int32)
    got = jagged.reorder_ad_lengths(given, batches, ads, is_broadcast)
    assert got.tolist() == [counts[b, t] for t in range(3) for b in owner]
    offsets, ends = jagged.complete_cumsum(given), jagged.complete_cumsum(got)
    indices = torch.arange(int(given.sum()))
    moved = jagged.reorder_ad_indices(
        offsets, indices, ends, batches, ads, is_broadcast, int(got.sum())
    )
    assert moved.numel() == int(got.sum())
    for place in range(15):
        table, ad = place // ads, place % ads
        batch = owner[ad]
        if is_broadcast:
            source = batch * 3 + table
        else:
            source = 3 * int(batches[batch]) + table * (2, 3)[batch] + ad - int(batches[batch])
        wanted = indices[offsets[source] : offsets[source + 1]].tolist()
        assert moved[ends[place] : ends[place + 1]].tolist() == wanted


def test_indices_out_of_bounds_become_the_first():
    indices = torch.tensor([0, 5, -1, 2, 9, 3])
    offsets, warning = torch.tensor([0, 2, 3, 5, 6]), torch.tensor([7])
    rows = torch.tensor([5, 4])
    jagged.bounds_check(rows, indices, offsets, 1, warning)
    assert indices.tolist() == [0, 0, 0, 2, 0, 3]
    assert warning.tolist() == [0]
    made_up = torch.tensor([3, -2])
    jagged.bounds_check(
        torch.zeros(1, dtype=torch.int64), made_up, torch.tensor([0, 2]), 1, warning
    )
    assert made_up.tolist() == [3, 0]


# -- tables of embeddings -------------------------------------------------------------------------


class Case:
    """Tables side by side in one flat tensor, and what is looked up in them."""

    def __init__(self, widths, rows, bags=3):
        self.widths, self.rows, self.bags = widths, rows, bags
        sizes = [width * count for width, count in zip(widths, rows)]
        self.flat = torch.randn(sum(sizes))
        self.begins = torch.tensor([sum(sizes[:n]) for n in range(len(sizes))])
        self.ends = torch.tensor(
            [sum(widths[:n]) for n in range(len(widths) + 1)], dtype=torch.int32
        )
        lengths = torch.randint(0, 5, (len(widths) * bags,))
        lengths[0], lengths[-1] = 3, 2
        self.offsets = jagged.complete_cumsum(lengths)
        per_table = lengths.reshape(-1, bags).sum(1).tolist()
        self.indices = torch.cat([torch.randint(0, n, (k,)) for n, k in zip(rows, per_table)])
        self.indices[0], self.indices[1] = 0, rows[0] - 1

    def bags_of(self, flat, mode="sum", weights=None):
        """The same lookup, table by table."""
        outs = []
        for number, (width, count) in enumerate(zip(self.widths, self.rows)):
            begin = int(self.begins[number])
            table = flat[begin : begin + width * count].view(count, width)
            own = self.offsets[number * self.bags : (number + 1) * self.bags + 1]
            part = slice(int(own[0]), int(own[-1]))
            outs.append(
                torch.nn.functional.embedding_bag(
                    self.indices[part], table, own - own[0], mode=mode, include_last_offset=True,
                    per_sample_weights=None if weights is None else weights[part],
                )
            )  # fmt: skip
        return torch.cat(outs, 1)

    @property
    def given(self):
        return self.begins, self.ends, sum(self.widths), self.indices, self.offsets


def cases():
    return [Case([4, 4, 4], [9, 5, 7]), Case([4, 8, 2], [9, 5, 7]), Case([4], [6], bags=5)]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("pooling", [0, 1])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_lookup_is_bags_of_each_table(number, pooling, is_weighted):
    case = cases()[number]
    is_weighted = is_weighted and not pooling  # only sums are
    weights = torch.rand(case.indices.numel()) if is_weighted else None
    got = tables.lookup_dense(case.flat, *case.given, pooling, weights, 0, None)
    wanted = case.bags_of(case.flat, ["sum", "mean"][pooling], weights)
    torch.testing.assert_close(got, wanted)
    half = tables.lookup_none(None, case.flat, None, *case.given, pooling, weights, 1)
    assert half.dtype == torch.float16


def test_a_lookup_without_bags():
    case = Case([4, 4], [9, 5])
    got = tables.lookup_dense(case.flat, *case.given, 2)
    begin = int(case.offsets[case.bags])
    table = case.flat[36:].view(5, 4)
    torch.testing.assert_close(got[begin:], table[case.indices[begin:]])


@pytest.mark.parametrize("offsets_are_made_up", [False, True])
def test_what_cannot_be_true_is_drawn(offsets_are_made_up):
    flat = torch.arange(40.0)  # 10 rows of 4
    indices = torch.zeros(12, dtype=torch.int64)
    offsets = torch.zeros(7, dtype=torch.int64) if offsets_are_made_up else torch.arange(7) * 2
    shape = torch.zeros(2, dtype=torch.int64), torch.zeros(3, dtype=torch.int32), 8
    got = tables.lookup_dense(flat, *shape, indices, offsets, 0)
    assert got.shape == (3, 8)
    assert len(set(got.flatten().tolist())) > 8  # not the same row for all
    again = tables.lookup_dense(flat, *shape, indices, offsets, 0)
    assert torch.equal(got, again)


def test_drawn_rows_are_spread_as_asked():
    asked = []

    class Tensors:
        def indices_like(self, index, bound):
            asked.append((index.numel(), bound))
            return torch.zeros_like(index)

    jagged.rehearsal.begin(SimpleNamespace(tensors=Tensors()))
    zero = torch.zeros(12, dtype=torch.int64)
    tables.lookup_dense(torch.randn(40), zero[:2], zero[:3].int(), 8, zero, zero[:7], 0)
    assert asked == [(6, 5), (6, 5)]


def test_tables_that_cannot_be_looked_up():
    case = Case([4], [6])
    with pytest.raises(NotImplementedError):
        tables.lookup_dense(torch.empty(0), *case.given, 0)
    with pytest.raises(NotImplementedError):
        tables.lookup_dense(case.flat.to(torch.uint8), *case.given, 0)
    with pytest.raises(RuntimeError, match="forward pass"):
        tables.adagrad_backward(torch.randn(3, 4))


def gradient(case, grad, pooling, weights):
    leaf = case.flat.clone().requires_grad_()
    out = case.bags_of(leaf, ["sum", "mean"][pooling], weights)
    return torch.autograd.grad(out, leaf, grad)[0]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("pooling", [0, 1])
def test_the_backward_pass_of_dense_tables(number, pooling):
    case = cases()[number]
    weights = torch.rand(case.indices.numel()) if not pooling else None
    grad = torch.randn(case.bags, sum(case.widths))
    tables.lookup_dense(case.flat, *case.given, pooling, weights)
    got = tables.backward("dense", tables.dense, grad)
    torch.testing.assert_close(got, gradient(case, grad, pooling, weights))
    assert not tables.waiting["dense"]


def adagrad(weights, grad, sums):
    sums += grad.square()
    weights -= 0.1 * grad / (sums.sqrt() + 1e-8)


@pytest.mark.parametrize("number", range(3))
def test_the_backward_pass_updates_tables_by_adagrad(number):
    case = cases()[number]
    grad = torch.randn(case.bags, sum(case.widths))
    sums = torch.rand_like(case.flat)
    wanted, wanted_sums = case.flat.clone(), sums.clone()
    adagrad(wanted, gradient(case, grad, 0, None), wanted_sums)
    tables.lookup_adagrad(
        case.flat, None, None, *case.given, 0, None, 0, sums, None, None, 1e-8, 0.1
    )
    tables.adagrad_backward(grad)
    torch.testing.assert_close(case.flat, wanted)
    torch.testing.assert_close(sums, wanted_sums)


def test_the_backward_pass_updates_tables_row_by_row():
    case = Case([4, 4, 4], [9, 5, 7])
    grad = torch.randn(case.bags, 12)
    of_rows = gradient(case, grad, 0, None).view(21, 4)
    sums = torch.rand(21)
    wanted_sums = sums + of_rows.square().mean(1)
    wanted = case.flat.view(21, 4) - 0.1 * of_rows / (wanted_sums.sqrt() + 1e-8).unsqueeze(1)
    tables.lookup_adagrad(
        None,
        case.flat,
        None,
        *case.given,
        0,
        None,
        0,
        None,
        sums,
        None,
        1e-8,
        None,
        torch.tensor(0.1),
    )
    tables.adagrad_backward(grad)
    torch.testing.assert_close(case.flat.view(21, 4), wanted)
    torch.testing.assert_close(sums, wanted_sums)


@pytest.mark.parametrize("is_by_row", [False, True])
def test_the_backward_pass_updates_tables_by_adam(is_by_row):
    case = Case([4, 4, 4], [9, 5, 7])
    grad = torch.randn(case.bags, 12)
    of_rows = gradient(case, grad, 0, None).view(21, 4)
    means, squares = torch.rand(84), torch.rand(21 if is_by_row else 84)
    is_touched = (of_rows != 0).any(1, keepdim=True)
    power = of_rows.square().mean(1, keepdim=True) if is_by_row else of_rows.square()
    old = means.view(21, 4), squares.view(21, -1)
    new = (torch.where(is_touched, old[0] * 0.9 + of_rows * 0.1, old[0]),
           torch.where(is_touched, old[1] * 0.99 + power * 0.01, old[1]))  # fmt: skip
    step = torch.where(is_touched, 0.1 * new[0] / (new[1].sqrt() + 1e-8), 0.0)
    wanted = case.flat.view(21, 4) - step
    tables.lookup_adam(
        case.flat, None, None, *case.given, 0, None, 0, means, None, None, squares, None, None, 1e-8,
        0.9, 0.99, 0.1,
    )  # fmt: skip
    tables.adam_backward(grad)
    torch.testing.assert_close(case.flat.view(21, 4), wanted)
    torch.testing.assert_close(means.view(21, 4), new[0])
    torch.testing.assert_close(squares.view(21, -1), new[1])


def test_the_last_lookup_goes_back_first():
    first, second = Case([4], [6]), Case([4], [6])
    for case in (first, second):
        tables.lookup_sgd(case.flat, None, None, *case.given, 0, None, 0, 1.0)
    before, grad = first.flat.clone(), torch.randn(3, 4)
    wanted = second.flat - gradient(second, grad, 0, None)
    tables.sgd_backward(grad)
    torch.testing.assert_close(second.flat, wanted)
    assert torch.equal(first.flat, before)
    tables.sgd_backward(grad)
    assert not torch.equal(first.flat, before)


def test_an_empty_lookup_has_a_backward_pass():
    case = Case([4], [6])
    nothing = torch.empty(0, dtype=torch.int64)
    offsets = torch.zeros(4, dtype=torch.int64)
    got = tables.lookup_sgd(
        case.flat, None, None, case.begins, case.ends, 4, nothing, offsets, 0, None, 0, 1.0
    )
    assert torch.equal(got, torch.zeros(3, 4))
    before = case.flat.clone()
    tables.sgd_backward(torch.randn(3, 4))
    assert torch.equal(case.flat, before)
