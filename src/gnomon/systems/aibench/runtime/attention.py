"""Attention where the recorded kind is missing: the same results from what this device has.

All kinds compute the same. Beside the result they keep the logarithm of each row's sum of
exponentials, and with it, the result and its gradient, every backward pass can be done by any of
them. They differ in layout, in how masks are given, and in what they pad.
"""

import itertools
import math

import torch

aten = torch.ops.aten
_seeds = itertools.count(1)
_chosen = {}


class Rule:
    """How scores are made: what is added, what is left out, what is dropped.

    `diagonal` is how far ahead of itself a query may look: 0 not at all, None everywhere.
    """

    def __init__(self, bias=None, diagonal=None, scale=None, dropout=0.0, seed=None, offset=None):
        if isinstance(seed, torch.Tensor) and seed.numel() == 2:
            seed, offset = seed.to(torch.int64).unbind()
        self.bias, self.diagonal, self.scale = bias, diagonal, scale
        self.dropout, self.seed, self.offset = dropout, seed, offset

    def key(self, *tensors):
        shapes = tuple((t.shape, t.stride(), t.dtype, t.device) for t in tensors)
        return shapes, self.bias is None, self.diagonal, self.dropout > 0

    def added(self, q, k, like, except_from=None):
        """What is added to the scores, without a diagonal that is passed on its own; or None."""
        bias, rows, columns = self.bias, q.shape[-2], k.shape[-2]
        if bias is not None and bias.dtype == torch.bool:
            bias = torch.zeros_like(bias, dtype=like.dtype).masked_fill_(~bias, -math.inf)
        if self.diagonal == except_from or self.diagonal is None:
            return bias
        seen = torch.ones(rows, columns, dtype=torch.bool, device=like.device).tril(self.diagonal)
        hidden = torch.zeros(seen.shape, dtype=like.dtype, device=like.device)
        hidden.masked_fill_(~seen, -math.inf)
        return hidden if bias is None else bias + hidden

    def kept(self, scores):
        """Which weights survive dropout, scaled up: the same for the same seed."""
        generator = torch.Generator(scores.device).manual_seed(_number(self.seed))
        drawn = torch.rand(scores.shape, generator=generator, device=scores.device)
        return (drawn >= self.dropout).to(scores.dtype).div_(1.0 - self.dropout)


def _number(seed):
    return int(seed.reshape(-1)[0]) & (2**63 - 1) if isinstance(seed, torch.Tensor) else seed or 0


# -- three ways: (forward, backward), on heads of [batch, heads, length, size] --------------------


def _cpu_forward(q, k, v, rule):
    _refuse(_is_not_for_cpu(q, k, v, rule))
    added = _four(rule.added(q, k, q, except_from=0))
    return aten._scaled_dot_product_flash_attention_for_cpu.default(
        q, k, v, 0.0, rule.diagonal == 0, attn_mask=added, scale=rule.scale
    )


def _is_not_for_cpu(q, k, v, rule):
    if q.device.type != "cpu" or rule.dropout > 0 or q.shape[-1] != v.shape[-1]:
        return True
    return not (q.numel() and k.numel())  # it divides by the number of rows


def _cpu_backward(grad, q, k, v, out, sums, rule, wants_bias):
    _refuse(_is_not_for_cpu(q, k, v, rule) or wants_bias)
    added = _four(rule.added(q, k, q, except_from=0))
    return *aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
        grad, q, k, v, out, sums, 0.0, rule.diagonal == 0, attn_mask=added, scale=rule.scale
    ), None


def _efficient_forward(q, k, v, rule):
    added = _four(rule.added(q, k, q, except_from=0), q, k)
    out, sums, rule.seed, rule.offset = aten._scaled_dot_product_efficient_attention.default(
        q, k, v, added, True, rule.dropout, rule.diagonal == 0, scale=rule.scale
    )
    return out, sums[..., : q.shape[-2]]


