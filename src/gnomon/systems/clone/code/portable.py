"""A plan as GNU C, for machines that there is no assembly for.

Blocks are labels of one function, which jumps to their addresses. `KEEP` stops the compiler from
knowing what a variable holds, so that it computes it there and then, and from keeping what memory
holds. It does choose instructions and places: see the method's page for what then differs.
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
    POP,
    PUSH,
    REPEAT,
    STACK,
)

_REGISTERS = 4  # more would not fit beside those of the machinery
_OF_CONNECTION = {CONNECTION: "own", NEXT: "other"}
_WORD = 8
#: Instructions at the end of a block, as compilers for x86-64 write them, but for those of the
#: assembly: an address that is stored, a stack pointer that is moved.
_END_COST = {"call": 2, "ret": 1, "call_indirect": 3, "jmp_indirect": 1}


def write(plan: Plan, dependencies: Sequence[float], rng: Generator) -> str:
    """The text of a file."""
    return _Writer(plan, dependencies, rng).text()


class _Writer:
    def __init__(self, plan: Plan, dependencies: Sequence[float], rng: Generator) -> None:
        self._plan, self._blocks, self._rng = plan, plan.blocks, rng
        self._registers = Registers(dependencies, rng, _REGISTERS)
        self._left_out = plan.left_out(self._excess, rng)

    def text(self) -> str:
        plan, begin = self._plan, _BEGIN
        for name, value in (("OWN", LINE * plan.own_lines), ("FIRST", LINE * plan.connections_at),
                            ("TABLE", "".join(f"{one}\n" for one in self._data()))):  # fmt: skip
            begin = begin.replace(f"@{name}@", str(value))
        out = [begin, *self._groups()]
        for number in plan.order:
            out += [f"B{number}:", *self._block(number)]
        out.append("leave:\n    return;\n}\n")
        for edge in plan.groups:
            out += [
                f"void gnc_edge_{edge}(uint32_t kind, uint32_t connection, uint32_t next) {{",
                f"    walk({edge}, kind, connection, next);\n}}",
            ]
        return "\n".join(out) + "\n"

    def _excess(self, number: int) -> int:
        """Instructions more than on x86-64, about: the stack pointer is moved once a block."""
        items = self._plan.items[number]
        ends = "" if number in self._plan.exits else self._blocks[number].ends
        steps = [{PUSH: -_WORD, POP: _WORD, MOVE: one.op.value}.get(one.op.does, 0)
                 for one in items]  # fmt: skip
        is_moved = sum(steps) != 0 and ends not in ("call", "ret")
        moves = sum(1 for one in items if one.op.does == MOVE)
        return _END_COST.get(ends, 0) + is_moved - moves

    # --- blocks
    # -----------------------------------------------------------------------------------

    def _block(self, number: int) -> Iterator[str]:
        if number in self._plan.refills:
            yield "    BITS();"
        pointer = 0  # from what it was at the begin: it is moved once, at the end
        for item in self._plan.items[number]:
            if item.op.does == PUSH:
                pointer -= _WORD
                yield f"    STORE(stack + {pointer}, {self._read()});"
            elif item.op.does == POP:
                yield f"    LOAD({self._write()}, stack + {pointer});"
                pointer += _WORD
            elif item.op.does == MOVE:
                pointer += item.op.value
            elif id(item) not in self._left_out:
                yield from self._item(item, pointer)
        yield from self._end(number, pointer)

    def _read(self) -> str:
        return f"r{self._registers.read()}"

    def _write(self) -> str:
        return f"r{self._registers.write()}"

    def _item(self, item: Item, pointer: int) -> Iterator[str]:
        op, rng = item.op, self._rng
        if op.does == FILLER:
            yield self._filler(item.kind)
            return
        if op.does == REPEAT:
            yield f"    FILL(memory + {LINE * item.line - BASE}, {-(-op.value // _WORD)});"
            return
        inside = _WORD * int(rng.integers(0, LINE // _WORD))
        if item.ring >= 0:
            yield f"    RING(memory + {self._plan.slot(item.ring)});"
            where = f"line + {max(inside, _WORD)}"
        elif op.place in _OF_CONNECTION:
            where = f"{_OF_CONNECTION[op.place]} + {LINE * op.value + inside - BASE}"
        elif item.line >= 0:
            where = f"memory + {LINE * item.line + inside - BASE}"
        elif op.place == STACK:
            where = f"stack + {item.offset + pointer & ~7}"
        else:
            where = f"stack + {pointer - _WORD - inside}"
        match item.kind:
            case "load" | "vector_load":
                yield f"    LOAD({self._write()}, {where});"
            case "alu_load":
                yield f"    ADD_LOAD({self._write()}, {where});"
            case "store" | "vector_store":
                yield f"    STORE({where}, {self._read()});"
            case "alu_store":
                yield f"    ADD_STORE({where}, {self._read()});"
            case _:
                yield f"    ATOMIC({where}, {self._read()});"

    def _filler(self, kind: str) -> str:
        source, to = self._read(), self._write()
        match kind:
            case "mov":
                return f"    DO({to} = {source}, {to});"
            case "lea":
                return f"    DO({to} = {source} + 8, {to});"
            case "mul" | "div":
                return f"    DO({to} *= {source}, {to});"
        name = str(self._rng.choice(["+=", "-=", "^=", "|="]))
        return f"    DO({to} {name} {source}, {to});"

    def _end(self, number: int, pointer: int) -> Iterator[str]:
        block, plan = self._blocks[number], self._plan
        ends, varies = block.ends, number in plan.varying
        is_exit = number in plan.exits
        if ends in ("call", "call_indirect") and not is_exit:
            pointer -= _WORD
        if pointer and (is_exit or ends != "ret"):
            yield f"    stack += {pointer};"
        if is_exit:
            yield "    goto leave;"
            return
        after = plan.follows(number)
        target = f"B{block.target}"
        match ends:
            case "branch" if varies:
                yield f"    if (__builtin_add_overflow(bits, bits, &bits)) goto {target};"
            case "branch" if plan.is_taken(number):
                yield f"    KEEP(zero);\n    if (!zero) goto {target};"
            case "branch":
                yield "    KEEP(zero);\n    if (zero) goto leave;"
        if plan.jumps_over(number):
            yield "    KEEP(zero);"
        match ends:
            case "jmp":
                yield f"    goto {target};"
                return
            case "ret":
                yield f"    stack += {pointer + _WORD};"
                yield f"    goto *AT(const void *, stack - {_WORD});"
                return
            case "call" | "call_indirect":
                back = "leave" if after is None else f"B{after}"
                yield f"    STORE_LABEL(stack, {back});"
                if ends == "call":
                    yield f"    goto {target};"
                    return
        if ends.endswith("_indirect"):
            yield "    goto **stream++;" if varies else f"    goto *constant[T{number}];"
        else:
            yield f"    goto {'leave' if after is None else f'B{after}'};"

    # --- data and entries
    # -------------------------------------------------------------------------------

    def _data(self) -> Iterator[str]:
        plan = self._plan
        indirect = (b for b in sorted(plan.weights) if self._blocks[b].ends.endswith("_indirect"))
        constant = [b for b in indirect if b not in plan.varying]
        if constant:
            yield f"    enum {{{', '.join(f'T{b}' for b in constant)}}};"
            to = [next(iter(plan.next[b]), None) for b in constant]
            labels = ", ".join("&&leave" if b is None else f"&&B{b}" for b in to)
            yield f"    static const void *const volatile constant[] = {{{labels}}};"
        for i, same in plan.unique():
            if i == same:
                record = plan.records[i]
                words = [f"&&G{record.edge}_{record.group}", *map(_turn, record.stream)]
                yield f"    static const void *const p{i}[] = {{{', '.join(words)}}};"
        first = dict(plan.unique())
        for edge, rows in plan.tables.items():
            names = ", ".join(f"p{first[i]}" for row in rows for i in row)
            yield f"    static const void *const *const e{edge}[] = {{{names}}};"
        rows_of = ", ".join(
            f"[{edge}] = {{e{edge}, {TABLE if plan.has_kinds(edge) else 0}}}"
            for edge in plan.groups
        )
        yield f"    static const struct paths edges[] = {{{rows_of or '{0, 0}'}}};"

    def _groups(self) -> Iterator[str]:
        plan = self._plan
        for edge, mine in plan.groups.items():
            for k, group in enumerate(mine):
                yield f"G{edge}_{k}:"
                yield f"    stack = memory + {plan.stack_at - group.depth - BASE};"
                for place, to in sorted(group.returns.items()):
                    yield f"    STORE_LABEL(stack + {place}, B{to});"
                yield f"    BITS();\n    goto B{group.entry};"


def _turn(one: Turn) -> str:
    return f"(void *){one.bits}u" if one.to < 0 else f"&&B{one.to}"


_BEGIN = f"""/* Generated: what is executed between system calls, for any machine. */
#include <stdint.h>

