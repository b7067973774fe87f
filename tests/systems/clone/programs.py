"""Skeletons of made-up programs, and what their generated code executes."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from gnomon import _core
from gnomon.systems.clone.recording import BUCKETS, bucket_of, read_recording
from gnomon.systems.clone.skeleton import (
    AWAY,
    CLOSE,
    CONSTANT,
    FILLER,
    LOAD,
    MODIFY,
    MOVE,
    POP,
    PUSH,
    REPEAT,
    SAVE,
    STACK,
    Block,
    Op,
    Skeleton,
)  # fmt: skip
from gnomon.systems.clone.skeleton import (
    Path as Walk,
)

HARNESS, VISITS = (Path(__file__).parent / "models" / one for one in ("paths.c", "visits.c"))
_LONG = 150  # blocks: a path that has more goes straight to its end


def make_program(rng, edges=2, kinds=2):
    """Functions that call later ones; the first ends with a system call, the others return."""
    blocks, functions = [], []
    lines = sorted({int(one) for one in rng.integers(-12, 60, 20)})
    at = int(rng.integers(0, 4096))
    for number in range(int(rng.integers(1, 5))):
        first, count = len(blocks), int(rng.integers(1, 6))
        functions.append(range(first, first + count))
        for _ in range(count):
            ops = make_ops(rng, lines)
            size = int(rng.integers(1, 40))
            blocks.append(Block(at, size, ops, "fall" if number == 0 else "ret", -1, -1))
            at += size
        at += int(rng.choice([0, 16, 300, 5000]))
    for number, mine in enumerate(functions):
        for i in mine[:-1]:
            end_block(blocks, functions, number, i, rng)
    paths = [walk(blocks, functions, rng, edge, int(rng.integers(0, kinds)))
             for edge in range(edges) for _ in range(int(rng.integers(1, 6)))]  # fmt: skip
    # Every kind that a caller may name is there.
    paths += [walk(blocks, functions, rng, edge, kinds - 1) for edge in range(edges)]
    used = sorted({b for path in paths for b in path.blocks})
    return renumber(blocks, paths, lines, used)


def make_ops(rng, lines):
    ops = []
    for _ in range(int(rng.integers(1, 7))):
        match int(rng.integers(0, 8)):
            case 0:
                ops += [Op(PUSH, STACK), Op(FILLER), Op(POP, STACK)]
            case 1:
                room = 8 * int(rng.integers(1, 40))
                inside = -8 * int(rng.integers(1, room // 8 + 1))
                ops += [Op(MOVE, STACK, -room), Op(int(rng.choice([LOAD, SAVE, MODIFY])), STACK, inside),
                        Op(MOVE, STACK, room)]  # fmt: skip
            case 2:
                ops.append(Op(LOAD, STACK, 8 * int(rng.integers(-8, 9))))
            case 3:
                line = int(rng.integers(0, len(lines)))
                does = LOAD if lines[line] < 0 else int(rng.choice([LOAD, SAVE, MODIFY]))
                ops.append(Op(does, CONSTANT, line))
            case 4:
                bucket = int(rng.integers(bucket_of(4), bucket_of(4096)))
                bucket = BUCKETS - 1 if rng.random() < 0.02 else bucket
                ops.append(Op(int(rng.choice([LOAD, SAVE, MODIFY])), AWAY, bucket))
            case 5:
                ops.append(Op(int(rng.choice([LOAD, SAVE, MODIFY])), CLOSE))
            case 6 if rng.random() < 0.3:
                ops.append(Op(REPEAT, CLOSE, int(rng.integers(1, 300))))
            case _:
                ops.append(Op(FILLER))
    return ops


def end_block(blocks, functions, number, i, rng):
    mine, later = functions[number], functions[number + 1 :]
    block = blocks[i]
    block.next = i + 1
    choices = [
        "fall",
        "branch",
        "branch",
        "jmp",
        "jmp_indirect",
        *(["call", "call_indirect"] if later else []),
    ]
    block.ends = str(rng.choice(choices))
    if block.ends == "branch":
        block.target = int(rng.choice(list(mine)))
    elif block.ends == "jmp":
        block.target = int(rng.integers(i + 1, mine[-1] + 1))
    elif block.ends == "call":
        block.target = later[int(rng.integers(0, len(later)))][0]


def walk(blocks, functions, rng, edge, kind):
    number = int(rng.integers(0, len(functions)))
    now = int(rng.choice(list(functions[number])))
    found, returns, calls, pointer = [], [], [], 0
    end = functions[0][-1]
    while True:
        found.append(now)
        block = blocks[now]
        mine = next(one for one in functions if now in one)
        if now == end:
            return Walk(
                edge, kind, float(rng.random() + 0.1), 8 * int(rng.integers(0, 20)), found, returns
            )
        match block.ends:
            case "branch":
                is_taken = len(found) < _LONG and rng.random() < 0.6
                now = block.target if is_taken else block.next
            case "jmp":
                now = block.target
            case "jmp_indirect":
                now = int(rng.integers(now + 1, mine[-1] + 1))
            case "call" | "call_indirect":
                later = functions[functions.index(mine) + 1 :]
                to = (
                    block.target
                    if block.ends == "call"
                    else later[int(rng.integers(0, len(later)))][0]
                )
                calls.append(block.next)
                pointer -= 8
                now = to
            case "ret":
                if calls:
                    now = calls.pop()
                else:
                    caller = functions[int(rng.integers(0, functions.index(mine)))]
                    now = int(rng.choice(list(caller)))
                    returns.append((pointer, now))
                pointer += 8
            case _:
                now = block.next


def renumber(blocks, paths, lines, used):
    number = {old: new for new, old in enumerate(used)} | {-1: -1}
    kept = [blocks[b] for b in used]
    for one in kept:
        one.target, one.next = number.get(one.target, -1), number.get(one.next, -1)
    for path in paths:
        path.blocks = [number[b] for b in path.blocks]
        path.returns = [(place, number[b]) for place, b in path.returns]
    return Skeleton(kept, paths, lines)


def check_returns(skeleton):
    """Follows every path on a stack of its own: all returns find their way."""
    for path in skeleton.paths:
        slots, pointer = dict(path.returns), 0
        for i, number in enumerate(path.blocks):
            block = skeleton.blocks[number]
            after = path.blocks[i + 1] if i + 1 < len(path.blocks) else None
            for op in block.ops:
                pointer += {PUSH: -8, POP: 8, MOVE: op.value}.get(op.does, 0)
            if after is None:
                assert block.ends == "fall"
            elif block.ends in ("call", "call_indirect"):
                pointer -= 8
                slots[pointer] = block.next
                assert block.ends == "call_indirect" or after == block.target
            elif block.ends == "ret":
                assert slots.pop(pointer) == after
                pointer += 8
            elif block.ends == "fall":
                assert after == block.next
            elif block.ends == "jmp":
                assert after == block.target
            elif block.ends == "branch":
                assert after in (block.target, block.next)


class Machine:
    """That code is built for and run on: what compiles it, what emulates it, its system calls."""

    def __init__(self, compiler, emulator, before, after):
        self.compiler, self.emulator, self.before, self.after = compiler, emulator, before, after

    @property
    def parts(self):
        """Programs that tests of it need."""
        return self.compiler, "nm", self.emulator


MACHINES = {
    "x86_64": Machine("cc", "qemu-x86_64", {110: 0, 121: 1}, {102: 0, 104: 1, 107: 2}),
    "aarch64": Machine(
        "aarch64-linux-gnu-gcc", "qemu-aarch64", {173: 0, 155: 1}, {174: 0, 176: 1, 175: 2}
    ),
}


@cache
def _harness(folder, compiler):
    made = folder / "harness.o"
    subprocess.run([compiler, "-O1", "-fno-pie", "-c", HARNESS, "-o", made], check=True)
    return made


def build(code, folder, machine="x86_64"):
    """The program; block labels become symbols, so that they can be found."""
    text = code.assembly if machine == "x86_64" else code.aarch64
    (folder / "edges.S").write_text(text.replace(".Lb", "Lb"))
    compiler = MACHINES[machine].compiler
    return _link(code, folder, compiler, [_harness(folder, compiler), "edges.S"])


def build_portable(code, folder):
    """In C, for this machine; blocks are counted when GNC_VISITS names a file."""
    text = re.sub(r"^B(\d+):$", r"B\1: gnc_visit(\1);", code.portable, flags=re.M)
    begin = r"\g<0> gnc_visit(-1); gnc_visit(\1); gnc_visit(kind);"
    text = re.sub(r"^void gnc_edge_(\d+)\(.*\{$", begin, text, flags=re.M)
    (folder / "edges.c").write_text(f"void gnc_visit(long);\n{text}")
    return _link(code, folder, "cc", [_harness(folder, "cc"), "edges.c", VISITS])


def _link(code, folder, compiler, sources):
    (folder / "memory.c").write_text(code.memory)
    program = folder / "paths"
    options = ["-static", "-no-pie", "-fno-pie", "-O1"]
    words = [compiler, *options, "memory.c", *sources, "-o", program.name]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return program


def run(program, code, times, edges=2, kinds=2, machine=None):
    """The exit code; `machine` is emulated, if there is one."""
    words = [program, code.data_bytes, edges, kinds, times]
    words = [MACHINES[machine].emulator, *words] if machine else words
    return subprocess.run(list(map(str, words)), check=False, timeout=60).returncode


def visits(program, code, times, edges=2, kinds=2):
    """By edge and kind: numbers of blocks that executions in C went through, in their order."""
    words = [program, code.data_bytes, edges, kinds, times]
    file = program.parent / "visits"
    where = {"GNC_VISITS": str(file)}
    done = subprocess.run(list(map(str, words)), check=False, timeout=60, env=where)
    assert done.returncode == 7
    seen, found = np.fromfile(file, np.int64), {}
    for walk in np.split(seen, np.flatnonzero(seen == -1))[1:]:
        _, edge, kind, *blocks = walk.tolist()
        found.setdefault((edge, kind), []).append(blocks)
    return found


def trace(program, code, times, edges=2, kinds=2, machine="x86_64"):
    """By edge and kind: addresses of blocks that executions went through, in their order."""
    folder = program.parent
    control = folder / "control"
    control.write_bytes(bytes(4096))
    for old in folder.glob("out.*"):
        old.unlink()
    plugin = Path(_core.__file__).parent / "lib" / "libgnomon_profile.so"
    mine = MACHINES[machine]
    words = [mine.emulator, "-plugin", f"{plugin},out={folder}/out,control={control}", program,
             code.data_bytes, edges, kinds, times, control]  # fmt: skip
    done = subprocess.run(list(map(str, words)), check=False, timeout=120)
    assert done.returncode == 7
    (out,) = folder.glob("out.*")
    recording = read_recording(out)
    labels = np.array(sorted(set(symbols(program).values())))
    found = {}
    for sample in recording.samples:
        edge = recording.edges[sample.edge]
        key = mine.after.get(edge.after.number), mine.before.get(edge.before.number)
        if None in key:
            continue
        seen = []
        for block in _whole(recording, sample):
            at, size = recording.block[block, :2]
            seen += labels[
                np.searchsorted(labels, at) : np.searchsorted(labels, at + size)
            ].tolist()
        found.setdefault(key, []).append(seen)
    return found


def _whole(recording, sample):
    """Blocks of the emulator; one that it cut at the end of a page, and began anew, counts once."""
    found = []
    for block in sample.blocks():
        at, size = recording.block[block, :2]
        if found and recording.block[found[-1], 0] == at and recording.block[found[-1], 1] < size:
            found.pop()
        found.append(block)
    return found


@cache
def symbols(program):
    text = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
    return {int(name): int(at, 16) for at, name in re.findall(r"^(\w+) \w Lb(\d+)$", text, re.M)}


def planned(skeleton, code, program, machine="x86_64"):
    """By edge and kind: addresses of blocks that paths go through; blocks without code are nowhere."""
    lines = (code.assembly if machine == "x86_64" else code.aarch64).splitlines()
    empty = {int(m[1]) for i, line in enumerate(lines)
             if (m := re.fullmatch(r"\.Lb(\d+):", line)) and re.match(r"\.L[bc]\d+:|    \.org", lines[i + 1])}  # fmt: skip
    at = symbols(program)
    found = {}
    for path in skeleton.paths:
        walked = [at[b] for b in path.blocks if b in at and b not in empty]
        found.setdefault((path.edge, path.kind), []).append(walked)
    return found
