"""What nodes communicate, how that becomes calls, and how long an emulated world takes."""

from __future__ import annotations

import gzip
import itertools
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import read_execution_trace
from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.systems.aibench.builder.collectives import Group, Groups, describe
from gnomon.systems.aibench.builder.communication import TENTHS
from gnomon.systems.aibench.builder.emulation import USUAL_GPU, emulate, model_ns
from gnomon.systems.aibench.builder.select import choose
from gnomon.systems.aibench.pipeline import build_program
from gnomon.systems.aibench.program import encode
from tests.systems.aibench.communicating import OBJECT, TraceMaker, every_kind

DLRM = "public/param/dlrm_pytorch_et.tar.gz"


def described(trace):
    groups = Groups(trace)
    places = [one.at for one in choose(trace) if one.role in ("collective", "wait")]
    return [describe(trace, at, groups) for at in places]


def collective_calls(trace):
    return [c for c in build_program(trace).calls if c.does.startswith("collective.")]


@pytest.mark.parametrize(
    ("below", "size", "rank_runs", "sequence"),
    [
        # 1.0.1: an address for a group; its size is that of the splits.
        ((147, 94594108284448, 1, "all_to_allv", (3, 1, 1, 1), (2, 2, 1, 1)), 4, [], 147),
        # A name; then a name and a description, the ranks' first, stride and number...
        ((9, "grid", 1, "all_to_allv", (3, 1, 1, 1), (2, 2, 1, 1), 2, 2, 4), 4, [2, 2, 4], 9),
        # ...and a sequence number that shows whether it is between two, and whether it is asynchronous.
        (((9, False), ("7", "dp"), 1, "all_to_allv", (3, 1, 1, 1), (), 0, 1, 4, True), 4, [], (9, False)),
    ],
)  # fmt: skip
def test_details_in_every_form(below, size, rank_runs, sequence):
    made = TraceMaker()
    out, one = made.tensor(1, 6, 5), made.tensor(2, 6, 5)
    id = made.add("c10d::alltoall_base_", (out, one, OBJECT, (), (), True, -1), (OBJECT,))
    made.details(id, one, *below)
    (found,) = described(made.trace())
    assert (found.kind, found.ins, found.outs) == ("all_to_all", (one,), (out,))
    assert (found.group.size, found.group.runs(), found.sequence) == (size, rank_runs, sequence)
    # Rank 1 sends 3 rows to rank 0, three ranks further on.
    assert found.shares == (5, 5, 5, 15)


def test_a_collective_that_only_details_tell():
    made = TraceMaker()
    out, one = made.tensor(1, 16), made.tensor(2, 8)
    inputs = ((one,), 3, ("0", "default_pg"), 0, "all_gather", (), (), 0, 1, 2)
    made.add("record_param_comms", inputs, ((out,),))
    (found,) = described(made.trace())
    assert (found.kind, found.ins, found.outs, found.group.size) == (
        "all_gather",
        (one,),
        (out,),
        2,
    )


def test_sides_roots_and_reductions():
    found = {one.kind: one for one in described(every_kind()) if one.kind != "all_reduce"}
    assert found["broadcast"].root == 3
    assert found["reduce"].root == 5
    assert not found["broadcast"].ins
    assert found["gather"].ins[0].elements == 4
    assert len(found["gather"].outs) == 8
    assert found["send"].outs == found["recv"].ins == found["barrier"].outs == ()
    reduces = [one for one in described(every_kind()) if one.kind == "all_reduce"]
    assert [one.how for one in reduces] == ["SUM", "SUM", "SUM", "AVG"]
    assert [one.makes for one in reduces] == [False, False, False, True]
    assert [one.group.size for one in reduces] == [8, 8, 2, 8]


