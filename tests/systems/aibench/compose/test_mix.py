"""Several benchmarks in one: numbers that do not clash, in the right ratio, and it runs."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.systems.aibench.compose.mix import merge, mix, parse_weights, rounds_of, whole_weights
from gnomon.systems.aibench.folder import read_template, write_bench
from gnomon.systems.aibench.program import Call, Made, Meta, Program, Signal, Storage, encode
from gnomon.systems.aibench.stored import decode, read_bench

# -- programs written by hand --------------------------------------------------------------------


def call(does="aten.relu.default", args=(), outs=None, metas=(), frees=(), **more) -> Call:
    return Call(does, list(args), more.pop("kwargs", {}), outs, list(metas), 0, 0, "", "",
                frees=list(frees), **more)  # fmt: skip


def program(size=4, steps=1, **settings) -> Program:
    """Each step makes something of what is there, beside a second thread, and of the step before."""
    meta = Meta("float32", (size, size), None, 1)
    rows = [
        [
            [
                call(args=[["x", 0]], outs=0, metas=[0], host_ns=1000.0),
                Signal("post", 0),
                call("aten.cat.default", [["L", ["r", 0], ["x", 0]], 0], outs=1, metas=[1]),
                call("aten.sum.default", [["r", 1]], frees=[0, 1], times=2, stream=1),
            ],
            [Signal("need", 0), call("aten.neg.default", [["x", 0]])],
        ]
        for _ in range(steps)
    ]
    return Program(
        [Storage(4 * size * size, 1, [])], [Made(0, 0, 0)],
        [meta, Meta("float32", (2 * size, size), None, 1)], rows,
        [[number] for number in range(steps)], {"device": "cpu", **settings}, 2, 1, 0,
    )  # fmt: skip


def bench(folder: Path, own: Program, **more) -> Path:
    write_bench(folder, own, "what it is", **more)
    return folder


def test_a_program_is_read_back(tmp_path):
    own = program(3, steps=2, lost=7)
    own.steps[0][0][0].extra["y"] = 1
    own.steps[0][0][0].kwargs["alpha"] = ["r", 1]
    own.steps[0][0][2].checks.append([0, 5])
    stored = read_bench(bench(tmp_path / "a", own))
    assert encode(stored.program) == encode(own)
    assert encode(decode(json.loads(json.dumps(encode(own))))) == encode(own)
    assert (stored.modules, stored.kernels) == ({}, [])


def mixed(*programs: Program, times=None) -> Program:
    from gnomon.systems.aibench.stored import Stored

    parts = [Stored(own, {}, []) for own in programs]
    return merge(parts, times or [1] * len(parts), [f"bench {n}" for n in range(len(parts))])[0]


def test_numbers_do_not_clash():
    both = mixed(program(4), program(6))
    assert [made.storage for made in both.made] == [0, 1]
    assert [both.metas[made.meta].shape for made in both.made] == [(4, 4), (6, 6)]
    first, second = (step[0] for step in both.steps)
    assert (first[0].args, first[0].outs, first[0].metas) == ([["x", 0]], 0, [0])
    assert (second[0].args, second[0].outs, second[0].metas) == ([["x", 1]], 2, [2])
    assert second[2].args == [["L", ["r", 2], ["x", 1]], 0]
    assert second[3].frees == [2, 3]
    assert second[1] == Signal("post", 0)
    assert (both.streams, both.signals, both.events) == (2, 1, 0)


def used(own: Program) -> tuple[set[int], set[int], set[int]]:
    """Registers, tensors and looks that a program names."""
    registers, tensors, looks = set(), set(), set()
    for step in own.steps:
        for thread in step:
            for item in (item for item in thread if isinstance(item, Call)):
                looks |= set(item.metas)
                registers |= {r for r in (item.outs,) if r is not None} | set(item.frees)
                waiting = [*item.args]
                while waiting:
                    value = waiting.pop()
                    if isinstance(value, list) and value:
                        if value[0] == "L":
                            waiting += value[1:]
                        elif value[0] in ("r", "x"):
                            (registers if value[0] == "r" else tensors).add(value[1])
    return registers, tensors, looks


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), min_size=2, max_size=5))
def test_prop_parts_share_nothing_and_lose_nothing(shapes):
    parts = [program(size, steps) for size, steps in shapes]
    whole = mixed(*parts)
    first = 0
    seen: list[set[int]] = [set(), set(), set()]
    for own in parts:
        alone = Program(whole.storages, whole.made, whole.metas,
                        whole.steps[first : first + len(own.steps)], [], {}, 1, 0, 0)  # fmt: skip
        for numbers, all_of_them, original in zip(used(alone), seen, used(own)):
            assert len(numbers) == len(original)
            assert not numbers & all_of_them
            all_of_them |= numbers
        first += len(own.steps)
    assert seen[1] == set(range(len(whole.made)))
    assert {step for order in whole.order for step in order} == set(range(len(whole.steps)))


# -- how often -----------------------------------------------------------------------------------


def test_whole_weights_stay():
    assert whole_weights([4, 2]) == (4, 2)
    assert whole_weights([1, 1.5]) == (2, 3)


@given(st.lists(st.floats(0.05, 20.0), min_size=2, max_size=3))
def test_prop_ratios_are_kept_within_a_hundredth(weights):
    try:
        times = whole_weights(weights)
    except InputError:
        assume(False)
    ratios = [number / weight for number, weight in zip(times, weights)]
    assert max(ratios) / min(ratios) <= 1.01 + 1e-12
    assert all(isinstance(number, int) and number >= 1 for number in times)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=2, max_size=4))
def test_prop_everybody_gets_their_turns_in_order(parts):
    times = [number for number, _ in parts]
    orders, first = [], 0
    for _, steps in parts:
        orders.append([[first + at] for at in range(steps)])
        first += steps
    rounds = rounds_of(times, orders)
    everything = [step for own in rounds for step in own]
    for number, order in zip(times, orders):
        mine = [step for step in everything if [step] in order]
        # One after the other, over and over, and whole cycles.
        assert mine == [order[at % len(order)][0] for at in range(len(mine))]
        assert len(mine) % len(order) == 0
        for own in rounds:
            assert sum([step] in order for step in own) == number


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_prop_turns_are_spread(times):
    (turns,) = rounds_of(times, [[[at]] for at in range(len(times))])
    whole = sum(times)
    for length in range(1, whole + 1):
        counts = Counter(turns[:length])
        for at, number in enumerate(times):
            assert abs(counts[at] - Fraction(number * length, whole)) < len(times)


@pytest.mark.parametrize(
    ("text", "message"),
    [("3", "1 weights for 2"), ("3,x", "no numbers"), ("1,0", "greater than zero"),
     ("1,-2", "greater than zero"), ("1,nan", "greater than zero"), ("0.0001,1", "closer together")],
)  # fmt: skip
def test_weights_that_are_none(text, message):
    with pytest.raises(InputError, match=message):
        parse_weights(text, 2)


# -- what holds for all --------------------------------------------------------------------------


def test_what_is_needed_at_once():
    both = mixed(program(4, peak_bytes=164, lost=3), program(2, peak_bytes=516, lost=4))
    assert both.settings == {"device": "cpu", "peak_bytes": 64 + 16 + 500, "lost": 7}


def test_the_profiler_slows_a_mix_as_it_slows_its_parts_on_average():
    assert mixed(program(profiler=1.5), program(profiler=2.25)).settings["profiler"] == 1.88
    assert mixed(program(profiler=2.0), program()).settings["profiler"] == 1.5
    assert "profiler" not in mixed(program(), program()).settings


def test_settings_that_differ_are_refused():
    with pytest.raises(InputError) as caught:
        mixed(program(), program(device="cuda"))
    assert str(caught.value) == (
        "bench 1: its device is cuda, that of bench 0 is cpu; "
        "mix benchmarks that were recorded on the same kind of device"
    )
    with pytest.raises(InputError, match="its something is 2"):
        mixed(program(something=1), program(something=2))


def test_rounding_of_products_is_said_once_or_before_each_step(tmp_path):
    assert mixed(program(tf32=1), program(tf32=1)).settings["tf32"] == 1
    assert "tf32" not in mixed(program(), program()).settings
    a, b = bench(tmp_path / "a", program(tf32=1)), bench(tmp_path / "b", program())
    mix([a, b], [1, 1], tmp_path / "both")
    both = read_bench(tmp_path / "both")
    assert "tf32" not in both.program.settings
    assert list(both.modules) == ["precision"]
    firsts = [[(thread[0].does, thread[0].args) for thread in step] for step in both.program.steps]
    assert firsts == [[("precision.tf32", [1])] * 2, [("precision.tf32", [0])] * 2]


KERNEL = "def launch(): return 'kernel_{n}'\nkernel_{n} = launch\n# of kernel_{n}0\n"


def test_kernels_are_numbered_together(tmp_path):
    own = program()
    own.steps[0][1].append(call("kernel.1", [["x", 0]]))
    a = bench(tmp_path / "a", own, kernels=["# one", KERNEL.format(n=1)])
    other = program()
    other.steps[0][1].append(call("kernel.0", [["x", 0]]))
    b = bench(tmp_path / "b", other, kernels=[KERNEL.format(n=0), "# two"])
    mix([a, b], [1, 1], tmp_path / "both")
    both = read_bench(tmp_path / "both")
    assert both.kernels[0] == "# one"
    assert "kernel_1 = launch" in both.kernels[1]
    assert both.kernels[2] == KERNEL.format(n=2).replace("kernel_20", "kernel_00")
    assert both.kernels[3:] == ["# two"]
    assert [step[1][-1].does for step in both.program.steps] == ["kernel.1", "kernel.2"]
    mix([a, a], [1, 1], tmp_path / "same")
    assert len(read_bench(tmp_path / "same").kernels) == 2


USER = """def thing(x):
    return x {sign} 1