def _efficient_backward(grad, q, k, v, out, sums, rule, wants_bias):
    added = _four(rule.added(q, k, q, except_from=0), q, k)
    sums = torch.nn.functional.pad(sums, (0, -sums.shape[-1] % 32), value=math.inf)
    nothing = torch.zeros((), dtype=torch.int64)
    seed = nothing if rule.seed is None else rule.seed
    offset = nothing if rule.offset is None else rule.offset
    return aten._scaled_dot_product_efficient_attention_backward.default(
        grad, q, k, v, added, out, sums, seed, offset, rule.dropout,
        [True, True, True, wants_bias], rule.diagonal == 0, scale=rule.scale,
    )  # fmt: skip


def _scores(q, k, rule):
    scale = q.shape[-1] ** -0.5 if rule.scale is None else rule.scale
    scores = (q @ k.transpose(-2, -1)).float().mul_(scale)
    added = rule.added(q, k, scores)
    return scores if added is None else scores.add_(added)


def _plain_forward(q, k, v, rule):
    scores = _scores(q, k, rule)
    sums = scores.logsumexp(-1)
    weights = _weights(scores, sums)
    if rule.dropout > 0:
        if rule.seed is None:
            rule.seed = next(_seeds)
        weights.mul_(rule.kept(weights))
    return weights.to(v.dtype) @ v, sums


def _plain_backward(grad, q, k, v, out, sums, rule, wants_bias):
    scale = q.shape[-1] ** -0.5 if rule.scale is None else rule.scale
    weights = _weights(_scores(q, k, rule), sums)
    of_weights = (grad @ v.transpose(-2, -1)).float()
    used = weights
    if rule.dropout > 0:
        kept = rule.kept(weights)
        used, of_weights = weights * kept, of_weights.mul_(kept)
    of_v = used.to(grad.dtype).transpose(-2, -1) @ grad
    common = (grad.float() * out.float()).sum(-1, keepdim=True)
    of_scores = of_weights.sub_(common).mul_(weights)
    of_bias = None
    if wants_bias:
        of_bias = of_scores.sum_to_size(rule.bias.shape).to(rule.bias.dtype)
    of_scores = of_scores.mul_(scale).to(q.dtype)
    return of_scores @ k, of_scores.transpose(-2, -1) @ q, of_v, of_bias


def _weights(scores, sums):
    """Shares of each row; a row that may look nowhere has none."""
    sums = sums.float().masked_fill(sums == -math.inf, 0.0)
    return scores.sub_(sums.unsqueeze(-1)).exp_()


_WAYS = ((_cpu_forward, _cpu_backward), (_efficient_forward, _efficient_backward),
         (_plain_forward, _plain_backward))  # fmt: skip


def _refuse(unfit):
    if unfit:
        raise NotImplementedError


def _four(bias, q=None, k=None):
    """A bias of four dimensions; as large as the scores where a query and a key are given."""
    if bias is None:
        return None
    bias = bias.reshape((1,) * (4 - bias.dim()) + bias.shape) if bias.dim() < 4 else bias
    return bias if q is None else bias.expand(*q.shape[:3], k.shape[-2])


def _tried(which, key, *args):
    """By the way that worked before, else by the first that works."""
    first, error = _chosen.get(key, 0), None
    for number in sorted(range(len(_WAYS)), key=lambda number: (number != first, number)):
        try:
            done = _WAYS[number][which](*args)
        except (NotImplementedError, RuntimeError) as refused:
            error = refused
        else:
            _chosen[key] = number
            return done
    raise error


def forward(q, k, v, rule):
    """The result and the logarithms of the sums, [batch, heads, length]."""
    k, v = _every_head(q, k), _every_head(q, v)
    return _tried(0, rule.key(q, k, v), q, k, v, rule)