@given(st.sets(st.integers(0, 40), min_size=1))
def test_prop_runs_are_the_ranks(ranks):
    members = tuple(sorted(ranks))
    runs = Group("x", members, len(members), False).runs()
    parts = [runs[at : at + 3] for at in range(0, len(runs), 3)]
    spans = [range(first, first + step * count, step) for first, step, count in parts]
    assert tuple(itertools.chain(*spans)) == members


# -- calls -------------------------------------------------------------------------------------


def test_every_kind_becomes_a_call():
    calls = collective_calls(every_kind())
    kinds = Counter(call.does for call in calls if call.does != "collective.wait")
    assert kinds == {
        "collective.all_reduce": 4, "collective.broadcast": 1, "collective.reduce": 1,
        "collective.all_gather": 3, "collective.reduce_scatter": 3, "collective.all_to_all": 3,
        "collective.gather": 1, "collective.scatter": 1, "collective.barrier": 1,
        "collective.send": 1, "collective.recv": 1,
    }  # fmt: skip
    real = [call for call in calls if not call.does.endswith((".wait", ".send", ".recv"))]
    assert all(call.args[TENTHS] == -1 for call in real)


def test_nothing_of_the_original_is_written():
    made = TraceMaker(("secret_group_name", (0, 1)))
    one = made.tensor(1, 8)
    id = made.add("c10d::allreduce_", ((one,), OBJECT, OBJECT, None, True, -1), ((one,), OBJECT))
    made.details(id, (one,), (987_654_321, False), ("secret_group_name", "secret_words"), 0,
                 "allreduce", (), (), 0, 1, 2)  # fmt: skip
    made.details(1, (987_654_321, False), ("", ""), 0, "wait", (), (), -1, -1, 1)
    two = made.tensor(2, 8)
    made.add("_c10d_functional::all_reduce", (one, "sum", "secret_group_name"), (two,))
    made.add("c10d::check_for_nan", (two, "secret_words"))
    raw = msgspec.json.encode(encode(build_program(made.trace()).program))
    assert b"secret" not in raw
    assert b"98765" not in raw


def test_a_recorded_wait_belongs_to_its_collective():
    made = TraceMaker()
    handles = []
    for number in (1, 2):
        one = made.tensor(number, 8)
        id = made.add(
            "c10d::allreduce_", ((one,), OBJECT, OBJECT, None, True, -1), ((one,), OBJECT)
        )
        made.details(id, (one,), 40 + number, 77, 0, "allreduce", (), ())
    for sequence in (42, 41, 13):
        made.details(1, sequence, 0, 0, "wait", (), ())
    calls = collective_calls(made.trace())
    assert [call.does for call in calls] == ["collective.all_reduce"] * 2 + ["collective.wait"] * 3
    handles = [call.outs for call in calls[:2]]
    assert [call.args[0] for call in calls[2:]] == [["r", handles[1]], ["r", handles[0]], None]


def test_who_touches_what_is_under_way_waits_first():
    made = TraceMaker()
    one, other = made.tensor(1, 8), made.tensor(2, 8)
    made.add("c10d::allreduce_", ((one,), OBJECT, OBJECT, None, True, -1), ((one,), OBJECT))
    made.add("aten::relu", (other,), (made.tensor(3, 8),))
    view = made.tensor(4, 2, 4, storage=one.storage)
    made.add("aten::view", (one, (2, 4)), (view,))
    made.add("aten::relu", (view,), (made.tensor(5, 2, 4),))
    made.add("aten::relu", (one,), (made.tensor(6, 8),))
    does = [call.does for call in build_program(made.trace()).calls]
    assert does == [
        "collective.all_reduce", "aten.relu.default", "aten.view.default", "collective.wait",
        "aten.relu.default", "aten.relu.default",
    ]  # fmt: skip


def test_what_is_being_sent_is_not_overwritten():
    made = TraceMaker()
    out, one = made.tensor(1, 16), made.tensor(2, 8)
    made.add("c10d::_allgather_base_", (out, one, OBJECT, True, -1), (out, OBJECT))
    made.add("aten::relu", (one,), (made.tensor(3, 8),))
    made.add("aten::mul_", (one, 2.0), (one,))
    does = [call.does for call in build_program(made.trace()).calls]
    assert does[1:] == ["aten.relu.default", "collective.wait", "aten.mul_.Scalar"]


