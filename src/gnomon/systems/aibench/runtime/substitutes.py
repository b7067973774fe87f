"""Operators that only one kind of device has, done by operators that all have.

Each takes what the original takes and returns as much, in the same shapes and types. The work is
done for real; what stays out is the vendor's own bookkeeping (workspaces, reserved memory).
"""

import torch

aten = torch.ops.aten

# -- normalisation --------------------------------------------------------------------------------


def batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    """cuDNN saves nothing where nothing is trained, and reserves memory that here is empty."""
    out, *saved = aten.native_batch_norm.default(
        x, weight, bias, mean, var, training, momentum, eps
    )
    nothing = x.new_empty(0, dtype=torch.uint8)
    return out, *(saved if training else (nothing.float(), nothing.float())), nothing


def batch_norm_out(*args, out0, out1, out2, out3):
    return _into((out0, out1, out2, out3), batch_norm(*args))


def batch_norm_backward(x, grad, weight, mean, var, saved_mean, saved_var, eps, reserve=None):
    if weight is not None and saved_mean is not None and x.device.type == "cpu":
        saved_mean, saved_var = saved_mean.to(weight.dtype), saved_var.to(weight.dtype)
    return aten.native_batch_norm_backward.default(
        grad, x, weight, mean, var, saved_mean, saved_var, True, eps, [True, True, True]
    )


def miopen_batch_norm(*args):
    return batch_norm(*args)[:3]


def _by_channel(values, x):
    return values.reshape(1, -1, *[1] * (x.dim() - 2))


def _but_channels(x):
    return [dim for dim in range(x.dim()) if dim != 1]


def batch_norm_stats(x, eps):
    var, mean = torch.var_mean(x.float(), _but_channels(x), correction=0)
    return mean, (var + eps).rsqrt()


def batch_norm_elemt(x, weight, bias, mean, invstd, eps=0.0):
    scale = invstd if weight is None else invstd * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return torch.addcmul(_by_channel(shift, x), x.float(), _by_channel(scale, x)).to(x.dtype)


def gather_stats_with_counts(x, means, invstds, running_mean, running_var, momentum, eps, counts):
    share = counts.to(means.dtype).reshape(-1, 1)
    total = share.sum()
    mean = (means * share).sum(0) / total
    spread = invstds.pow(-2).sub_(eps).add_((means - mean).square_())
    var = (spread * share).sum(0) / total
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        unbiased = var * (total / (total - 1).clamp_(min=1))
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return mean, (var + eps).rsqrt()


def gather_stats(x, means, invstds, running_mean, running_var, momentum, eps, count):
    counts = torch.full((means.shape[0],), float(count), device=means.device)
    return gather_stats_with_counts(x, means, invstds, running_mean, running_var, momentum, eps,
                                    counts)  # fmt: skip


def reduce_norm_backward(grad, x, mean, invstd, weight, wants_x, wants_weight, wants_bias):
    dims, grad = _but_channels(x), grad.float()
    sum_grad = grad.sum(dims)
    sum_product = (grad * (x.float() - _by_channel(mean, x))).sum(dims)
    like = mean if weight is None else weight
    of_weight = (sum_product * invstd).to(like.dtype) if wants_weight else None
    of_bias = sum_grad.to(like.dtype) if wants_bias else None
    return *((sum_grad, sum_product) if wants_x else (None, None)), of_weight, of_bias


def norm_backward_elemt(grad, x, mean, invstd, weight, sum_grad, sum_product, count):
    total = count.sum()
    slope = _by_channel(invstd.square() * sum_product / total, x)
    level = _by_channel(sum_grad / total, x)
    scale = _by_channel(invstd if weight is None else invstd * weight, x)
    centred = x.float() - _by_channel(mean, x)
    return ((grad.float() - level - centred * slope) * scale).to(x.dtype)


def rms_norm_backward(grad, x, shape, rstd, weight, mask):
    dims = list(range(x.dim() - len(shape), x.dim()))
    grad, normal = grad.float(), x.float() * rstd
    of_weight = None
    if mask[1] and weight is not None:
        of_weight = (grad * normal).sum(list(range(x.dim() - len(shape)))).to(weight.dtype)
    if not mask[0]:
        return None, of_weight
    if weight is not None:
        grad = grad * weight
    of_x = (grad - normal * (grad * normal).mean(dims, keepdim=True)) * rstd
    return of_x.to(x.dtype), of_weight


