"""Small programs made up for tests: pieces of given or random lengths, machines of given links."""

from __future__ import annotations

import math

import numpy as np

from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.program import PARTS, Part, Piece, Program


class Machine:
    """Collectives that take their bytes over the rate, and no time else."""

    def __init__(self, gb_s: float, between_gb_s: float, node_gpus: int) -> None:
        self.gb_s, self.between_gb_s, self.node_gpus = gb_s, between_gb_s, node_gpus

    def time_us(self, kind, bytes, ranks, *, node_gpus=None, per_node=None):
        across = np.asarray(per_node) < ranks
        share = 1.0 if kind == "send" else (ranks - 1) / ranks
        rounds = 2.0 if kind == "all-reduce" else 1.0
        rate = np.where(across, self.between_gb_s, self.gb_s) * 1e3
        return rounds * share * np.asarray(bytes, float) / rate

    def spread(self, kind, crosses_nodes=False):
        return 0.2 if crosses_nodes else 0.1


def machine(
    gb_s: float = math.inf, between_gb_s: float | None = None, node_gpus: int = 8
) -> Machine:
    return Machine(gb_s, between_gb_s or gb_s, node_gpus)


def configuration(**sizes: int) -> Configuration:
    return Configuration(
        **({"layers": 8, "hidden": 64, "heads": 8, "seq": 32, "batch": 1} | sizes)
    )


def even_part(pieces: int, device_ns: float, host_ns: float = 0.0) -> Part:
    return tuple(Piece(f"p{i}", "gemm", device_ns, host_ns) for i in range(pieces))


def even_program(
    layout: Configuration, device_ns: float = 1000.0, host_ns: float = 0.0, pieces: int = 3, **more
) -> Program:
    """Layers only: `pieces` kernels forward and as many of twice the length backward."""
    parts: dict[str, Part] = dict.fromkeys(PARTS, ())
    parts["layer.forward"] = even_part(pieces, device_ns, host_ns)
    parts["layer.backward"] = even_part(pieces, 2 * device_ns, host_ns)
    parameters = {"embedding": 0.0, "layer": 1e6, "head": 0.0}
    return Program(
        layout, parts, ("layer",) * layout.layers, parameters,
        **({"boundary_bytes": 0.0} | more),
    )  # fmt: skip


def random_program(layout: Configuration, rng: np.random.Generator, **more) -> Program:
    """Parts of random pieces, bound by host or device as it comes; some work on a side lane."""
    has_host, has_side = rng.random() < 0.7, rng.random() < 0.3

    def part(name: str) -> Part:
        count = int(rng.integers(4, 20)) if "layer" in name else int(rng.integers(1, 5))
        host = float(rng.choice([1e3, 5e3, 2e4])) if has_host else 0.0
        pieces = []
        for i in range(count):
            device = float(rng.uniform(2e3, 3e4))
            talks = rng.random() < 0.15
            side = has_side and rng.random() < 0.2
            pieces.append(
                Piece(
                    f"p{i}", "communication" if talks else "gemm", device,
                    host * float(rng.uniform(0.5, 1.5)),
                    lane="side" if side else "compute",
                    joins=("side",) if not side and rng.random() < 0.1 else (),
                    spread=float(rng.uniform(0.0, 0.2)),
                )
            )  # fmt: skip
        if any(piece.lane == "side" for piece in pieces):
            pieces.append(Piece("end", "gemm", 5e3, host, joins=("side",)))
        return tuple(pieces)

    parameters = {kind: float(rng.uniform(1e5, 1e6)) for kind in ("embedding", "layer", "head")}
    return Program(
        layout, {name: part(name) for name in PARTS}, ("layer",) * layout.layers, parameters,
        **({"boundary_bytes": 1e5} | more),
    )  # fmt: skip
