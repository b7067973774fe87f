"""What an operator does, classified by its name.

`operator_family` has the classes of kernels, for work done on a CPU. `work_family` is for models
of kernel times: it looks at the operator and at its kernel, and a softmax is apart from a
normalisation.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gnomon.model.accelerator.collective_names import CPU_BACKENDS, TORCH_COLLECTIVES
from gnomon.model.accelerator.kernel_class import classify_kernel

#: Autograd's wrappers and other frames: they call operators and do no work themselves.
FRAMEWORK = "framework"

_WRAPPERS = ("autograd::", "torch::autograd::")
_COMMUNICATES = (*TORCH_COLLECTIVES, *CPU_BACKENDS, "nccl:")

# The first that matches wins, so the specific come before the general: attention has "dot" and
# "product" in its names, a softmax "log" and "max". Whole words of a name, the longer pieces
# below them anywhere in it.
_PIECES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("attention", ("attention", "scaled_dot_product", "multi_head")),
    ("optimizer", ("fused_adam", "fused_sgd", "fused_adagrad")),
    ("gemm", ("conv", "lstm", "gru", "rnn", "matmul", "einsum")),
    ("embedding", ("embedding", "gather", "scatter", "index", "sort", "topk", "nonzero")),
    ("normalisation", ("norm", "softmax")),
    ("reduction", ("pool", "loss", "logsumexp", "cumsum", "argm", "entropy")),
    ("elementwise", ("foreach", "dropout", "relu", "gelu", "upsample", "masked_fill", "clamp")),
)
_WORDS: tuple[tuple[str, frozenset[str]], ...] = (
    ("gemm", frozenset((
        "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear",
        "ger", "addr", "cdist",
    ))),
    ("embedding", frozenset((
        "take", "select_backward", "slice_backward", "unique", "bincount",
    ))),
    ("reduction", frozenset((
        "sum", "mean", "max", "min", "amax", "amin", "prod", "std", "var", "any", "all",
        "median",
    ))),
    ("copy", frozenset((
        "copy", "clone", "to", "contiguous",
    ))),
    ("elementwise", frozenset((
        "add", "sub", "rsub", "mul", "div", "neg", "exp", "exp2", "expm1", "log", "log2",
        "log1p", "sqrt", "rsqrt", "pow", "tanh", "sigmoid", "silu", "elu", "mish",
        "threshold", "bernoulli", "fill", "zero", "zeros", "ones", "full", "where", "cat",
        "stack", "lerp", "addcmul", "addcdiv", "eq", "ne", "lt", "le", "gt", "ge",
        "uniform", "normal", "random", "exponential", "arange", "abs", "sign", "sgn",
        "maximum", "minimum", "tril", "triu", "isnan", "isinf", "isfinite", "reciprocal",
        "erf", "sin", "cos", "floor", "ceil", "round", "trunc", "fmod", "remainder",
        "hardtanh", "hardswish", "softplus", "square", "atan2", "flip", "roll", "repeat",
        "concat", "concatenate", "rand", "randn", "randint", "multinomial", "bitwise", "logical",
        "scalar", "hot",
    ))),
)  # fmt: skip


@lru_cache(maxsize=1 << 14)
def operator_family(name: str) -> str:
    """The family of an operator.

    >>> operator_family("aten::addmm"), operator_family("aten::_log_softmax_backward_data")
    ('gemm', 'normalisation')
    >>> operator_family("c10d::allreduce_"), operator_family("AddmmBackward0")
    ('communication', 'framework')
    """
    if name.startswith(_COMMUNICATES):
        return "communication"
    if "::" not in name or name.startswith(_WRAPPERS):
        return FRAMEWORK
    plain = name.rpartition("::")[2].lower().strip("_")
    words = re.sub("_backward(_data)?$", "", plain)
    for family, pieces in _PIECES:
        if any(piece in plain for piece in pieces):
            return family
    parts = {plain, words, *words.split("_")}
    return next((family for family, known in _WORDS if parts & known), "other")


# -- for models of kernel times ---------------------------------------------------------------

WORK_FAMILIES = (
    "gemm", "attention", "normalisation", "softmax", "elementwise", "reduction", "embedding",
    "optimizer", "copy", "communication", "other",
)  # fmt: skip
#: What operators do, by words in their names; the first that fits counts.
_OPERATORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("communication", ("c10d", "nccl", "gloo", "_c10d_functional", "record_param_comms")),
    ("attention", ("attention", "flash_attn", "fmha")),
    ("optimizer", ("adam", "sgd", "lamb", "adagrad", "muon")),
    ("gemm", ("mm", "matmul", "linear", "conv")),
    ("normalisation", ("layer_norm", "rms_norm", "group_norm", "layernorm", "rmsnorm")),
    ("softmax", ("softmax", "nll_loss", "cross_entropy")),
    ("embedding", ("embedding", "index_select", "gather", "scatter", "index_put")),
    ("reduction", ("sum", "mean", "norm")),
)  # fmt: skip
#: A fused kernel is named after all that went into it, but it multiplies no matrices.
_FUSED = re.compile(r"triton_(?!tem)")
_NOT_FUSED = ("communication", "attention", "optimizer", "gemm")


def work_family(operator: str, kernel: str) -> str:
    """What a kernel of an operator does; the operator's name tells more where there is one.

    >>> work_family("aten::addmm", "nvjet_tst_128x256")
    'gemm'
    >>> work_family("aten::addmm", "Memset (Device)")
    'copy'
    >>> work_family("", "triton_red_fused__log_softmax_addmm_3")
    'softmax'
    """
    by_kernel = classify_kernel(kernel) if kernel else "other"
    if by_kernel in ("communication", "copy", "optimizer"):
        return by_kernel
    small = (operator or kernel).lower()
    fused = _FUSED.match(small)
    if operator or fused:
        for family, words in _OPERATORS:
            if any(word in small for word in words) and not (fused and family in _NOT_FUSED):
                return family
        if fused:
            return "elementwise"
    return by_kernel if by_kernel in WORK_FAMILIES and by_kernel != "other" else "elementwise"
