"""Skeletons of recordings made by hand, and what is trimmed off them."""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.systems.clone.recording import (
    BLOCK,
    STORE,
    Branches,
    Recording,
    Sample,
    bucket_of,
)  # fmt: skip
from gnomon.systems.clone.rejump import rejump
from gnomon.systems.clone.shape import make_skeleton
from gnomon.systems.clone.skeleton import (
    AWAY,
    CLOSE,
    CONNECTION,
    CONSTANT,
    FILLER,
    LOAD,
    MOVE,
    PAGE,
    POP,
    PUSH,
    REPEAT,
    SAVE,
    STACK,
    Block,
    Op,
    Path,
    Skeleton,
)  # fmt: skip
from gnomon.systems.clone.trim import Excess, trim
from gnomon.systems.clone.walks import Chosen
from tests.systems.clone import programs

#: Address and bytes. A calls B, loops, and returns to its caller, which clears memory and enters the kernel.
A, LOOP, BACK, CLEAR, ENTER, B = 0x401000, 0x401009, 0x401014, 0x402100, 0x402102, 0x415040
CODE = {
    A: "53" "4889fb" "e800000000",  # push rbx; mov rbx, rdi; call B
    LOOP: "ffc9" "488b0500000000" "75f5",  # dec ecx; mov rax, [rip]; jnz LOOP
    BACK: "5b" "c3",  # pop rbx; ret
    CLEAR: "f3aa",  # rep stosb
    ENTER: "90" "0f05",  # nop; syscall
    B: "4883ec18" "4889442408" "4883c418" "c3",  # sub rsp, 24; mov [rsp+8], rax; add rsp, 24; ret
}  # fmt: skip
TOP, GLOBAL, HEAP = 0x7FFFF000, 0x600040, 0x500000


def codes():
    found = {at: bytearray.fromhex(text) for at, text in CODE.items()}
    found[A][5:9] = (B - (A + 9)).to_bytes(4, "little")
    return {at: bytes(code) for at, code in found.items()}


def recording(blocks, samples):
    rows, code = [], b""
    for at, mine in blocks.items() if isinstance(blocks, dict) else blocks:
        rows.append((at, len(mine), 1, len(code)))
        code += mine
    none = np.zeros(0, np.int64)
    no_branches = Branches(none, none, none, none)
    return Recording(
        (), none.reshape(-1, 6), 0, no_branches, no_branches, (), np.array(rows, np.int64), code,
        np.full(len(rows), 9), none.reshape(-1, 3), tuple(samples), (),
    )  # fmt: skip


def access(instruction, address, *, stores=False, bucket=0):
    return address // 8 | bucket << 45 | instruction << 52 | (STORE if stores else 0)


def execution(loops, clears, sp=TOP, bucket=0, thread=0):
    """One way through the functions; the stack pointer is `sp` when it begins."""
    number = {at: i for i, at in enumerate(CODE)}

    def enter(at):
        return BLOCK | number[at]

    entries = [enter(A), access(0, sp - 8, stores=True), access(2, sp - 16, stores=True),
               enter(B), access(1, sp - 32, stores=True), access(3, sp - 16)]  # fmt: skip
    for _ in range(loops):
        entries += [enter(LOOP), access(1, GLOBAL, bucket=bucket)]
    entries += [enter(BACK), access(0, sp - 8), access(1, sp)]
    for i in range(clears):
        entries += [enter(CLEAR), access(0, HEAP + i, stores=True)]
    return Sample(0, thread, -1, -1, -1, 0, [*entries, enter(ENTER)])


def skeleton_of(*samples, weights=None, blocks=None):
    mine = recording(blocks or codes(), samples)
    weights = weights or [1.0] * len(samples)
    return make_skeleton(
        [
            Chosen(one.edge, i, mine, one, w)
            for i, (one, w) in enumerate(zip(samples, weights, strict=True))
        ]
    )


@pytest.fixture
def made():
    return skeleton_of(execution(3, 10), execution(1, 20, sp=TOP - 64))


def test_paths_are_the_blocks_that_were_executed(made):
    assert [one.at % PAGE for one in made.blocks] == [one % PAGE for one in sorted(CODE)]
    assert [one.bytes for one in made.blocks] == [len(codes()[at]) for at in sorted(CODE)]
    assert [one.blocks for one in made.paths] == [[0, 5, 1, 1, 1, 2, 3, 4], [0, 5, 1, 2, 3, 4]]
    assert [one.kind for one in made.paths] == [0, 1]
    assert made.left_out == 0
    programs.check_returns(made)