OPERATORS = {{
    "custom.0": thing,
}}


def ready(bench):
    for function in OPERATORS.values():
        function.first = False
    return OPERATORS
"""


def with_user(folder: Path, sign: str) -> Path:
    own = program()
    own.steps[0][0].append(call("custom.0", [["x", 0]]))
    return bench(folder, own, modules={"user_ops": USER.format(sign=sign)})


def test_files_of_users_come_along_under_other_names(tmp_path):
    a, b = with_user(tmp_path / "a", "+"), with_user(tmp_path / "b", "-")
    mix([a, b, a], [1, 1, 1], tmp_path / "all")
    whole = read_bench(tmp_path / "all")
    assert list(whole.modules) == ["user_ops", "user_ops_2"]
    assert '"custom.1": thing' in whole.modules["user_ops_2"]
    assert "x - 1" in whole.modules["user_ops_2"]
    done = [step[0][-1].does for step in whole.program.steps]
    assert done == ["custom.0", "custom.1", "custom.0"]


def test_modules_of_the_benchmark_itself_are_those_of_this_version(tmp_path):
    a = bench(tmp_path / "a", program(), modules={"jagged": "# an older one\n"})
    b = bench(tmp_path / "b", program())
    mix([a, b], [1, 1], tmp_path / "both")
    assert read_bench(tmp_path / "both").modules == {"jagged": read_template("jagged.py")}


# -- folders -------------------------------------------------------------------------------------


def test_a_page_says_what_it_is_made_of_and_no_names(tmp_path):
    a, b = bench(tmp_path / "secret-a", program()), bench(tmp_path / "secret-b", program(5))
    made = mix([a, b], [2.5, 1], tmp_path / "both")
    assert (made.times, made.rounds, made.calls) == ((5, 2), 1, 7 * 4)
    page = (tmp_path / "both" / "README.md").read_text()
    assert "5 x the first, 2 x the second" in page
    whole = page + gzip.decompress((tmp_path / "both" / "program.json.gz").read_bytes()).decode()
    assert "secret" not in whole


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"nothing", "cannot be read"),
        (gzip.compress(b"{"), "cannot be read"),
        (gzip.compress(b"[]"), "its format is None, not 1"),
        (gzip.compress(b'{"format": 9}'), "its format is 9, not 1"),
        (gzip.compress(b'{"format": 1}'), "is no program of a benchmark"),
    ],
    ids=["no gzip", "cut", "a list", "another format", "empty"],
)
def test_what_is_no_benchmark_is_refused(tmp_path, raw, message):
    good = bench(tmp_path / "good", program())
    (tmp_path / "bad").mkdir()
    with pytest.raises(
        InputError, match=r"there is no program.json.gz in it; is it a benchmark\?"
    ):
        mix([good, tmp_path / "bad"], [1, 1], tmp_path / "out")
    (tmp_path / "bad" / "program.json.gz").write_bytes(raw)
    with pytest.raises(InputError, match=message):
        mix([good, tmp_path / "bad"], [1, 1], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@given(data=st.data())
def test_prop_a_broken_program_is_an_input_error(tmp_path_factory, data):
    """A field that is something else, or is not there."""
    folder = tmp_path_factory.mktemp("broken")
    plain = json.loads(json.dumps(encode(program())))
    key = data.draw(st.sampled_from(sorted(plain)))
    if data.draw(st.booleans()):
        del plain[key]
    else:
        plain[key] = data.draw(st.sampled_from([None, 3, "x", [3], [[3]], {"a": 1}]))
    (folder / "program.json.gz").write_bytes(gzip.compress(json.dumps(plain).encode()))
    try:
        stored = read_bench(folder)
    except InputError as error:
        assert str(folder) in str(error)
    else:
        assert isinstance(stored.program, Program)


def test_at_least_two_and_a_weight_for_each(tmp_path):
    a = bench(tmp_path / "a", program())
    with pytest.raises(InputError, match="at least two"):
        mix([a], [1], tmp_path / "out")
    with pytest.raises(InputError, match="1 weights for 2"):
        mix([a, a], [1], tmp_path / "out")


# -- runs ----------------------------------------------------------------------------------------


def test_a_mix_runs(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")

    from tests.systems.aibench.composing import MODELS, make_bench, record_et
    from tests.systems.aibench.recordings import build, record, run

    make_bench(record_et(tmp_path / "et.json", MODELS["gpt"](4)), tmp_path / "gpt")
    build(record(tmp_path / "cnn-traces", MODELS["cnn"](4)), tmp_path / "cnn")
    alone = [run(tmp_path / name) for name in ("gpt", "cnn")]
    mix([tmp_path / "gpt", tmp_path / "cnn"], [3, 1], tmp_path / "both")
    answer = run(tmp_path / "both")
    assert answer["ops"] == sum(one["ops"] for one in alone)
    assert answer["placeholders"] == sum(one["placeholders"] for one in alone) == 0
    assert answer["differing"] == 0
    # A mix is a benchmark like others: it can be mixed again.
    again = mix([tmp_path / "both", tmp_path / "gpt"], [1, 0.5], tmp_path / "again")
    assert (again.times, again.rounds) == ((2, 1), 1)
    assert run(tmp_path / "again")["ops"] == answer["ops"] + alone[0]["ops"]


def test_a_mix_of_users_files_and_of_precisions_runs(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    from tests.systems.aibench.recordings import run

    a, b = with_user(tmp_path / "a", "+"), with_user(tmp_path / "b", "-")
    c = bench(tmp_path / "c", program(7, steps=2, tf32=1))
    mix([a, b, c], [1, 2, 1], tmp_path / "all")
    answer = run(tmp_path / "all")
    assert answer["placeholders"] == 0
    assert answer["differing"] == 0
    # Five calls in each of the first two, four in each step of the last; settings are none.
    assert answer["ops"] == 5 + 5 + 2 * 4
