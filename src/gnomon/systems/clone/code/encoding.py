"""Instructions of x86-64 by class and size, so that blocks take as many bytes as they did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numpy.random import Generator

from gnomon.systems.clone.code.plan import BASE, FIRST_LINE, Item
from gnomon.systems.clone.code.registers import Registers
from gnomon.systems.clone.skeleton import (
    CLOSE,
    CONNECTION,
    FILLER,
    LINE,
    MOVE,
    NEXT,
    POP,
    PUSH,
    REPEAT,
    STACK,
)

_POOL = ("ax", "cx", "dx", "bp", "8", "9", "10", "11", "12")
_OF_CONNECTION = {CONNECTION: "r13", NEXT: "r14"}  # where its lines are
_PLAIN = 4  # of them need no prefix
_FORCED = "{disp32} "
_SIZES = {
    "alu": [2, 3, 4, 6, 7], "mov": [2, 3, 5, 7], "lea": [3, 4, 6, 7], "cmov": [3], "mul": [3, 6],
    "div": [3, 6], "vector": [3, 4, 5],
}  # fmt: skip
_OTHER = [1, 3, 4, 7]


class Encoder:
    """Writes instructions; registers are chosen by the dependencies of the original.

    Args:
        slot: Where the pointer of a ring is, from rbx.
    """

    def __init__(
        self, dependencies: Sequence[float], slot: Callable[[int], int], rng: Generator
    ) -> None:
        self._registers, self._slot = _Registers(dependencies, rng), slot
        self._rng = rng

    def write(self, item: Item, size: int) -> list[str]:
        op, pick = item.op, self._registers
        if op.does == PUSH:
            return [f"    push %{pick.read(8, size == 1)}"]
        if op.does == POP:
            return [f"    pop %{pick.write(8, size == 1)}"]
        if op.does == MOVE:
            return [f"    add ${op.value}, %rsp"]
        if op.does == REPEAT:
            at = LINE * item.line - BASE
            return ["    mov %edi, %r11d", f"    lea {at}(%rbx), %rdi",
                    f"    mov ${op.value}, %ecx",
                    "    rep stosb", "    mov %r11d, %edi"]  # fmt: skip
        if op.does == FILLER:
            return [self._filler(item.kind, size)]
        return self._access(item, size)

    def _filler(self, kind: str, size: int) -> str:
        pick, rng = self._registers, self._rng
        plain = size in (2, 5, 6) or (size == 3 and kind in ("lea", "cmov", "mul", "div"))
        wide = 4 if plain else 8
        number = f"$0x{int(rng.integers(1 << 20, 1 << 30)):x}"
        name = str(rng.choice(["add", "sub", "xor", "and", "or", "cmp"]))
        match kind:
            case "alu" if size < 4:
                return f"    {name} %{pick.read(wide, plain)}, %{pick.write(wide, plain)}"
            case "alu" if size == 4:
                return f"    {name} $8, %{pick.write(8, False)}"
            case "alu":
                return f"    {name} {number}, %{pick.write(wide, plain, True)}"
            case "mov" if size < 4:
                return f"    mov %{pick.read(wide, plain)}, %{pick.write(wide, plain)}"
            case "mov":
                return f"    mov {number}, %{pick.write(wide, plain)}"
            case "lea":
                force = _FORCED if size > 4 else ""
                return f"    {force}lea 8(%{pick.read(8, True)}), %{pick.write(wide, plain)}"
            case "cmov":
                return f"    cmovz %{pick.read(wide, plain)}, %{pick.write(wide, plain)}"
            case "mul" | "div" if size < 5:
                return f"    imul %{pick.read(wide, size == 3)}, %{pick.write(wide, size == 3)}"
            case "mul" | "div":
                source = pick.read(wide, plain)
                return f"    imul {number}, %{source}, %{pick.write(wide, plain)}"
            case "vector":
                a, b = rng.integers(0, 8, 2)
                if size == 3:
                    return f"    movaps %xmm{a}, %xmm{b}"
                return f"    paddd %xmm{a + (8 if size == 5 else 0)}, %xmm{b}"
        return {
            1: "    nop",
            3: "    nopl (%rax)",
            4: "    nopl 8(%rax)",
            7: "    nopl 0x80(%rax)",
        }[size]

    def _access(self, item: Item, size: int) -> list[str]:
        op, pick, rng = item.op, self._registers, self._rng
        before: list[str] = []
        width = 16 if item.kind.startswith("vector") else 8
        inside = width * int(rng.integers(0, LINE // width))
        if item.ring >= 0:
            slot = f"{self._slot(item.ring)}(%rbx)"
            before = [f"    mov {slot}, %rax", "    mov (%rax), %rax", f"    mov %rax, {slot}"]
            size -= 3 + 2 * (7 if self._slot(item.ring) > 127 else 4)
            where = f"{max(inside, 16)}(%rax)"
        elif op.place in _OF_CONNECTION:
            where = f"{LINE * op.value + inside - BASE}(%{_OF_CONNECTION[op.place]})"
        elif item.line >= 0:
            where = f"{LINE * item.line + inside - BASE}(%rbx)"
        elif op.place == STACK:
            where = f"{item.offset}(%rsp)"
        else:
            where = f"{-width * (1 + int(rng.integers(0, 64 // width)))}(%rsp)"
        least = _least(item, _is_in_reach(item)) - (
            len(before) and (3 + 2 * (7 if self._slot(item.ring) > 127 else 4))
        )
        wide = 8 if size - least in (1, 4) else 4
        force = _FORCED if size - least >= 3 else ""
        match item.kind:
            case "load":
                text = f"mov {where}, %{pick.write(wide, wide == 4)}"
            case "alu_load":
                text = (
                    f"{rng.choice(['add', 'cmp', 'or'])} {where}, %{pick.write(wide, wide == 4)}"
                )
            case "vector_load":
                text = f"movups {where}, %xmm{int(rng.integers(0, 8))}"
            case "store":
                text = f"mov %{pick.read(wide, wide == 4)}, {where}"
            case "vector_store":
                text = f"movups %xmm{int(rng.integers(0, 8))}, {where}"
            case "alu_store":
                text = f"add %{pick.read(wide, wide == 4)}, {where}"
            case _:
                text = f"lock add %{pick.read(wide, wide == 4)}, {where}"
        return [*before, f"    {force}{text}"]


def _is_in_reach(item: Item) -> bool:
    """Whether one byte is enough to say where its operand is."""
    if item.ring >= 0:
        return True
    if item.op.place in _OF_CONNECTION:
        return item.op.value < BASE * 2 // LINE
    if item.line >= 0:
        return item.line < FIRST_LINE
    return item.op.place == CLOSE or -128 <= item.offset <= 127


class _Registers:
    """By name; plain ones need no prefix."""

    def __init__(self, dependencies: Sequence[float], rng: Generator) -> None:
        self._all = Registers(dependencies, rng, len(_POOL))

    def read(self, bytes_: int, is_plain: bool) -> str:
        return _register(self._all.read(_PLAIN if is_plain else None), bytes_)

    def write(self, bytes_: int, is_plain: bool, not_first: bool = False) -> str:
        return _register(
            self._all.write(_PLAIN if is_plain else None, 1 if not_first else 0), bytes_
        )


def _register(number: int, bytes_: int) -> str:
    name = _POOL[number]
    if name.isdigit():
        return f"r{name}{'' if bytes_ == 8 else 'd'}"
    return f"{'r' if bytes_ == 8 else 'e'}{name}"


def sizes_of(item: Item) -> list[int]:
    """Bytes that its encodings take, ascending."""
    op = item.op
    if op.does in (PUSH, POP):
        return [1]
    if op.does == MOVE:
        return [4 if -128 <= op.value <= 127 else 7]
    if op.does == REPEAT:
        return [20]
    if op.does == FILLER:
        return _SIZES.get(item.kind, _OTHER)
    is_near = _is_in_reach(item)
    least = _least(item, is_near)
    has_prefix = item.kind.startswith("vector") or op.place in _OF_CONNECTION
    sizes = [least] if has_prefix else [least, least + 1]
    return sizes + ([one + 3 for one in sizes] if is_near else [])


def _least(item: Item, is_near: bool) -> int:
    """Bytes of the shortest encoding."""
    opcode = 2 if item.kind.startswith("vector") or item.kind == "atomic" else 1
    if item.ring >= 0:
        return opcode + 2 + 3 + (8 if item.ring < 16 else 14)
    if item.op.place in _OF_CONNECTION:  # the register needs a prefix
        return opcode + 1 + (2 if is_near else 5)
    on_stack = item.line < 0
    return opcode + (2 if is_near else 5) + (1 if on_stack else 0)
