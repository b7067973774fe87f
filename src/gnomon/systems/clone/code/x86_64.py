"""A plan as assembly for x86-64.

While a path runs, `rbx` points into the worker's memory, `r13` and `r14` to the lines of the
connections of the call before and the next, `rsi` to the stream, and `edi` holds the next bits of
it; the stack pointer is in that memory, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpy.random import Generator

from gnomon.systems.clone.code.encoding import Encoder, sizes_of
from gnomon.systems.clone.code.plan import (
    ADDEND,
    BASE,
    CONNECTIONS,
    DRAWN,
    FACTOR,
    RANDOM,
    SAVED,
    Plan,
    Turn,
)
from gnomon.systems.clone.skeleton import LINE, PAGE

_KEPT = ("rbx", "rbp", "r12", "r13", "r14")
_FORCED = "{disp32} "


def write(plan: Plan, dependencies: Sequence[float], rng: Generator) -> str:
    """The text of a file."""
    return _Writer(plan, Encoder(dependencies, plan.slot, rng), rng).text()


class _Writer:
    def __init__(self, plan: Plan, encoder: Encoder, rng: Generator) -> None:
        self._plan, self._blocks, self._encoder, self._rng = plan, plan.blocks, encoder, rng
        same = dict(plan.unique())
        self._tables = {edge: _short([[same[i] for i in row] for row in rows])
                        for edge, rows in plan.tables.items()}  # fmt: skip

    def text(self) -> str:
        plan = self._plan
        bodies = {number: self._body(number) for number in plan.order}
        long: set[int] = set()
        while True:
            places = self._place(bodies, long)
            more = {
                b for b in plan.order if b not in long and self._blocks[b].target in places
                and abs(places[self._blocks[b].target] - places[b] - bodies[b][1]) > 110
            }  # fmt: skip
            if not more:
                break
            long |= more
        out = [
            '    .section .text.paths, "ax", @progbits',
            f"    .balign {16 * PAGE}",
            "    .globl gnc_paths",
            "gnc_paths:",
        ]
        for k, number in enumerate(plan.order):
            if plan.begins_anew(k):
                out.append(f"    .org {places[number]}")
            out.append(f".Lb{number}:")
            out += bodies[number][0] + self._end(number, number in long)
            if self._needs_jump(k):
                out.append(f"    {_FORCED}jmp .Lb{self._blocks[number].next}")
        return "\n".join([*out, *self._data(), *self._functions(), self._run()]) + "\n"

    # --- blocks
    # -----------------------------------------------------------------------------------

    def _body(self, number: int) -> tuple[list[str], int]:
        """Of a block but its end: text, and bytes, as near to the original's as can be."""
        items = self._plan.items[number]
        room = self._blocks[number].bytes - self._end_bytes(number, self._is_far(number))
        sizes = [sizes_of(one) for one in items]
        chosen = [one[0] for one in sizes]
        refill = 6 if number in self._plan.refills else 0
        slack = room - sum(chosen) - refill
        for i in self._rng.permutation(len(items)):
            fits = [one for one in sizes[i] if one - chosen[i] <= slack]
            if fits:
                slack -= fits[-1] - chosen[i]
                chosen[i] = fits[-1]
        text = ["    mov (%rsi), %edi", "    add $4, %rsi"] if refill else []
        for item, size in zip(items, chosen, strict=True):
            text += self._encoder.write(item, size)
        return text, sum(chosen) + refill

    def _is_far(self, number: int) -> bool:
        block = self._blocks[number]
        return (
            block.target >= 0 and abs(self._blocks[block.target].at - block.at - block.bytes) > 120
        )

    def _end_bytes(self, number: int, is_long: bool) -> int:
        if number in self._plan.exits:
            return 5
        match self._blocks[number].ends:
            case "branch":
                jump = 6 if is_long and self._plan.is_taken(number) else 2
                return 2 + jump + self._plan.jumps_over(number)
            case "jmp":
                return 5 if is_long else 2
            case "call":
                return 5
            case "ret":
                return 1
            case "call_indirect" | "jmp_indirect":
                return 7 if number in self._plan.varying else 6
        return 0

    def _place(self, bodies: dict[int, tuple[list[str], int]], long: set[int]) -> dict[int, int]:
        places, now = {}, 0
        for k, number in enumerate(self._plan.order):
            if self._plan.begins_anew(k):
                now = max(now, self._blocks[number].at)
            places[number] = now
            now += bodies[number][1] + self._end_bytes(number, number in long)
            if self._needs_jump(k):
                now += 5
        return places

    def _needs_jump(self, k: int) -> bool:
        """To what follows in the original, but not here."""
        order = self._plan.order
        after = self._plan.follows(order[k])
        return after is not None and (k + 1 == len(order) or order[k + 1] != after)

    def _end(self, number: int, is_long: bool) -> list[str]:
        block, varies = self._blocks[number], number in self._plan.varying
        if number in self._plan.exits:
            return [f"    {_FORCED}jmp gnc_leave"]
        to = f"{_FORCED if is_long else ''}"
        over = ["    nop"] if self._plan.jumps_over(number) else []
        match block.ends:
            case "branch" if varies:
                return ["    add %edi, %edi", f"    {to}jc .Lb{block.target}", *over]
            case "branch" if self._plan.is_taken(number):
                return ["    cmp %ebx, %ebx", f"    {to}je .Lb{block.target}", *over]
            case "branch":
                return ["1:", "    cmp %ebx, %ebx", "    jne 1b"]
            case "jmp":
                return [f"    {to}jmp .Lb{block.target}"]
            case "call":
                return [f"    call .Lb{block.target}"]
            case "ret":
                return ["    ret"]
            case "call_indirect" | "jmp_indirect":
                name = block.ends.removesuffix("_indirect")
                if varies:
                    return ["    add $8, %rsi", f"    {name} *-8(%rsi)"]
                return [f"    {name} *.Lt{number}(%rip)"]
        return []

    # --- data and entries
    # -------------------------------------------------------------------------------

    def _data(self) -> list[str]:
        plan = self._plan
        out = ['    .section .data.rel.ro, "aw", @progbits', "    .balign 64"]
        for number in sorted(plan.weights):
            if self._blocks[number].ends.endswith("_indirect") and number not in plan.varying:
                to = next(iter(plan.next[number]), None)
                out.append(f".Lt{number}: .quad {'gnc_leave' if to is None else f'.Lb{to}'}")
        for i, same in plan.unique():
            record = plan.records[i]
            if same != i:
                out.append(f"    .set .Lp{i}, .Lp{same}")
                continue
            out += ["    .balign 8", f".Lp{i}:"]
            if len(plan.groups[record.edge]) > 1:
                out.append(f"    .quad .Lg{record.edge}_{record.group}")
            out += map(_turn, record.stream)
        for edge, rows in self._tables.items():
            out += ["    .balign 64", f".Le{edge}:"]
            out += [f"    .quad {', '.join(f'.Lp{i}' for i in row)}" for row in rows]
        return out

    def _row(self, edge: int) -> str:
        """From the kind of the request to its part of the table."""
        rows = self._tables[edge]
        if len(rows) == 1:
            return "xor %edi, %edi"
        return f"shl ${len(rows[0]).bit_length() - 1}, %edi" if len(rows[0]) > 1 else "nop"

    def _functions(self) -> list[str]:
        plan = self._plan
        out = ["    .text", "    .balign 64"]
        for edge, mine in plan.groups.items():
            name = f"gnc_edge_{edge}"
            out += [f"    .globl {name}", f"    .type {name}, @function", f"{name}:",
                    *(f"    push %{one}" for one in _KEPT),
                    f"    lea .Le{edge}(%rip), %rax",
                    f"    {self._row(edge)}", f"    mov ${len(self._tables[edge][0]) - 1}, %r8d",
                    "    mov %esi, %r13d", "    mov %edx, %r14d", "    call gnc_draw",
                    f"    mov %rsp, {SAVED}(%rbx)"]  # fmt: skip
            if len(mine) > 1:
                out += ["    add $8, %rsi", "    jmp *-8(%rsi)"]
            for k, group in enumerate(mine):
                out += [
                    f".Lg{edge}_{k}:",
                    f"    lea {plan.stack_at - group.depth - BASE}(%rbx), %rsp",
                ]
                for place, to in sorted(group.returns.items()):
                    out += [f"    lea .Lb{to}(%rip), %rdx", f"    mov %rdx, {place}(%rsp)"]
                out += [
                    "    mov (%rsi), %edi",
                    "    add $4, %rsi",
                    f"    {_FORCED}jmp .Lb{group.entry}",
                ]
        return out

    def _run(self) -> str:
        return _RUN.replace("@OWN@", str(LINE * self._plan.own_lines)).replace(
            "@FIRST@", str(LINE * self._plan.connections_at)
        )


