"""Another batch: the same calls that the job would have made with it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed")

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import read_execution_trace
from gnomon.systems.aibench.builder.flow import natural_strides
from gnomon.systems.aibench.builder.select import choose
from gnomon.systems.aibench.program import Call
from gnomon.systems.aibench.rescale.layout import (
    Factor,
    NotWhole,
    Region,
    dense_strides,
    is_dense,
    region_of,
    regroup,
    restride,
)
from gnomon.systems.aibench.rescale.sizes import Change, shape_options
from gnomon.systems.aibench.rescale.trace import scale_batch, stretch
from tests.systems.aibench.composing import MODELS, look, make_bench, record_et, sizes, torch
from tests.systems.aibench.recordings import run


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory):
    done = {}

    def trace(name: str, batch: int):
        if (name, batch) not in done:
            torch.manual_seed(0)
            path = tmp_path_factory.mktemp("batch") / "et.json"
            done[name, batch] = record_et(path, MODELS[name](batch))
        return done[name, batch]

    return trace


# -- whole models --------------------------------------------------------------------------------


#: The data of experts would not be the same again with a batch of six.
CASES = [
    (name, before, after)
    for name in MODELS
    for before, after in ((4, 8), (8, 4), (4, 6))
    if (name, after) != ("experts", 6)
]


@pytest.mark.parametrize(("name", "before", "after"), CASES)
def test_a_scaled_trace_is_the_trace_of_the_scaled_job(traces, name, before, after):
    recorded, real = traces(name, before), traces(name, after)
    chosen = choose(recorded)
    scaled = scale_batch(recorded, chosen, Fraction(after, before), before)
    assert (scaled.batch, scaled.now, scaled.others) == (before, after, 0)
    assert len(recorded) == len(real)
    for one in chosen:
        mine, theirs = scaled.trace.nodes[one.at], real.nodes[one.at]
        assert mine.name == theirs.name
        assert look(mine.outputs) == look(theirs.outputs), mine.name
        assert look(mine.inputs) == look(theirs.inputs), mine.name
        assert [sizes(v) for v in mine.inputs] == [sizes(v) for v in theirs.inputs], mine.name


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("gpt", 8, 16), ("gpt", 16, 8), ("mlp", 8, 16), ("cnn", 6, 12), ("cnn", 16, 4),
     ("heads", 2, 4), ("heads", 6, 3), ("recommender", 30, 10), ("recommender", 13, 26)],
)  # fmt: skip
def test_other_sizes_may_equal_the_batch(traces, name, before, after):
    """As many channels, words or features as samples: what follows shows which is which."""
    recorded, real = traces(name, before), traces(name, after)
    chosen = choose(recorded)
    scaled = scale_batch(recorded, chosen, Fraction(after, before)).trace
    for one in chosen:
        mine, theirs = scaled.nodes[one.at], real.nodes[one.at]
        assert look((mine.inputs, mine.outputs)) == look((theirs.inputs, theirs.outputs)), (
            mine.name
        )


def test_what_cannot_be_told_is_said(traces):
    recorded = traces("sequence-first", 6)  # as long as it is wide
    scaled = scale_batch(recorded, choose(recorded), Fraction(2))
    assert scaled.twice == 1
    assert scaled.note.endswith("1 tensors have that size twice, and the first was taken for it")


@pytest.mark.parametrize("name", ["gpt", "mlp", "cnn", "recommender"])
def test_the_batch_is_found(traces, name):
    recorded = traces(name, 4)
    assert scale_batch(recorded, choose(recorded), Fraction(2)).batch == 4


def test_nothing_else_changes(traces):
    recorded = traces("gpt", 4)
    scaled = scale_batch(recorded, choose(recorded), Fraction(1)).trace
    assert scaled.nodes == recorded.nodes


def test_forth_and_back(traces):
    recorded = traces("cnn", 4)
    chosen = choose(recorded)
    twice = scale_batch(recorded, chosen, Fraction(2)).trace
    assert scale_batch(twice, chosen, Fraction(1, 2)).trace.nodes == recorded.nodes


@pytest.mark.parametrize("name", ["gpt", "mlp", "cnn"])
def test_a_scaled_benchmark_runs(traces, tmp_path, name):
    calls = make_bench(traces(name, 4), tmp_path / "bench", factor=Fraction(2), batch=4)
    answer = run(tmp_path / "bench")
    assert answer["ops"] == sum(not call.extra.get("g") for call in calls)
    assert answer["placeholders"] == 0
    # Results that are not as in the scaled trace would be counted.
    assert answer.get("differing", 0) == 0


def test_device_time_grows_with_the_batch(traces):
    recorded = traces("mlp", 4)
    scaled = scale_batch(recorded, choose(recorded), Fraction(3))
    assert scaled.note == "the batch of 4 is now 12: 2 tensors from outside carry it"
    calls = [
        Call("", [], {}, None, [], at, 0, "operator", "", host_ns=5.0, device_ns=7.0)
        for at in range(len(recorded))
    ]
    stretch(calls, scaled)
    assert {call.host_ns for call in calls} == {5.0}
    for call in calls:
        node = recorded.nodes[call.at]
        assert call.device_ns == (7.0 if scaled.trace.nodes[call.at] == node else 21.0)
    products = [c for c in calls if recorded.nodes[c.at].name == "aten::linear"]
    assert {call.device_ns for call in products} == {21.0}


# -- what cannot be done -------------------------------------------------------------------------


def refused(trace, factor="2", batch=None) -> str:
    with pytest.raises(InputError) as caught:
        scale_batch(trace, choose(trace), Fraction(factor), batch)
    return str(caught.value)


def test_a_batch_of_one_is_refused(traces):
    assert "batch of 1" in refused(traces("mlp", 1), batch=1)


def test_a_batch_that_is_not_there_is_refused(traces):
    assert "no tensor from outside carries a batch of 7" in refused(traces("gpt", 4), batch=7)


def test_half_a_sample_is_refused(traces):
    assert "no whole number" in refused(traces("gpt", 4), "1/3")


def test_nothing_is_refused(traces):
    assert "cannot be multiplied" in refused(traces("gpt", 4), "0")


def test_who_goes_through_a_batch_one_by_one_is_named(tmp_path):
    x, layer = torch.randn(4, 8), torch.nn.Linear(8, 8)
    trace = record_et(tmp_path / "et.json", lambda: [layer(row) for row in x.unbind(0)])
    message = refused(trace)
    assert "aten::unbind" in message
    assert "node" in message


def test_a_kernel_made_for_its_sizes_is_named(tmp_path):
    import msgspec

    x = torch.randn(4, 8)
    trace = record_et(tmp_path / "et.json", lambda: (x + 1).relu())
    nodes = tuple(
        msgspec.structs.replace(n, kernel_backend="triton", schema="")
        if n.name == "aten::relu"
        else n
        for n in trace.nodes
    )
    assert "compiled kernels" in refused(msgspec.structs.replace(trace, nodes=nodes))


# -- sizes ---------------------------------------------------------------------------------------

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=5)


@given(
    outer=SIZES, inner=SIZES, batch=st.integers(2, 6), by=st.sampled_from([2, 3]), data=st.data()
)
def test_prop_views_of_views_put_the_batch_where_it_is(outer, inner, batch, by, data):
    """A tensor [outer..., batch, inner...] is flattened and split again in any way."""
    shape = (*outer, batch, *inner)
    now = (*outer, batch * by, *inner)
    factors = tuple(Factor() if at == len(outer) else None for at in range(len(shape)))
    cut = data.draw(st.integers(0, len(outer)))
    end = data.draw(st.integers(len(outer) + 1, len(shape)))
    merged = (*shape[:cut], prod(shape[cut:end]), *shape[end:])
    ((grown, found),) = regroup(shape, now, factors, merged)
    assert grown == (*shape[:cut], prod(now[cut:end]), *shape[end:])
    assert regroup(merged, grown, found, shape) == [(now, factors)]


@given(shape=SIZES, batch=st.integers(2, 5), at=st.data(), by=st.sampled_from([2, 3]))
def test_prop_cuts_of_memory_are_cuts_of_larger_memory(shape, batch, at, by):
    """What a permuted, sliced view shows of a tensor is what it shows of a larger one."""
    dim = at.draw(st.integers(0, len(shape)))
    shape.insert(dim, batch)
    order = at.draw(st.permutations(range(len(shape))))
    old = torch.empty(shape).permute(order)
    new = torch.empty([size * by if d == dim else size for d, size in enumerate(shape)])
    new = new.permute(order)
    place = order.index(dim)
    for d in range(old.dim()):
        first = at.draw(st.integers(0, old.shape[d] - 1)) if d != place else 0
        old, new = (
            old.narrow(d, first, old.shape[d] - first),
            new.narrow(d, first, new.shape[d] - first),
        )
    region = region_of(shape, [s * by if d == dim else s for d, s in enumerate(shape)],
                       natural_strides(tuple(shape)), dim, Factor())  # fmt: skip
    found = restride(tuple(old.shape), old.stride(), old.storage_offset(), region)
    assert found.shape == tuple(new.shape)
    assert found.offset == new.storage_offset()
    # Strides of dimensions of one element mean nothing.
    assert all(n == 1 or a == b for n, a, b in zip(new.shape, found.strides, new.stride()))


def test_one_of_a_batch_has_no_counterpart():
    with pytest.raises(NotWhole):
        restride((8,), (1,), 24, Region(4, 8, 8))


@given(shape=SIZES, at=st.data())
def test_prop_dense_strides_keep_their_order(shape, at):
    order = at.draw(st.permutations(range(len(shape))))
    tensor = torch.empty(shape).permute(order)
    assert is_dense(tuple(tensor.shape), tensor.stride())
    strides = dense_strides(tuple(tensor.shape), tensor.stride())
    assert all(n == 1 or a == b for n, a, b in zip(tensor.shape, strides, tensor.stride()))


def test_a_batch_that_is_split_grows_outside_first():
    options = regroup((16, 8), (32, 8), (Factor(), None), (4, 4, 8))
    assert [shape for shape, _ in options] == [(8, 4, 8), (4, 8, 8)]


def test_where_each_begins_and_the_last_ends():
    assert ((33,), (None,)) in shape_options((17,), Change(16, Fraction(2)))


def prod(numbers):
    out = 1
    for number in numbers:
        out *= number
    return out


# -- recorded on a GPU ---------------------------------------------------------------------------


def test_twice_the_recorded_batch_is_the_recording_of_twice_the_batch(public_data: Path):
    small = read_execution_trace(public_data / "h200" / "gpt-b2" / "et.json.gz")
    large = read_execution_trace(public_data / "h200" / "gpt-base" / "et.json.gz")
    for trace, other, factor in ((small, large, 2), (large, small, Fraction(1, 2))):
        ours, theirs = choose(trace), choose(other)
        scaled = scale_batch(trace, ours, Fraction(factor)).trace
        assert len(ours) == len(theirs) > 900
        for a, b in zip(ours, theirs):
            mine, real = scaled.nodes[a.at], other.nodes[b.at]
            assert mine.name == real.name
            assert look((mine.inputs, mine.outputs)) == look((real.inputs, real.outputs)), (
                mine.name
            )


@pytest.mark.parametrize(
    ("name", "batch"), [("linear", 1024), ("resnet50", 128), ("overlap", 4), ("gpt-cpubound", 2)]
)
def test_recorded_jobs_can_be_scaled(public_data: Path, name, batch):
    trace = read_execution_trace(public_data / "h200" / name / "et.json.gz")
    scaled = scale_batch(trace, choose(trace), Fraction(2))
    assert (scaled.batch, scaled.now, scaled.carriers, scaled.others) == (batch, 2 * batch, 2, 0)