def test_a_caller_that_waits_needs_no_wait():
    made = TraceMaker()
    one = made.tensor(1, 8)
    made.add("c10d::allreduce_", ((one,), OBJECT, OBJECT, None, False, -1), ((one,), OBJECT))
    made.add("aten::relu", (one,), (made.tensor(2, 8),))
    calls = build_program(made.trace()).calls
    assert [call.does for call in calls] == ["collective.all_reduce", "aten.relu.default"]
    assert calls[0].args[-1] == 1
    assert calls[0].outs is None


def test_a_functional_collective_works_in_place_on_a_copy():
    made = TraceMaker()
    one, two, three = made.tensor(1, 8), made.tensor(2, 8), made.tensor(3, 16)
    made.add("_c10d_functional::all_reduce", (one, "sum", "0"), (two,))
    made.add("_c10d_functional::all_gather_into_tensor", (two, 2, "0"), (three,))
    made.add("_c10d_functional::wait_tensor", (three,), (three,))
    made.add("aten::relu", (three,), (made.tensor(4, 16),))
    calls = build_program(made.trace()).calls
    assert [call.does for call in calls] == [
        "aten.clone.default", "collective.all_reduce", "aten.empty_strided.default",
        "collective.wait", "collective.all_gather", "collective.wait", "aten.relu.default",
    ]  # fmt: skip
    copied, gathered = calls[0].outs, calls[2].outs
    assert calls[1].args[:2] == [["L"], ["L", ["r", copied]]]
    assert calls[4].args[:2] == [["L", ["r", copied]], ["L", ["r", gathered]]]
    assert calls[6].args == [["r", gathered]]


def test_collectives_of_a_group_keep_their_order_across_threads():
    made = TraceMaker()
    for number, thread in ((1, 1), (2, 2), (3, 1)):
        one = made.tensor(number, 8)
        made.add(
            "c10d::allreduce_", ((one,), OBJECT, OBJECT, None, True, -1), ((one,), OBJECT), thread
        )
    rows = build_program(made.trace()).program.steps[0]
    kinds = [[getattr(item, "kind", "call") for item in row] for row in rows]
    assert kinds == [["call", "post", "need", "call"], ["need", "call", "post"]]


def test_without_a_profiler_trace_collectives_have_a_stream_of_their_own():
    program = build_program(every_kind()).program
    assert program.streams == 2
    assert program.events > 0


# -- emulated worlds ---------------------------------------------------------------------------


def with_kernels(*sizes_and_ns, group=("0", tuple(range(8)))):
    made = TraceMaker(group, ("tp", (0, 1)))
    for number, (size, _, key) in enumerate(sizes_and_ns):
        one = made.tensor(number, size)
        id = made.add(
            "c10d::allreduce_", ((one,), OBJECT, OBJECT, None, True, -1), ((one,), OBJECT)
        )
        made.details(id, (one,), number, (key, ""), 0, "allreduce", (), ())
    trace = made.trace()
    calls = collective_calls(trace)
    for call, (_, ns, _) in zip(calls, sizes_and_ns):
        call.device_ns = ns
    return trace, calls


def test_the_shortest_kernel_of_each_size_counts():
    trace, calls = with_kernels(
        (1000, 9e4, "0"), (1000, 5e4, "0"), (2000, 8e4, "0"), (2000, 7e4, "tp")
    )
    notes = emulate(calls, trace, 8)
    assert [call.args[TENTHS] for call in calls] == [500, 500, 800, 700]
    assert notes == [
        "a world of 8 is emulated: 4 collectives per round are waits, "
        "4 as long as their shortest recorded kernels"
    ]


