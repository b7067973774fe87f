"""What a GPU kernel does, classified by its name: GEMM, attention, communication ..."""

from __future__ import annotations

import re
from functools import lru_cache

# The first that matches wins, so the specific come before the general: attention kernels are full
# of the word "gemm", NCCL's of nothing else, optimisers are "multi_tensor_apply". Words rather
# than patterns: names of kernels are long, and looking for a word in one is fifty times as fast.
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "communication",
        ("nccl", "rccl", "allreduce", "all_reduce", "allgather", "reduce_scatter", "deep_ep",
         "sendrecv"),
    ),
    ("copy", ("memcpy", "memset")),
    ("attention", ("flash", "fmha", "attention", "attn")),
    ("optimizer", ("adam", "sgd", "lamb", "fusedoptim", "fused_optim")),
    (
        "gemm",
        ("gemm", "gemv", "cublas", "cutlass", "matmul", "wgmma", "nvjet", "cijk_", "splitk",
         "xmma", "wgrad", "dgrad", "conv"),
    ),
    ("embedding", ("embedding", "gather", "scatter", "index", "sort")),
    ("normalisation", ("norm", "softmax")),
    ("reduction", ("reduce", "sum", "mean")),
    (
        "elementwise",
        ("elementwise", "vectorized", "multi_tensor_apply", "fill", "triton", "copy", "cat",
         "dropout"),
    ),
)  # fmt: skip
#: "lambda" is in the names of most elementwise kernels, "convert" is no convolution.
_NOT_QUITE = {"lamb": re.compile("lamb(?!da)"), "conv": re.compile("conv(?!ert)")}

KERNEL_CLASSES = (*(name for name, _ in _WORDS), "other")


@lru_cache(maxsize=1 << 16)
def classify_kernel(name: str) -> str:
    """The class of a kernel.

    >>> classify_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    'communication'
    >>> classify_kernel("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NTN")
    'gemm'
    """
    small = name.lower()
    for kind, words in _WORDS:
        for word in words:
            if word in small and (word not in _NOT_QUITE or _NOT_QUITE[word].search(small)):
                return kind
    return "other"