def test_ends_targets_and_what_comes_next(made):
    assert [(one.ends, one.target, one.next) for one in made.blocks] == [
        ("call", 5, 1), ("branch", 1, 2), ("ret", -1, -1), ("fall", -1, 4), ("fall", -1, -1), ("ret", -1, -1),
    ]  # fmt: skip


def test_pages_keep_their_colours(made):
    assert [one.at // PAGE for one in made.blocks] == [
        1,
        1,
        1,
        2,
        2,
        5,
    ]  # of 0x401, 0x402 and 0x415


def test_a_return_without_a_call_has_its_place_in_the_stack(made):
    assert [one.returns for one in made.paths] == [[(0, 3)], [(0, 3)]]
    assert [one.depth for one in made.paths] == [0, 64]


def test_operations_and_their_places(made):
    first, loop, back, clear, enter, called = (one.ops for one in made.blocks)
    assert [one.does for one in first] == [PUSH, FILLER]
    assert [one.does for one in back] == [POP]
    assert [one.does for one in enter] == [FILLER, FILLER]
    assert clear == [Op(REPEAT, CLOSE, 15)]
    # The store is 16 below the stack pointer at the begin of its block.
    assert called == [Op(MOVE, STACK, -24), Op(SAVE, STACK, -16), Op(MOVE, STACK, 24)]
    assert loop[0].does == FILLER
    assert (loop[1].does, loop[1].place) == (LOAD, CONSTANT)
    assert made.lines[loop[1].value] % 1024 == GLOBAL // 64 % 1024  # within 16 pages


def test_loads_of_many_lines_go_as_far_as_they_did():
    number = list(CODE).index(LOOP)
    far, near = bucket_of(1000), 0
    moved = []
    for i in range(20):
        sample = execution(5, 4)
        entries, seen = [], 0
        for entry in sample.entries:
            if not entry & BLOCK and entry >> 52 & 0x3FF == 1 and entries[-1] == BLOCK | number:
                entry = access(1, GLOBAL + 64 * (37 * i + seen), bucket=far)
                seen += 1
            entries.append(entry)
        moved.append(msgspec.structs.replace(sample, entries=entries))
    op = skeleton_of(*moved).blocks[1].ops[1]
    assert op == Op(LOAD, AWAY, far)
    assert far > near


def of_connections(line_of):
    """Executions for four connections, three times each; the load in the loop goes to a line."""
    number, found = list(CODE).index(LOOP), []
    for i in range(12):
        sample = execution(2, 4)
        entries = list(sample.entries)
        for k in range(1, len(entries)):
            if entries[k - 1] == BLOCK | number:
                entries[k] = access(1, GLOBAL + 64 * line_of(i % 4), bucket=bucket_of(200))
        found.append(msgspec.structs.replace(sample, entries=entries, connection=i % 4, next=-1))
    return skeleton_of(*found)


def test_lines_that_each_connection_has_of_its_own():
    made = of_connections(lambda connection: 100 * connection)
    assert made.blocks[1].ops[1] == Op(LOAD, CONNECTION, 0)
    assert made.connection_lines == 1


def test_lines_that_connections_take_in_turns_are_not_theirs():
    """A pool of requests: two lines for four connections, always in the same order."""
    made = of_connections(lambda connection: 100 * (connection % 2))
    assert made.blocks[1].ops[1].place != CONNECTION
    assert made.connection_lines == 0


def test_a_store_to_the_callers_frame_is_kept_off_the_return_address():
    blocks = codes()
    blocks[B] = bytes.fromhex(
        "4883ec1848894424184883c418c3"
    )  # stores to [rsp+24]: it is the return address
    sample = execution(1, 4)
    entries = [access(1, TOP - 16, stores=True) if one == access(1, TOP - 32, stores=True) else one
               for one in sample.entries]  # fmt: skip
    made = skeleton_of(msgspec.structs.replace(sample, entries=entries), blocks=blocks)
    assert made.blocks[5].ops[1] == Op(SAVE, CLOSE)


#: push rbx; pop rbx; push rbx; pop rbx; syscall; the second half may be entered for itself.
TWICE = {0x1000: bytes.fromhex("535b535b0f05"), 0x1002: bytes.fromhex("535b0f05")}