# -- convolution ----------------------------------------------------------------------------------


def convolve(x, weight, bias=None, stride=(), padding=(), dilation=(1, 1, 1), groups=1,
             behind=None, size=None):  # fmt: skip
    """Any of them; a transposed one is recognised by its padding behind."""
    return aten.convolution.default(
        x, weight, bias, stride, padding, dilation, behind is not None,
        behind or [0] * len(padding), groups or x.shape[1],
    )  # fmt: skip


def _convolution(order, **fixed):
    """A convolution whose arguments come in this order; further ones change no result."""
    return lambda *args: convolve(**dict(zip(order.split(), args)), **fixed)


convolution = _convolution("x weight padding stride dilation groups")
convolution_transpose = _convolution("x weight padding behind stride dilation groups")
miopen_convolution = _convolution("x weight bias padding stride dilation groups")
miopen_convolution_transpose = _convolution("x weight bias padding behind stride dilation groups")
depthwise = _convolution("x weight size bias stride padding dilation", groups=None)
slow_conv3d = _convolution("x weight size bias stride padding")


def convolution_relu(x, weight, bias, stride, padding, dilation, groups):
    return convolve(x, weight, bias, stride, padding, dilation, groups).relu_()


def convolution_add_relu(x, weight, z, alpha, bias, stride, padding, dilation, groups):
    out = convolve(x, weight, bias, stride, padding, dilation, groups)
    return out.add_(z, alpha=1 if alpha is None else alpha).relu_()


# -- grids, losses, dropout -----------------------------------------------------------------------


def grid_sampler(x, grid):
    return aten.grid_sampler_2d.default(x, grid, 0, 0, True)


def grid_sampler_backward(x, grid, grad):
    return aten.grid_sampler_2d_backward.default(grad, x, grid, 0, 0, True, [True, True])


def affine_grid(theta, *size):
    return aten.affine_grid_generator.default(theta, list(size), True)


def affine_grid_backward(grad, *size):
    return aten.affine_grid_generator_backward.default(grad, list(size), True)


def ctc_loss(
    log_probs, targets, input_lengths, target_lengths, blank, deterministic, zero_infinity
):
    kind = "Tensor" if isinstance(input_lengths, torch.Tensor) else "default"
    of_lengths = [input_lengths, target_lengths]
    loss, alpha = getattr(aten._ctc_loss, kind)(
        log_probs, targets, *of_lengths, blank, zero_infinity
    )
    grad = getattr(aten._ctc_loss_backward, kind)(
        torch.ones_like(loss), log_probs, targets, *of_lengths, loss, alpha, blank, zero_infinity
    )
    return loss, grad


def yes(*_):
    return True


def fused_dropout(x, keep, generator=None):
    mask = torch.empty_like(x, dtype=torch.uint8).bernoulli_(keep, generator=generator)
    return masked_scale(x, mask, 1.0 / keep), mask


def masked_scale(x, mask, scale):
    return (x * mask).mul_(scale)


def bag_backward(grad, indices, bags, sizes, most, count, by_frequency, mode, weights, padding=-1):
    """The CPU saves less in the forward pass: which bag an index is in has to be found again."""
    bags, sizes = _bags(indices, bags, sizes, grad)
    return aten._embedding_bag_dense_backward.default(
        grad, indices, bags, sizes, most, count, by_frequency, mode, weights, padding
    )


def bag_weights_backward(grad, weight, indices, offsets, bags, mode, padding=-1):
    bags, _ = _bags(indices, bags, None, grad)
    return aten._embedding_bag_per_sample_weights_backward.default(
        grad, weight, indices, offsets, bags, mode, padding
    )


def _bags(indices, bags, sizes, grad):
    count, rows = indices.numel(), max(grad.shape[0], 1)
    if bags.numel() != count:
        bags = torch.arange(count, device=indices.device) * rows // max(count, 1)
    if sizes is None or sizes.numel() != rows:
        sizes = torch.bincount(bags, minlength=rows)
    return bags.to(indices.dtype), sizes.to(indices.dtype)


