"""Recipes: what is typed, what is sent, and that code and data that were scaled still run."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.systems.clone.assembly import EXCHANGEABLE, Quota, generate
from gnomon.systems.clone.bundle import VERSION, Bundle, EdgeProfile, read_bundle, write_bundle
from gnomon.systems.clone.instructions import CLASSES, INDEX
from gnomon.systems.clone.kinds import EVENT_KINDS
from gnomon.systems.clone.morph import (
    Morph,
    Parts,
    Phase,
    exchanged,
    make_morph,
    morphed_traffic,
    parse_phase,
    parts_of,
    weights_of,
)
from gnomon.systems.clone.project import morphed_note, write_project
from gnomon.systems.clone.scaling import code_lines, copied, packed, scaled, with_less_data
from gnomon.systems.clone.server import Script, Server, Step
from gnomon.systems.clone.traffic import RequestClass, Traffic
from tests.cli.refusal import answer, refused
from tests.systems.clone import programs
from tests.systems.clone.counted import need

MODELS = Path(__file__).parent / "models"
RUNTIME = Path(__file__).parents[3] / "src" / "gnomon" / "systems" / "clone" / "runtime"
SEEDS = st.integers(0, 2**31)
DEPENDENCIES = (0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02)
FACTORS = st.floats(1 / 64, 64)
TRAFFIC = Traffic("resp", (
    RequestClass(0.5, "GET", 36, 264), RequestClass(0.2, "GET", 360, 264),
    RequestClass(0.2, "SET", 300, 5), RequestClass(0.1, "DEL", 36, 4),
), keys=1000)  # fmt: skip


def quota(amount=50.0):
    names = ("alu", "load", "mov", "vector", "nop", "lea", "store", "atomic")
    mix = np.zeros(len(CLASSES))
    mix[[INDEX[one] for one in names]] = amount
    return Quota(tuple(mix.tolist()))


# --- what is typed -------------------------------------------------------------------------------


def test_a_recipe_as_it_is_typed():
    phases = ["90s:rate=2,data=4,GET=0.5", "1m"]
    found = make_morph(TRAFFIC, 2, 0.5, "get=0.9,set=0.1", "vector=2", phases)
    assert found == Morph(2, 0.5, {"get": 0.9, "set": 0.1}, {"vector": 2.0},
                          (Phase(90, 2, 4, {"get": 0.5}), Phase(60)))  # fmt: skip
    assert str(found) == (
        "data x 2; code x 0.5; vector x 2; 90 % get; 10 % set; "
        "90 s of rate x 2, data x 4, 50 % get; 60 s of rate x 1, data x 1"
    )


@pytest.fixture
def bundle(tmp_path):
    """Of a made-up service with one edge that matters."""
    skeleton = programs.make_program(np.random.default_rng(1), edges=1)
    steps = Step("read", "connection", 4096), Step("write", "connection", 264)
    script = Script(1.0, (steps,), ((264, 1),))
    server = Server("epoll_wait", 1000, 1.0, 0.1, (script,), None, None, (), 1, 1, False)
    made = Bundle(
        VERSION, "resp", server, TRAFFIC,
        (EdgeProfile("read:connection", "write:connection", 1.0, quota().mix, (), (), ()),),
        0.3, 0.1, DEPENDENCIES, 1.0, skeleton,
    )  # fmt: skip
    write_bundle(made, tmp_path / "a.bundle")
    return tmp_path / "a.bundle"


WRONG = {
    "--data 0": "out of range", "--data nan": "out of range", "--code 17": "out of range",
    "--instructions vector=65": "out of range", "--phase 1s:rate=0": "out of range",
    "--instructions branch=2": "cannot be exchanged", "--instructions smoke=2": "no class",
    "--mix gets=0.5": "no request 'gets'", "--mix get=0.9,set=0.2": "sum up to 1.1",
    "--mix get=-0.5": "sum up to", "--mix get=0.5,set=0.1,del=0.1": "to 1", "--mix get": "no name",
    "--mix get=0.2,get-36=0.2": "named twice", "--mix get=0.2,get=0.3": "of its own",
    "--phase 60": "no duration", "--phase 0s": "a phase of 0 s", "--phase 1s:smoke=1": "no request",
    "--phase 1s:data=1.37 --phase 1s:data=55": "no multiples",
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_recipe_gets_a_line(words, bundle, tmp_path, capsys):
    said = refused(capsys, "clone", "morph", bundle, "-o", tmp_path / "b", *words.split())
    assert WRONG[words] in said
    assert not (tmp_path / "b").exists()


def rows_of(found, table):
    columns = found["tables"][table]["columns"]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def test_a_recipe_goes_into_the_bundle_and_into_the_project(bundle, tmp_path, capsys):
    to = tmp_path / "b.bundle"
    found = answer(capsys, "clone", "morph", bundle, "-o", to, "--data", 2, "--mix", "set=0.8",
                   "--phase", "1s:data=3", "--phase", "1s")  # fmt: skip
    rows = {one["what"]: one for one in rows_of(found, "A request")}
    data = rows["lines of data that requests use in turn"]
    assert (data["asked"], data["morphed"]) == ("x 6", pytest.approx(6 * data["original"], abs=1))
    assert rows["requests set (%)"]["morphed"] == 80
    assert [one["seconds"] for one in rows_of(found, "Phases")] == [1, 1]
    morphed = read_bundle(to)
    assert morphed.morphed == Morph(2, 1, {"set": 0.8}, {}, (Phase(1, data=3), Phase(1)))
    assert msgspec.structs.replace(morphed, morphed=None) == read_bundle(bundle)
    write_project(morphed, tmp_path / "clone")
    model = (tmp_path / "clone" / "model.c").read_text()
    assert "{6, 1, 2, (const gnc_phase[]){{1000000000u, 6}, {1000000000u, 2}}}" in model
    assert "data x 2; 80 % set" in morphed_note(tmp_path / "clone")
    write_project(read_bundle(bundle), tmp_path / "clone")
    assert morphed_note(tmp_path / "clone") is None


def test_no_recipe_takes_it_off(bundle, tmp_path, capsys):
    for source, to, words in ((bundle, "b", ["--data", 2]), (tmp_path / "b", "c", [])):
        answer(capsys, "clone", "morph", source, "-o", tmp_path / to, *words)
    assert read_bundle(tmp_path / "c") == read_bundle(bundle)


# --- what is sent --------------------------------------------------------------------------------


@given(st.floats(0, 0.6), st.floats(0, 0.4))
def test_prop_commands_have_their_shares_and_others_keep_their_proportions(get, rare):
    weights = weights_of(TRAFFIC, {"get": get, "del": rare}, "--mix")
    assert sum(weights) == pytest.approx(1)
    assert sum(weights[:2]) == pytest.approx(get)
    assert weights[3] == pytest.approx(rare)
    assert 5 * weights[1] == pytest.approx(2 * weights[0])


def test_kinds_of_one_command_have_names_of_their_own():
    weights = weights_of(TRAFFIC, {"get-360": 0.7, "set": 0.3}, "--mix")
    assert weights == pytest.approx([0, 0.7, 0.3, 0])


def test_the_load_of_a_morphed_clone():
    morph = Morph(data=2, mix={"set": 0.8}, phases=(Phase(2, 3.0), Phase(1, mix={"set": 0.5})))
    found = morphed_traffic(TRAFFIC, morph)
    assert found.keys == 2000
    assert found.classes[2].weight == pytest.approx(0.8)
    assert [(one.seconds, one.rate) for one in found.phases] == [(2, 3), (1, 1)]
    assert [one.weights[2] for one in found.phases] == pytest.approx([0.8, 0.5])


# --- what is executed ----------------------------------------------------------------------------


@given(st.floats(1 / 64, 1), st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_prop_phases_are_multiples_of_one_part(part, counts):
    phases = tuple(Phase(1.0, data=part * count) for count in counts)
    parts = parts_of(Morph(phases=phases))
    assert parts.data <= 1
    for one, count in zip(phases, parts.memories, strict=True):
        assert count * parts.data == pytest.approx(one.data, rel=0.03)


@given(FACTORS.filter(lambda one: one <= 16))
def test_prop_code_is_copies_of_a_part(factor):
    parts = parts_of(Morph(code=factor))
    assert parts.copies * parts.code == pytest.approx(factor)
    assert parts.code <= 1


@given(st.dictionaries(st.sampled_from([one for group in EXCHANGEABLE for one in group]), FACTORS))
def test_prop_exchanged_instructions_are_as_many_as_before(factors):
    before = quota()
    after = exchanged(before, factors).mix
    assert sum(after) == pytest.approx(sum(before.mix))
    assert min(after) >= 0
    if factors == {"vector": 2.0}:
        assert after[INDEX["vector"]] == 100


def test_twice_the_vector_instructions():
    after = exchanged(quota(), {"vector": 2.0}).mix
    assert after[INDEX["vector"]] == 100
    assert after[INDEX["alu"]] == pytest.approx(50 * 150 / 200)
    assert after[INDEX["load"]] == 50


def touched(skeleton):
    """Lines of data that paths go to in the same place each time."""
    return {op.value for path in skeleton.paths for b in path.blocks
            for op in skeleton.blocks[b].ops if op.place == programs.CONSTANT}  # fmt: skip


@given(SEEDS, st.floats(1 / 64, 1))
def test_prop_less_data_are_fewer_lines_of_the_same_blocks(seed, factor):
    before = programs.make_program(np.random.default_rng(seed))
    after = with_less_data(before, factor)
    assert touched(after) <= touched(before)
    shape = [(op.does, op.place) for block in before.blocks for op in block.ops]
    assert [(op.does, op.place) for block in after.blocks for op in block.ops] == shape
    stores = {op.value for block in after.blocks for op in block.ops
              if op.place == programs.CONSTANT and op.does != programs.LOAD}  # fmt: skip
    assert all(before.lines[line] >= 0 for line in stores)


@given(SEEDS, st.floats(0.2, 1))
def test_prop_packed_blocks_do_not_overlap_and_touch_fewer_lines(seed, factor):
    before = programs.make_program(np.random.default_rng(seed))
    after = packed(before, factor)
    assert code_lines(after) <= code_lines(before) + 1e-9
    order = sorted(after.blocks, key=lambda one: (one.at, one.bytes))
    assert all(a.at + a.bytes <= b.at for a, b in zip(order, order[1:], strict=False))
    assert [one.ops for one in after.blocks] == [one.ops for one in before.blocks]


@settings(max_examples=12)
@given(
    SEEDS, st.sampled_from([(1.0, 2), (0.5, 1), (0.75, 2), (0.1, 1)]), st.sampled_from([1, 0.4])
)
def test_prop_scaled_code_takes_the_same_ways(seed, code, data):
    """Each copy by itself: kinds of copy c go through blocks of copy c."""
    need("cc", "nm", "qemu-x86_64")
    before = programs.make_program(np.random.default_rng(seed))
    skeleton = scaled(before, Parts(data, (1,), *code), kinds=2)
    programs.check_returns(skeleton)
    kinds = 2 * code[1]
    with tempfile.TemporaryDirectory() as name:
        made = generate(skeleton, quota(), DEPENDENCIES, np.random.default_rng(seed), kinds=kinds)
        program = programs.build(made, Path(name))
        assert programs.run(program, made, 300, kinds=kinds) == 7
        seen = programs.trace(program, made, 20, kinds=kinds)
        wanted = programs.planned(skeleton, made, program)
    for (edge, kind), walks in seen.items():
        everything = [one for (e, _), mine in wanted.items() if e == edge for one in mine]
        for copy in range(code[1]):  # kinds of all copies look alike to the profiler
            allowed = wanted.get((edge, kind + 2 * copy), everything)
            assert any(one in allowed for one in walks)
        mine = [
            one for (e, k), mine in wanted.items() if (e, k % 2) == (edge, kind) for one in mine
        ]
        assert all(one in (mine or everything) for one in walks)


def test_copies_share_the_data_and_not_the_code():
    before = programs.make_program(np.random.default_rng(5))
    after = copied(before, 3, 2)
    assert len(after.blocks) == 3 * len(before.blocks)
    assert sum(one.weight for one in after.paths) == pytest.approx(
        sum(one.weight for one in before.paths), rel=1e-6
    )
    for path in after.paths:
        copy = path.kind // 2
        assert {b // len(before.blocks) for b in path.blocks} == {copy}
    assert touched(after) == touched(before)


@pytest.fixture(scope="module")
def turning(tmp_path_factory):
    """A server with two copies of its code, and three memories in every second half second."""
    need("cmake", "cc")
    folder = tmp_path_factory.mktemp("turns")
    shutil.copytree(RUNTIME, folder / "runtime")
    shutil.copy(RUNTIME / "CMakeLists.txt", folder)
    shutil.copy(MODELS / "turns.c", folder / "model.c")
    for words in (["-S", folder, "-B", folder / "build"], ["--build", folder / "build"]):
        subprocess.run(["cmake", *words], check=True, capture_output=True)
    return folder / "build" / "clone"


def test_requests_take_turns_and_the_memories_follow_the_clock(turning):
    seen = {0: [], 1: []}
    with subprocess.Popen([turning, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        port = int(server.stdout.readline().rpartition(":")[2])
        kinds = []
        with socket.create_connection(("127.0.0.1", port), 60) as one:
            while min(map(len, seen.values())) < 40:
                one.sendall(b"x" * (1 + 999 * (len(kinds) % 2)))
                assert one.recv(1)
                kind, memory = map(int, server.stdout.readline().split())
                copy, kind = divmod(kind, EVENT_KINDS)  # there are at least as many, of wake-ups
                assert kind == len(kinds) % 2
                kinds.append(copy)
                place = time.time() % 1.0
                if place % 0.5 > 0.25:  # the thread that follows the clock may be late
                    seen[int(place > 0.5)].append(memory)
        server.terminate()
    assert kinds == [(i + 1) % 2 for i in range(len(kinds))]
    assert set(seen[0]) == {0}
    assert set(seen[1]) == {0, 1, 2}


def test_a_duration_is_needed():
    with pytest.raises(InputError, match="duration"):
        parse_phase("rate=2")