def pushes(number, count):
    return [one for i in range(count) for one in (
        access(number + 2 * i, TOP - 8, stores=True), access(number + 2 * i + 1, TOP - 8))]  # fmt: skip


def test_code_that_is_entered_in_the_middle_is_cut_there():
    whole = Sample(0, 0, -1, -1, -1, 0, [BLOCK | 0, *pushes(0, 2)])
    made = skeleton_of(
        whole, Sample(0, 0, -1, -1, -1, 0, [BLOCK | 1, *pushes(0, 1)]), blocks=TWICE
    )
    assert [(one.bytes, one.ends, one.next) for one in made.blocks] == [
        (2, "fall", 1),
        (4, "fall", -1),
    ]
    assert [one.blocks for one in made.paths] == [[0, 1], [1]]
    assert [[op.does for op in one.ops] for one in made.blocks] == [
        [PUSH, POP],
        [PUSH, POP, FILLER],
    ]


def test_a_path_that_never_touches_the_stack_is_left_out_or_begins_in_it():
    """Where its stack pointer is cannot be known: it must not be taken for 0."""
    blocks = TWICE | {0x2000: bytes.fromhex("900f05")}
    whole = Sample(0, 0, -1, -1, -1, 0, [BLOCK | 0, *pushes(0, 2)])
    made = skeleton_of(whole, Sample(0, 0, -1, -1, -1, 0, [BLOCK | 2]), blocks=blocks)
    assert all(0 <= one.depth <= PAGE for one in made.paths)


def test_a_path_that_only_returns_knows_its_stack_pointer():
    blocks = TWICE | {0x3000: bytes.fromhex("c3"), 0x4000: bytes.fromhex("900f05")}
    whole = Sample(0, 0, -1, -1, -1, 0, [BLOCK | 0, *pushes(0, 2)])
    back = Sample(0, 0, -1, -1, -1, 0, [BLOCK | 2, access(0, TOP - 24), BLOCK | 3])
    made = skeleton_of(whole, back, blocks=blocks)
    assert [(one.depth, one.returns) for one in made.paths] == [(0, []), (24, [(0, 2)])]


def with_a_signal():
    broken = execution(1, 4)
    at = broken.entries.index(BLOCK | list(CODE).index(LOOP))
    entries = [*broken.entries[:at], BLOCK | 5, *broken.entries[at:]]
    return msgspec.structs.replace(broken, entries=entries)


def test_a_path_that_jumps_where_no_jump_goes_is_left_out():
    made = skeleton_of(execution(1, 4), with_a_signal(), weights=[9.0, 1.0])
    assert len(made.paths) == 1
    assert 0.1 < made.left_out < 0.15


def test_where_many_paths_cannot_be_followed_all_are_jumps():
    made = skeleton_of(execution(1, 4), with_a_signal())
    assert (len(made.paths), made.left_out) == (2, 0.0)
    for path in made.paths:
        for number, follows in itertools.pairwise(path.blocks):
            block = made.blocks[number]
            ways = {"jmp": {block.target}, "fall": {block.next},
                    "branch": {block.target, block.next}}  # fmt: skip
            assert block.ends == "jmp_indirect" or follows in ways[block.ends]
    kinds = {op.does for block in made.blocks for op in block.ops}
    assert not kinds & {PUSH, POP, MOVE}


def test_an_instruction_across_two_pages_counts_once():
    """The emulator begins with it, finds the second page missing, and begins anew."""
    blocks = [
        (0x1FFD, bytes.fromhex("535b")),
        (0x1FFF, bytes.fromhex("48")),
        (0x1FFF, bytes.fromhex("488d43080f05")),
    ]
    twice = Sample(0, 0, -1, -1, -1, 0, [BLOCK | 0, *pushes(0, 1), BLOCK | 1, BLOCK | 2])
    made = skeleton_of(twice, blocks=blocks)
    assert made.paths[0].blocks == [0, 1]
    assert [len(one.ops) for one in made.blocks] == [2, 2]


