"""How products of 32-bit numbers are rounded, where one step wants it otherwise than another."""

import torch


def tf32(is_on):
    torch.backends.cuda.matmul.allow_tf32 = bool(is_on)


tf32.first = True


def ready(bench):
    return {"precision.tf32": tf32}
