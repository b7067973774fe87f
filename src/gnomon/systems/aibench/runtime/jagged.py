"""Operators on jagged data that torch does not have, made from operators that it has.

Sizes and values of jagged data are not in a trace, only its totals. So an operator that needs
lengths or offsets looks, while a step is rehearsed, whether those it is given can be true; if not,
it takes parts of the same length that have the recorded total. After the rehearsal it does not
look again, because looking stops the device.
"""

import torch
from torch.nn import functional


class Rehearsal:
    def __init__(self):
        self.begin(None)

    def begin(self, bench):
        self.bench, self.found, self.plans = bench, {}, {}

    def holds(self, key, check):
        """Whether values can be true: in every call with this key that was rehearsed."""
        if not hasattr(self.bench, "code"):  # it has code when all steps are rehearsed
            self.found[key] = self.found.get(key, True) and bool(check())
        return self.found.get(key, False)

    def plan(self, key, make):
        if key not in self.plans:
            self.plans[key] = make()
        return self.plans[key]

    def indices(self, like, count, bound):
        """Made-up indices, spread as asked on the command line."""
        flat = torch.empty(count, dtype=torch.int64, device=like.device)
        if self.bench is None:
            return flat.random_(0, max(bound, 1))
        return self.bench.tensors.indices_like(flat, max(bound, 1))


rehearsal = Rehearsal()


def even_offsets(count, total, device):
    """Where `count` parts of `total` begin, and where the last one ends."""
    return torch.arange(count + 1, device=device) * total // max(count, 1)


def can_be_offsets(offsets, total):
    return bool(offsets.numel() and offsets[0] == 0 and offsets[-1] == total
                and (offsets.diff() >= 0).all())  # fmt: skip


def part_of(offsets, total):
    at = torch.arange(total, device=offsets.device)
    found = torch.searchsorted(offsets[1:].contiguous(), at.to(offsets.dtype), right=True)
    return found.clamp_(max=max(offsets.numel() - 2, 0))


# -- sums and permutations of jagged data ---------------------------------------------------------


def complete_cumsum(t_in):
    return functional.pad(inclusive_cumsum(t_in), (1, 0))


def exclusive_cumsum(t_in):
    return inclusive_cumsum(t_in) - t_in


def inclusive_cumsum(t_in):
    return torch.cumsum(t_in, -1, dtype=t_in.dtype)


def taken(order, lengths, total, available):
    """Which elements the parts `order` hold, one part after the other; parts have `lengths`."""
    key = "taken", order.numel(), lengths.numel(), total, available
    if not rehearsal.holds(key, lambda: _can_be_lengths(order, lengths, total, available)):
        return rehearsal.plan(key, lambda: _even_parts(order, lengths.numel(), total, available))
    begins = exclusive_cumsum(lengths.to(torch.int64))
    return _within(begins[order], lengths[order].to(torch.int64), total)


def _within(begins, lengths, total):
    """All places in parts that begin here and are so long."""
    shift = begins - exclusive_cumsum(lengths)
    at = torch.arange(total, device=begins.device)
    return at + torch.repeat_interleave(shift, lengths, output_size=total)


def _can_be_lengths(order, lengths, total, available):
    if not lengths.numel() or lengths.sum() != available or (lengths < 0).any():
        return False
    is_inside = order.numel() == 0 or (order.min() >= 0 and order.max() < lengths.numel())
    return bool(is_inside and lengths[order].sum() == total)


def _even_parts(order, count, total, available):
    lengths = even_offsets(order.numel(), total, order.device).diff()
    backwards = torch.arange(order.numel(), device=order.device).flip(0) % max(count, 1)
    begins = even_offsets(count, available, order.device)[backwards]
    return _within(begins, lengths, total) % max(available, 1)