def test_processes_with_other_code_at_the_same_place_are_kept_apart():
    def one(code):
        return recording(
            {0x1000: bytes.fromhex(code)},
            [Sample(0, 0, -1, -1, -1, 0, [BLOCK | 0, *pushes(0, 1)])],
        )

    different = [one("535b0f05"), one("535b900f05"), one("535b0f05")]
    made = make_skeleton([Chosen(0, 0, mine, mine.samples[0], 1.0) for mine in different])
    assert [len(b.ops) for b in made.blocks] == [3, 4]
    assert [p.blocks for p in made.paths] == [[0], [1], [0]]
    assert made.blocks[1].at >= made.blocks[0].at + made.blocks[0].bytes


# --- trimming ------------------------------------------------------------------------------------


def length(skeleton, edge):
    """Instructions of one execution."""
    paths = [one for one in skeleton.paths if one.edge == edge]
    total = sum(one.weight * sum(len(skeleton.blocks[b].ops) + (skeleton.blocks[b].ends != "fall")
                                 for b in one.blocks) for one in paths)  # fmt: skip
    return total / sum(one.weight for one in paths)


def caller(callees):
    """A block that calls each of some functions in turn, given by how many instructions they have."""
    first = len(callees) + 1
    blocks = [
        Block(100 * i, 10, [Op(FILLER)] * 4, "call", first + i, i + 1) for i in range(len(callees))
    ]
    blocks.append(Block(100 * len(callees), 10, [Op(FILLER)] * 4, "fall"))
    blocks += [
        Block(4096 * (i + 1), 4 * size, [Op(FILLER)] * (size - 1), "ret")
        for i, size in enumerate(callees)
    ]
    way = [b for i in range(len(callees)) for b in (i, first + i)]
    return Skeleton(blocks, [Path(0, 0, 2.0, 0, [*way, len(callees)], [])], [])


@pytest.mark.parametrize(("excess", "gone"), [(0, 0), (50, 48), (130, 130), (1000, 258), (8, 0)])
def test_calls_are_left_out_up_to_what_is_asked(excess, gone):
    whole = caller([20, 30, 80, 130])
    less = trim(whole, {0: Excess(excess)})
    # A call that is left out leaves an instruction in its place: as many are gone as its function had.
    assert length(whole, 0) - length(less, 0) == pytest.approx(
        gone, abs=0.15 * max(gone, excess) if excess < 999 else 2
    )
    programs.check_returns(less)
    assert len(less.paths) == len(whole.paths)


def test_edges_without_excess_keep_their_calls():
    whole = caller([40, 60])
    whole.paths.append(msgspec.structs.replace(whole.paths[0], edge=1))
    assert trim(whole, {0: Excess(50.0)}).paths == whole.paths  # both edges would lose the call
    assert trim(whole, {0: Excess(50.0), 1: Excess(50.0)}).paths != whole.paths
    assert trim(whole, {7: Excess(50.0)}).paths == whole.paths


def test_a_call_whose_return_is_not_seen_stays():
    whole = caller([100])
    whole.paths[0].blocks = [0, 2]
    whole.blocks[2].ends = "fall"
    assert trim(whole, {0: Excess(90.0)}).paths == whole.paths


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.floats(0, 400))
def test_prop_what_is_trimmed_still_returns(seed, excess):
    whole = programs.make_program(np.random.default_rng(seed))
    less = trim(whole, {0: Excess(excess), 1: Excess(excess / 3)})
    programs.check_returns(less)
    for edge, most in ((0, excess), (1, excess / 3)):
        gone = length(whole, edge) - length(less, edge)
        assert gone >= -1e-6
        assert gone <= 1.2 * most + 1e-6 or gone <= 0.25 * length(whole, edge)
    for before, after in zip(whole.paths, less.paths, strict=True):
        assert (before.edge, before.weight, before.returns) == (
            after.edge,
            after.weight,
            after.returns,
        )
        assert not Counter(after.blocks) - Counter(before.blocks)


def a_walk(data):
    """Blocks that each go one way or, if they are branches, two; and a way through them."""
    count = data.draw(st.integers(2, 20))
    number = st.integers(0, count - 1)
    blocks = [
        Block(100 * i, data.draw(st.integers(4, 40)), [Op(data.draw(st.sampled_from([FILLER, LOAD])))],
              data.draw(st.sampled_from(["branch", "jmp", "fall"])), -1, (i + 1) % count)
        for i in range(count)
    ]  # fmt: skip
    for one in blocks:
        if one.ends != "fall":
            one.target = data.draw(number)
    walk = [0]
    for _ in range(data.draw(st.integers(1, 60))):
        one = blocks[walk[-1]]
        ways = {"fall": [one.next], "jmp": [one.target], "branch": [one.target, one.next]}
        walk.append(data.draw(st.sampled_from(ways[one.ends])))
    return Skeleton(blocks, [Path(0, 0, 1.0, 0, walk, [])], [])


