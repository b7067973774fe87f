"""Recurrent layers where the recorded kind is missing: through torch's own layers and cells."""

import torch

aten = torch.ops.aten
_RELU, _TANH, _LSTM, _GRU = range(4)
_LAYERS = {_RELU: aten.rnn_relu, _TANH: aten.rnn_tanh, _GRU: aten.gru}


class Layers:
    """The arguments of a fused recurrent operator, without its tensors."""

    def __init__(self, mode, stride, count, batch_first, dropout, train, both_ways, batch_sizes):
        self.mode, self.has_biases, self.count = mode, stride in (4, 5), count
        self.batch_first, self.dropout, self.train = batch_first, dropout, train
        self.both_ways, self.batch_sizes = both_ways, list(batch_sizes)

    def run(self, data, hx, cx, weights):
        """The output, the last state, and the last cell of an LSTM."""
        how = [self.has_biases, self.count, self.dropout, self.train, self.both_ways]
        state = [hx, cx] if self.mode == _LSTM else hx
        if self.batch_sizes:
            sizes = torch.tensor(self.batch_sizes)
            layer = aten.lstm.data if self.mode == _LSTM else _LAYERS[self.mode].data
            return layer(data, sizes, state, weights, *how)
        layer = aten.lstm.input if self.mode == _LSTM else _LAYERS[self.mode].input
        return layer(data, state, weights, *how, self.batch_first)

    def graph(self, data, hx, cx, weights):
        """What went in and what came out, with autograd's graph between them."""
        with torch.inference_mode(False), torch.enable_grad():
            given = [None if t is None else _own(t).requires_grad_() for t in (data, hx, cx)]
            leaves = [_own(weight).requires_grad_() for weight in weights]
            return (*given, *leaves), self.run(*given, leaves)

    def by_time(self, output):
        """As fused layers leave it: time outermost."""
        if self.batch_sizes or not self.batch_first:
            return output.contiguous()
        return output.transpose(0, 1).contiguous().transpose(0, 1)


def _own(tensor):
    """A tensor on the same memory that autograd takes, which refuses those of a benchmark."""
    own = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    place = tensor.storage_offset(), tensor.shape, tensor.stride()
    return own.set_(tensor.untyped_storage(), *place)


def _forward(layers, data, hx, cx, weights, buffer):
    # The graph hangs on the reserve, as what a fused layer saves lies in it: both end together.
    reserve = torch.empty(0, dtype=torch.uint8, device=data.device)
    if layers.train:
        leaves, made = layers.graph(data, hx, cx, weights)
        reserve.graph = leaves, made
    else:
        made = layers.run(data, hx, cx, weights)
    made = [one.detach() for one in made]
    cell = made[2] if layers.mode == _LSTM else hx.new_empty(0)
    if buffer is None:
        buffer = hx.new_empty(0)
    return layers.by_time(made[0]), made[1], cell, reserve, buffer


def _backward(layers, data, hx, cx, weights, grads, reserve):
    known = getattr(reserve, "graph", None)
    try:
        return _gradients(layers, known or layers.graph(data, hx, cx, weights), grads)
    except RuntimeError:
        if known is None:
            raise
    # Something was written over since: what was saved no longer holds.
    return _gradients(layers, layers.graph(data, hx, cx, weights), grads)


def _gradients(layers, graph, grads):
    leaves, made = graph
    wanted = [leaf for leaf in leaves if leaf is not None]
    pairs = [(one, grad) for one, grad in zip(made, grads) if grad is not None]
    with torch.inference_mode(False):
        found = torch.autograd.grad(
            [one for one, _ in pairs], wanted, [_own(grad) for _, grad in pairs],
            retain_graph=True, allow_unused=True,
        )  # fmt: skip
    found = [torch.zeros_like(leaf) if one is None else one for leaf, one in zip(wanted, found)]
    of_cell = None if leaves[2] is None else found.pop(2)
    of_data, of_state, *of_weights = found
    return layers.by_time(of_data), of_state.contiguous(), of_cell, of_weights


def cudnn_rnn(data, weights, stride, buffer, hx, cx, mode, hidden, projected, count, batch_first,
              dropout, train, both_ways, batch_sizes, dropout_state=None):  # fmt: skip
    layers = Layers(mode, stride, count, batch_first, dropout, train, both_ways, batch_sizes)
    return _forward(layers, data, hx, cx, weights, buffer)


def cudnn_rnn_backward(data, weights, stride, buffer, hx, cx, output, grad, grad_hy, grad_cy, mode,
                       hidden, projected, count, batch_first, dropout, train, both_ways,
                       batch_sizes, dropout_state, reserve, mask):  # fmt: skip
    layers = Layers(mode, stride, count, batch_first, dropout, train, both_ways, batch_sizes)
    *made, of_weights = _backward(layers, data, hx, cx, weights, (grad, grad_hy, grad_cy), reserve)
    return *made, _side_by_side(of_weights)


def miopen_rnn(data, weights, stride, hx, cx, mode, hidden, *rest):
    return cudnn_rnn(data, weights, stride, None, hx, cx, mode, hidden, 0, *rest)


def miopen_rnn_backward(data, weights, stride, buffer, hx, cx, output, grad, grad_hy, grad_cy,
                        mode, hidden, *rest):  # fmt: skip
    return cudnn_rnn_backward(data, weights, stride, buffer, hx, cx, output, grad, grad_hy,
                              grad_cy, mode, hidden, 0, *rest)  # fmt: skip


def flatten_weights(weights, *_):
    """One tensor: matrices first, biases behind them."""
    return torch.cat([one.reshape(-1) for one in sorted(weights, key=lambda one: one.dim() < 2)])


