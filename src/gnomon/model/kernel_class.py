"""What a GPU kernel does, told from its name: products, attention, communication ..."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["KERNEL_CLASSES", "classify_kernel"]

# The first that matches wins, so the specific come before the general: attention kernels are full
# of the word "gemm", NCCL's of nothing else, optimisers are "multi_tensor_apply".
_RULES = (
    ("communication", r"nccl|rccl|allreduce|all_reduce|allgather|reduce_scatter|deep_ep|sendrecv"),
    ("copy", r"^mem(cpy|set)|memcpy|memset"),
    ("attention", r"flash|fmha|attention|attn"),
    # Not "lambda", which most elementwise kernels carry in their names.
    ("optimizer", r"adam|sgd|lamb(?!da)|fused_?optim"),
    (
        "product",
        r"gemm|gemv|cublas|cutlass|matmul|wgmma|nvjet|Cijk_|splitk|xmma|wgrad|dgrad|"
        r"conv(?!ert)",
    ),
    ("embedding", r"embedding|gather|scatter|index|sort"),
    ("normalisation", r"norm|softmax|log_softmax"),
    ("reduction", r"reduce|sum|mean"),
    ("elementwise", r"elementwise|vectorized|multi_tensor_apply|fill|triton|copy|cat|dropout"),
)
_COMPILED = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _RULES)

KERNEL_CLASSES = (*(name for name, _ in _RULES), "other")


@lru_cache(maxsize=1 << 16)
def classify_kernel(name: str) -> str:
    """The class of a kernel.

    >>> classify_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    'communication'
    >>> classify_kernel("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NTN")
    'product'
    """
    for kind, pattern in _COMPILED:
        if pattern.search(name):
            return kind
    return "other"