def branches_of(skeleton):
    """Executions of branches that jump, of those that do not, and of those that do at random."""
    (path,) = skeleton.paths
    jumped = []
    for a, b in itertools.pairwise(path.blocks):
        one = skeleton.blocks[a]
        if one.ends == "branch":
            jumped.append(float(b == one.target != one.next) if one.chance is None else one.chance)
    return jumped.count(1), jumped.count(0), jumped.count(0.25)


@given(data=st.data(), always=st.integers(-20, 20), never=st.integers(-20, 20),
       at_random=st.integers(-9, 9))  # fmt: skip
@settings(deadline=None)
def test_branches_are_exchanged_and_the_way_stays(data, always, never, at_random):
    before = a_walk(data)
    asked = always + 0.25 * at_random, never + 0.75 * at_random
    after = rejump(before, *asked, np.random.default_rng(1), changing=0.375 * at_random)
    for wanted, old, new in zip(
        (always, never, at_random), branches_of(before), branches_of(after), strict=True
    ):
        assert min(wanted, 0) <= new - old <= max(wanted, 0)
    way = after.paths[0].blocks
    assert [number for number in way if number < len(before.blocks)] == before.paths[0].blocks
    for a, b in itertools.pairwise(way):
        one = after.blocks[a]
        ways = {"fall": [one.next], "jmp": [one.target], "branch": [one.target, one.next]}
        assert b in ways[one.ends]
    assert sum(one.bytes for one in after.blocks) == sum(one.bytes for one in before.blocks)


def test_blocks_in_two_access_the_same_places_of_the_stack():
    ops = [Op(PUSH), Op(LOAD, STACK, 16), Op(FILLER), Op(SAVE, STACK, 24), Op(MOVE, value=-32),
           Op(LOAD, STACK, 40)]  # fmt: skip
    blocks = [Block(0, 60, ops, "fall", -1, 1), Block(60, 9, [], "ret")]
    skeleton = Skeleton(blocks, [Path(0, 0, 1.0, 0, [0, 1], [])], [])
    first, end, second = rejump(skeleton, 1, 0, np.random.default_rng(1)).blocks
    assert (first.ops, end, second.ends) == (ops[:2], blocks[1], "fall")
    assert (first.target, first.next, first.chance) == (2, 2, 1.0)
    # The stack pointer is eight bytes lower than where the whole began.
    assert second.ops == [Op(SAVE, STACK, 32), Op(MOVE, value=-32), Op(LOAD, STACK, 48)]
    (path,) = rejump(skeleton, 1, 0, np.random.default_rng(1), edges=[3]).paths
    assert path.blocks == [0, 1]


def test_branches_of_loops_stay():
    blocks = [Block(0, 40, [], "branch", 2, 1), Block(40, 9, [], "fall", -1, 2),
              Block(80, 9, [], "jmp", 0, -1)]  # fmt: skip
    for times, ends in ((9, "branch"), (2, "jmp")):
        skeleton = Skeleton(blocks, [Path(0, 0, 1.0, 0, [0, 2] * times, [])], [])
        found = rejump(skeleton, -9, 0, np.random.default_rng(1))
        assert found.blocks[0].ends == ends


def test_all_that_are_too_many_are_exchanged():
    blocks = [Block(0, 40, [Op(FILLER)], "branch", 2, 1), Block(40, 9, [], "fall", -1, 2),
              Block(80, 40, [Op(LOAD)], "branch", 0, 3), Block(120, 40, [], "jmp", 0, -1)]  # fmt: skip
    path = Path(0, 0, 0.5, 0, [0, 2, 3, 0, 2, 3, 0], [])
    found = rejump(Skeleton(blocks, [path], []), -4, -4, np.random.default_rng(1))
    # The path ends with the first block: how that one goes on is not known.
    assert [one.ends for one in found.blocks] == ["branch", "fall", "fall", "jmp"]
    found = rejump(Skeleton(blocks, [path], []), 4, 0, np.random.default_rng(1))
    assert [one.ends for one in found.blocks] == ["branch", "fall", "branch", "branch"]
