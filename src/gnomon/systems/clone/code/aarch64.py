"""A plan as assembly for AArch64, of version 8.0 on.

While a path runs, `x19` points into the worker's memory, `x22` and `x23` to the lines of the
connections of the call before and the next, `x20` to the stream, and `w21` holds the next bits of
it. The stack of the paths is that of `x28`: the machine's own stack pointer has to stay a multiple
of 16. A call is `bl`, and the function that is called pushes the link register, as compilers have
it; what jumps there goes behind the push.

An instruction of x86-64 that works on memory is two or three here, a far address is one more, a
call and its return are one more each. As many instructions that only compute are left out of the
same edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from numpy.random import Generator

from gnomon.systems.clone.code.plan import (
    ADDEND,
    BASE,
    CONNECTIONS,
    DRAWN,
    FACTOR,
    RANDOM,
    TABLE,
    Item,
    Plan,
    Turn,
)
from gnomon.systems.clone.code.registers import Registers
from gnomon.systems.clone.skeleton import (
    CONNECTION,
    FILLER,
    LINE,
    MOVE,
    NEXT,
    PAGE,
    POP,
    PUSH,
    REPEAT,
    STACK,
)

_REGISTERS = 9  # x0 to x8; from x9 on they are for addresses
_OF_CONNECTION = {CONNECTION: "x22", NEXT: "x23"}
_NEAR, _FAR = 1 << 12, 1 << 24  # offsets in one instruction, and in two
_BRANCH = (1 << 20) - (1 << 16)  # bytes that a conditional branch reaches, and some to spare
_REPEATED = 32  # bytes of one turn of a loop that stores


def write(plan: Plan, dependencies: Sequence[float], rng: Generator) -> str:
    """The text of a file."""
    return _Writer(plan, dependencies, rng).text()


class _Writer:
    def __init__(self, plan: Plan, dependencies: Sequence[float], rng: Generator) -> None:
        self._plan, self._blocks, self._rng = plan, plan.blocks, rng
        self._registers = Registers(dependencies, rng, _REGISTERS)
        calls = {b for b in plan.order if b not in plan.exits}
        self._called = {
            to for b in calls if self._blocks[b].ends in ("call", "call_indirect")
            for to in plan.next[b]
        }  # fmt: skip

    def text(self) -> str:
        plan = self._plan
        bodies = self._bodies()
        long: set[int] = set()
        while True:
            ends = {b: self._end(b, b in long) for b in plan.order}
            places = self._place(bodies, ends)
            more = {b for b in plan.order if b not in long and self._blocks[b].target in places
                    and abs(places[self._blocks[b].target] - places[b]) > _BRANCH}  # fmt: skip
            if not more:
                break
            long |= more
        out = [
            '    .section .text.paths, "ax", %progbits',
            f"    .balign {16 * PAGE}",
            "    .globl gnc_paths",
            "gnc_paths:",
        ]
        for k, number in enumerate(plan.order):
            if plan.begins_anew(k):
                out.append(f"    .org {places[number]}")
            if number in self._called:
                out += [f".Lc{number}:", "    str x30, [x28, #-8]!"]
            out += [f".Lb{number}:", *bodies[number], *ends[number]]
            if self._needs_jump(k):
                out.append(f"    b .Lb{self._blocks[number].next}")
        return "\n".join([*out, *self._data(), *self._functions(), self._run()]) + "\n"

    # --- blocks
    # -----------------------------------------------------------------------------------

    def _bodies(self) -> dict[int, list[str]]:
        """Of blocks but their ends, less what other instructions are longer by than on x86-64."""
        plan = self._plan
        texts = {id(one): self._item(one) for number in plan.order for one in plan.items[number]}

        def excess(number: int) -> int:
            more = (_executed(one, texts[id(one)]) - _wanted(one) for one in plan.items[number])
            return self._end_cost(number) + sum(more)

        left_out = plan.left_out(excess, self._rng)
        return {
            number: ["    ldr w21, [x20], #4"] * (number in plan.refills)
            + [line for one in plan.items[number] if id(one) not in left_out
               for line in texts[id(one)]]
            for number in plan.order
        }  # fmt: skip

    def _end_cost(self, number: int) -> int:
        """Instructions more than on x86-64."""
        block, plan = self._blocks[number], self._plan
        cost = -1 if number in plan.refills else 0
        if number in plan.exits:
            return cost
        if block.ends in ("ret", "call", "call_indirect"):
            cost += 1
        if block.ends.endswith("_indirect") and number not in plan.varying:
            cost += 2
        return cost

    def _item(self, item: Item) -> list[str]:
        op = item.op
        if op.does == PUSH:
            return [f"    str {self._read()}, [x28, #-8]!"]
        if op.does == POP:
            return [f"    ldr {self._write()}, [x28], #8"]
        if op.does == MOVE:
            return _add("x28", "x28", op.value)
        if op.does == REPEAT:
            return [*_add("x9", "x19", LINE * item.line - BASE),
                    *_number("x10", -(-op.value // _REPEATED)), "1:",
                    f"    stp q0, q1, [x9], #{_REPEATED}", "    subs x10, x10, #1",
                    "    b.ne 1b"]  # fmt: skip
        return [self._filler(item.kind)] if op.does == FILLER else self._access(item)

    def _read(self) -> str:
        return f"x{self._registers.read()}"

    def _write(self) -> str:
        return f"x{self._registers.write()}"

    def _filler(self, kind: str) -> str:
        rng = self._rng
        source, is_number = self._read(), rng.random() < 0.5
        if kind in ("nop", "other"):
            return "    nop"
        if kind == "vector":
            a, b = rng.integers(0, 8, 2)
            return f"    add v{b}.4s, v{b}.4s, v{a}.4s"
        to = self._write()
        name = str(rng.choice(["add", "sub", "eor", "and", "orr"]))
        match kind:
            case "mov" if is_number:
                return f"    mov {to}, #{int(rng.integers(1 << 16))}"
            case "mov":
                return f"    mov {to}, {source}"
            case "lea":
                return f"    add {to}, {source}, #8"
            case "cmov":
                return f"    csel {to}, {source}, {to}, eq"
            case "mul" | "div":
                return f"    {'mul' if kind == 'mul' else 'udiv'} {to}, {to}, {source}"
        return f"    {name} {to}, {to}, {'#8' if is_number else source}"

    def _access(self, item: Item) -> list[str]:
        op, kind = item.op, item.kind
        width = 16 if kind.startswith("vector") else 8
        inside = width * int(self._rng.integers(0, LINE // width))
        before: list[str] = []
        base, offset = "x28", -width * (1 + inside // width)
        if item.ring >= 0:
            more, slot = _reach("x19", self._plan.slot(item.ring), 8)
            before = [*more, f"    ldr x9, {slot}", "    ldr x9, [x9]", f"    str x9, {slot}"]
            base, offset = "x9", max(inside, 16)
        elif op.place in _OF_CONNECTION:
            base, offset = _OF_CONNECTION[op.place], LINE * op.value + inside - BASE
        elif item.line >= 0:
            base, offset = "x19", LINE * item.line + inside - BASE
        elif op.place == STACK:
            # The word that it was in, so that a store does not reach into the next one.
            base, offset = "x28", item.offset & -width
        if kind not in ("alu_store", "atomic", "load", "alu_load", "store"):
            more, where = _reach(base, offset, 16)
            name = "ldr" if kind == "vector_load" else "str"
            return [*before, *more, f"    {name} q{int(self._rng.integers(0, 8))}, {where}"]
        if kind == "atomic":
            return [*before, *_add("x10", base, offset), "2:", "    ldaxr x11, [x10]",
                    f"    add x11, x11, {self._read()}", "    stlxr w12, x11, [x10]",
                    "    cbnz w12, 2b"]  # fmt: skip
        more, where = _reach(base, offset, 8)
        before += more
        match kind:
            case "load":
                return [*before, f"    ldr {self._write()}, {where}"]
            case "alu_load":
                to = self._write()
                return [*before, f"    ldr x11, {where}", f"    add {to}, {to}, x11"]
            case "store":
                return [*before, f"    str {self._read()}, {where}"]
        return [*before, f"    ldr x11, {where}", f"    add x11, x11, {self._read()}",
                f"    str x11, {where}"]  # fmt: skip

    def _end(self, number: int, is_long: bool) -> list[str]:
        block, varies = self._blocks[number], number in self._plan.varying
        if number in self._plan.exits:
            return ["    b gnc_leave"]
        over = ["    nop"] if self._plan.jumps_over(number) else []
        match block.ends:
            case "branch" if varies:
                return [
                    "    adds w21, w21, w21",
                    *_branch("cs", "cc", block.target, is_long),
                    *over,
                ]
            case "branch" if self._plan.is_taken(number):
                return ["    cmp w19, w19", *_branch("eq", "ne", block.target, is_long), *over]
            case "branch":
                return ["1:", "    cmp w19, w19", "    b.ne 1b"]
            case "jmp":
                return [f"    b .Lb{block.target}"]
            case "call":
                return [f"    bl .Lc{block.target}"]
            case "ret":
                return ["    ldr x30, [x28], #8", "    ret"]
            case "call_indirect" | "jmp_indirect":
                name = "blr" if block.ends == "call_indirect" else "br"
                if varies:
                    return ["    ldr x16, [x20], #8", f"    {name} x16"]
                return [f"    adrp x16, .Lt{number}", f"    ldr x16, [x16, :lo12:.Lt{number}]",
                        f"    {name} x16"]  # fmt: skip
        return []

    def _place(self, bodies: dict[int, list[str]], ends: dict[int, list[str]]) -> dict[int, int]:
        places, now = {}, 0
        for k, number in enumerate(self._plan.order):
            if self._plan.begins_anew(k):
                now = max(now, -(-self._blocks[number].at // 4) * 4)
            places[number] = now
            count = sum(1 for one in (*bodies[number], *ends[number]) if not one.endswith(":"))
            now += 4 * (count + (number in self._called) + self._needs_jump(k))
        return places

    def _needs_jump(self, k: int) -> bool:
        """To what follows in the original, but not here, or here behind the push of a call."""
        order = self._plan.order
        after = self._plan.follows(order[k])
        return after is not None and (
            k + 1 == len(order) or order[k + 1] != after or after in self._called
        )

    # --- data and entries
    # -------------------------------------------------------------------------------

    def _data(self) -> Iterator[str]:
        plan = self._plan
        yield from ('    .section .data.rel.ro, "aw", %progbits', "    .balign 64")
        for number in sorted(plan.weights):
            ends = self._blocks[number].ends
            if ends.endswith("_indirect") and number not in plan.varying:
                to = next(iter(plan.next[number]), None)
                label = _label(to, ends == "call_indirect") if to is not None else "gnc_leave"
                yield f".Lt{number}: .quad {label}"
        for i, same in plan.unique():
            record = plan.records[i]
            if same != i:
                yield f"    .set .Lp{i}, .Lp{same}"
                continue
            yield from ("    .balign 8", f".Lp{i}:")
            if len(plan.groups[record.edge]) > 1:
                yield f"    .quad .Lg{record.edge}_{record.group}"
            yield from map(_turn, record.stream)
        for edge, rows in plan.tables.items():
            yield from ("    .balign 8", f".Le{edge}:")
            yield from (f"    .quad {', '.join(f'.Lp{i}' for i in row)}" for row in rows)

    def _functions(self) -> Iterator[str]:
        plan = self._plan
        yield from ("    .text", "    .balign 64")
        for edge, mine in plan.groups.items():
            name = f"gnc_edge_{edge}"
            yield from (f"    .globl {name}", f"    .type {name}, %function", f"{name}:", _SAVE)
            yield from ("    mov w22, w1", "    mov w23, w2", *_address("x9", f".Le{edge}"))
            yield "    lsl w10, w0, #6" if plan.has_kinds(edge) else "    mov w10, wzr"
            yield "    bl gnc_draw"
            if len(mine) > 1:
                yield from ("    ldr x16, [x20], #8", "    br x16")
            for k, group in enumerate(mine):
                yield f".Lg{edge}_{k}:"
                yield from _add("x28", "x19", plan.stack_at - group.depth - BASE)
                for place, to in sorted(group.returns.items()):
                    more, where = _reach("x28", place, 8)
                    yield from (*_address("x9", f".Lb{to}"), *more, f"    str x9, {where}")
                yield from ("    ldr w21, [x20], #4", f"    b .Lb{group.entry}")

    def _run(self) -> str:
        plan = self._plan
        own = _number("x12", LINE * plan.own_lines)
        first = _add("x13", "x19", LINE * plan.connections_at)
        constants = [*_number("x10", FACTOR), *_number("x12", ADDEND)]
        return _RUN.replace("@OWN@", "\n".join([*first, *own])).replace(
            "@CONSTANTS@", "\n".join(constants)
        )


def _executed(item: Item, text: list[str]) -> int:
    """Instructions of one execution."""
    count = sum(1 for line in text if not line.endswith(":"))
    return count if item.op.does != REPEAT else count + 3 * (-(-item.op.value // _REPEATED) - 1)


def _wanted(item: Item) -> int:
    """As many as there are on x86-64."""
    return 4 if item.ring >= 0 else 5 if item.op.does == REPEAT else 1


def _branch(name: str, other: str, target: int, is_long: bool) -> list[str]:
    if is_long:
        return [f"    b.{other} 1f", f"    b .Lb{target}", "1:"]
    return [f"    b.{name} .Lb{target}"]


def _number(register: str, value: int) -> list[str]:
    """At most 32 bits, and no sign."""
    text = [f"    mov {register}, #{value & 0xFFFF}"]
    return text + ([f"    movk {register}, #{value >> 16}, lsl #16"] if value >> 16 else [])


def _add(to: str, base: str, value: int) -> list[str]:
    """A register and a number."""
    name, much = ("sub", -value) if value < 0 else ("add", value)
    if much >= _FAR:
        return [*_number("x12", much), f"    {name} {to}, {base}, x12"]
    low = much % _NEAR
    if much == low:
        return [f"    {name} {to}, {base}, #{low}"]
    text = [f"    {name} {to}, {base}, #{much // _NEAR}, lsl #12"]
    return text + ([f"    {name} {to}, {to}, #{low}"] if low else [])


def _reach(base: str, offset: int, width: int) -> tuple[list[str], str]:
    """How memory is named that is so far from a register, and what comes before."""
    if -256 <= offset < 256 or (0 <= offset < _NEAR * width and offset % width == 0):
        return [], f"[{base}, #{offset}]"
    if not -_FAR <= offset < _FAR:
        return _add("x10", base, offset), "[x10]"
    high, low = divmod(offset, _NEAR)
    name = "add" if high > 0 else "sub"
    return [f"    {name} x10, {base}, #{abs(high)}, lsl #12"], f"[x10, #{low}]"


def _address(register: str, label: str) -> list[str]:
    return [f"    adrp {register}, {label}", f"    add {register}, {register}, :lo12:{label}"]


def _label(block: int, is_call: bool) -> str:
    return f".L{'c' if is_call else 'b'}{block}"


def _turn(one: Turn) -> str:
    return f"    .long {one.bits}" if one.to < 0 else f"    .quad {_label(one.to, one.is_call)}"


_PAIRS = ((19, 20), (21, 22), (23, 24), (25, 26), (27, 28), (29, 30))
_SAVE = "\n".join(
    ["    sub sp, sp, #96"]
    + [f"    stp x{a}, x{b}, [sp, #{16 * i}]" for i, (a, b) in enumerate(_PAIRS)]
)

_RUN = f"""
    .balign 64
gnc_draw:
    mrs x13, tpidr_el0
    adrp x14, :gottprel:gnc_memory
    ldr x14, [x14, :gottprel_lo12:gnc_memory]
    ldr x19, [x13, x14]
    mov w15, w10
    ldr x11, [x19, #{RANDOM}]
@CONSTANTS@
    madd x11, x11, x10, x12
    str x11, [x19, #{RANDOM}]
    ubfx x11, x11, #{DRAWN}, #{TABLE.bit_length() - 1}
    add w11, w11, w15
    ldr x20, [x9, x11, lsl #3]
    and w22, w22, #{CONNECTIONS - 1}
    and w23, w23, #{CONNECTIONS - 1}
@OWN@
    madd x22, x22, x12, x13
    madd x23, x23, x12, x13
    ret
gnc_leave:
{chr(10).join(f"    ldp x{a}, x{b}, [sp, #{16 * i}]" for i, (a, b) in enumerate(_PAIRS))}
    add sp, sp, #96
    ret
    .section .note.GNU-stack, "", %progbits
"""