# -- GEMMs ----------------------------------------------------------------------------------------


def _in_type(product):
    """A GEMM whose result has another type than its factors."""
    return lambda *args, **more: product(*(one.to(args[-1]) for one in args[:-1]), **more)


def pack_int4(weight, tiles):
    """The memory of the packed weight is laid out as the CPU wants it, in the shape of the GPU."""
    high, low = weight.int() >> 4, weight.int() & 15
    whole = torch.stack([high, low], -1).reshape(weight.shape[0], -1)
    packed = aten._convert_weight_to_int4pack_for_cpu.default(whole.contiguous(), tiles)
    rows, columns = whole.shape
    return packed.view(torch.int32).reshape(rows // 8, columns // (tiles * 16), 32, tiles // 2)


def int4_mm(x, packed, group, scales):
    rows = packed.shape[0] * 8
    flat = packed.contiguous().view(torch.uint8).reshape(rows, -1)
    return aten._weight_int4pack_mm_for_cpu.default(x, flat, group, scales)


def scaled_grouped_mm(a, b, scale_a, scale_b, offs=None, bias=None, scale_result=None,
                      out_dtype=None, use_fast_accum=False):  # fmt: skip
    if scale_a.dtype != torch.float32:
        raise NotImplementedError("scales of blocks")
    dtype = out_dtype or torch.bfloat16
    parts = list(_products(a.to(dtype), b.to(dtype), offs))
    rows, columns = scale_a.reshape(-1, a.shape[-2]), scale_b.reshape(-1, b.shape[-1])
    if a.dim() == 2 and b.dim() == 3:  # groups of rows
        scaled = [part * by for part, by in zip(parts, columns.to(dtype).unsqueeze(1))]
        out = torch.cat(scaled) * rows.to(dtype).reshape(-1, 1)
    elif a.dim() == 3 and b.dim() == 2:  # groups of columns
        scaled = [part * by for part, by in zip(parts, rows.to(dtype).unsqueeze(2))]
        out = torch.cat(scaled, 1) * columns.to(dtype)
    else:
        out = torch.stack(parts) * rows.to(dtype).unsqueeze(2) * columns.to(dtype).unsqueeze(1)
    out = out if bias is None else out + bias
    return out if scale_result is None else out * scale_result


def _products(a, b, offs):
    """The product of each group: of whole matrices, or of the rows or columns that are its own."""
    if a.dim() == 3 and b.dim() == 3:
        yield from (one @ other for one, other in zip(a, b))
    elif a.dim() == 2 and b.dim() == 3:
        yield from (a[i:j] @ one for (i, j), one in zip(_groups(offs, a.shape[0]), b))
    elif a.dim() == 3:
        yield from (one @ b[:, i:j] for (i, j), one in zip(_groups(offs, b.shape[1]), a))
    else:
        yield from (a[:, i:j] @ b[i:j] for i, j in _groups(offs, a.shape[1]))


def _groups(offs, total):
    """Where groups begin and end; of the same size where made-up ends cannot be true."""
    ends = offs.tolist()
    if ends != sorted(ends) or ends[-1] != total or ends[0] < 0:
        ends = [(number + 1) * total // len(ends) for number in range(len(ends))]
    return list(zip([0, *ends], ends))


# -- the rest -------------------------------------------------------------------------------------


def nothing(*_):
    """Says something to an allocator that is not here."""


def pinned(x, device=None):
    """Where there is no device to pin memory for, the copy is all there is to it."""
    return x.clone()


def split_key(key, count):
    return _new_key(key, 0, (count, *key.shape))


def fold_key(key, data):
    return _new_key(key, data, key.shape)


def _new_key(key, data, shape):
    drawn = torch.empty(shape, dtype=torch.int64, device=key.device)
    return drawn.random_(generator=_generator(key, data)).view(torch.uint64)


def _generator(key, data=0):
    seed = int(key.view(torch.int64).reshape(-1)[0]) ^ data
    return torch.Generator(key.device).manual_seed(seed & (2**63 - 1))


def philox_normal(into, key, mean=0.0, std=1.0):
    return into.normal_(mean, std, generator=_generator(key))


def philox_uniform(into, key, low=0.0, high=1.0):
    return into.uniform_(low, high, generator=_generator(key))


def _with_out(function):
    return lambda *args, out, **more: out.copy_(function(*args, **more))


def _into(outs, made):
    for out, one in zip(outs, made):
        out.resize_(one.shape).copy_(one)
    return outs


OPERATORS = {
    "cudnn_batch_norm.default": batch_norm,
    "cudnn_batch_norm.out": batch_norm_out,
    "cudnn_batch_norm_backward.default": batch_norm_backward,
    "miopen_batch_norm.default": miopen_batch_norm,
    "miopen_batch_norm_backward.default": batch_norm_backward,
    "batch_norm_stats.default": batch_norm_stats,
    "batch_norm_elemt.default": batch_norm_elemt,
    "batch_norm_elemt.out": _with_out(batch_norm_elemt),
    "batch_norm_gather_stats.default": gather_stats,
    "batch_norm_gather_stats_with_counts.default": gather_stats_with_counts,
    "batch_norm_backward_reduce.default": reduce_norm_backward,
    "batch_norm_backward_elemt.default": norm_backward_elemt,
    "_fused_rms_norm_backward.default": rms_norm_backward,
    "cudnn_convolution.default": convolution,
    "cudnn_convolution.out": _with_out(convolution),
    "cudnn_convolution_transpose.default": convolution_transpose,
    "cudnn_convolution_relu.default": convolution_relu,
    "cudnn_convolution_add_relu.default": convolution_add_relu,
    "miopen_convolution.default": miopen_convolution,
    "miopen_convolution_transpose.default": miopen_convolution_transpose,
    "miopen_depthwise_convolution.default": miopen_convolution,
    "miopen_convolution_relu.default": convolution_relu,
    "miopen_convolution_add_relu.default": convolution_add_relu,
    "_conv_depthwise2d.default": depthwise,
    "_conv_depthwise2d.out": _with_out(depthwise),
    "conv_depthwise3d.default": depthwise,
    "slow_conv3d_forward.default": slow_conv3d,
    "cudnn_grid_sampler.default": grid_sampler,
    "cudnn_grid_sampler_backward.default": grid_sampler_backward,
    "cudnn_affine_grid_generator.default": affine_grid,
    "cudnn_affine_grid_generator_backward.default": affine_grid_backward,
    "_cudnn_ctc_loss.default": ctc_loss,
    "_cudnn_ctc_loss.Tensor": ctc_loss,
    "_use_cudnn_ctc_loss.default": yes,
    "_use_cudnn_ctc_loss.Tensor": yes,
    "miopen_ctc_loss.default": ctc_loss,
    "miopen_ctc_loss.Tensor": ctc_loss,
    "_use_miopen_ctc_loss.default": yes,
    "_use_miopen_ctc_loss.Tensor": yes,
    "_fused_dropout.default": fused_dropout,
    "_masked_scale.default": masked_scale,
    "_embedding_bag_dense_backward.default": bag_backward,
    "_embedding_bag_per_sample_weights_backward.default": bag_weights_backward,
    "mm.dtype": _in_type(torch.mm),
    "mm.dtype_out": _with_out(_in_type(torch.mm)),
    "bmm.dtype": _in_type(torch.bmm),
    "bmm.dtype_out": _with_out(_in_type(torch.bmm)),
    "addmm.dtype": _in_type(torch.addmm),
    "addmm.dtype_out": _with_out(_in_type(torch.addmm)),
    "baddbmm.dtype": _in_type(torch.baddbmm),
    "baddbmm.dtype_out": _with_out(_in_type(torch.baddbmm)),
    "_convert_weight_to_int4pack.default": pack_int4,
    "_weight_int4pack_mm.default": int4_mm,
    "_scaled_grouped_mm.default": scaled_grouped_mm,
    "record_stream.default": nothing,
    "pin_memory.default": pinned,
    "_pin_memory.default": pinned,
    "_philox_key_split.default": split_key,
    "_philox_key_fold_in.default": fold_key,
    "_philox_normal_.default": philox_normal,
    "_philox_uniform_.default": philox_uniform,
}


def ready(bench):
    """Operators by name; each is tried where torch's own fails."""
    return {f"aten.{name}": function for name, function in OPERATORS.items()}