def test_groups_that_were_the_whole_job_grow_with_it():
    trace, calls = with_kernels((10**6, 1e6, "0"), (10**6, 1e6, "tp"))
    emulate(calls, trace, 64)
    whole, part = (call.args[TENTHS] for call in calls)
    assert whole > part == 10_000
    times = CollectiveTimes.of(USUAL_GPU, None)
    one = describe(trace, calls[0].at, Groups(trace))
    more_ns = model_ns(times, one, 64) - model_ns(times, one, 8)
    assert whole == round((1e6 + more_ns) / 100)
    emulate(calls, trace, 1)
    assert calls[0].args[TENTHS] == 0


def test_a_collective_without_a_kernel_gets_a_stream_of_its_own():
    trace, calls = with_kernels((10**6, 0.0, "0"), (10**6, 0.0, "0"))
    other = msgspec.structs.replace(calls[0], does="aten.relu.default", device_ns=1e3, stream=4)
    emulate([*calls, other], trace, 8)
    assert [call.stream for call in calls] == [5, 5]
    assert all(call.device_ns == 100 * call.args[TENTHS] > 0 for call in calls)


def test_without_kernels_the_cost_model_counts():
    trace = every_kind()
    calls = collective_calls(trace)
    notes = emulate(calls, trace, 8, "roce-100", gpu="A100")
    assert "by the cost model (A100, network roce-100)" in notes[0]
    assert notes[1].startswith("2 messages")
    assert all(call.args[TENTHS] > 0 for call in calls if call.does != "collective.wait")


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(1, 512))
def test_prop_more_bytes_never_take_less(one, other, world):
    trace, calls = with_kernels((min(one, other), 0.0, "0"), (max(one, other), 0.0, "0"))
    emulate(calls, trace, world)
    assert calls[0].args[TENTHS] <= calls[1].args[TENTHS]


def test_messages_between_two_are_waits_in_every_world():
    trace = every_kind()
    calls = collective_calls(trace)
    assert len(emulate(calls, trace, None)) == 1
    waits = [call.does for call in calls if len(call.args) > TENTHS and call.args[TENTHS] >= 0]
    assert waits == ["collective.send", "collective.recv"]


def test_worlds_and_networks_that_cannot_be():
    trace, calls = with_kernels((10, 0.0, "0"))
    with pytest.raises(InputError, match="a job of 0 ranks"):
        emulate(calls, trace, 0)
    with pytest.raises(InputError, match="network"):
        emulate(calls, trace, 8, "string-and-cans")


@pytest.mark.data
def test_the_collectives_of_dlrm(public_data):
    trace = read_execution_trace(f"{public_data / DLRM}:dlrm_pytorch_et/dlrm_eg_0.json")
    found = [one for one in described(trace) if one.kind != "wait"]
    assert Groups(trace).world == 8
    assert Counter(one.kind for one in found) == {"all_to_all": 5, "all_reduce": 3}
    assert all(one.group.size == 8 and one.group.is_world for one in found)
    uneven = [one for one in found if one.shares]
    assert [sum(one.shares) for one in uneven] == [3392]
    calls = collective_calls(trace)
    # Two of the recorded waits belong to the step before.
    assert [call.args for call in calls if call.does == "collective.wait"].count([None]) == 2


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "size"),
    [
        ("1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz", 1),
        ("1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz", 2),
        ("resnet_1gpu_et.json.tar.gz", 1),
    ],
)
def test_the_collectives_of_resnet(public_data, file, size):
    trace = read_execution_trace(public_data / "public/param" / file)
    found = [one for one in described(trace) if one.kind != "wait"]
    assert Counter(one.kind for one in found) == {"broadcast": 6, "all_reduce": 15}
    assert {one.group.size for one in found} == {size}
    waits = [c for c in collective_calls(trace) if c.does == "collective.wait"]
    assert all(call.args[0] is not None for call in waits)
    assert len(gzip.compress(msgspec.json.encode([call.args for call in waits]))) < 1000
