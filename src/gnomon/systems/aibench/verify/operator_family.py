"""What an operator does, told from its name: the families of kernels, for work done on a CPU."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["FRAMEWORK", "operator_family"]

#: Autograd's wrappers and other frames: they call operators and do no work themselves.
FRAMEWORK = "framework"

_WRAPPERS = ("autograd::", "torch::autograd::")
_EXCHANGES = ("c10d::", "_c10d_functional::", "gloo:", "mpi:", "ucc:", "nccl:")

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
    if name.startswith(_EXCHANGES):
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