def _total(given, order, lengths, available):
    if given is not None and given >= 0:
        return given
    if order.numel() == lengths.numel():
        return available
    key = "total", order.numel(), lengths.numel(), available
    if rehearsal.holds(
        key, lambda: _can_be_lengths(order, lengths, lengths[order].sum(), available)
    ):
        return int(lengths[order].sum())
    return available * order.numel() // max(lengths.numel(), 1)


def permute_sparse_data(permute, lengths, values, weights=None, permuted_lengths_sum=None):
    """Rows of lengths in another order, and with them the values that they count."""
    rows = permute.to(torch.int64).remainder(max(lengths.shape[0], 1))
    permuted = lengths[rows]
    width = lengths[0].numel() if lengths.dim() > 1 else 1
    parts = lengths.reshape(-1)
    order = (rows.unsqueeze(1) * width + torch.arange(width, device=rows.device)).reshape(-1)
    total = _total(permuted_lengths_sum, order, parts, values.shape[0])
    index = taken(order, parts, total, values.shape[0])
    return permuted, values[index], None if weights is None else weights[index]


def expand_into_jagged_permute(permute, input_offsets, output_offsets, output_size):
    lengths = input_offsets.diff()
    order = permute.to(torch.int64).remainder(max(lengths.numel(), 1))
    available = output_size * lengths.numel() // max(order.numel(), 1)
    return taken(order, lengths, output_size, available).to(permute.dtype)


def invert_permute(permute):
    inverse = torch.empty_like(permute)
    inverse[permute.to(torch.int64)] = torch.arange(
        permute.numel(), dtype=permute.dtype, device=permute.device
    )
    return inverse


def offsets_range(offsets, range_size):
    key = "range", offsets.numel(), range_size
    ends = functional.pad(offsets, (0, 1), value=range_size)
    if not rehearsal.holds(key, lambda: can_be_offsets(ends, range_size)):
        ends = rehearsal.plan(
            key, lambda: even_offsets(offsets.numel(), range_size, offsets.device)
        )
    at = torch.arange(range_size, dtype=offsets.dtype, device=offsets.device)
    return at - ends[part_of(ends, range_size)].to(offsets.dtype)


def permute_pooled_embs(pooled_embs, offset_dim_list, permute_list, inv_offset_dim_list=None,
                        inv_permute_list=None):  # fmt: skip
    width = pooled_embs.shape[1]
    key = "columns", offset_dim_list.data_ptr(), permute_list.data_ptr(), width

    def columns():
        ends, order = offset_dim_list.tolist(), permute_list.tolist()
        are_true = not ends[0] and ends[-1] == width and ends == sorted(ends)
        if not are_true or sorted(order) != [*range(len(order))]:
            ends = even_offsets(len(order), width, "cpu").tolist()
            order = list(reversed(range(len(order))))
        blocks = [torch.arange(ends[one], ends[one + 1]) for one in order]
        return torch.cat(blocks).to(pooled_embs.device)

    return pooled_embs.index_select(1, rehearsal.plan(key, columns))


def segment_sum_csr(batch_size, csr_seg, values):
    count = csr_seg.numel() - 1
    total = values.numel() // max(batch_size, 1)
    part = part_of(_true_offsets("csr", csr_seg, total), total).repeat_interleave(batch_size)
    return values.new_zeros(count).index_add_(0, part, values.reshape(-1)[: part.numel()])


def _true_offsets(name, offsets, total):
    """The offsets, where they can be true; else even ones."""
    key = name, offsets.numel(), total
    if rehearsal.holds(key, lambda: can_be_offsets(offsets, total)):
        return offsets
    return rehearsal.plan(key, lambda: even_offsets(offsets.numel() - 1, total, offsets.device))


