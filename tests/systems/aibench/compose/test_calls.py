"""Parts of a trace as a benchmark: what stays, how often it runs, and that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="torch is not installed")

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import TensorValue, read_execution_trace
from gnomon.systems.aibench.builder.align import Alignment, Timing, Uncovered
from gnomon.systems.aibench.builder.flow import Flow
from gnomon.systems.aibench.builder.lower import lower
from gnomon.systems.aibench.builder.select import choose
from gnomon.systems.aibench.compose.calls import (
    Composed,
    Numbers,
    Selection,
    compose,
    narrow,
    parse_selection,
    weigh,
)
from gnomon.systems.aibench.compose.parts import FAMILIES, PHASES, Part, parts_of
from gnomon.systems.aibench.program import Call
from tests.systems.aibench.composing import (
    MODELS,
    composed,
    make_bench,
    record_et,
    torch,
)
from tests.systems.aibench.recordings import program_of, run


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory):
    torch.manual_seed(0)
    return record_et(tmp_path_factory.mktemp("compose") / "et.json", MODELS["gpt"](4))


# -- what is asked for ---------------------------------------------------------------------------


def test_what_is_kept_of_one_kind_is_united_of_several_kinds_intersected():
    asked = parse_selection(
        ["phase:backward", "family:gemm,attention", "phase:forward", "layers:0-3,7"],
        ["family:view"], ["gemm=3"], "first:2", 4,
    )  # fmt: skip
    assert asked.phases == {"backward", "forward"}
    assert asked.families == {"gemm", "attention"}
    assert asked.layers == Numbers(((0, 3), (7, 7)))
    assert asked.keeps(Part("backward", "gemm", 7))
    for part in (
        Part("optimizer", "gemm", 7), Part("backward", "copy", 7), Part("backward", "gemm", 4),
        Part("backward", "gemm", None),
    ):  # fmt: skip
        assert not asked.keeps(part)
    assert (asked.first, asked.repeat, asked.weights) == (2, 4, {"gemm": 3})


def test_communication_is_a_word_of_its_own():
    assert parse_selection(["communication"]).families == {"communication"}
    assert parse_selection([], ["communication"]).without_families == {"communication"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (dict(keep=["phase:backwards"]), "did you mean backward? there are forward, backward"),
        (dict(keep=["family:matmul"]), "there are allocation, attention"),
        (dict(drop=["families:optimiser"]), "did you mean optimizer?"),
        (dict(keep=["stage:1"]), "one of phase:..., family:..., layers:..., communication"),
        (dict(keep=["layers:a"]), "'a' is no list of numbers; such as 0-3,7"),
        (dict(keep=["layers:3-1"]), "runs backwards"),
        (dict(keep=["layers:"]), "no list of numbers"),
        (dict(weights=["gemm"]), "FAMILY=TIMES or OPERATOR=TIMES"),
        (dict(weights=["gemm=half"]), "FAMILY=TIMES"),
        (dict(take="last:1"), "first:N, or steps such as 0,2-4"),
        (dict(take="first:0"), "first:N"),
        (dict(repeat=0), "at least once"),
    ],
)
def test_a_typo_is_answered_with_what_there_is(asked, message):
    with pytest.raises(InputError) as caught:
        parse_selection(**asked)
    assert message in str(caught.value)


RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.booleans()), min_size=1)


@given(RANGES)
def test_prop_numbers_are_read_as_they_are_written(ranges):
    numbers = Numbers(tuple((a, None if is_open else a + n) for a, n, is_open in ranges))
    again = Numbers.parse(
        ",".join(f"{a}-{'' if is_open else a + n}" for a, n, is_open in ranges), "x"
    )
    assert again == numbers
    for number in range(50):
        inside = any(a <= number and (is_open or number <= a + n) for a, n, is_open in ranges)
        assert (number in again) == inside
    assert None not in again


SETS = st.none() | st.frozensets(st.sampled_from(FAMILIES), min_size=1)


@given(families=SETS, without=st.frozensets(st.sampled_from(FAMILIES)), phase=st.sampled_from(PHASES),
       family=st.sampled_from(FAMILIES), layer=st.none() | st.integers(0, 5))  # fmt: skip
def test_prop_what_is_dropped_goes_in_any_case(families, without, phase, family, layer):
    asked = Selection(families=families, without_families=without)
    keeps = asked.keeps(Part(phase, family, layer))
    assert keeps == ((families is None or family in families) and family not in without)


# -- what stays ----------------------------------------------------------------------------------


def names_of(trace, picked: Composed) -> set[str]:
    return {trace.nodes[at].name for at in picked.kept}


def test_everything_stays_unless_asked(gpt):
    chosen, picked = composed(gpt, Selection())
    assert picked == Composed(frozenset(one.at for one in chosen), {}, 1, 0)


def test_phases_and_families_and_layers(gpt):
    chosen, picked = composed(
        gpt, parse_selection(["phase:backward", "family:attention", "layers:1"])
    )
    assert len(picked.kept) == 1
    assert "backward" in names_of(gpt, picked).pop()
    assert picked.dropped == len(chosen) - 1
    _, rest = composed(gpt, parse_selection(drop=["family:gemm", "phase:optimizer"]))
    assert not names_of(gpt, rest) & {"aten::linear", "aten::mm", "aten::_fused_adamw_"}


def test_weights_by_operator_go_before_those_by_family(gpt):
    weights = ["gemm=3", "aten::mm=2", "gelu=0", "attention=1"]
    _, picked = composed(gpt, parse_selection(weights=weights))
    for at in picked.kept:
        name = gpt.nodes[at].name
        assert name != "aten::gelu"
        if name in ("aten::linear", "aten::mm"):
            assert picked.times[at] == {"aten::linear": 3, "aten::mm": 2}[name]
    assert set(picked.times.values()) == {2, 3}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (dict(keep=["layers:0-3"]), "there is no layer 3; it has layers 0 to 2"),
        (dict(keep=["communication"]), "no call is left; most calls of the trace are"),
        (dict(weights=["aten::gello=2"]), "did you mean aten::gelu?"),
        (dict(take="first:2"), "it has one step"),
        (dict(take="4"), "it has one step"),
    ],
)
def test_what_the_trace_does_not_have_is_refused(gpt, asked, message):
    with pytest.raises(InputError) as caught:
        composed(gpt, parse_selection(**asked))
    assert message in str(caught.value)


def test_layers_where_there_are_none(tmp_path):
    trace = record_et(tmp_path / "et.json", lambda: torch.ones(3).exp().sum())
    with pytest.raises(InputError, match="no layers were found"):
        composed(trace, parse_selection(["layers:0"]))


def test_steps_are_taken_by_number(tmp_path):
    x = torch.randn(4, 4)

    def step():
        for number in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{number + 7}"):
                x.exp() if number == 1 else x.sin()

    trace = record_et(tmp_path / "et.json", step)
    assert names_of(trace, composed(trace, parse_selection(take="1"))[1]) == {"aten::exp"}
    assert len(composed(trace, parse_selection(take="0,2"))[1].kept) == 2
    assert len(composed(trace, parse_selection(take="first:2"))[1].kept) == 2
    with pytest.raises(InputError, match="it has 3 steps"):
        composed(trace, parse_selection(take="first:4"))


# -- what follows from it ------------------------------------------------------------------------


def test_times_stay_with_the_calls_that_stay():
    timings = {at: Timing(device_ns=10.0 * at, host_ns=at) for at in range(4)}
    extra = [Uncovered(0, 1, 2, "k", 5.0, 7), Uncovered(0, 3, None, "k", 6.0, 7),
             Uncovered(0, 2, 1, "k", 8.0, 7)]  # fmt: skip
    alignment = Alignment(timings, tuple(extra), 1.0, 1.0, on_gpu=True, notes=())
    narrowed = narrow(alignment, {2, 3})
    assert narrowed.timings == {2: timings[2], 3: timings[3]}
    assert narrowed.uncovered == tuple(extra[:2])
    assert narrowed.matched == 1.0


def test_what_runs_several_times_takes_several_times_as_long():
    def call(does, role, at=5, args=()):
        return Call(does, list(args), {}, None, [], at, 0, role, "", host_ns=4.0, device_ns=6.0)

    calls = [call("aten.mm.default", "operator", args=[1]), call("aten.as_strided.default", "view"),
             call("", "missing", args=[1]), call("", "missing"), call("aten.mm.default", "operator", 6)]  # fmt: skip
    weigh(calls, {5: 3})
    assert [one.times for one in calls] == [3, 1, 3, 1, 1]
    assert [one.host_ns for one in calls] == [12.0, 4.0, 12.0, 4.0, 4.0]
    assert [one.device_ns for one in calls] == [18.0, 6.0, 18.0, 6.0, 6.0]


def test_memory_that_a_dropped_call_used_again_is_from_outside():
    def tensor(number, shape=(4,)):
        return TensorValue(number, 9, 0, 4, 4, "cpu", "float32", shape, (1,))

    def call():
        return Call("", [], {}, None, [], 0, 0, "", "", reads=set(), writes=set())

    flow = Flow()
    flow.give((tensor(1),), call())
    assert not flow.is_outside(tensor(1))
    flow.forget((tensor(1),), (tensor(2),))  # a view, or in place: it is still what it was
    assert not flow.is_outside(tensor(1))
    flow.forget((), (tensor(3),))
    assert flow.is_outside(tensor(3))
    assert flow.take(tensor(3), lambda _: None, call())[0] == "x"


@pytest.mark.parametrize(
    "asked",
    [
        dict(keep=["phase:forward"]),
        dict(keep=["phase:backward"], drop=["family:view"]),
        dict(keep=["family:gemm,attention"], weights=["gemm=3"], repeat=2),
        dict(keep=["layers:1-2"], weights=["attention=2", "normalisation=0"]),
    ],
    ids=["forward", "backward", "families", "layers"],
)
def test_what_stays_runs(gpt, tmp_path, asked):
    selection = parse_selection(**asked)
    calls = make_bench(gpt, tmp_path / "bench", selection)
    answer = run(tmp_path / "bench")
    assert answer["ops"] == answer["replayed"] == sum(not call.extra.get("g") for call in calls)
    assert answer["placeholders"] == answer["differing"] == 0
    program = program_of(tmp_path / "bench")
    assert program["order"] == [[0] * selection.repeat]
    if selection.weights:
        times = [row[7].get("n", 1) if len(row) > 7 else 1
                 for thread in program["steps"][0] for row in thread if not isinstance(row[0], str)]  # fmt: skip
        assert max(times) == max(selection.weights.values())


def test_every_call_alone_reads_only_what_is_there(gpt):
    """Whatever stays, no register is read that nobody wrote."""
    chosen = choose(gpt)
    kept = frozenset(one.at for one in chosen[::3])
    written: set[int] = set()
    for call in lower(gpt, chosen, kept=kept).calls:
        waiting = [*call.args, *call.kwargs.values()]
        while waiting:
            value = waiting.pop()
            if isinstance(value, list) and value:
                if value[0] == "r":
                    assert value[1] in written
                elif value[0] == "L":
                    waiting += value[1:]
        waiting = [call.outs]
        while waiting:
            out = waiting.pop()
            if isinstance(out, list):
                waiting += out
            elif out is not None:
                written.add(out)


# -- recorded on GPUs ----------------------------------------------------------------------------


def test_layers_of_a_recorded_job(public_data: Path):
    trace = read_execution_trace(public_data / "h200" / "gpt-base" / "et.json.gz")
    chosen = choose(trace)
    parts = parts_of(trace, [one.at for one in chosen])
    picked = [
        compose(trace, chosen, parts, parse_selection([f"layers:{at}"])).kept for at in range(12)
    ]
    assert len({len(kept) for kept in picked}) == 1
    assert not frozenset.intersection(*picked)
    both = compose(trace, chosen, parts, parse_selection(["layers:0-11"])).kept
    assert both == frozenset.union(*picked)


def test_communication_of_a_recorded_job(public_data: Path):
    trace = read_execution_trace(public_data / "public" / "param" / "resnet_et.json.gz")
    _, picked = composed(trace, parse_selection(["communication"]))
    assert names_of(trace, picked) <= {
        "c10d::allreduce_",
        "c10d::broadcast_",
        "record_param_comms",
    }
    lowering = lower(trace, choose(trace), kept=picked.kept)
    assert any(call.does == "collective.all_reduce" for call in lowering.calls)
