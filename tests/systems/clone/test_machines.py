"""Generated code for other machines: AArch64 in an emulator, and C."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.systems.clone.recording import BUCKETS, bucket_of
from gnomon.systems.clone.rejump import rejump
from gnomon.systems.clone.skeleton import (
    AWAY,
    CLOSE,
    CONNECTION,
    CONSTANT,
    FILLER,
    LOAD,
    MODIFY,
    MOVE,
    NEXT,
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
from tests.systems.clone.test_assembly import code_of

ARM = "aarch64"
SEEDS = st.integers(0, 2**31)
BOTH = pytest.mark.parametrize("machine", [ARM, "portable"])


def build(code, folder, machine):
    if machine == "portable":
        need("cc")
        return programs.build_portable(code, folder)
    need(*programs.MACHINES[machine].parts)
    return programs.build(code, folder, machine)


def run(skeleton, folder, machine, times=100, edges=1, kinds=1, seed=0):
    code = code_of(skeleton, seed)
    program = build(code, folder, machine)
    emulated = None if machine == "portable" else machine
    return programs.run(program, code, times, edges, kinds, emulated)


def walked(code, folder, machine, times, skeleton, edges=2, kinds=2):
    """What was executed, and what paths say, both by edge and kind."""
    program = build(code, folder, machine)
    if machine == "portable":
        wanted = {}
        for path in skeleton.paths:
            wanted.setdefault((path.edge, path.kind), []).append(path.blocks)
        return programs.visits(program, code, times, edges, kinds), wanted
    return (programs.trace(program, code, times, edges, kinds, machine),
            programs.planned(skeleton, code, program, machine))  # fmt: skip


def make_program(seed):
    """With accesses to what connections have of their own."""
    rng = np.random.default_rng(seed)
    skeleton = rejump(programs.make_program(rng), 4, 4, rng, changing=2)
    for block in skeleton.blocks:
        for op in block.ops:
            if op.place == CLOSE and op.does in (LOAD, SAVE, MODIFY) and rng.random() < 0.5:
                op.place, op.value = int(rng.choice([CONNECTION, NEXT])), int(rng.integers(0, 7))
    skeleton.connection_lines = 7
    return skeleton


@BOTH
@settings(max_examples=8)
@given(seed=SEEDS)
def test_prop_paths_return_elsewhere_too(machine, seed):
    with tempfile.TemporaryDirectory() as name:
        assert run(make_program(seed), Path(name), machine, 300, 2, 2, seed) == 7


@BOTH
@settings(max_examples=8)
@given(seed=SEEDS)
def test_prop_blocks_are_executed_in_the_order_of_a_path_elsewhere_too(machine, seed):
    skeleton = make_program(seed)
    with tempfile.TemporaryDirectory() as name:
        code = code_of(skeleton, seed)
        seen, wanted = walked(code, Path(name), machine, 20, skeleton)
    assert seen.keys() == {(edge, kind) for edge in code.edges for kind in (0, 1)}
    for (edge, kind), walks in seen.items():
        everything = [one for (e, _), mine in wanted.items() if e == edge for one in mine]
        allowed = wanted.get((edge, kind), everything)
        assert all(one in allowed for one in walks)


@BOTH
def test_frames_and_data_of_all_sizes(machine, tmp_path):
    """Also where no single instruction of AArch64 says how far."""
    ops = []
    for frame in (8, 248, 4096, 4104, 1 << 17):
        inside = [Op(does, STACK, place) for does in (LOAD, SAVE, MODIFY)
                  for place in (-frame, 20 - frame, -8)]  # fmt: skip
        ops += [Op(MOVE, STACK, -frame), *inside, Op(MOVE, STACK, frame)]
    lines = [-5, 0, 3, 64, 700, 300_000]
    ops += [Op(does, CONSTANT, i) for i in range(1, 6) for does in (LOAD, SAVE, MODIFY)]
    ops += [Op(does, AWAY, bucket) for does in (LOAD, SAVE, MODIFY)
            for bucket in range(bucket_of(30), BUCKETS, 2)]  # fmt: skip
    blocks = [Block(0, 9, [Op(LOAD, CONSTANT, 0)], "call", 2, 1), Block(9, 9, [Op(FILLER)], "fall"),
              Block(100, 900, ops, "ret")]  # fmt: skip
    skeleton = Skeleton(blocks, [Walk(0, 0, 1.0, 0, [0, 2, 1], [])], lines)
    for seed in range(3):
        assert run(skeleton, tmp_path, machine, seed=seed) == 7


def test_branches_of_aarch64_that_go_far(tmp_path):
    far = 3 << 20
    blocks = [Block(0, 9, [Op(FILLER)], "branch", 2, 1), Block(9, 9, [Op(FILLER)], "jmp", 3, -1),
              Block(far, 9, [Op(FILLER)], "branch", 3, -1), Block(2 * far, 9, [Op(FILLER)], "fall")]  # fmt: skip
    paths = [Walk(0, 0, 1.0, 0, [0, 1, 3], []), Walk(0, 0, 1.0, 0, [0, 2, 3], [])]
    skeleton = Skeleton(blocks, paths, [])
    code = code_of(skeleton)
    seen, wanted = walked(code, tmp_path, ARM, 40, skeleton, 1, 1)
    assert {tuple(one) for one in seen[0, 0]} == {tuple(one) for one in wanted[0, 0]}


@BOTH
def test_all_ends_of_blocks(machine, tmp_path):
    """Branches that are always and never taken; a function that is called, and fallen into: only
    a call pushes."""
    ends = [("branch", 2, -1), ("fall", -1, 2), ("call_indirect", -1, 3), ("call", 6, 4),
            ("call_indirect", -1, 5), ("branch", 0, 6), ("ret", -1, -1), ("ret", -1, -1),
            ("jmp_indirect", -1, -1), ("jmp_indirect", -1, -1), ("jmp", 11, -1), ("fall", -1, -1)]  # fmt: skip
    blocks = [Block(9 * i, 9, [Op(FILLER)], *one) for i, one in enumerate(ends)]
    paths = [Walk(0, 0, 1.0, 64, [0, 2, 6, 3, 6, 4, 6, 5, 6, 8, 9, 10, 11], [(0, 8)]),
             Walk(0, 0, 1.0, 64, [1, 2, 7, 3, 6, 4, 6, 5, 6, 8, 10, 11], [(0, 8)])]  # fmt: skip
    skeleton = Skeleton(blocks, paths, [])
    seen, wanted = walked(code_of(skeleton), tmp_path, machine, 40, skeleton, 1, 1)
    assert {tuple(one) for one in seen[0, 0]} == {tuple(one) for one in wanted[0, 0]}


def test_as_many_instructions_on_aarch64_as_on_x86_64(tmp_path):
    """Loads with arithmetic and calls are more there: as much is left out of what only computes."""
    body = [Op(FILLER)] * 12 + [Op(LOAD, CLOSE), Op(MODIFY, CLOSE)]
    blocks = [Block(0, 60, body, "call", 2, 1), Block(60, 60, body, "fall"), Block(500, 60, body, "ret")]  # fmt: skip
    code = code_of(Skeleton(blocks, [Walk(0, 0, 1.0, 0, [0, 2, 1], [])], []))

    def count(text):
        paths = text.split("gnc_paths:\n")[1].split("    .section .data")[0]
        return len(re.findall(r"^    [a-z{]", paths, re.M))

    assert count(code.assembly) == pytest.approx(count(code.aarch64), abs=1)
