"""Machine code as classes: what an instruction does, not what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gnomon.errors import MissingExtra

#: In the order of a mix. A repeated string instruction counts once; its iterations are counted
#: apart.
CLASSES = (
    "alu", "alu_load", "alu_store", "mov", "load", "store", "lea", "push", "pop", "call",
    "call_indirect", "ret", "jmp", "jmp_indirect", "branch", "cmov", "mul", "div", "vector",
    "vector_load", "vector_store", "string", "atomic", "nop", "other",
)  # fmt: skip
INDEX = {name: i for i, name in enumerate(CLASSES)}

_ALU = frozenset((
    "add", "sub", "xor", "and", "or", "cmp", "test", "inc", "dec", "neg", "not", "adc", "sbb",
    "shl", "sal", "shr", "sar", "rol", "ror", "rcl", "rcr", "shld", "shrd", "bt", "bts", "btr",
    "btc", "bsf", "bsr", "tzcnt", "lzcnt", "popcnt", "bswap", "cdq", "cqo", "cwde", "cdqe",
    "andn", "blsr", "blsi", "blsmsk", "bextr", "bzhi", "rorx", "shlx", "shrx", "sarx", "xadd",
    "stc", "clc", "cmc", "cld", "std", "sahf", "lahf", "crc32", "cwd",
))  # fmt: skip
_MOVES = frozenset(("mov", "movabs", "movzx", "movsx", "movsxd", "xchg", "movbe"))
_STACK_POINTER = 4
_STRINGS = ("movs", "stos", "cmps", "scas", "lods")


class Decoded(msgspec.Struct, frozen=True):
    """One instruction.

    Attributes:
        kind: Its class.
        reads, writes: Registers, as numbers of whole ones.
        stack: By how much it moves the stack pointer; None: by something else than a constant.
        frame: Where in the stack, from the stack pointer, its operand lies; None: it has no such.
        target: Of a direct jump or call, from the begin of the code.
    """

    kind: int
    bytes: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    stack: int | None = 0
    frame: int | None = None
    target: int | None = None


def decode(code: bytes) -> Iterator[Decoded]:
    """Of straight code for x86-64; what is unknown is `other`."""
    try:
        import capstone
    except ImportError:
        raise MissingExtra("capstone", "clone", "reading machine code") from None
    machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    machine.detail = True
    machine.skipdata = True
    for one in machine.disasm(code, 0):
        if one.id == 0:
            yield Decoded(INDEX["other"], one.size, (), ())
            continue
        reads, writes = one.regs_access()
        name = {r: one.reg_name(r) for r in (*reads, *writes)}
        kind = _class_of(one, capstone.x86)
        written = tuple({n for r in writes if (n := _whole(name[r])) is not None})
        is_direct = kind in ("call", "jmp", "branch")
        yield Decoded(
            INDEX[kind], one.size,
            tuple({n for r in reads if (n := _whole(name[r])) is not None}), written,
            _stack_move(one, kind, _STACK_POINTER in written, capstone.x86),
            _frame(one, capstone.x86), one.operands[0].imm if is_direct else None,
        )  # fmt: skip


def _stack_move(one: Any, kind: str, is_written: bool, x86: Any) -> int | None:
    if kind in ("call", "call_indirect"):
        return -8
    if kind == "ret":
        return 8
    if kind == "push":
        return -8
    if kind == "pop" and not one.mnemonic.startswith("leave"):
        return 8
    if not is_written:
        return 0
    operands = one.operands
    if one.mnemonic in ("add", "sub") and operands[1].type == x86.X86_OP_IMM:
        return int(operands[1].imm) if one.mnemonic == "add" else -int(operands[1].imm)
    if one.mnemonic == "lea" and one.reg_name(operands[1].mem.base) == "rsp":
        return int(operands[1].mem.disp) if operands[1].mem.index == 0 else None
    return None


def _frame(one: Any, x86: Any) -> int | None:
    for op in one.operands:
        if op.type == x86.X86_OP_MEM and op.mem.base and one.reg_name(op.mem.base) == "rsp":
            return int(op.mem.disp) if op.mem.index == 0 else None
    return None


def _class_of(one: Any, x86: Any) -> str:
    words = one.mnemonic.split()
    name = words[-1]
    operands = one.operands
    memory = [op for op in operands if op.type == x86.X86_OP_MEM]
    is_indirect = bool(operands) and operands[0].type != x86.X86_OP_IMM
    if "lock" in words:
        return "atomic"
    if name == "call":
        return "call_indirect" if is_indirect else "call"
    if name.startswith("ret"):
        return "ret"
    if name == "jmp":
        return "jmp_indirect" if is_indirect else "jmp"
    if name.startswith(("j", "loop")):
        return "branch"
    if name.startswith(_STRINGS) and len(name) == 5 and name != "movsx":
        return "string"
    if name == "lea":
        return "lea"
    if name.startswith("push"):
        return "push"
    if name.startswith(("pop", "leave")) and name != "popcnt":
        return "pop"
    if name.startswith(("nop", "endbr", "pause", "prefetch")):
        return "nop"
    writes_memory = any(op.access & 2 for op in memory)
    is_vector = any(
        op.type == x86.X86_OP_REG and _is_vector(one.reg_name(op.reg)) for op in operands
    )
    if is_vector:
        return "vector_store" if writes_memory else "vector_load" if memory else "vector"
    if name in _MOVES:
        return "store" if writes_memory else "load" if memory else "mov"
    if name.startswith(("cmov", "set")):
        return "store" if writes_memory else "cmov"
    if name in ("imul", "mul", "mulx"):
        return "mul"
    if name in ("idiv", "div"):
        return "div"
    if name in _ALU:
        return "alu_store" if writes_memory else "alu_load" if memory else "alu"
    return "other"


def _is_vector(name: str) -> bool:
    return name.startswith(("xmm", "ymm", "zmm", "mm", "k"))


_FIRST = {"ax": 0, "cx": 1, "dx": 2, "bx": 3, "sp": 4, "bp": 5, "si": 6, "di": 7}


def _whole(name: str) -> int | None:
    """rax, eax, ax and al are one register; flags and segments are none."""
    if name.startswith("r") and name[1:].rstrip("dwb").isdigit():
        return int(name[1:].rstrip("dwb"))
    if _is_vector(name) and name.lstrip("xyzmk").isdigit():
        return 32 + int(name.lstrip("xyzmk"))
    short = name.removeprefix("r").removeprefix("e") if name not in ("r", "e") else name
    if short in _FIRST:
        return _FIRST[short]
    if len(short) == 2 and short[1] in "lh":
        return _FIRST.get(short[0] + "x")
    if short.endswith("l") and short[:-1] in _FIRST:
        return _FIRST[short[:-1]]
    return None