def _side_by_side(weights):
    """The same, as views of one tensor, in the order in which they came."""
    flat, views, begin = flatten_weights(weights), {}, 0
    for number in sorted(range(len(weights)), key=lambda number: weights[number].dim() < 2):
        end = begin + weights[number].numel()
        views[number], begin = flat[begin:end].view(weights[number].shape), end
    return [views[number] for number in range(len(weights))]


def dropout_state(dropout, train, seed, *, device=None, **_):
    return torch.empty(0, dtype=torch.uint8, device=device)


def _one_layer(mode, has_biases, batch_sizes, train):
    return Layers(mode, 4 if has_biases else 2, 1, False, 0.0, train, False, batch_sizes)


def mkldnn_layer(data, w0, w1, w2, w3, hx, cx, reverse, batch_sizes, mode, hidden, count,
                 has_biases, both_ways, batch_first, train):  # fmt: skip
    layers = _one_layer(mode, has_biases, (), train)
    data = data.flip(0) if reverse else data
    weights = [w0, w1, w2, w3][: 4 if has_biases else 2]
    state = [one.reshape(1, -1, hidden) for one in (hx, cx)]
    output, hy, cy, workspace, _ = _forward(layers, data, *state, weights, None)
    output = output.flip(0) if reverse else output
    return output, hy.reshape(hx.shape), cy.reshape(cx.shape), workspace


def mkldnn_layer_backward(data, w0, w1, w2, w3, hx, cx, output, hy, cy, grad, grad_hy, grad_cy,
                          reverse, mode, hidden, count, has_biases, train, both_ways, batch_sizes,
                          batch_first, workspace):  # fmt: skip
    layers = _one_layer(mode, has_biases, (), train)
    data, grad = (None if one is None else one.flip(0) if reverse else one for one in (data, grad))
    weights = [w0, w1, w2, w3][: 4 if has_biases else 2]
    state = [one.reshape(1, -1, hidden) for one in (hx, cx)]
    grads = grad, *(None if g is None else g.reshape(1, -1, hidden) for g in (grad_hy, grad_cy))
    found = _backward(layers, data, *state, weights, grads, workspace)
    of_data, of_state, of_cell, of_weights = found
    of_weights += [torch.zeros_like(weight) for weight in (w2, w3)] if not has_biases else []
    of_data = of_data.flip(0) if reverse else of_data
    return of_data, *of_weights, of_state.reshape(hx.shape), of_cell.reshape(cx.shape)


def lstm_cell(of_input, of_hidden, cx, input_bias=None, hidden_bias=None):
    gates = of_input + of_hidden
    if input_bias is not None:
        gates = gates + input_bias + hidden_bias
    let_in, forget, new, let_out = gates.chunk(4, 1)
    let_in, forget, let_out = let_in.sigmoid(), forget.sigmoid(), let_out.sigmoid()
    new = new.tanh()
    cy = forget * cx + let_in * new
    return let_out * cy.tanh(), cy, torch.cat([let_in, forget, new, let_out], 1)


def lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    let_in, forget, new, let_out = workspace.chunk(4, 1)
    squashed = cy.tanh()
    grad = torch.zeros_like(cy) if grad_cy is None else grad_cy
    of_out = torch.zeros_like(cy)
    if grad_hy is not None:
        grad = grad + grad_hy * let_out * (1 - squashed * squashed)
        of_out = grad_hy * squashed * let_out * (1 - let_out)
    gates = torch.cat([
        grad * new * let_in * (1 - let_in), grad * cx * forget * (1 - forget),
        grad * let_in * (1 - new * new), of_out,
    ], 1)  # fmt: skip
    return gates, grad * forget, gates.sum(0) if has_bias else None


def gru_cell(of_input, of_hidden, hx, input_bias=None, hidden_bias=None):
    if input_bias is not None:
        of_input, of_hidden = of_input + input_bias, of_hidden + hidden_bias
    in_reset, in_keep, in_new = of_input.chunk(3, 1)
    hidden_reset, hidden_keep, hidden_new = of_hidden.chunk(3, 1)
    reset, keep = (in_reset + hidden_reset).sigmoid(), (in_keep + hidden_keep).sigmoid()
    new = (in_new + reset * hidden_new).tanh()
    return new + keep * (hx - new), torch.cat([reset, keep, new, hx, hidden_new], 1)


def gru_cell_backward(grad, workspace, has_bias):
    reset, keep, new, hx, hidden_new = workspace.chunk(5, 1)
    of_keep = grad * (hx - new) * keep * (1 - keep)
    of_new = grad * (1 - keep) * (1 - new * new)
    of_reset = of_new * hidden_new * reset * (1 - reset)
    of_input = torch.cat([of_reset, of_keep, of_new], 1)
    of_hidden = torch.cat([of_reset, of_keep, of_new * reset], 1)
    biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, grad * keep, *biases


OPERATORS = {
    "_cudnn_rnn.default": cudnn_rnn,
    "_cudnn_rnn_backward.default": cudnn_rnn_backward,
    "_cudnn_rnn_flatten_weight.default": flatten_weights,
    "_cudnn_init_dropout_state.default": dropout_state,
    "miopen_rnn.default": miopen_rnn,
    "miopen_rnn_backward.default": miopen_rnn_backward,
    "mkldnn_rnn_layer.default": mkldnn_layer,
    "mkldnn_rnn_layer_backward.default": mkldnn_layer_backward,
    "_thnn_fused_lstm_cell.default": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl.default": lstm_cell_backward,
    "_thnn_fused_gru_cell.default": gru_cell,
    "_thnn_fused_gru_cell_backward.default": gru_cell_backward,
}


def ready(bench):
    """Operators by name; each is tried where torch's own fails."""
    return {f"aten.{name}": function for name, function in OPERATORS.items()}
