"""Machine code that does as much as a piece of the original did: x86-64 assembly from counts.

Counts are met exactly where they can be: a mix is dealt out instruction by instruction, not
sampled. Lines of code follow the path of `layout`; lines of data are chosen in the order in which
the path visits them, by the same rule. What is reused after longer than one pass lies in rings of
lines that are walked pointer by pointer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.systems.clone.instructions import CLASSES
from gnomon.systems.clone.layout import LineStack, plan_code
from gnomon.systems.clone.recording import BUCKETS, DEPENDENCY_BINS, Floats

_POOL = ("rax", "rcx", "rdx", "rbx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12")
_SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")
#: Classes that are dealt out to the lines, with the bytes of an instruction; the others come with
#: the path.
_PLAIN = {
    "alu": 3, "alu_load": 7, "alu_store": 8, "mov": 3, "load": 7, "store": 7, "lea": 4, "push": 3,
    "cmov": 4, "mul": 4, "vector": 4, "vector_load": 9, "vector_store": 9, "atomic": 9, "nop": 1,
    "other": 1, "never": 9,
}  # fmt: skip
_LOADS = frozenset(("alu_load", "alu_store", "load", "vector_load", "atomic"))
_STORES = frozenset(("alu_store", "store", "vector_store", "atomic"))
#: What every function spends on entering and leaving.
_FRAME = {"push": 6, "pop": 6, "ret": 1, "alu": 11, "mov": 2, "load": 4, "store": 2}
#: Branches taken less or more often than this never or always are.
_NEVER, _ALWAYS = 0.02, 0.98
_LINE = 64
_JUMP_BYTES, _CALL_BYTES = 7, 5
_STATE_LINES = 1  # at the begin of a worker's memory: random words
_STACK = -1  # the line of the stack: scratch space of a function, and what calls and pushes use
_SCRATCH = 64
_ROUNDS = 12
_MOST_RING_BUCKET = 16  # 4 MiB and more is as good as never seen


class Target(msgspec.Struct, frozen=True):
    """What one execution of a piece of code is to do, on average."""

    name: str
    mix: tuple[float, ...]
    code: tuple[float, ...]
    load: tuple[float, ...]
    store: tuple[float, ...]
    repeats: float = 0.0


class BranchBin(msgspec.Struct, frozen=True):
    """Branches that are alike: share of executions, rate taken, rate of changes."""

    share: float
    taken: float
    changed: float


class Ring(msgspec.Struct):
    """Lines that are walked one after the other, over many executions."""

    slot: int  # of its pointer, in the memory
    at: int  # its first line
    lines: int


class Memory:
    """A worker's memory, handed out line by line."""

    def __init__(self) -> None:
        self.lines = _STATE_LINES
        self.static: list[int] = []  # lines that all functions share
        self.visited = LineStack()  # as the functions before have left it
        self.rings: list[Ring] = []
        self._slots: list[int] = []

    def take(self, count: int = 1) -> int:
        self.lines += count
        return self.lines - count

    def ring(self, lines: int) -> Ring:
        if not self._slots:
            at = _LINE * self.take()
            self._slots = list(range(at, at + _LINE, 8))
        made = Ring(self._slots.pop(0), self.take(lines), lines)
        self.rings.append(made)
        return made


class _Item(msgspec.Struct, eq=False):
    """An instruction of a line, as far as it is decided."""

    kind: str
    line: int | None = None  # of the data
    ring: Ring | None = None


_T = TypeVar("_T")
_Access = tuple[_Item | None, str]


def write_body(
    target: Target, branches: Sequence[BranchBin], dependencies: Sequence[float], memory: Memory,
    rng: Generator,
) -> str:  # fmt: skip
    """A function `target.name` in assembly."""
    return _Body(target, branches, dependencies, memory, rng).text()


