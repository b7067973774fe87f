"""Whether float32 GEMMs use TF32, where it differs between the steps of a mix."""

import torch


def tf32(is_on):
    torch.backends.cuda.matmul.allow_tf32 = bool(is_on)


tf32.first = True


def ready(bench):
    return {"precision.tf32": tf32}
