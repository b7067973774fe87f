"""Lookups in tables of embeddings that lie in one flat tensor, and their backward passes.

A trace does not record how such a tensor is divided, nor which rows are looked up: where what is
given cannot be true, tables have the same number of rows, and rows are drawn, as many as recorded.
The backward pass, which updates the tables, is not an operator; a trace knows its gradient alone.
The rest it takes from the last lookup of its kind whose backward pass has not been.
"""

import itertools
from collections import defaultdict, deque
from functools import partial

import torch
from jagged import can_be_offsets, even_offsets, hand_over, part_of, rehearsal
from torch.nn import functional


class Group:
    """Tables as wide as each other, one after the other in memory: one matrix, one lookup.

    `rows` are the looked-up rows of that matrix, `ends` where its bags begin and end among them.
    """

    def __init__(self, begin, width, tables, rows, ends, span):
        self.begin, self.width, self.tables = begin, width, tables
        self.rows, self.ends, self.span = rows, ends, span

    def matrix(self, flat):
        flat = flat[self.begin :]
        return flat[: flat.numel() // self.width * self.width].view(-1, self.width)


def _widths(D_offsets, total_D, count):
    """How wide each table is: as given, else all the same."""
    ends = D_offsets.tolist()
    if ends[0] == 0 and ends[-1] == total_D and all(a < b for a, b in itertools.pairwise(ends)):
        return [b - a for a, b in itertools.pairwise(ends)]
    return even_offsets(count, total_D, "cpu").diff().tolist()


def _begins(weights_offsets, widths, size):
    """Where each table begins: as given, else with as many rows as the others."""
    begins = weights_offsets.tolist()
    inside = [begin >= 0 and begin + width <= size for begin, width in zip(begins, widths)]
    if all(inside) and len(set(begins)) == len(begins):
        return begins
    rows = size // max(sum(widths), 1)
    return [rows * before for before in itertools.accumulate([0, *widths[:-1]])]


class Tables:
    """Several tables of embeddings in one flat tensor."""

    def __init__(self, size, weights_offsets, D_offsets, total_D):
        self.count = D_offsets.numel() - 1
        self.widths = _widths(D_offsets, total_D, self.count)
        begins = _begins(weights_offsets, self.widths, size)
        self.begins = begins
        after = [min([b for b in begins if b > begin], default=size) for begin in begins]
        self.rows = [max((end - begin) // width, 1)
                     for begin, end, width in zip(begins, after, self.widths)]  # fmt: skip

    def are_alike(self):
        width = self.widths[0]
        return set(self.widths) == {width} and all(begin % width == 0 for begin in self.begins)

    def can_hold(self, indices, offsets):
        """Whether these may be looked up: inside their tables, and not all the same by default."""
        count = indices.numel()
        if not can_be_offsets(offsets, count) or (count > 1 and indices.min() == indices.max()):
            return False
        bags = (offsets.numel() - 1) // self.count
        rows = torch.tensor(self.rows, device=indices.device)
        bound = rows[part_of(offsets, count) // max(bags, 1)]
        return bool((indices >= 0).all() and (indices < bound).all())

    def groups(self, indices, offsets, bags):
        """The lookups, with rows and bags counted within each group."""
        if self.are_alike():
            width = self.widths[0]
            base = torch.tensor([begin // width for begin in self.begins], device=indices.device)
            table = part_of(offsets, indices.numel()) // bags
            span = 0, indices.numel()
            return [
                Group(0, width, self.count, indices.to(torch.int64) + base[table], offsets, span)
            ]
        ends = offsets[::bags].tolist()
        return [
            Group(self.begins[t], self.widths[t], 1, indices[a:b].to(torch.int64),
                  offsets[t * bags : (t + 1) * bags + 1] - a, (a, b))
            for t, (a, b) in enumerate(itertools.pairwise(ends))
        ]  # fmt: skip

    def made_up(self, indices, bags):
        """Lookups of as many rows, drawn at random, in bags of the same size."""
        total = indices.numel()
        offsets = even_offsets(self.count * bags, total, indices.device)
        ends = offsets[::bags].tolist()
        parts = [rehearsal.indices(indices, b - a, rows)
                 for rows, (a, b) in zip(self.rows, itertools.pairwise(ends))]  # fmt: skip
        return self.groups(torch.cat(parts), offsets, bags)


class Lookup:
    """A lookup that was done, for its backward pass."""

    def __init__(self, groups, flat, pooling, weights, options):
        self.groups, self.flat, self.pooling = groups, flat, pooling
        self.weights, self.options = weights, options

    def row_gradients(self, group, grad, columns):
        if self.pooling == _NONE:
            return grad[group.span[0] : group.span[1]].float()
        part = part_of(group.ends, group.rows.numel())
        own = grad[:, columns : columns + group.tables * group.width].float()
        own = own.reshape(grad.shape[0], group.tables, group.width).transpose(0, 1)
        own = own.reshape(-1, group.width)
        if self.pooling == _MEAN:
            own = own / group.ends.diff().clamp(min=1).unsqueeze(1)
        rows = own[part]
        if self.weights is not None:
            rows = rows * self.weights[group.span[0] : group.span[1]].float().unsqueeze(1)
        return rows


_SUM, _MEAN, _NONE = range(3)
_OUTPUTS = {0: torch.float32, 1: torch.float16, 5: torch.bfloat16}
#: Lookups whose backward pass is to come, by optimizer; the last one first.
waiting = defaultdict(lambda: deque(maxlen=256))


def look_up(optimizer, given):
    """A lookup, by the arguments of its operator; those that an optimizer lacks are not there."""
    flat = _filled(given, "{}_weights")
    if flat is None or not flat.is_floating_point():
        raise NotImplementedError("tables that are empty or quantised")
    D_offsets, total_D, indices, offsets = (
        given[name] for name in ("D_offsets", "total_D", "indices", "offsets")
    )
    size, count, rate = flat.numel(), indices.numel(), given.get("learning_rate")
    tables = rehearsal.plan(
        ("tables", flat.data_ptr(), D_offsets.data_ptr(), size, total_D),
        lambda: Tables(size, given["weights_offsets"], D_offsets, total_D),
    )
    bags = max((offsets.numel() - 1) // tables.count, 1)
    key = "lookup", flat.data_ptr(), size, total_D, count, bags
    if rehearsal.holds(key, lambda: tables.can_hold(indices, offsets)):
        groups = tables.groups(indices, offsets.to(torch.int64), bags)
    else:
        groups = rehearsal.plan(key, lambda: tables.made_up(indices, bags))
    options = {
        "first": _filled(given, "momentum1_{}"), "second": _filled(given, "momentum2_{}"),
        "eps": given.get("eps") or 0.0, "beta1": given.get("beta1") or 0.9,
        "beta2": given.get("beta2") or 0.999,
        "rate": given.get("learning_rate_tensor") if rate is None else rate,
    }  # fmt: skip
    lookup = Lookup(groups, flat, given["pooling_mode"], given["indice_weights"], options)
    waiting[optimizer].append(lookup)
    return _forward(lookup, bags).to(_OUTPUTS[given["output_dtype"] or 0])


def _filled(given, name):
    """Of the tensors on the device, in unified and in host memory the first that is not empty."""
    tensors = (given.get(name.format(where)) for where in ("dev", "uvm", "host"))
    return next((one for one in tensors if one is not None and one.numel()), None)


def _forward(lookup, bags):
    outs = []
    for group in lookup.groups:
        matrix = group.matrix(lookup.flat)
        if lookup.pooling == _NONE:
            outs.append(functional.embedding(group.rows, matrix))
            continue
        weights = lookup.weights
        if weights is not None:
            weights = weights[group.span[0] : group.span[1]].to(matrix.dtype)
        mode = "mean" if lookup.pooling == _MEAN else "sum"
        out = functional.embedding_bag(
            group.rows, matrix, group.ends, mode=mode, per_sample_weights=weights,
            include_last_offset=True,
        )  # fmt: skip
        out = out.reshape(group.tables, bags, group.width).transpose(0, 1)
        outs.append(out.reshape(bags, -1))
    if len(outs) == 1:
        return outs[0]
    return torch.cat(outs, 0 if lookup.pooling == _NONE else 1)


def _summed(rows, grads):
    """Each row once, and the sum of its gradients; rows that are left over get nothing.

    The answer is as long as the question, since how long it has to be only the device knows.
    """
    ordered, order = rows.sort()
    is_new = functional.pad(ordered[1:] != ordered[:-1], (1, 0), value=True)
    place = is_new.cumsum(0) - 1
    sums = torch.zeros_like(grads).index_add_(0, place, grads[order])
    once = torch.zeros_like(rows).index_copy_(0, place, ordered)
    is_real = torch.arange(rows.numel(), device=rows.device) <= place[-1:]
    return once, sums, is_real.unsqueeze(1)


def _state(flat, group, rows):
    if flat.numel() >= group.begin + rows * group.width:
        return group.matrix(flat)
    first = group.begin // group.width if flat.numel() > group.begin // group.width else 0
    return flat[first:].reshape(-1, 1)


def sgd(matrix, group, rows, grads, is_real, rate, **_):
    _add(matrix, rows, grads * -rate)


def adagrad(matrix, group, rows, grads, is_real, rate, first, eps, **_):
    """By element or by row, by the size of the state."""
    sums = _state(first, group, matrix.shape[0])
    rows_of_sums = rows.remainder(sums.shape[0])
    squares = grads.square()
    _add(sums, rows_of_sums, squares if sums.shape[1] > 1 else squares.mean(1, keepdim=True))
    _add(matrix, rows, grads * -rate / (sums[rows_of_sums].float().sqrt() + eps))


def adam(matrix, group, rows, grads, is_real, rate, first, second, eps, beta1, beta2, **_):
    means, squares = (_state(one, group, matrix.shape[0]) for one in (first, second))
    of_means, of_squares = rows.remainder(means.shape[0]), rows.remainder(squares.shape[0])
    mean, square = means[of_means].float(), squares[of_squares].float()
    change = (grads - mean) * (1 - beta1) * is_real
    new = grads.square() if squares.shape[1] > 1 else grads.square().mean(1, keepdim=True)
    grown = (new - square) * (1 - beta2) * is_real
    _add(means, of_means, change)
    _add(squares, of_squares, grown)
    _add(matrix, rows, (mean + change) * -rate / ((square + grown).sqrt() + eps) * is_real)


def dense(matrix, group, rows, grads, is_real, made, **_):
    group.matrix(made).index_add_(0, rows, grads.to(made.dtype))


def _add(into, rows, what):
    into.index_add_(0, rows, what.to(into.dtype))


def backward(optimizer, update, grad, *_):
    """The backward pass of the last lookup, which also updates the tables."""
    if not waiting[optimizer]:
        raise RuntimeError("its forward pass is not part of the program")
    lookup, columns = waiting[optimizer].pop(), 0
    options = dict(lookup.options)
    if update is dense:
        options["made"] = torch.zeros_like(lookup.flat)
    for group in lookup.groups:
        if group.rows.numel():
            grads = lookup.row_gradients(group, grad, columns)
            rows, sums, is_real = _summed(group.rows, grads)
            update(group.matrix(lookup.flat), group, rows, sums, is_real, **options)
        columns += group.tables * group.width
    return options.get("made")


def lookup_dense(dev_weights, weights_offsets, D_offsets, total_D, indices, offsets, pooling_mode,
                 indice_weights=None, output_dtype=0, host_weights=None):  # fmt: skip
    return look_up("dense", locals())


def lookup_none(dev_weights, uvm_weights, host_weights, weights_offsets, D_offsets, total_D,
                indices, offsets, pooling_mode, indice_weights=None, output_dtype=0):  # fmt: skip
    return look_up("none", locals())


def lookup_sgd(dev_weights, uvm_weights, host_weights, weights_offsets, D_offsets, total_D,
               indices, offsets, pooling_mode, indice_weights=None, output_dtype=0,
               learning_rate=None, learning_rate_tensor=None):  # fmt: skip
    return look_up("sgd", locals())


def lookup_adagrad(dev_weights, uvm_weights, host_weights, weights_offsets, D_offsets, total_D,
                   indices, offsets, pooling_mode, indice_weights=None, output_dtype=0,
                   momentum1_dev=None, momentum1_uvm=None, momentum1_host=None, eps=None,
                   learning_rate=None, learning_rate_tensor=None):  # fmt: skip
    return look_up("adagrad", locals())


def lookup_adam(dev_weights, uvm_weights, host_weights, weights_offsets, D_offsets, total_D,
                indices, offsets, pooling_mode, indice_weights=None, output_dtype=0,
                momentum1_dev=None, momentum1_uvm=None, momentum1_host=None, momentum2_dev=None,
                momentum2_uvm=None, momentum2_host=None, eps=None, beta1=None, beta2=None,
                learning_rate=None, learning_rate_tensor=None):  # fmt: skip
    return look_up("adam", locals())


dense_backward, none_backward, sgd_backward, adagrad_backward, adam_backward = (
    partial(backward, name, update)
    for name, update in zip(("dense", "none", "sgd", "adagrad", "adam"),
                            (dense, dense, sgd, adagrad, adam))
)  # fmt: skip


#: By their names in a trace. Arguments are found by the names that they have above.
OPERATORS = {
    "fbgemm::dense_embedding_codegen_lookup_function": lookup_dense,
    "fbgemm::split_embedding_codegen_lookup_none_function": lookup_none,
    "fbgemm::split_embedding_codegen_lookup_sgd_function": lookup_sgd,
    "fbgemm::split_embedding_codegen_lookup_sgd_function_cpu": lookup_sgd,
    "fbgemm::split_embedding_codegen_lookup_approx_sgd_function": lookup_sgd,
    "fbgemm::split_embedding_codegen_lookup_adagrad_function": lookup_adagrad,
    "fbgemm::split_embedding_codegen_lookup_adagrad_function_cpu": lookup_adagrad,
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function": lookup_adagrad,
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function_cpu": lookup_adagrad,
    "fbgemm::split_embedding_codegen_lookup_approx_rowwise_adagrad_function": lookup_adagrad,
    "fbgemm::split_embedding_codegen_lookup_adam_function": lookup_adam,
    "fbgemm::split_embedding_codegen_lookup_partial_rowwise_adam_function": lookup_adam,
    "torch::autograd::CppNode<SplitLookupFunction_Dense_Op>": dense_backward,
    "torch::autograd::CppNode<SplitLookupFunction_none_Op>": none_backward,
    "torch::autograd::CppNode<SplitLookupFunction_sgd_Op>": sgd_backward,
    "torch::autograd::CppNode<SplitLookupFunction_approx_sgd_Op>": sgd_backward,
    "torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>": adagrad_backward,
    "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>": adagrad_backward,
    "torch::autograd::CppNode<SplitLookupFunction_approx_rowwise_adagrad_Op>": adagrad_backward,
    "torch::autograd::CppNode<SplitLookupFunction_adam_Op>": adam_backward,
    "torch::autograd::CppNode<SplitLookupFunction_partial_rowwise_adam_Op>": adam_backward,
}


def ready(bench):
    return hand_over(bench, OPERATORS)
