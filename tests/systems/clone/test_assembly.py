"""Generated code: it assembles, returns, and goes the way of its paths."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.systems.clone.assembly import Less, Quota, generate
from gnomon.systems.clone.instructions import CLASSES, INDEX
from gnomon.systems.clone.recording import bucket_of
from gnomon.systems.clone.rejump import rejump
from gnomon.systems.clone.skeleton import (
    AWAY,
    CONSTANT,
    FILLER,
    LOAD,
    MOVE,
    SAVE,
    STACK,
    Block,
    Op,
    Skeleton,
)  # fmt: skip
from gnomon.systems.clone.skeleton import (
    Path as Walk,
)
from tests.systems.clone import programs
from tests.systems.clone.counted import need

DEPENDENCIES = (0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02)
SEEDS = st.integers(0, 2**31)


def quota(**what):
    mix = np.zeros(len(CLASSES))
    mix[
        [INDEX[one] for one in ("alu", "load", "mov", "vector", "nop", "lea", "store", "atomic")]
    ] = 50
    return Quota(tuple(mix.tolist()), **what)


def code_of(skeleton, seed=0, **what):
    return generate(skeleton, quota(**what), DEPENDENCIES, np.random.default_rng(seed))


@settings(max_examples=20)
@given(SEEDS, st.sampled_from([0.0, 3.0, 40.0]))
def test_prop_paths_assemble_and_return(seed, less):
    need("cc")
    rng = np.random.default_rng(seed)
    skeleton = rejump(programs.make_program(rng), 4, 4, rng, changing=2)
    programs.check_returns(skeleton)
    with tempfile.TemporaryDirectory() as name:
        code = code_of(skeleton, seed, less={0: Less(less, less / 4, -less / 4), 1: Less(less)})
        program = programs.build(code, Path(name))
        assert programs.run(program, code, 300) == 7


@settings(max_examples=12)
@given(SEEDS, st.sampled_from([0.0, 10.0]))
def test_prop_blocks_are_executed_in_the_order_of_a_path(seed, less):
    need("cc", "nm", "qemu-x86_64")
    rng = np.random.default_rng(seed)
    skeleton = rejump(programs.make_program(rng), 2, 2, rng, changing=1)
    with tempfile.TemporaryDirectory() as name:
        code = code_of(skeleton, seed, less={0: Less(less)})
        program = programs.build(code, Path(name))
        seen = programs.trace(program, code, 20)
        wanted = programs.planned(skeleton, code, program)
    assert seen.keys() == {(edge, kind) for edge in code.edges for kind in (0, 1)}
    for (edge, kind), walks in seen.items():
        everything = [one for (e, _), mine in wanted.items() if e == edge for one in mine]
        allowed = wanted.get((edge, kind), everything)
        assert all(one in allowed for one in walks)


def test_classes_come_out_as_the_quota_says_whatever_single_blocks_weigh():
    """A loop that is executed 70 times would be all that there is of a rare class, and more."""
    heavy = [Block(64 * i, 40, [Op(LOAD)] * 3, "fall", -1, i + 1) for i in range(4)]
    light = [Block(512 + 64 * i, 60, [Op(LOAD)] * 9, "fall", -1, i + 1) for i in range(40)]
    paths = [Walk(0, 0, 70.0, 0, [0, 1, 2, 3], []), Walk(1, 0, 1.0, 0, list(range(4, 44)), [])]
    mix = np.zeros(len(CLASSES))
    # Twice as much as there is to deal out: shares are what counts.
    mix[[INDEX["load"], INDEX["alu_load"], INDEX["vector_load"]]] = 1600, 750, 50
    for seed in range(9):
        skeleton = Skeleton([*heavy, *light], paths, [])
        code = generate(skeleton, Quota(tuple(mix.tolist())), DEPENDENCIES,
                        np.random.default_rng(seed))  # fmt: skip
        dealt = [code.mix[INDEX[one]] for one in ("load", "alu_load", "vector_load")]
        assert np.allclose(dealt, [800, 375, 25], atol=2.0)


def test_what_cannot_be_left_out_is_said():
    skeleton = straight(Op(LOAD), Op(FILLER), Op(FILLER), ends="fall")
    code = code_of(skeleton, less={0: Less(instructions=10.0)})
    assert code.unpaid[0].instructions == pytest.approx(10.0 - 2.0 + 1.0)  # the return is one more


def straight(*ops, ends="fall", **more):
    return Skeleton(
        [Block(0, 40, list(ops), ends)], [Walk(0, 0, 1.0, 0, [0], [])], **{"lines": [], **more}
    )


def runs(skeleton, folder, **what):
    need("cc")
    code = code_of(skeleton, **what)
    return programs.run(programs.build(code, folder), code, 100, edges=1, kinds=1)


@pytest.mark.parametrize(
    "bytes_",
    [8, 120, 128, 136, 4096],
)
def test_frames_of_all_sizes(bytes_, tmp_path):
    """A block behind stands where it did: the encoding is as long as was planned."""
    frame = [Op(MOVE, STACK, -bytes_), Op(SAVE, STACK, -8), Op(MOVE, STACK, bytes_)]
    blocks = [Block(0, 1, frame * 3, "jmp", 1, -1), Block(1, 1, [Op(FILLER)], "fall")]
    assert runs(Skeleton(blocks, [Walk(0, 0, 1.0, 0, [0, 1], [])], []), tmp_path) == 7


def test_stores_that_go_far_never_hit_a_return_address(tmp_path):
    """Lines of the stack are touched by loads; a store as far away as one of them goes elsewhere."""
    loads = [Op(LOAD, CONSTANT, i) for i in range(40)]
    stores = [Op(SAVE, AWAY, bucket_of(distance)) for distance in range(16, 40)]
    blocks = [Block(0, 9, [*loads, *stores], "call", 2, 1), Block(9, 9, [Op(FILLER)], "fall"),
              Block(100, 9, [*loads, *stores], "ret")]  # fmt: skip
    paths = [Walk(0, 0, 1.0, 64 * depth, [0, 2, 1], []) for depth in range(30)]
    assert runs(Skeleton(blocks, paths, list(range(-40, 0))), tmp_path) == 7


def test_every_path_is_taken_as_often_as_it_weighs(tmp_path):
    """Two thirds go through a loop of forty turns, whose bits are more than one word of the stream holds."""
    need("cc", "nm", "qemu-x86_64")
    blocks = [Block(0, 9, [Op(FILLER)] * 2, "branch", 2, 1), Block(9, 9, [Op(FILLER)] * 2, "branch", 1, 2),
              Block(18, 9, [Op(FILLER)] * 2, "fall")]  # fmt: skip
    paths = [Walk(0, 0, 1.0, 0, [0, 2], []), Walk(0, 0, 2.0, 0, [0, *[1] * 40, 2], [])]
    skeleton = Skeleton(blocks, paths, [])
    code = code_of(skeleton)
    program = programs.build(code, tmp_path)
    seen = programs.trace(program, code, 60, edges=1, kinds=1)[0, 0]
    short, long = programs.planned(skeleton, code, program)[0, 0]
    assert (len(short), len(long)) == (2, 42)
    assert seen.count(short) + seen.count(long) == len(seen) == 60
    assert 25 <= seen.count(long) <= 55


def test_indirect_calls_and_returns_to_callers(tmp_path):
    need("cc", "nm", "qemu-x86_64")
    blocks = [Block(0, 9, [Op(FILLER)], "call_indirect", -1, 1), Block(9, 9, [Op(FILLER)], "fall"),
              Block(100, 9, [Op(FILLER)], "ret"), Block(5000, 9, [Op(FILLER)], "ret"),
              Block(9000, 9, [Op(FILLER)], "ret")]  # fmt: skip
    paths = [Walk(0, 0, 1.0, 0, [0, 2, 1], []), Walk(0, 0, 1.0, 0, [0, 3, 1], []),
             Walk(0, 0, 1.0, 64, [4, 0, 3, 1], [(0, 0)])]  # fmt: skip
    skeleton = Skeleton(blocks, paths, [])
    code = code_of(skeleton)
    program = programs.build(code, tmp_path)
    seen = programs.trace(program, code, 60, edges=1, kinds=1)[0, 0]
    wanted = programs.planned(skeleton, code, program)[0, 0]
    assert {tuple(one) for one in seen} == {tuple(one) for one in wanted}


def test_each_kind_has_paths_of_its_own(tmp_path):
    need("cc", "nm", "qemu-x86_64")
    blocks = [Block(0, 9, [Op(FILLER)], "branch", 2, 1), Block(9, 9, [Op(FILLER)], "fall"),
              Block(18, 9, [Op(FILLER)], "fall")]  # fmt: skip
    skeleton = Skeleton(
        blocks, [Walk(0, 0, 1.0, 0, [0, 1], []), Walk(0, 1, 1.0, 0, [0, 2], [])], []
    )
    code = code_of(skeleton)
    program = programs.build(code, tmp_path)
    seen = programs.trace(program, code, 20, edges=1)
    wanted = programs.planned(skeleton, code, program)
    for kind in (0, 1):
        assert all(one == wanted[0, kind][0] for one in seen[0, kind])


def test_the_same_seed_gives_the_same_code():
    skeleton = programs.make_program(np.random.default_rng(3))
    assert code_of(skeleton, 5) == code_of(skeleton, 5)
    assert code_of(skeleton, 5).assembly != code_of(skeleton, 6).assembly


def test_no_paths_no_edges():
    code = code_of(Skeleton([], [], []))
    assert code.edges == []
