"""Style: how a framework runs a transformer, where the sizes alone do not say."""

from __future__ import annotations

import math

import msgspec

from gnomon.errors import InputError

_WIDTHS = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp8": 2}


class Style(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the code does with the same sizes: its kernels, what it keeps, what it reduces.

    Attributes:
        fused_attention: One kernel for scores, softmax and values, nothing of seq x seq kept.
        fused_softmax: Without fused attention: scale, mask and softmax in one kernel.
        packed_heads: Queries, keys and values are views of one tensor turned around, so that their
            gradients are stacked and turned back: two copies between layouts.
        dropout: After attention's softmax and before both residual additions.
        fused_pointwise: Bias, activation, dropout and addition share kernels.
        written_out_gelu: The activation is eight operators rather than one.
        bias: GEMMs of the layer have one.
        rms_norm: Root-mean-square norm rather than layer norm.
        rotary: Positions turn queries and keys; otherwise they are a learned table.
        tied_head: The head's matrix is the embedding's.
        sequence_parallel: Tensor-parallel ranks share the tokens between the GEMMs.
        overlap_tensor: Communications of the backward pass run beside the gradients of weights.
        recompute: "none", "selective" (the inside of attention) or "full" (whole layers).
        loss: "eager" (a float copy, log-softmax, its gradient: all separate), "parallel" (over
            ranks that hold parts of the vocabulary, float), "fused" (gradient in place of the
            logits).
        loss_bytes: Of a logit in the loss; 4 is float whatever the model's dtype.
        padded_vocab: The vocabulary's share of a rank is rounded up to whole cache lines.
        weight_bytes: Of one parameter; 0: as what is computed with it. More under autocast.
        gradient_bytes, state_bytes: Of one parameter's gradient, and of all its optimiser state
            (moments, and a float copy of the weight where there is one).
        gradients_released: Between steps there are no gradients; they grow while the backward
            pass frees activations.
        fused_gradients: The gradient of a weight is added where it lives by the GEMM itself.
        shard_optimizer: Optimiser state is divided over data-parallel ranks.
        overlap_gradients: Data-parallel reductions run beside the backward pass.
        bucket_bytes: Size of one such reduction; 0: one per layer.
        clip: Gradients' norm is computed and used every step.
        loss_scale: Gradients are unscaled and checked for overflow (fp16).
        optimizer: "fused" (one pass over all parameters) or "foreach" (a pass an operation).
        optimizer_in_step: The optimiser's work is in the time that is asked for.
        pause_us: Between two kernels on the device.
        host_us: The host's time for one launch.
        pause_collective_us, host_collective_us: The same for a collective, times `last_of` its
            ranks: it runs when the last of them has come.
        pause_routing_us: The device's wait, in each direction of a layer with experts, for a host
            that reads how many tokens each expert gets before it launches their GEMMs.
        blocking_pipeline: The host stops for every transfer between stages.
        spread: Standard deviation of the logarithm of a step that these constants leave open.
        workspace_bytes: What libraries keep for themselves inside the allocator.
        dummy_gradients: A library keeps an empty gradient of every weight shape it met.
    """

    name: str = "torch"
    fused_attention: bool = True
    fused_softmax: bool = False
    packed_heads: bool = False
    dropout: bool = False
    fused_pointwise: bool = False
    written_out_gelu: bool = False
    bias: bool = True
    rms_norm: bool = False
    rotary: bool = False
    tied_head: bool = False
    sequence_parallel: bool = False
    overlap_tensor: bool = False
    recompute: str = "none"
    loss: str = "eager"
    loss_bytes: int = 4
    padded_vocab: bool = False
    weight_bytes: float = 0.0
    gradient_bytes: float = 2.0
    state_bytes: float = 4.0
    gradients_released: bool = True
    fused_gradients: bool = False
    shard_optimizer: bool = False
    overlap_gradients: bool = True
    bucket_bytes: float = 25e6
    clip: bool = False
    loss_scale: bool = False
    optimizer: str = "fused"
    optimizer_in_step: bool = True
    pause_us: float = 1.0
    pause_collective_us: float = 5.0
    host_us: float = 5.0
    host_collective_us: float = 20.0
    pause_routing_us: float = 0.0
    blocking_pipeline: bool = False
    spread: float = 0.05
    workspace_bytes: float = 2 * 2.0**25
    dummy_gradients: bool = False

    def __post_init__(self) -> None:
        _one_of("recompute", self.recompute, ("none", "selective", "full"))
        _one_of("loss", self.loss, ("eager", "parallel", "fused"))
        _one_of("optimizer", self.optimizer, ("fused", "foreach"))

    def changed(self, **settings: object) -> Style:
        """This style with some settings changed."""
        try:
            return Style(**(msgspec.structs.asdict(self) | settings))
        except TypeError as error:
            raise InputError(str(error)) from None


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name} is {value!r}, but has to be one of {', '.join(known)}")


def last_of(ranks: float) -> float:
    """How late the last of some ranks is, in standard deviations of one (about sqrt(2 ln n)).

    >>> round(last_of(2), 2), round(last_of(8), 2)
    (1.18, 2.04)
    """
    return math.sqrt(2.0 * math.log(max(ranks, 1.0)))


def width(dtype: str) -> int:
    """Bytes of one number.

    >>> width("bf16"), width("tf32")
    (2, 4)
    """
    if dtype not in _WIDTHS:
        raise InputError(f"no width known for dtype {dtype!r}; known: {', '.join(_WIDTHS)}")
    return _WIDTHS[dtype]


#: Eager PyTorch, weights and moments both in the model's dtype, fused AdamW. The host's time is
#: that of the machine of our own recordings (a small GPT in 33.5 ms of some 830 launches).
TORCH = Style(packed_heads=True, host_us=40.0)

#: Megatron-core with Transformer Engine: fused kernels, float gradients, sharded optimiser. The
#: wait for routing was fitted to two of SimuMax's B200 steps.
MEGATRON = Style(
    name="megatron",
    fused_pointwise=True,
    bias=False,
    rms_norm=True,
    rotary=True,
    sequence_parallel=True,
    loss="fused",
    padded_vocab=True,
    gradient_bytes=4.0,
    state_bytes=12.0,
    gradients_released=False,
    fused_gradients=True,
    shard_optimizer=True,
    overlap_gradients=False,
    clip=True,
    pause_us=5.0,
    pause_collective_us=15.0,
    pause_routing_us=2250.0,
    host_us=25.0,
    host_collective_us=25.0,
    workspace_bytes=3 * 2.0**25,
    dummy_gradients=True,
)

#: Megatron as of 2022 (and its DeepSpeed fork): fp16, attention as separate GEMMs with a
#: fused softmax, dropout, whole layers recomputed, reductions after the backward pass.
MEGATRON_2022 = Style(
    name="megatron-2022",
    fused_attention=False,
    fused_softmax=True,
    dropout=True,
    fused_pointwise=True,
    tied_head=True,
    recompute="full",
    loss="parallel",
    padded_vocab=True,
    gradient_bytes=2.0,
    state_bytes=12.0,
    gradients_released=False,
    overlap_gradients=False,
    clip=True,
    loss_scale=True,
    pause_us=3.0,
    pause_collective_us=10.0,
    host_us=10.0,
    host_collective_us=20.0,
    blocking_pipeline=True,
)

#: Hugging Face models in eager PyTorch, float, attention as separate GEMMs.
TRANSFORMERS_FP32 = Style(
    name="transformers-fp32",
    fused_attention=False,
    dropout=True,
    written_out_gelu=True,
    tied_head=True,
    gradient_bytes=4.0,
    state_bytes=8.0,
    optimizer="foreach",
)

STYLES = {s.name: s for s in (TORCH, MEGATRON, MEGATRON_2022, TRANSFORMERS_FP32)}


def find_style(name: str) -> Style:
    """The style of this name.

    >>> find_style("megatron").gradient_bytes
    4.0
    """
    if name not in STYLES:
        raise InputError(f"no style {name!r}; known: {', '.join(STYLES)}")
    return STYLES[name]