class _Body:
    def __init__(
        self, target: Target, branches: Sequence[BranchBin], dependencies: Sequence[float],
        memory: Memory, rng: Generator,
    ) -> None:  # fmt: skip
        self._target, self._bins, self._memory, self._rng = target, branches, memory, rng
        self._left = Counter({
            name: max(round(value) - _FRAME.get(name, 0), 0)
            for name, value in zip(CLASSES, target.mix, strict=True)
        })  # fmt: skip
        calls = self._left["call"] + self._left["call_indirect"]
        self._path = plan_code(np.array(target.code), calls, rng)
        self._static_top, self._rings = self._plan_rings()
        self._jumps = self._deal_jumps()
        self._branches = self._deal_branches()
        self._items = self._deal_items()
        self._assign_data()
        self._registers = _Registers(dependencies, rng)
        self._pushed = 0
        self._lines: list[str] = []

    # --- what is dealt out -----------------------------------------------------------------------

    def _plan_rings(self) -> tuple[int, list[tuple[Ring, int, bool]]]:
        """Rings with how often an execution steps on in each, and whether to store."""
        load, store = np.array(self._target.load), np.array(self._target.store)
        top = max(
            (b for b in range(BUCKETS - 1) if (load + store)[b:].sum() >= 1 << max(b - 2, 0)),
            default=0,
        )
        base = 1 << max(top - 1, 0)
        found = []
        for wanted, is_store in ((load, False), (store, True)):
            owed = 0.0
            for bucket in range(top + 1, BUCKETS):
                owed += float(wanted[bucket])
                times = int(owed + 0.5)
                if times < 1:
                    continue
                owed -= times
                distance = 3 << max(min(bucket, _MOST_RING_BUCKET) - 2, 0)
                found.append((self._memory.ring(max(8, distance - base)), times, is_store))
        return top, found

    def _deal_jumps(self) -> list[str]:
        """How each own line goes on to the next: by a jump, an indirect one, a branch, or none."""
        left = self._left
        inside = sum((len(leaf.lines) - 1) * leaf.executions for leaf in self._path.leaves)
        left["jmp"] = max(left["jmp"] - inside, 0)
        turns = sum(leaf.executions for leaf in self._path.leaves if leaf.rounds > 1)
        for name in ("alu", "branch"):  # of the loops
            left[name] = max(left[name] - turns, 0)
        always = sum(one.share for one in self._bins if one.taken > _ALWAYS)
        kinds: list[str] = []
        for name, most in (("jmp_indirect", left["jmp_indirect"]), ("jmp", left["jmp"]),
                           ("branch", round(always * left["branch"]))):  # fmt: skip
            count = min(most, self._path.own - len(kinds))
            kinds += [name] * count
            left[name] -= count
        kinds += ["fall"] * (self._path.own - len(kinds))
        left["alu"] = max(left["alu"] - kinds.count("branch"), 0)
        return self._shuffled(kinds)

    def _deal_branches(self) -> list[BranchBin]:
        """Those that do not lead to the next line."""
        count = self._left["branch"]
        jumps = self._jumps.count("branch")
        total = count + jumps
        found = [one for one in self._bins if _NEVER <= one.taken <= _ALWAYS
                 for _ in range(round(one.share * total))][:count]  # fmt: skip
        always = round(sum(one.share for one in self._bins if one.taken > _ALWAYS) * total) - jumps
        found += [BranchBin(0.0, 1.0, 0.0)] * min(max(always, 0), count - len(found))
        self._left["never"] = count - len(found)  # anywhere
        self._left["alu"] = max(self._left["alu"] - count, 0)
        return self._shuffled(found)

    def _deal_items(self) -> dict[int, list[_Item]]:
        """Instructions of every line, own lines first."""
        path = self._path
        left = {name: self._left[name] for name in _PLAIN}
        for _, times, is_store in self._rings:  # a step takes three or four instructions
            left["load"] = max(left["load"] - times * (3 if is_store else 2), 0)
            left["store"] = max(left["store"] - times * (2 if is_store else 1), 0)
        calls = sum(len(one) for one in path.calls)
        total = sum(left.values()) + left["push"]  # a push has its pop
        mean_bytes = max(
            sum(_PLAIN[n] * c for n, c in left.items()) / max(sum(left.values()), 1), 1.0
        )
        leaf_visits = sum(len(leaf.lines) * leaf.executions for leaf in path.leaves)
        each = total / max(path.own + calls + leaf_visits, 1)
        # A line holds so much, beside its calls and the jump at its end.
        weights = np.array([
            min(1e9 if jump == "fall" else each * (1 + len(called)),
                max((_LINE - _JUMP_BYTES * (jump != "fall") - _CALL_BYTES * len(called))
                    / mean_bytes, 1.0))
            for jump, called in zip(self._jumps, path.calls, strict=True)
        ])  # fmt: skip
        if leaf_visits:
            each = min(max(total - float(weights.sum()), 0.0) / leaf_visits, _LINE / mean_bytes)
        items: dict[int, list[_Item]] = {}
        for leaf in path.leaves:
            for line in leaf.lines:
                items[line] = self._draw(left, leaf.executions, int(each + self._rng.random()))
        rest = self._shuffled([name for name in _PLAIN for _ in range(left[name])])
        bounds = np.round(np.cumsum(weights) / weights.sum() * len(rest)).astype(int)
        for line, (begin, end) in enumerate(zip([0, *bounds[:-1]], bounds, strict=True)):
            items[line] = [_Item(kind) for kind in rest[begin:end]]
        for ring, times, is_store in self._rings:  # on lines that are executed once
            for line in self._rng.integers(0, path.own, times):
                items[int(line)].append(_Item("store" if is_store else "load", ring=ring))
        return items

    def _draw(self, left: dict[str, int], times: int, count: int) -> list[_Item]:
        """Instructions that are executed so many times."""
        found = []
        for _ in range(count):
            fits = [name for name in _PLAIN if left[name] >= times and name != "push"]
            if not fits:
                break
            weights = np.array([left[name] for name in fits], float)
            kind = str(self._rng.choice(fits, p=weights / weights.sum()))
            left[kind] -= times
            found.append(_Item(kind))
        return found

    def _accesses(self) -> list[_Access]:
        """In the order of the path: what is accessed, and how.

        Pushes, pops, calls and returns have no item.
        """
        found: list[_Access] = []
        for line, called in enumerate(self._path.calls):
            pieces = _split(self._items[line], 1 + len(called))
            found += _accesses_of(pieces[0])
            for leaf, piece in zip(called, pieces[1:], strict=True):
                found.append((None, "store"))
                for one in self._path.leaves[leaf].visits():
                    found += _accesses_of(self._items[one])
                found.append((None, "load"))
                found += _accesses_of(piece)
        return found

    def _assign_data(self) -> None:
        """Lines of data, in the order of the path; several times, corrected by what was off."""
        top, accesses = self._static_top, self._accesses()
        target = {"load": np.array(self._target.load), "store": np.array(self._target.store)}
        for wanted in target.values():
            wanted[top + 1 :] = 0
        quotas = {side: wanted.copy() for side, wanted in target.items()}
        most = 1 << top
        best: tuple[float, list[int | None]] | None = None
        for _ in range(_ROUNDS):
            for one, _ in accesses:
                if one is not None:
                    one.line = None
            self._choose_lines(accesses, quotas, most)
            found = _reuse(accesses, self._memory.visited.copy(), top)
            off = sum(
                float(np.abs(np.cumsum(found[side] - target[side])).sum()) for side in target
            )
            if best is None or off < best[0]:
                best = off, [None if one is None else one.line for one, _ in accesses]
            for side in target:
                quotas[side] = np.maximum(quotas[side] + 0.7 * (target[side] - found[side]), 0.0)
        assert best is not None
        for (one, _), line in zip(accesses, best[1], strict=True):
            if one is not None:
                one.line = line
        _reuse(accesses, self._memory.visited, top)

    def _choose_lines(self, accesses: list[_Access], quotas: dict[str, Floats], most: int) -> None:
        memory, lines = self._memory, self._memory.visited.copy()
        left = {side: one.copy() for side, one in quotas.items()}
        allowed = {*memory.static, _STACK}
        for one, side in accesses:
            if side == "ring":
                continue
            if one is not None and one.line is None:
                chances = np.cumsum(np.maximum(left[side][: self._static_top + 1], 1e-9))
                bucket = int(np.searchsorted(chances, self._rng.random() * chances[-1]))
                found = lines.near(bucket, allowed)
                if found is None and len(memory.static) < most:
                    found = memory.take()
                    memory.static.append(found)
                    allowed.add(found)
                one.line = _STACK if found is None else found
            left[side][min(lines.visit(_line_of(one)), BUCKETS - 1)] -= 1

    def _shuffled(self, values: list[_T]) -> list[_T]:
        return [values[i] for i in self._rng.permutation(len(values))]

    # --- text ------------------------------------------------------------------------------------

    def text(self) -> str:
        name, out, path = self._target.name, self._lines, self._path
        out += [f"    .globl {name}", f"    .type {name}, @function", "    .balign 64", f"{name}:"]
        out += [f"    push %{one}" for one in _SAVED]
        out += ["    mov gnc_memory@gottpoff(%rip), %rax", "    mov %fs:(%rax), %r15",
                "    mov (%r15), %r14", "    mov %r14, %rax", "    shl $13, %rax",
                "    xor %rax, %r14", "    ror $7, %r14", "    add $0x3779b97f, %r14",
                "    mov %r14, (%r15)", "    mov 8(%r15), %r13", "    mov %r14, %rax",
                "    ror $21, %rax", "    and %r14, %rax", "    ror $9, %rax",
                "    and %r14, %rax", "    xor %rax, %r13", "    mov %r13, 8(%r15)",
                f"    sub ${_SCRATCH}, %rsp"]  # fmt: skip
        if self._target.repeats >= 1:
            lines = int(self._target.repeats) // _LINE + 1
            out += [f"    lea {_LINE * self._memory.take(lines)}(%r15), %rdi",
                    f"    mov ${round(self._target.repeats)}, %ecx", "    rep stosb"]  # fmt: skip
        branches = [list(one) for one in np.array_split(np.arange(len(self._branches)), path.own)]
        for line, called in enumerate(path.calls):
            if line == 0 or self._jumps[line - 1] != "fall":
                out.append("    .balign 64")
            out.append(f".L{name}_{line}:")
            pieces = _split(self._items[line], 1 + len(called))
            for i, piece in enumerate(pieces):
                self._emit_piece(
                    piece, [self._branches[b] for b in branches[line][i :: len(pieces)]]
                )
                if i < len(called):
                    out.append(f"    call .L{name}_leaf{called[i]}")
            self._emit_jump(
                line, f".L{name}_{line + 1}" if line + 1 < path.own else f".L{name}_end"
            )
        out += [f".L{name}_end:", f"    add ${_SCRATCH}, %rsp"]
        out += [f"    pop %{one}" for one in reversed(_SAVED)]
        out.append("    ret")
        for number, leaf in enumerate(path.leaves):
            out += ["    .balign 64", f".L{name}_leaf{number}:"]
            if leaf.rounds > 1:
                out += [f"    mov ${leaf.rounds}, %ebp", f".L{name}_turn{number}:"]
            for i, line in enumerate(leaf.lines):
                if i:
                    out += [f"    jmp .L{name}_l{line}", "    .balign 64", f".L{name}_l{line}:"]
                self._emit_piece(self._items[line], [])
            if leaf.rounds > 1:
                out += ["    dec %ebp", f"    jnz .L{name}_turn{number}"]
            out.append("    ret")
        out.append(f"    .size {name}, .-{name}")
        return "\n".join(out) + "\n"

    def _emit_piece(self, items: list[_Item], branches: list[BranchBin]) -> None:
        """Pushes first and their pops last, as functions do."""
        pushes = sum(one.kind == "push" for one in items)
        plain = [one for one in items if one.kind != "push"]
        self._lines += [f"    push %{self._registers.source()}" for _ in range(pushes)]
        self._pushed = 8 * pushes
        for i, item in enumerate(plain):
            self._lines += self._step(item) if item.ring is not None else [self._instruction(item)]
            if i < len(branches):
                self._emit_branch(branches[i])
        for one in branches[len(plain) :]:
            self._emit_branch(one)
        self._lines += [f"    pop %{self._registers.target()}" for _ in range(pushes)]
        self._pushed = 0

    def _emit_jump(self, line: int, to: str) -> None:
        match self._jumps[line]:
            case "jmp":
                self._lines.append(f"    jmp {to}")
            case "jmp_indirect":
                slot = f".L{self._target.name}_s{line}"
                self._lines += [f"    jmp *{slot}(%rip)", '    .section .data.rel.ro,"aw"',
                                "    .balign 8", f"{slot}: .quad {to}", "    .text"]  # fmt: skip
            case "branch":
                self._lines += ["    test %r15, %r15", f"    jnz {to}"]

    def _emit_branch(self, one: BranchBin) -> None:
        """Jumps over a `nop` of three bytes, if it does: a branch that moves nothing is none."""
        if one.taken == 1.0:
            test = "    test %r15, %r15"
        else:
            rare = min(one.taken, 1.0 - one.taken)
            bits = min(max(1, round(-float(np.log2(rare)))), 10)
            mask = ((1 << bits) - 1) << int(self._rng.integers(0, 31 - bits))
            is_sticky = one.changed < one.taken * (1 - one.taken)
            test = f"    test ${mask:#x}, %{'r13d' if is_sticky else 'r14d'}"
        jump = "jz" if one.taken <= 0.5 else "jnz"
        self._lines += [test, f"    {jump} 1f", "    .byte 0x0f, 0x1f, 0x00", "1:"]

    def _step(self, item: _Item) -> list[str]:
        assert item.ring is not None
        store = [f"    mov %{self._registers.source()}, 16(%rbp)"] if item.kind == "store" else []
        slot = f"{item.ring.slot}(%r15)"
        return [f"    mov {slot}, %rbp", "    mov (%rbp), %rbp", *store, f"    mov %rbp, {slot}"]

    def _instruction(self, item: _Item) -> str:
        pick, rng = self._registers, self._rng
        at, wide = self._address(item.line, 8), self._address(item.line, 16)
        first, second = (f"%xmm{i}" for i in rng.integers(0, 8, 2))
        match item.kind:
            case "alu":
                name = str(rng.choice(["add", "sub", "xor", "and", "or", "cmp"]))
                return f"    {name} %{pick.source()}, %{pick.target()}"
            case "alu_load":
                return f"    {rng.choice(['add', 'cmp', 'or'])} {at}, %{pick.target()}"
            case "alu_store":
                return f"    addl $1, {at}"
            case "mov":
                return f"    mov %{pick.source()}, %{pick.target()}"
            case "load":
                return f"    mov {at}, %{pick.target()}"
            case "store":
                return f"    mov %{pick.source()}, {at}"
            case "lea":
                return f"    lea 8(%{pick.source()}), %{pick.target()}"
            case "cmov":
                return f"    cmovz %{pick.source()}, %{pick.target()}"
            case "mul":
                return f"    imul %{pick.source()}, %{pick.target()}"
            case "vector":
                return f"    paddd {first}, {second}"
            case "vector_load":
                return f"    movdqu {wide}, {first}"
            case "vector_store":
                return f"    movdqu {first}, {wide}"
            case "never":
                return f"    test %r15, %r15\n    jz .L{self._target.name}_end"
            case "atomic":
                return f"    lock addl $1, {at}"
        return "    nop"

    def _address(self, line: int | None, step: int) -> str:
        offset = step * int(self._rng.integers(0, _LINE // step))
        if line is None:
            return ""
        if line == _STACK:  # above what was pushed, and above the return address of a leaf
            return f"{self._pushed + 16 + offset % 32}(%rsp)"
        return f"{_LINE * line + offset}(%r15)"


class _Registers:
    """Which register is read: one that was written as long ago as dependencies want."""

    def __init__(self, dependencies: Sequence[float], rng: Generator) -> None:
        self._shares, self._rng = np.array(dependencies), rng
        self._written = {name: -i for i, name in enumerate(_POOL)}
        self._now = 1

    def source(self) -> str:
        want = 1 << int(self._rng.choice(DEPENDENCY_BINS, p=self._shares))
        return min(_POOL, key=lambda name: abs(self._now - self._written[name] - want))

    def target(self) -> str:
        self._now += 1
        name = _POOL[self._now % len(_POOL)]
        self._written[name] = self._now
        return name


def _split(items: list[_Item], pieces: int) -> list[list[_Item]]:
    bounds = np.round(np.linspace(0, len(items), pieces + 1)).astype(int)
    return [items[bounds[i] : bounds[i + 1]] for i in range(pieces)]


def _accesses_of(items: list[_Item]) -> Iterator[_Access]:
    pushes = sum(one.kind == "push" for one in items)
    yield from [(None, "store")] * pushes
    for one in items:
        if one.ring is not None:
            yield one, "ring"
            continue
        if one.kind in _LOADS:
            yield one, "load"
        if one.kind in _STORES:
            yield one, "store"
    yield from [(None, "load")] * pushes


def _line_of(one: _Item | None) -> int:
    return _STACK if one is None or one.line is None else one.line


def _reuse(accesses: list[_Access], stack: LineStack, top: int) -> dict[str, Floats]:
    """Accesses by distance after what `stack` has seen; rings apart. New lines are far away."""
    counts = {"load": np.zeros(BUCKETS), "store": np.zeros(BUCKETS)}
    for one, side in accesses:
        if side != "ring":
            counts[side][min(stack.visit(_line_of(one)), top)] += 1
    return counts


def bin_branches(executed: Floats, taken: Floats, changed: Floats) -> list[BranchBin]:
    """Branches by how they behave: rates taken in steps that double, changes in three."""
    rate = taken / np.maximum(executed, 1)
    flips = changed / np.maximum(executed, 1)
    step = np.round(np.log2(np.clip(np.minimum(rate, 1 - rate), 2**-10, 0.5))).astype(int)
    random = (flips / np.maximum(2 * rate * (1 - rate), 1e-9) * 3).astype(int).clip(0, 2)
    labels = np.stack([step, rate > 0.5, random], axis=1)
    found = []
    for label in np.unique(labels, axis=0):
        mine = np.all(labels == label, axis=1)
        count = float(executed[mine].sum())
        found.append(BranchBin(count / float(executed.sum()), float(taken[mine].sum()) / count,
                               float(changed[mine].sum()) / count))  # fmt: skip
    return found


def state_of(memory: Memory) -> str:
    """The C code that sets a worker's memory up."""
    rings = (
        ", ".join(f"{{{one.slot}, {one.at}, {one.lines}}}" for one in memory.rings) or "{0, 0, 0}"
    )
    return f"""#include <stddef.h>
#include <stdint.h>

_Thread_local unsigned char *gnc_memory;

static const struct {{
    uint32_t slot, at, lines;
}} rings[] = {{{rings}}};

/* Rings in an order that no prefetcher follows. */
void gnc_edges_begin(void *memory) {{
    gnc_memory = memory;
    ((uint64_t *)memory)[0] = 0x9e3779b97f4a7c15u;
    ((uint64_t *)memory)[1] = 0x2545f4914f6cdd1du;
    for (size_t r = 0; r < {len(memory.rings)}; ++r) {{
        uint32_t n = rings[r].lines, step = n * 5 / 13 | 1;
        for (;; step += 2) {{
            uint32_t a = n, b = step;
            while (b) {{
                uint32_t t = a % b;
                a = b;
                b = t;
            }}
            if (a == 1) break;
        }}
        unsigned char *ring = gnc_memory + {_LINE} * (size_t)rings[r].at;
        for (uint32_t i = 0; i < n; ++i)
            *(void **)(ring + {_LINE} * (size_t)i) = ring + {_LINE} * (size_t)((i + step) % n);
        *(void **)(gnc_memory + rings[r].slot) = ring;
    }}
}}
"""