def block_bucketize(lengths, indices, bucketize_pos, sequence, block_sizes, my_size, weights=None):
    """Indices sorted by the part of the table they lie in, and how many each part gets."""
    count, parts = indices.numel(), lengths.numel()
    offsets = _true_offsets("bucketize", complete_cumsum(lengths.to(torch.int64)), count)
    part = part_of(offsets, count)
    of_feature = block_sizes.to(torch.int64).clamp(min=1)
    size = of_feature[part // max(parts // max(block_sizes.numel(), 1), 1)]
    wide = indices.to(torch.int64)
    is_inside = wide < size * my_size
    bucket = torch.where(is_inside, wide // size, wide.remainder(my_size))
    inner = torch.where(is_inside, wide.remainder(size), wide // my_size)
    place = bucket * parts + part
    order = place.argsort(stable=True)
    new_lengths = torch.zeros(my_size * parts, dtype=lengths.dtype, device=lengths.device)
    new_lengths.index_add_(0, place, torch.ones_like(place, dtype=lengths.dtype))
    positions = (torch.arange(count, device=part.device) - offsets[part])[order]
    return (
        new_lengths,
        inner[order].to(indices.dtype),
        None if weights is None else weights[order],
        positions.to(indices.dtype) if bucketize_pos else None,
        invert_permute(order).to(indices.dtype) if sequence else None,
    )


def _ad_order(batch_offsets, tables, ads, is_broadcast):
    """For each table and each ad of all batches, where it lay when batches came first."""
    offsets = _true_offsets("ads", batch_offsets.to(torch.int64), ads)
    batch = part_of(offsets, ads)
    table = torch.arange(tables, device=offsets.device).unsqueeze(1)
    if is_broadcast:
        return (batch * tables + table).reshape(-1)
    begin, inside = offsets[batch], torch.arange(ads, device=offsets.device)
    return (tables * begin + table * offsets.diff()[batch] + inside - begin).reshape(-1)


def reorder_ad_lengths(cat_ad_lengths, batch_offsets, num_ads_in_batch, broadcast_lengths=False):
    per_table = batch_offsets.numel() - 1 if broadcast_lengths else num_ads_in_batch
    tables = cat_ad_lengths.numel() // max(per_table, 1)
    return cat_ad_lengths.reshape(-1)[
        _ad_order(batch_offsets, tables, num_ads_in_batch, broadcast_lengths)
    ]


def reorder_ad_indices(cat_ad_offsets, cat_ad_indices, reordered_cat_ad_offsets, batch_offsets,
                       num_ads_in_batch, broadcast_indices=False,
                       num_indices_after_broadcast=-1):  # fmt: skip
    lengths = cat_ad_offsets.diff()
    tables = (reordered_cat_ad_offsets.numel() - 1) // max(num_ads_in_batch, 1)
    order = _ad_order(batch_offsets, tables, num_ads_in_batch, broadcast_indices)
    total = num_indices_after_broadcast if broadcast_indices else cat_ad_indices.numel()
    return cat_ad_indices[taken(order, lengths, total, cat_ad_indices.numel())]


# -- jagged and dense -----------------------------------------------------------------------------


def to_padded_dense(values, offsets, max_lengths, padding_value=0.0):
    (offsets,), (longest,) = offsets, max_lengths
    at = offsets[:-1].unsqueeze(1) + torch.arange(longest, device=offsets.device)
    index = at.clamp(0, max(values.shape[0] - 1, 0))
    if not values.shape[0]:
        return values.new_full((*at.shape, *values.shape[1:]), padding_value)
    is_there = (at < offsets[1:].unsqueeze(1)).reshape(*at.shape, *[1] * (values.dim() - 1))
    return torch.where(is_there, values[index], padding_value)


def to_padded_dense_1d(values, offsets, max_L, padding_value=0):
    return to_padded_dense(values, [offsets], [max_L], padding_value)


def to_padded_dense_2d(values, offsets, max_sequence_length):
    return to_padded_dense(values, [offsets], [max_sequence_length])


def _rows(dense, offsets, total):
    (offsets,) = offsets
    if total is None:
        total = int(offsets[-1])
    offsets = _true_offsets("rows", offsets.to(torch.int64), total)
    part = part_of(offsets, total)
    inside = torch.arange(total, device=part.device) - offsets[part]
    return dense[part, inside.clamp(0, max(dense.shape[1] - 1, 0))]


def dense_to_jagged(dense, x_offsets, total_L=None):
    return _rows(dense, x_offsets, total_L), x_offsets


def dense_to_jagged_forward(dense, x_offsets, total_L=None):
    return _rows(dense, x_offsets, total_L)


def to_padded_dense_backward(grad_output, offsets, total_L):
    return _rows(grad_output, offsets, total_L)


def jagged_dense_add(x_values, x_offsets, y):
    return x_values + _rows(y, x_offsets, x_values.shape[0]), x_offsets


def new_tensor(self, sizes):
    return self.new_empty(sizes)


def bounds_check(rows_per_table, indices, offsets, bounds_check_mode, warning, weights=None):
    """Indices that lie outside their table become the first."""
    count, tables = indices.numel(), rows_per_table.numel()
    warning.zero_()
    offsets.clamp_(0, count)
    if rehearsal.holds(("rows", tables, count), lambda: (rows_per_table > 0).all()):
        per_table = max((offsets.numel() - 1) // max(tables, 1), 1)
        table = part_of(offsets, count) // per_table
        rows = rows_per_table[table.clamp(max=tables - 1)].to(indices.dtype)
        indices.masked_fill_((indices < 0) | (indices >= rows), 0)
    else:
        indices.clamp_(min=0)


#: By their names in a trace. Arguments are found by the names that they have above.
OPERATORS = {
    "fbgemm::asynchronous_complete_cumsum": complete_cumsum,
    "fbgemm::asynchronous_exclusive_cumsum": exclusive_cumsum,
    "fbgemm::asynchronous_inclusive_cumsum": inclusive_cumsum,
    "fbgemm::permute_1D_sparse_data": permute_sparse_data,
    "fbgemm::permute_2D_sparse_data": permute_sparse_data,
    "fbgemm::permute_sparse_data": permute_sparse_data,
    "fbgemm::expand_into_jagged_permute": expand_into_jagged_permute,
    "fbgemm::invert_permute": invert_permute,
    "fbgemm::offsets_range": offsets_range,
    "fbgemm::permute_pooled_embs": permute_pooled_embs,
    "fbgemm::permute_pooled_embs_auto_grad": permute_pooled_embs,
    "fbgemm::segment_sum_csr": segment_sum_csr,
    "fbgemm::block_bucketize_sparse_features": block_bucketize,
    "fbgemm::reorder_batched_ad_lengths": reorder_ad_lengths,
    "fbgemm::reorder_batched_ad_indices": reorder_ad_indices,
    "fbgemm::jagged_to_padded_dense": to_padded_dense,
    "fbgemm::jagged_to_padded_dense_forward": to_padded_dense,
    "fbgemm::jagged_to_padded_dense_backward": to_padded_dense_backward,
    "fbgemm::jagged_1d_to_dense": to_padded_dense_1d,
    "fbgemm::jagged_2d_to_dense": to_padded_dense_2d,
    "fbgemm::dense_to_jagged": dense_to_jagged,
    "fbgemm::dense_to_jagged_forward": dense_to_jagged_forward,
    "fbgemm::jagged_dense_elementwise_add_jagged_output": jagged_dense_add,
    "fbgemm::new_managed_tensor": new_tensor,
    "fbgemm::new_unified_tensor": new_tensor,
    "fbgemm::new_host_mapped_tensor": new_tensor,
    "fbgemm::bounds_check_indices": bounds_check,
}


def hand_over(bench, operators):
    """Operators by their names in the program; each is tried where torch has none."""
    if rehearsal.bench is not bench:
        rehearsal.begin(bench)
    return {f"{name.replace('::', '.')}.default": f for name, f in operators.items()}


def ready(bench):
    return hand_over(bench, OPERATORS)
