"""Work: one kernel's sizes, and what a rank sizes all of them by."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gnomon.systems.training.prediction.analytic.style import Style, width
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.memory import vocab_share

#: The lane on which tensor-parallel communications run beside GEMMs.
TENSOR_LANE = "tensor"


class Work(msgspec.Struct, frozen=True, gc=False):
    """One kernel's sizes.

    Attributes:
        family: gemm, attention, one of the kinds of memory-bound work, or communication.
        sizes: gemm: m, n, k, batch. attention: batch, heads, seq_q, seq_k, head_dim, v_dim,
            kv_heads. communication: bytes, members, and of how many ranks side by side one is a
            member. Else: bytes, rows.
        detail: Kind of collective; "backward" for attention's gradient; for a GEMM the number
            of elements that its matrices' widths are multiples of, where that is too few for
            whole loads of 16 bytes, or "grouped" where a batch's GEMMs have matrices of their
            own.
        launches: Launches that the host makes for it.
        wait_us: What the device waits before it.
    """

    name: str
    family: str
    sizes: tuple[float, ...]
    detail: str = ""
    lane: str = "compute"
    joins: tuple[str, ...] = ()
    launches: float = 1.0
    wait_us: float = 0.0


Works = Iterator[Work]


class Rank(msgspec.Struct, frozen=True):
    """What every operator of a rank is sized by.

    Attributes:
        w: Bytes of a number.
        tokens: Of a micro-batch.
        outside: Tokens between the GEMMs, where sequence parallelism shares them out.
        vocab: Words that it holds.
        qkv: Width of queries, keys and values of all ranks.
    """

    c: Configuration
    style: Style
    w: int
    tokens: int
    outside: float
    vocab: float
    qkv: int

    @classmethod
    def of(cls, c: Configuration, style: Style) -> Rank:
        """The rank of a configuration."""
        split = c.tp if style.sequence_parallel else 1
        return cls(
            c, style, width(c.dtype), c.tokens, c.tokens / split, float(vocab_share(c, style)),
            (c.heads + 2 * c.kv_heads) * c.head_dim,
        )  # fmt: skip


def moves(name: str, bytes_: float, family: str = "elementwise", rows: float = 0.0) -> Work:
    """A kernel that moves bytes and computes next to nothing."""
    return Work(name, family, (bytes_, rows))


def gemm(name: str, m: float, n: float, k: float, batch: float = 1.0, align: str = "") -> Work:
    """A matrix multiplication, or a batch of them."""
    return Work(name, "gemm", (m, n, k, batch), align)


def alignment(r: Rank, *widths: float) -> str:
    """Elements that all widths are multiples of, or "" where that does not matter.

    Units for narrow numbers want loads of 16 bytes; those for floats take what they get.
    """
    if r.w > 2:
        return ""
    shared = min(int(size) & -int(size) for size in widths)
    return "" if shared >= 16 // r.w else str(shared)


def collective(
    name: str, kind: str, bytes_: float, ranks: int, *, beside: bool = False, stride: int = 1
) -> Work:
    """A collective, on a lane of its own where it runs beside the compute."""
    lane = TENSOR_LANE if beside else "compute"
    return Work(name, "communication", (bytes_, ranks, stride), kind, lane)