def _short(rows: list[list[int]]) -> list[list[int]]:
    """The same paths, about as often, in as little room as can be: each entry is data that the
    original did not touch.

    >>> [len(_short([row])[0]) for row in ([4] * 64, [4] * 40 + [5] * 24, list(range(64)))]
    [1, 16, 64]
    """
    if all(set(row) == set(rows[0]) and len(set(row)) == 1 for row in rows):
        return [rows[0][:1]]
    if all(len(set(row)) == 1 for row in rows):
        return [row[:1] for row in rows]
    if all(min(row.count(one) for one in set(row)) >= _SHORT for row in rows):
        return [row[_SHORT // 2 :: _SHORT] for row in rows]
    return rows


def _turn(one: Turn) -> str:
    return f"    .long {one.bits}" if one.to < 0 else f"    .quad .Lb{one.to}"


_SHORT = 4  # in a table of a quarter: paths that are seldom drawn would be lost

_RUN = f"""
    .balign 64
gnc_draw:
    mov gnc_memory@gottpoff(%rip), %rcx
    mov %fs:(%rcx), %rbx
    imul $0x{FACTOR:x}, {RANDOM}(%rbx), %rcx
    add $0x{ADDEND:x}, %rcx
    mov %rcx, {RANDOM}(%rbx)
    ror ${DRAWN}, %rcx
    and %r8d, %ecx
    add %edi, %ecx
    mov (%rax,%rcx,8), %rsi
    and ${CONNECTIONS - 1}, %r13d
    and ${CONNECTIONS - 1}, %r14d
    imul $@OWN@, %r13d, %r13d
    imul $@OWN@, %r14d, %r14d
    lea @FIRST@(%rbx,%r13), %r13
    lea @FIRST@(%rbx,%r14), %r14
    ret
gnc_leave:
    mov {SAVED}(%rbx), %rsp
{chr(10).join(f"    pop %{one}" for one in reversed(_KEPT))}
    ret
    .section .note.GNU-stack, "", @progbits
"""