def backward(grad, q, k, v, out, sums, rule, wants_bias=False):
    all_k, all_v = _every_head(q, k), _every_head(q, v)
    key = rule.key(q, all_k, all_v), wants_bias
    _chosen.setdefault(key, _chosen.get(key[0], 0))  # dropout has to be that of the forward pass
    sums = sums.reshape(*q.shape[:2], -1)[..., : q.shape[2]]
    made = _tried(1, key, grad, q, all_k, all_v, out, sums, rule, wants_bias)
    return made[0], _shared(made[1], k), _shared(made[2], v), made[3]


def _every_head(q, k):
    """Keys for every query head, where several share one."""
    return k if k.shape[1] == q.shape[1] else k.repeat_interleave(q.shape[1] // k.shape[1], 1)


def _shared(grad, k):
    if grad.shape[1] == k.shape[1]:
        return grad
    return grad.reshape(k.shape[0], k.shape[1], -1, *k.shape[2:]).sum(2)


def laid(tensor, order):
    """The same numbers, the dimensions of `order` from the outermost to the innermost."""
    back = [order.index(dim) for dim in range(tensor.dim())]
    return tensor.permute(order).contiguous().permute(back)


def laid_like(tensor, other):
    """The same numbers in the order of dimensions that another tensor has."""
    return laid(tensor, sorted(range(other.dim()), key=lambda dim: -other.stride(dim)))


_BY_LENGTH = [0, 2, 1, 3]

# -- the operators: heads come second -------------------------------------------------------------


def sdp_cudnn(q, k, v, bias, wants_sums, dropout=0.0, causal=False, debug=False, *, scale=None):
    rule = Rule(bias, 0 if causal else None, scale, dropout)
    out, sums = forward(q, k, v, rule)
    seed, offset = _seed_pair(rule, q.device)
    sums = sums.contiguous().unsqueeze(-1) if wants_sums else None
    return laid_like(out, q), sums, None, None, q.shape[2], k.shape[2], seed, offset, None


def sdp_cudnn_backward(grad, q, k, v, out, sums, seed, offset, bias, seq_q, seq_k, max_q, max_k,
                       dropout, causal, *, scale=None):  # fmt: skip
    rule = Rule(bias, 0 if causal else None, scale, dropout, seed, offset)
    made = backward(grad, q, k, v, out, sums, rule)
    return tuple(laid_like(one, like) for one, like in zip(made, (q, k, v)))


def cudnn_forward(q, k, v, bias, seq_q, seq_k, max_q, max_k, *rest, scale=None):
    _refuse(seq_q is not None)
    return sdp_cudnn(q, k, v, bias, *rest, scale=scale)


def sdp_flash(q, k, v, dropout=0.0, causal=False, debug=False, *, scale=None):
    rule = Rule(None, 0 if causal else None, scale, dropout)
    out, sums = forward(q, k, v, rule)
    return (laid_like(out, q), sums.contiguous(), None, None, q.shape[2], k.shape[2],
            *_flash_state(rule, q.device), q.new_empty(0))  # fmt: skip


def sdp_flash_quantized(q, k, v, by_q, by_k, by_v, *rest, scale=None):
    q, k, v = _widened(q, by_q), _widened(k, by_k), _widened(v, by_v)
    return sdp_flash(q, k, v, *rest, scale=scale)


def sdp_flash_backward(grad, q, k, v, out, sums, seq_q, seq_k, max_q, max_k, dropout, causal, seed,
                       offset, *, scale=None):  # fmt: skip
    return sdp_cudnn_backward(grad, q, k, v, out, sums, seed, offset, None, None, None, max_q,
                              max_k, dropout, causal, scale=scale)  # fmt: skip


def sdp_efficient(q, k, v, bias, wants_sums, dropout=0.0, causal=False, *, scale=None):
    rule = Rule(bias, 0 if causal else None, scale, dropout)
    out, sums = forward(q, k, v, rule)
    return laid(out, _BY_LENGTH), _padded(sums, wants_sums), *_seed_pair(rule, "cpu")


def sdp_efficient_backward(grad, q, k, v, bias, out, sums, seed, offset, dropout, wants,
                           causal=False, *, scale=None):  # fmt: skip
    rule = Rule(bias, 0 if causal else None, scale, dropout, seed, offset)
    wants_bias = wants[3] and bias is not None
    *made, of_bias = backward(grad, q, k, v, out, sums, rule, wants_bias)
    return *(laid(one, _BY_LENGTH) for one in made), of_bias


def sdp_for_cpu(q, k, v, dropout=0.0, causal=False, *, attn_mask=None, scale=None):
    rule = Rule(attn_mask, 0 if causal else None, scale, dropout)
    out, sums = forward(q, k, v, rule)
    return laid_like(out, q), laid(sums, [0, 2, 1])


def sdp_for_cpu_backward(grad, q, k, v, out, sums, dropout, causal, *, attn_mask=None, scale=None):
    rule = Rule(attn_mask, 0 if causal else None, scale, dropout)
    made = backward(grad, q, k, v, out, sums, rule)
    return tuple(laid(one, _BY_LENGTH) for one in made[:3])


# -- the operators below those: the length comes second, or sequences lie end to end --------------


def flash_forward(q, k, v, seq_q, seq_k, max_q, max_k, dropout, causal, debug, *, scale=None,
                  window_size_left=None, window_size_right=None, seqused_k=None, alibi_slopes=None,
                  block_table=None, **_):  # fmt: skip
    _refuse(seqused_k is not None or block_table is not None)
    outs, sums, rule = [], [], None
    for part_q, part_k, part_v in _parts(seq_q, seq_k, q, k, v):
        rule = _flash_rule(part_q, part_k, causal, scale, dropout, rule and rule.seed,
                           (window_size_left, window_size_right), alibi_slopes)  # fmt: skip
        out, one_sums = forward(part_q, part_k, part_v, rule)
        outs.append(out.transpose(1, 2))
        sums.append(one_sums)
    if seq_q is None:
        out, sums = laid_like(outs[0], q), sums[0].contiguous()
    else:
        out, sums = torch.cat([one[0] for one in outs]), torch.cat([one[0] for one in sums], -1)
    return out, sums, *_flash_state(rule, q.device), q.new_empty(0)


def flash_forward_quantized(q, k, v, seq_q, seq_k, max_q, max_k, dropout, causal, debug, by_q,
                            by_k, by_v, **more):  # fmt: skip
    q, k, v = (_widened(one.transpose(1, 2), by).transpose(1, 2)
               for one, by in ((q, by_q), (k, by_k), (v, by_v)))  # fmt: skip
    return flash_forward(q, k, v, seq_q, seq_k, max_q, max_k, dropout, causal, debug, **more)


def flash_forward_inplace(into, *args, **more):
    out, sums, *_ = flash_forward(*args, **more)
    into.copy_(out)
    return sums


def flash_backward(grad, q, k, v, out, sums, seq_q, seq_k, max_q, max_k, dropout, causal, seed,
                   offset, *, scale=None, window_size_left=None, window_size_right=None,
                   **_):  # fmt: skip
    made, begin = [], 0
    for part_q, part_k, part_v, part_out, part_grad in _parts(seq_q, seq_k, q, k, v, out, grad):
        rule = _flash_rule(part_q, part_k, causal, scale, dropout, seed,
                           (window_size_left, window_size_right), None)  # fmt: skip
        end = begin + part_q.shape[2]
        own = sums[:, begin:end].unsqueeze(0) if sums.dim() == 2 else sums
        done = backward(part_grad, part_q, part_k, part_v, part_out, own, rule)
        made.append([one.transpose(1, 2) for one in done[:3]])
        begin = end
    if seq_q is None:
        return tuple(laid_like(one, like) for one, like in zip(made[0], (q, k, v)))
    return tuple(torch.cat([one[0] for one in parts]) for parts in zip(*made))


def efficient_forward(q, k, v, bias, seq_q, seq_k, max_q, max_k, dropout, mask, wants_sums=False,
                      *, scale=None, seqlen_k=None, window_size=None, **_):  # fmt: skip
    _refuse(seqlen_k is not None)
    outs, sums, rule = [], [], None
    for part_q, part_k, part_v in _parts(seq_q, seq_k, q, k, v):
        rule = _efficient_rule(part_q, part_k, bias, mask, scale, dropout, rule and rule.seed,
                               window_size)  # fmt: skip
        out, one_sums = forward(part_q, part_k, part_v, rule)
        outs.append(out.transpose(1, 2))
        sums.append(_padded(one_sums, wants_sums, max_q if seq_q is not None else 0))
    most = (q.shape[1], k.shape[1]) if seq_q is None else (max_q, max_k)
    out = torch.cat(outs, 1).contiguous()
    return out, torch.cat(sums), *_seed_pair(rule, "cpu"), *most


def efficient_backward(grad, q, k, v, bias, out, seq_q, seq_k, max_q, max_k, sums, dropout, seed,
                       offset, mask, wants_bias, *, scale=None, window_size=None,
                       shared_storage_dqdkdv=False, **_):  # fmt: skip
    made, of_bias = [], None
    parts = _parts(seq_q, seq_k, q, k, v, out, grad)
    for number, (part_q, part_k, part_v, part_out, part_grad) in enumerate(parts):
        rule = _efficient_rule(part_q, part_k, bias, mask, scale, dropout, seed, window_size)
        own = sums if seq_q is None else sums[number : number + 1]
        own = own[..., : part_q.shape[2]]
        *done, of_bias = backward(part_grad, part_q, part_k, part_v, part_out, own, rule,
                                  wants_bias and bias is not None)  # fmt: skip
        made.append([one.transpose(1, 2) for one in done])
    made = [torch.cat(parts, 1) for parts in zip(*made)]
    if shared_storage_dqdkdv:
        return *torch.stack(made, -3).unbind(-3), of_bias
    return *(one.contiguous() for one in made), of_bias


def _flash_rule(q, k, causal, scale, dropout, seed, window, slopes):
    """Here a last query sees the last key, however many there are of each."""
    rows, columns = q.shape[2], k.shape[2]
    left, right = (-1 if side is None else side for side in window)
    if left < 0 and right < 0 and slopes is None:
        return Rule(None, columns - rows if causal else None, scale, dropout, seed)
    apart = _apart(rows, columns, q.device)
    bias = torch.zeros(rows, columns, dtype=q.dtype, device=q.device)
    if left >= 0:
        bias.masked_fill_(apart < -left, -math.inf)
    if right >= 0 or causal:
        bias.masked_fill_(apart > (0 if causal else right), -math.inf)
    if slopes is not None:
        bias = bias - slopes.reshape(-1, slopes.shape[-1], 1, 1).to(q.dtype) * apart.abs()
    return Rule(bias, None, scale, dropout, seed)


def _efficient_rule(q, k, bias, mask, scale, dropout, seed, window):
    rows, columns = q.shape[2], k.shape[2]
    diagonal = {0: None, 1: 0, 2: columns - rows}[mask]
    if window:
        apart = _apart(rows, columns, q.device)
        near = torch.zeros(rows, columns, dtype=q.dtype, device=q.device)
        near.masked_fill_(apart <= -window, -math.inf)
        bias = near if bias is None else bias + near
    return Rule(bias, diagonal, scale, dropout, seed)


def _apart(rows, columns, device):
    """How far each key lies after each query, the last ones side by side."""
    at = torch.arange(rows, device=device) + columns - rows
    return torch.arange(columns, device=device) - at.unsqueeze(1)


def _parts(seq_q, seq_k, *tensors):
    """Queries, keys, values and what belongs to queries, sequence by sequence, heads second."""
    if seq_q is None:
        yield [tensor.transpose(1, 2) for tensor in tensors]
        return
    flat = [t[0] if t.dim() == 4 else t for t in tensors]
    for (begin, end), (low, high) in zip(_spans(seq_q, flat[0]), _spans(seq_k, flat[1])):
        spans = [(begin, end), (low, high), (low, high), (begin, end), (begin, end)]
        yield [t[a:b].transpose(0, 1).unsqueeze(0) for t, (a, b) in zip(flat, spans)]


def _spans(ends, tensor):
    """Where sequences begin and end; of the same length where made-up ends cannot be true."""
    at, count, total = ends.tolist(), ends.numel() - 1, tensor.shape[0]
    if at[0] != 0 or at[-1] != total or any(b < a for a, b in itertools.pairwise(at)):
        at = [number * total // count for number in range(count + 1)]
    return list(itertools.pairwise(at))


def _widened(tensor, scale):
    wide = tensor.to(torch.bfloat16)
    return wide if scale is None else wide * scale[..., None, None].to(wide.dtype)


def _padded(sums, wanted, length=0):
    """With room for whole blocks of 32 rows, as that kernel keeps them."""
    if not wanted:
        return sums.new_empty(*sums.shape[:2], 0)
    length = -(-max(length, sums.shape[-1]) // 32) * 32
    return torch.nn.functional.pad(sums.contiguous(), (0, length - sums.shape[-1]), value=math.inf)


def _seed_pair(rule, device):
    if isinstance(rule.seed, torch.Tensor):
        return rule.seed, rule.offset
    return (torch.tensor(rule.seed or 0, dtype=torch.int64, device=device),
            torch.zeros((), dtype=torch.int64, device=device))  # fmt: skip


def _flash_state(rule, device):
    unused = torch.zeros((), dtype=torch.uint64, device=device)
    if isinstance(rule.seed, torch.Tensor):
        return torch.stack([rule.seed, rule.offset]).to(torch.uint64), unused
    return torch.tensor([rule.seed or 0, 0], dtype=torch.uint64, device=device), unused


def triton_attention(q, k, v, dropout=0.0):
    return forward(q, k, v, Rule(dropout=dropout))[0].contiguous()


def triton_multi_head(q, k, v, embed, heads, in_weight, in_bias, out_weight, out_bias, mask=None):
    return aten._native_multi_head_attention.default(
        q, k, v, embed, heads, in_weight, in_bias, out_weight, out_bias, mask, False
    )[0]


def fill_dropout_mask(into, dropout, seed, offset):
    return into.uniform_(generator=torch.Generator(into.device).manual_seed(seed + offset))


OPERATORS = {
    "_scaled_dot_product_cudnn_attention.default": sdp_cudnn,
    "_scaled_dot_product_cudnn_attention_backward.default": sdp_cudnn_backward,
    "_cudnn_attention_forward.default": cudnn_forward,
    "_cudnn_attention_backward.default": sdp_cudnn_backward,
    "_scaled_dot_product_flash_attention.default": sdp_flash,
    "_scaled_dot_product_flash_attention.quantized": sdp_flash_quantized,
    "_scaled_dot_product_flash_attention_backward.default": sdp_flash_backward,
    "_scaled_dot_product_efficient_attention.default": sdp_efficient,
    "_scaled_dot_product_efficient_attention_backward.default": sdp_efficient_backward,
    "_scaled_dot_product_flash_attention_for_cpu.default": sdp_for_cpu,
    "_scaled_dot_product_flash_attention_for_cpu_backward.default": sdp_for_cpu_backward,
    "_flash_attention_forward.default": flash_forward,
    "_flash_attention_forward.quantized": flash_forward_quantized,
    "_flash_attention_forward_no_dropout_inplace.default": flash_forward_inplace,
    "_flash_attention_backward.default": flash_backward,
    "_efficient_attention_forward.default": efficient_forward,
    "_efficient_attention_backward.default": efficient_backward,
    "_triton_scaled_dot_attention.default": triton_attention,
    "_triton_multi_head_attention.default": triton_multi_head,
    "_fill_mem_eff_dropout_mask_.default": fill_dropout_mask,
}


def ready(bench):
    """Operators by name; each is tried where torch's own fails."""
    return {f"aten.{name}": function for name, function in OPERATORS.items()}
