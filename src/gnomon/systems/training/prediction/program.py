"""Program: a training step as parts that repeat, ready to be put together for any layout.

A step is made of few parts, each run many times: a layer forward, a layer backward, the ends of
the model, the optimiser's work for one layer. A part is a row of pieces: kernels, with the host's
work to launch each. Parts come from a trace (`extract`), from a configuration alone (`operators`),
or from the first re-timed for another configuration (`retime`); what puts them together
(`assemble`) does not ask.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gnomon.systems.training.prediction.configuration import Configuration

#: What every program has. `layer` may have sisters for other kinds of layers, see `Program`.
PARTS = (
    "embedding.forward",
    "layer.forward",
    "head.forward",
    "head.backward",
    "layer.backward",
    "embedding.backward",
    "optimizer.embedding",
    "optimizer.layer",
    "optimizer.head",
    "optimizer.step",
)


class Piece(msgspec.Struct, frozen=True, gc=False):
    """One kernel, and the host's work up to its launch.

    Attributes:
        family: What it does: gemm, attention, normalisation, elementwise, softmax, embedding,
            optimizer, copy, reduction, communication, other; `host` has no kernel.
        device_ns: Time on its lane of the device, the pause before the next kernel included.
        host_ns: The host's time from the launch before to the end of this launch.
        lane: "compute", or the name of a lane beside it. A piece beside starts after the compute
            piece before it; the step's end (or `joins`) waits for it.
        joins: Names of lanes beside whose work so far must be done first.
        model: Where `device_ns` is from: measured, scaled, table, roofline, alpha-beta.
        spread: Standard deviation of the logarithm of `device_ns`. Pieces of one family and
            model are wrong together, so ranges do not average out over them.
        bytes, flops: What it moves and computes; 0 where unknown.
    """

    name: str
    family: str
    device_ns: float
    host_ns: float = 0.0
    lane: str = "compute"
    joins: tuple[str, ...] = ()
    model: str = "measured"
    spread: float = 0.0
    bytes: float = 0.0
    flops: float = 0.0


Part = tuple[Piece, ...]


class Program(msgspec.Struct, frozen=True):
    """The parts of a step of one configuration, as one rank runs them.

    Sizes are those of one rank: already divided by tensor (and context, expert) parallelism.
    Communication inside a layer (tensor parallelism) is pieces of its parts; what the layout adds
    (transfers between stages, gradients) is derived from the sizes here when it is put together.

    Attributes:
        parts: By name: `PARTS`, and `KIND.forward`, `KIND.backward`, `optimizer.KIND` for every
            other kind of layer in `layer_kinds`.
        layer_kinds: The kind of each layer, first to last.
        parameters: Parameters of this rank's share of an embedding, a layer of each kind, a head.
        expert_parameters: How many of them are experts', by kind of layer. Fewer ranks hold the
            same experts than hold the same layer otherwise, so they are reduced apart.
        boundary_bytes: Activations handed from stage to stage for one micro-batch.
        gradient_bytes: Bytes of a parameter's gradient when it is reduced.
        overlap_gradients: Reductions start while the backward pass runs, bucket by bucket.
        bucket_bytes: Size of such a bucket; 0: one per layer.
        shard_optimizer: Gradients are scattered and parameters gathered (ZeRO-1) rather than
            all-reduced.
    """

    configuration: Configuration
    parts: Mapping[str, Part]
    layer_kinds: tuple[str, ...]
    parameters: Mapping[str, float]
    boundary_bytes: float
    gradient_bytes: float = 2.0
    overlap_gradients: bool = True
    bucket_bytes: float = 0.0
    shard_optimizer: bool = False
    expert_parameters: Mapping[str, float] = {}