#pragma GCC diagnostic ignored "-Wunused-label"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"

typedef uintptr_t __attribute__((may_alias)) word;
typedef const void *__attribute__((may_alias)) address;

extern _Thread_local unsigned char *gnc_memory;

struct paths {{
    const void *const *const *path;
    uint32_t kind; /* so many rows further for each kind of request */
}};

#define AT(type, where) (*(type *)(where))
#define KEEP(variable) __asm__ volatile("" : "+r"(variable) : : "memory")
#define DO(what, variable) what; KEEP(variable)
#define LOAD(to, where) DO(to = AT(word, where), to)
#define ADD_LOAD(to, where) DO(to += AT(word, where), to)
#define STORE(where, from) DO(AT(word, where) = from, from)
#define ADD_STORE(where, from) DO(AT(word, where) += from, from)
#define ATOMIC(where, from) __atomic_fetch_add((uintptr_t *)(where), from, __ATOMIC_SEQ_CST)
#define STORE_LABEL(where, label) AT(address, where) = &&label
#define BITS() bits = (uint32_t)(uintptr_t)*stream++
#define RING(slot) \\
    line = AT(unsigned char *, AT(unsigned char *, slot)); \\
    AT(unsigned char *, slot) = line
#define FILL(where, words) \\
    line = where; \\
    for (uint32_t left = words; left; --left, line += 8) {{ STORE(line, r0); KEEP(left); }}

/* Addresses of labels are those of one copy of a function. */
#ifdef __clang__
__attribute__((noinline))
#else
__attribute__((noinline, noclone))
#endif
static void walk(uint32_t edge, uint32_t kind, uint32_t connection, uint32_t next) {{
@TABLE@    unsigned char *memory = gnc_memory, *stack = memory, *line;
    unsigned char *own = memory + @FIRST@ + connection % {CONNECTIONS} * (uintptr_t)@OWN@;
    unsigned char *other = memory + @FIRST@ + next % {CONNECTIONS} * (uintptr_t)@OWN@;
    uint64_t *state = (uint64_t *)(void *)(memory + {RANDOM});
    *state = *state * {FACTOR} + {ADDEND};
    uint64_t row = kind * edges[edge].kind;
    const void *const *stream = edges[edge].path[row + (*state >> {DRAWN}) % {TABLE}];
    uint32_t bits = 0, zero = 0;
    uintptr_t r0 = 0, r1 = 0, r2 = 0, r3 = 0;
    goto **stream++;
"""
