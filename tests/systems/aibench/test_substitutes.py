"""Do the substitutes do the work of what they stand for? Seen beside torch's own, and its autograd."""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from gnomon.ingest.execution.trace import TensorValue, read_execution_trace  # noqa: E402
from gnomon.systems.aibench.builder.operators import operator_of  # noqa: E402
from gnomon.systems.aibench.builder.provided import modules_for, substitutes  # noqa: E402
from tests.systems.aibench.beside_run import load  # noqa: E402

attention, recurrent, others = load("attention"), load("recurrent"), load("substitutes")
TABLE = {**attention.ready(None), **recurrent.ready(None), **others.ready(None)}
functional = torch.nn.functional

#: Only a GPU has these, and nothing stands for them.
UNCOVERED = {
    "_cslt_compress", "_cslt_sparse_mm", "_cslt_sparse_mm_search", "_mixed_dtypes_linear",
    "_scaled_grouped_mm_v2", "_sparse_semi_structured_addmm", "_sparse_semi_structured_apply",
    "_sparse_semi_structured_apply_dense", "_sparse_semi_structured_linear",
    "_sparse_semi_structured_mm", "_sparse_semi_structured_tile", "_to_sparse_semi_structured",
}  # fmt: skip


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)


def named(key):
    namespace, name, overload = key.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def close(got, wanted, within=1e-5):
    torch.testing.assert_close(
        got, wanted.to(got.dtype), rtol=max(within, 1e-5), atol=within, check_stride=False
    )


# -- the table ------------------------------------------------------------------------------------


def test_the_builder_knows_the_same_table():
    assert set(substitutes()) == set(TABLE)
    assert modules_for(TABLE) == ("attention", "recurrent", "substitutes")
    assert modules_for(["aten.mm.default", "aten.relu.default"]) == ()


def test_all_are_tried_after_torch_itself():
    assert not any(getattr(function, "first", False) for function in TABLE.values())


@pytest.mark.parametrize("key", sorted(TABLE))
def test_a_substitute_takes_what_the_operator_takes(key):
    arguments = named(key)._schema.arguments
    plain = [argument.name for argument in arguments if not argument.kwarg_only]
    by_name = {argument.name: None for argument in arguments if argument.kwarg_only}
    inspect.signature(TABLE[key]).bind(*plain, **by_name)


def test_what_only_a_gpu_has_is_covered_but_for_a_known_rest():
    torchgen = pytest.importorskip("torchgen")
    listed = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    missing = set()
    for operator in yaml.safe_load(listed.read_text()):
        keys = {key.strip() for keys in operator.get("dispatch", {}) for key in keys.split(",")}
        has_more = any(key == "CPU" or key.startswith("Composite") for key in keys)
        name, _, overload = operator["func"].split("(")[0].partition(".")
        if "CUDA" in keys and not has_more and f"aten.{name}.{overload or 'default'}" not in TABLE:
            missing.add(name)
    assert missing == UNCOVERED


# -- attention ------------------------------------------------------------------------------------


def heads(batch=2, count=4, length=20, size=16, kinds=3, dtype=torch.float32):
    """Queries, keys and values as they are cut from one product: strided."""
    whole = torch.randn(batch, length, kinds, count, size, dtype=dtype)
    return [whole[:, :, kind].transpose(1, 2) for kind in range(kinds)]


def reference(q, k, v, grad, bias=None, causal=False, scale=None):
    """The result and the gradients, by autograd in double precision."""
    given = [one.detach().double().requires_grad_() for one in (q, k, v)]
    bias = None if bias is None else bias.detach().double().requires_grad_()
    out = functional.scaled_dot_product_attention(
        *given, attn_mask=bias, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    wanted = [*given, *([] if bias is None else [bias])]
    return out, torch.autograd.grad(out, wanted, grad.double())


def sdp_cudnn(q, k, v, grad, bias, causal, scale):
    out, sums, _, _, max_q, max_k, seed, offset, _ = attention.sdp_cudnn(
        q, k, v, bias, True, 0.0, causal, False, scale=scale
    )
    return out, attention.sdp_cudnn_backward(
        grad,
        q,
        k,
        v,
        out,
        sums,
        seed,
        offset,
        bias,
        None,
        None,
        max_q,
        max_k,
        0.0,
        causal,
        scale=scale,
    )


def sdp_flash(q, k, v, grad, bias, causal, scale):
    out, sums, _, _, max_q, max_k, state, unused, _ = attention.sdp_flash(
        q, k, v, 0.0, causal, False, scale=scale
    )
    return out, attention.sdp_flash_backward(
        grad, q, k, v, out, sums, None, None, max_q, max_k, 0.0, causal, state, unused, scale=scale
    )


def sdp_efficient(q, k, v, grad, bias, causal, scale):
    out, sums, seed, offset = attention.sdp_efficient(
        q, k, v, bias, True, 0.0, causal, scale=scale
    )
    return out, attention.sdp_efficient_backward(
        grad, q, k, v, bias, out, sums, seed, offset, 0.0, [True] * 4, causal, scale=scale
    )


def sdp_for_cpu(q, k, v, grad, bias, causal, scale):
    """What the CPU has, done without it."""
    out, sums = attention.sdp_for_cpu(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)
    return out, attention.sdp_for_cpu_backward(
        grad, q, k, v, out, sums, 0.0, causal, attn_mask=bias, scale=scale
    )


KINDS = [sdp_cudnn, sdp_flash, sdp_efficient, sdp_for_cpu]


@pytest.mark.parametrize("plainly", [False, True], ids=["fused", "plain"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "causal", "with_bias", "scale"),
    [
        ({}, False, False, None),
        ({}, True, False, 0.3),
        ({"length": 33, "size": 8}, True, False, None),
        ({}, False, True, None),
    ],
)
def test_attention_and_its_gradients(kind, plainly, shape, causal, with_bias, scale, monkeypatch):
    if plainly:
        monkeypatch.setattr(attention, "_WAYS", attention._WAYS[2:])
    monkeypatch.setattr(attention, "_chosen", {})
    q, k, v = heads(**shape)
    grad = torch.randn_like(q)
    takes_bias = with_bias and kind is not sdp_flash
    bias = torch.randn(2, 1, q.shape[2], k.shape[2]) if takes_bias else None
    out, wanted = reference(q, k, v, grad, bias, causal, scale)
    with torch.inference_mode():
        got, grads = kind(q, k, v, grad, bias, causal, scale)
    close(got, out)
    assert all(one is None or one.shape == other.shape for one, other in zip(grads, wanted))
    for one, other in zip(grads, wanted):
        close(one, other)


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_of_fewer_bits(kind, dtype):
    q, k, v = heads(dtype=dtype)
    grad = torch.randn_like(q)
    out, wanted = reference(q, k, v, grad, None, True)
    got, grads = kind(q, k, v, grad, None, True, None)
    assert {one.dtype for one in (got, *grads[:3])} == {dtype}
    close(got, out, 0.03)
    for one, other in zip(grads[:3], wanted):
        close(one, other, 0.06)


@pytest.mark.parametrize("kind", [sdp_cudnn, sdp_flash])
def test_heads_may_share_keys(kind):
    q = heads(count=6, kinds=1)[0]
    k, v = heads(count=2, kinds=2)
    grad = torch.randn_like(q)
    out, wanted = reference(q, k, v, grad, None, True)
    got, grads = kind(q, k, v, grad, None, True, None)
    close(got, out)
    for one, other in zip(grads, wanted):
        close(one, other)


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_the_backward_pass_drops_what_the_forward_pass_dropped(dropout):
    q, k, v = heads(length=12)
    grad = torch.randn_like(q)
    out, sums, seed, offset = attention.sdp_efficient(q, k, v, None, True, dropout)
    grads = attention.sdp_efficient_backward(
        grad, q, k, v, None, out, sums, seed, offset, dropout, [True, True, True, False]
    )
    kept = attention.Rule(dropout=dropout, seed=seed).kept(torch.empty(2, 4, 12, 12))
    given = [one.detach().requires_grad_() for one in (q, k, v)]
    weights = (given[0] @ given[1].transpose(-2, -1) / 4.0).softmax(-1) * kept
    wanted = torch.autograd.grad(weights @ given[2], given, grad)
    close(out, weights @ given[2])
    for one, other in zip(grads, wanted):
        close(one, other)
    assert abs(float((kept == 0).float().mean()) - dropout) < 0.1


def test_two_calls_drop_differently():
    q, k, v = heads()
    first, second = (attention.sdp_cudnn(q, k, v, None, True, 0.5) for _ in range(2))
    assert int(first[6]) != int(second[6])
    assert not torch.equal(first[0], second[0])


def looks(made):
    return [(t.dtype, tuple(t.shape)) if isinstance(t, torch.Tensor) else t for t in made]


def as_meta(values):
    return [v.to("meta") if isinstance(v, torch.Tensor) else v for v in values]


FORWARDS = {
    "_scaled_dot_product_cudnn_attention": ("heads", [None, True, 0.0, True, False]),
    "_scaled_dot_product_flash_attention": ("heads", [0.0, True, False]),
    "_scaled_dot_product_efficient_attention": ("heads", [None, True, 0.0, True]),
    "_flash_attention_forward": ("length", [None, None, 20, 20, 0.0, True, False]),
    "_efficient_attention_forward": ("length", [None, None, None, None, None, 0.0, 1, True]),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_results_look_as_torch_says(name):
    second, more = FORWARDS[name]
    given = heads()
    if second == "length":
        given = [one.transpose(1, 2) for one in given]
    key = f"aten.{name}.default"
    wanted = named(key)(*as_meta(given), *more)
    got = TABLE[key](*given, *more)
    assert looks(got) == looks(wanted)
    if "flash" not in name:  # whose description has other strides than its kernel
        assert got[0].stride() == wanted[0].stride()


def test_sequences_end_to_end():
    ends = torch.tensor([0, 5, 12, 12, 20], dtype=torch.int32)
    q, k, v, grad = torch.randn(4, 20, 3, 8)
    given = (q, k, v, ends, ends, 8, 8, 0.0, True)
    out, sums, state, unused, _ = attention.flash_forward(*given, False)
    grads = attention.flash_backward(
        grad, q, k, v, out, sums, ends, ends, 8, 8, 0.0, True, state, unused
    )
    assert sums.shape == (3, 20)
    for a, b in ((0, 5), (5, 12), (12, 20)):
        part = [one[a:b].transpose(0, 1).unsqueeze(0) for one in (q, k, v, grad)]
        wanted, of_given = reference(*part, None, True)
        close(out[a:b], wanted[0].transpose(0, 1))
        for one, other in zip(grads, of_given):
            close(one[a:b], other[0].transpose(0, 1))


def test_sequences_whose_ends_were_made_up_are_as_long_as_each_other():
    ends = torch.zeros(5, dtype=torch.int32)
    q, k, v = torch.randn(3, 20, 3, 8)
    out, *_ = attention.flash_forward(q, k, v, ends, ends, 5, 5, 0.0, False, False)
    true = torch.tensor([0, 5, 10, 15, 20], dtype=torch.int32)
    close(out, attention.flash_forward(q, k, v, true, true, 5, 5, 0.0, False, False)[0])


def test_efficient_attention_of_sequences_end_to_end():
    ends = torch.tensor([0, 5, 12, 20], dtype=torch.int32)
    q, k, v, grad = torch.randn(4, 1, 20, 3, 8)
    out, sums, seed, offset, max_q, max_k = attention.efficient_forward(
        q, k, v, None, ends, ends, 8, 8, 0.0, 1, True
    )
    grads = attention.efficient_backward(
        grad, q, k, v, None, out, ends, ends, 8, 8, sums, 0.0, seed, offset, 1, False
    )
    assert (sums.shape, max_q, max_k) == ((3, 3, 32), 8, 8)
    part = [one[:, 5:12].transpose(1, 2) for one in (q, k, v, grad)]
    wanted, of_given = reference(*part, None, True)
    close(out[:, 5:12], wanted.transpose(1, 2))
    for one, other in zip(grads, of_given):
        close(one[:, 5:12], other.transpose(1, 2))


@pytest.mark.parametrize(("rows", "columns"), [(6, 6), (4, 9), (9, 4)])
def test_windows_and_slopes(rows, columns):
    q = torch.randn(1, rows, 2, 8)
    k, v = torch.randn(2, 1, columns, 2, 8)
    slopes = torch.tensor([0.5, 0.25])
    out, *_ = attention.flash_forward(
        q,
        k,
        v,
        None,
        None,
        rows,
        columns,
        0.0,
        True,
        False,
        window_size_left=2,
        alibi_slopes=slopes,
    )
    for head in range(2):
        for row in range(rows):
            last = row + columns - rows
            seen = [at for at in range(columns) if last - 2 <= at <= last]
            if not seen:
                assert out[0, row, head].abs().max() == 0
                continue
            scores = (k[0, seen, head] @ q[0, row, head]) / math.sqrt(8)
            scores = scores - slopes[head] * torch.tensor([float(abs(at - last)) for at in seen])
            close(out[0, row, head], scores.softmax(0) @ v[0, seen, head])


def test_eight_bits_are_widened():
    q, k, v = (one.to(torch.float8_e4m3fn) for one in heads())
    scale = torch.full((2, 4), 0.5)
    out, *_ = attention.sdp_flash_quantized(q, k, v, scale, scale, None, 0.0, False, False)
    wanted, _ = reference(q.float() / 2, k.float() / 2, v.float(), torch.zeros(2, 4, 20, 16))
    assert out.dtype == torch.bfloat16
    close(out, wanted, 0.05)


def test_attention_into_a_tensor_that_is_there():
    q, k, v = torch.randn(3, 2, 10, 3, 8)
    into = torch.empty_like(q)
    given = (q, k, v, None, None, 10, 10, 0.0, False, False)
    sums = attention.flash_forward_inplace(into, *given)
    close(into, attention.flash_forward(*given)[0])
    assert sums.shape == (2, 3, 10)


def test_gradients_that_share_memory():
    q, k, v, grad = torch.randn(4, 2, 10, 3, 8)
    out, sums, seed, offset, *_ = attention.efficient_forward(
        q, k, v, None, None, None, None, None, 0.0, 0, True
    )
    of_q, of_k, of_v, _ = attention.efficient_backward(
        grad, q, k, v, None, out, None, None, 10, 10, sums, 0.0, seed, offset, 0, False,
        shared_storage_dqdkdv=True,
    )  # fmt: skip
    assert of_q.untyped_storage().data_ptr() == of_v.untyped_storage().data_ptr()
    wanted = reference(*(one.transpose(1, 2) for one in (q, k, v, grad)))[1]
    for one, other in zip((of_q, of_k, of_v), wanted):
        close(one, other.transpose(1, 2))


def test_attention_of_a_whole_layer():
    x = torch.randn(2, 6, 8)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    weights = [
        layer.in_proj_weight,
        layer.in_proj_bias,
        layer.out_proj.weight,
        layer.out_proj.bias,
    ]
    with torch.inference_mode():
        got = attention.triton_multi_head(x, x, x, 8, 2, *weights)
        close(got, layer(x, x, x, need_weights=False)[0])
    q, k, v = heads()
    close(attention.triton_attention(q, k, v), reference(q, k, v, torch.zeros_like(q))[0])


# -- recurrent layers -----------------------------------------------------------------------------


LAYERS = {
    "lstm": (2, torch.nn.LSTM, {}),
    "lstm of two layers": (2, torch.nn.LSTM, {"num_layers": 2, "batch_first": True}),
    "lstm both ways, no bias": (2, torch.nn.LSTM, {"bidirectional": True, "bias": False}),
    "lstm with projections": (2, torch.nn.LSTM, {"proj_size": 3}),
    "gru": (3, torch.nn.GRU, {"num_layers": 2, "bidirectional": True}),
    "tanh": (1, torch.nn.RNN, {"batch_first": True}),
    "relu": (0, torch.nn.RNN, {"nonlinearity": "relu"}),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("is_saved", [True, False], ids=["saved", "again"])
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_and_their_gradients(name, is_saved, is_packed):
    mode, kind, options = LAYERS[name]
    layer = kind(4, 5, **options)
    batch_first = options.get("batch_first", False) and not is_packed
    data = torch.randn(3, 7, 4) if batch_first else torch.randn(7, 3, 4)
    sizes = []
    if is_packed:
        layer.batch_first = False
        packed = torch.nn.utils.rnn.pack_padded_sequence(data, torch.tensor([7, 5, 2]))
        data, sizes = packed.data, packed.batch_sizes.tolist()
    data.requires_grad_()
    weights = list(layer.parameters())
    count, ways = layer.num_layers, 1 + layer.bidirectional
    hx = torch.randn(count * ways, 3, layer.proj_size or 5, requires_grad=True)
    cx = torch.randn(count * ways, 3, 5, requires_grad=True) if mode == 2 else None
    state = (hx, cx) if mode == 2 else hx
    given = packed._replace(data=data) if is_packed else data
    out, last = layer(given, state)
    out = out.data if is_packed else out
    last = last if mode == 2 else (last,)
    grads = [torch.randn_like(one) for one in (out, *last)]
    leaves = [data, hx, *([cx] if mode == 2 else []), *weights]
    wanted = torch.autograd.grad([out, *last], leaves, grads)
    plain = [None if one is None else one.detach() for one in (data, hx, cx)]
    flat = [weight.detach() for weight in weights]
    how = (
        mode,
        5,
        layer.proj_size,
        count,
        batch_first,
        0.0,
        True,
        bool(layer.bidirectional),
        sizes,
    )
    stride = len(weights) // (count * ways)
    with torch.inference_mode():
        made = recurrent.cudnn_rnn(plain[0], flat, stride, None, *plain[1:], *how, None)
        reserve = made[3] if is_saved else made[3].clone()
        got = recurrent.cudnn_rnn_backward(
            plain[0], flat, stride, made[4], *plain[1:], made[0], grads[0], grads[1],
            grads[2] if mode == 2 else None, *how, None, reserve, [True] * 4,
        )  # fmt: skip
    for one, other in zip(made, (out, *last)):
        close(one, other.detach())
    of_data, of_hx, of_cx, of_weights = got
    found = [of_data, of_hx, *([of_cx] if mode == 2 else []), *of_weights]
    for one, other in zip(found, wanted, strict=True):
        close(one, other)


def test_gradients_of_weights_lie_in_one_tensor_matrices_first():
    layer = torch.nn.LSTM(4, 5, 2)
    weights = [weight.detach() for weight in layer.parameters()]
    hx = torch.zeros(2, 3, 5)
    how = (2, 5, 0, 2, False, 0.0, True, False, [])
    data = torch.randn(7, 3, 4)
    made = recurrent.cudnn_rnn(data, weights, 4, None, hx, hx, *how, None)
    *_, grads = recurrent.cudnn_rnn_backward(
        data,
        weights,
        4,
        made[4],
        hx,
        hx,
        made[0],
        made[0],
        None,
        None,
        *how,
        None,
        made[3],
        [True] * 4,
    )
    assert len({one.untyped_storage().data_ptr() for one in grads}) == 1
    assert [one.storage_offset() for one in grads] == [0, 80, 380, 400, 180, 280, 420, 440]


def test_without_training_nothing_is_saved():
    layer = torch.nn.GRU(4, 5)
    weights = [weight.detach() for weight in layer.parameters()]
    data, hx = torch.randn(7, 3, 4), torch.zeros(1, 3, 5)
    made = recurrent.miopen_rnn(
        data, weights, 4, hx, None, 3, 5, 1, False, 0.0, False, False, [], None
    )
    close(made[0], layer(data, hx)[0].detach())
    assert not hasattr(made[3], "graph")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("has_biases", [False, True])
def test_a_layer_of_onednn(reverse, has_biases):
    key = "aten.mkldnn_rnn_layer.default"
    data = torch.randn(7, 3, 4)
    weights = [torch.randn(20, 4), torch.randn(20, 5), torch.randn(20), torch.randn(20)]
    if not has_biases:
        weights[2:] = [torch.zeros(20), torch.zeros(20)]
    state = [torch.randn(3, 5), torch.randn(3, 5)]
    more = (reverse, [], 2, 5, 1, has_biases, False, False, True)
    leaves = [one.clone().requires_grad_() for one in (data, *weights, *state)]
    wanted = named(key)(*leaves, *more)
    made = TABLE[key](data, *weights, *state, *more)
    for one, other in zip(made[:3], wanted):
        close(one, other.detach())
    grad = torch.randn(7, 3, 5)
    grads = torch.autograd.grad(wanted[0], leaves, grad, allow_unused=True)
    back = TABLE["aten.mkldnn_rnn_layer_backward.default"](
        data, *weights, *state, *made[:3], grad, None, None, reverse, 2, 5, 1, has_biases, True,
        False, [], False, made[3],
    )  # fmt: skip
    for number, (one, other) in enumerate(zip(back, grads, strict=True)):
        if has_biases or number not in (3, 4):
            close(one, other, 1e-4)


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_cell_of_an_lstm(has_bias):
    gates, hidden, cx = torch.randn(3, 20), torch.randn(3, 20), torch.randn(3, 5)
    biases = [torch.randn(20), torch.randn(20)] if has_bias else [None, None]
    given = [one.clone().requires_grad_() for one in (gates, cx)]
    whole = given[0] + hidden + (biases[0] + biases[1] if has_bias else 0)
    i, f, g, o = whole.chunk(4, 1)
    cy = f.sigmoid() * given[1] + i.sigmoid() * g.tanh()
    hy = o.sigmoid() * cy.tanh()
    grads = torch.randn(2, 3, 5)
    wanted = torch.autograd.grad([hy, cy], given, list(grads))
    got = recurrent.lstm_cell(gates, hidden, cx, *biases)
    close(got[0], hy.detach())
    close(got[1], cy.detach())
    of_gates, of_cx, of_bias = recurrent.lstm_cell_backward(*grads, cx, got[1], got[2], has_bias)
    close(of_gates, wanted[0])
    close(of_cx, wanted[1])
    assert of_bias is None or torch.equal(of_bias, of_gates.sum(0))
    only_cell = recurrent.lstm_cell_backward(None, grads[1], cx, got[1], got[2], False)
    close(only_cell[1], grads[1] * f.sigmoid().detach())


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_cell_of_a_gru(has_bias):
    cell = torch.nn.GRUCell(4, 5, bias=has_bias)
    x, hx = torch.randn(3, 4), torch.randn(3, 5)
    gates, hidden = x @ cell.weight_ih.T, hx @ cell.weight_hh.T
    biases = [cell.bias_ih, cell.bias_hh] if has_bias else [None, None]
    leaves = [one.detach().clone().requires_grad_() for one in (gates, hidden, hx)]
    (i_r, i_z, i_n), (h_r, h_z, h_n) = (
        (one if bias is None else one + bias).chunk(3, 1) for one, bias in zip(leaves, biases)
    )
    reset, keep = (i_r + h_r).sigmoid(), (i_z + h_z).sigmoid()
    hy = (1 - keep) * (i_n + reset * h_n).tanh() + keep * leaves[2]
    close(hy.detach(), cell(x, hx).detach())
    grad = torch.randn(3, 5)
    wanted = torch.autograd.grad(hy, leaves, grad)
    with torch.no_grad():
        got, workspace = recurrent.gru_cell(gates, hidden, hx, *biases)
        found = recurrent.gru_cell_backward(grad, workspace, has_bias)
    close(got, hy.detach())
    assert workspace.shape == (3, 25)
    for one, other in zip(found, wanted):
        close(one, other)
    assert (found[3] is None) != has_bias


# -- normalisation --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_batch_norm_and_its_gradients(dtype, memory_format):
    x = torch.randn(4, 3, 6, 6, dtype=dtype).to(memory_format=memory_format)
    weight, bias = torch.randn(3), torch.randn(3)
    mean, var = torch.zeros(3), torch.ones(3)
    grad = torch.randn_like(x)
    given = [one.detach().double().requires_grad_() for one in (x, weight, bias)]
    out = functional.batch_norm(given[0], None, None, *given[1:], True, 0.1, 1e-5)
    wanted = torch.autograd.grad(out, given, grad.double())
    got, saved_mean, saved_var, reserve = others.batch_norm(
        x, weight, bias, mean, var, True, 0.1, 1e-5
    )
    grads = others.batch_norm_backward(
        x, grad, weight, mean, var, saved_mean, saved_var, 1e-5, reserve
    )
    within = 1e-4 if dtype == torch.float32 else 0.05
    close(got, out.detach(), within)
    for one, other in zip(grads, wanted):
        close(one, other, within)
    close(mean, x.float().mean((0, 2, 3)) * 0.1, 1e-3)
    assert reserve.dtype == torch.uint8
    assert (got.dtype, grads[0].stride()) == (dtype, x.stride())
    assert len(others.miopen_batch_norm(x, weight, bias, None, None, True, 0.1, 1e-5)) == 3
    plain, *saved = others.batch_norm(x, weight, bias, mean, var, False, 0.1, 1e-5)
    close(plain, functional.batch_norm(x, mean, var, weight, bias), within)
    assert [one.numel() for one in saved] == [0, 0, 0]


@pytest.mark.parametrize("has_weight", [False, True])
def test_batch_norm_in_parts_is_batch_norm(has_weight):
    whole, grad = torch.randn(6, 3, 4, 4), torch.randn(6, 3, 4, 4)
    weight = torch.randn(3) if has_weight else None
    bias = torch.randn(3) if has_weight else None
    running = torch.zeros(3), torch.ones(3)
    given = [one.clone().requires_grad_() for one in (whole, weight, bias) if one is not None]
    expected = torch.zeros(3), torch.ones(3)
    out = functional.batch_norm(given[0], *expected, *(given[1:] or (None, None)), True, 0.1, 1e-5)
    wanted = torch.autograd.grad(out, given, grad)
    parts, grads = (whole[:4], whole[4:]), (grad[:4], grad[4:])
    stats = [others.batch_norm_stats(part, 1e-5) for part in parts]
    means, invstds = (torch.stack(one) for one in zip(*stats))
    counts = torch.tensor([64.0, 32.0])
    mean, invstd = others.gather_stats_with_counts(
        whole, means, invstds, *running, 0.1, 1e-5, counts
    )
    reduced = []
    for part, of_part, count in zip(parts, grads, counts):
        got = others.batch_norm_elemt(part, weight, bias, mean, invstd, 1e-5)
        close(got, out[:4].detach() if count == 64 else out[4:].detach())
        reduced.append(
            others.reduce_norm_backward(of_part, part, mean, invstd, weight, True, True, True)
        )
    sums = [sum(one) for one in zip(*reduced)]
    for part, of_part, place in zip(parts, grads, (slice(4), slice(4, 6))):
        got = others.norm_backward_elemt(
            of_part, part, mean, invstd, weight, *sums[:2], counts.int()
        )
        close(got, wanted[0][place], 1e-4)
    for one, other in zip(sums[2:], wanted[1:]):
        close(one, other, 1e-4)
    for one, other in zip(running, expected):
        close(one, other)
    evenly = others.gather_stats(whole, means[:1], invstds[:1], None, None, 0.1, 1e-5, 64)
    close(evenly[0], means[0])


@pytest.mark.parametrize("shape", [(5,), (4, 5)])
@pytest.mark.parametrize("has_weight", [False, True])
def test_gradients_of_rms_norm(shape, has_weight):
    x, grad = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    weight = torch.randn(shape) if has_weight else None
    given = [one.clone().requires_grad_() for one in (x, weight) if one is not None]
    out = functional.rms_norm(given[0], shape, given[1] if has_weight else None, 1e-6)
    wanted = torch.autograd.grad(out, given, grad)
    dims = list(range(3 - len(shape), 3))
    rstd = (x.square().mean(dims, keepdim=True) + 1e-6).rsqrt()
    got = others.rms_norm_backward(grad, x, list(shape), rstd, weight, [True, True])
    for one, other in zip(got, wanted):
        close(one, other)
    assert (got[1] is None) != has_weight


# -- convolution, grids, losses, dropout ----------------------------------------------------------


def test_convolutions():
    x, weight, bias = torch.randn(2, 4, 9, 9), torch.randn(6, 2, 3, 3), torch.randn(6)
    sizes = ([1, 0], [2, 1], [1, 2])
    plain = functional.conv2d(x, weight, None, [2, 1], [1, 0], [1, 2], 2)
    close(others.convolution(x, weight, *sizes, 2, False, False, True), plain)
    close(others.miopen_convolution(x, weight, bias, *sizes, 2, False, False),
          plain + bias.reshape(-1, 1, 1))  # fmt: skip
    swapped = ([2, 1], [1, 0], [1, 2], 2)
    close(others.convolution_relu(x, weight, None, *swapped), plain.relu())
    z = torch.randn_like(plain)
    close(others.convolution_add_relu(x, weight, z, 0.5, None, *swapped), (plain + 0.5 * z).relu())
    out = torch.empty_like(plain)
    TABLE["aten.cudnn_convolution.out"](x, weight, *sizes, 2, False, False, True, out=out)
    close(out, plain)


def test_transposed_and_depthwise_convolutions():
    x, weight = torch.randn(2, 4, 5, 5), torch.randn(4, 3, 3, 3)
    wanted = functional.conv_transpose2d(x, weight, None, 2, 1, 1)
    got = others.convolution_transpose(
        x, weight, [1, 1], [1, 1], [2, 2], [1, 1], 1, False, False, True
    )
    close(got, wanted)
    miopen = others.miopen_convolution_transpose(
        x, weight, None, [1, 1], [1, 1], [2, 2], [1, 1], 1, False, False
    )
    close(miopen, wanted)
    own = torch.randn(4, 1, 3, 3)
    close(others.depthwise(x, own, [3, 3], None, [1, 1], [1, 1], [1, 1]),
          functional.conv2d(x, own, None, 1, 1, 1, 4))  # fmt: skip
    cube, kernel = torch.randn(1, 2, 5, 5, 5), torch.randn(3, 2, 3, 3, 3)
    close(others.slow_conv3d(cube, kernel, [3] * 3, None, [1] * 3, [1] * 3),
          functional.conv3d(cube, kernel, None, 1, 1))  # fmt: skip


def test_grids():
    x, theta = torch.randn(2, 3, 5, 5), torch.randn(2, 2, 3)
    grid = others.affine_grid(theta, 2, 3, 4, 4)
    close(grid, functional.affine_grid(theta, [2, 3, 4, 4], align_corners=True))
    leaves = [one.clone().requires_grad_() for one in (x, grid)]
    out = functional.grid_sample(*leaves, align_corners=True)
    close(others.grid_sampler(x, grid), out.detach())
    grad = torch.randn_like(out)
    for one, other in zip(
        others.grid_sampler_backward(x, grid, grad), torch.autograd.grad(out, leaves, grad)
    ):
        close(one, other, 1e-4)
    leaf = theta.clone().requires_grad_()
    made = functional.affine_grid(leaf, [2, 3, 4, 4], align_corners=True)
    of_grid = torch.randn_like(made)
    close(
        others.affine_grid_backward(of_grid, 2, 3, 4, 4),
        torch.autograd.grad(made, leaf, of_grid)[0],
        1e-4,
    )


@pytest.mark.parametrize("as_tensors", [False, True])
def test_the_loss_of_aligned_sequences(as_tensors):
    logits = torch.randn(8, 2, 5).log_softmax(-1).requires_grad_()
    targets = torch.randint(1, 5, (5,), dtype=torch.int32)
    lengths = ([8, 7], [3, 2])
    wanted = functional.ctc_loss(logits, targets, *lengths, reduction="none")
    grad = torch.autograd.grad(wanted.sum(), logits)[0]
    given = [torch.tensor(one) for one in lengths] if as_tensors else lengths
    loss, got = others.ctc_loss(logits.detach(), targets, *given, 0, True, False)
    close(loss, wanted.detach())
    close(got, grad)


@given(st.floats(0.1, 0.9))
def test_prop_dropout_keeps_a_share_and_scales_it(keep):
    x = torch.ones(400)
    out, mask = others.fused_dropout(x, keep)
    assert mask.dtype == torch.uint8
    assert abs(float(mask.float().mean()) - keep) < 0.15
    torch.testing.assert_close(out, mask / keep)
    torch.testing.assert_close(others.masked_scale(x, mask, 1 / keep), out)


def test_gradients_of_bags_whose_forward_pass_saved_less():
    table = torch.randn(10, 4, requires_grad=True)
    indices, offsets = torch.tensor([1, 2, 2, 7, 9, 0]), torch.tensor([0, 2, 4])
    out = functional.embedding_bag(indices, table, offsets, mode="sum")
    grad = torch.randn_like(out)
    wanted = torch.autograd.grad(out, table, grad)[0]
    nothing = torch.empty(0, dtype=torch.int64)
    got = others.bag_backward(grad, indices, nothing, nothing, nothing, 10, False, 0, None, -1)
    close(got, wanted)
    of_weights = others.bag_weights_backward(
        grad, table.detach(), indices, offsets, nothing, 0, -1
    )
    assert of_weights.shape == (6,)


# -- products -------------------------------------------------------------------------------------


def test_products_of_another_type():
    a, b, c = (torch.randn(2, 4, 4, dtype=torch.bfloat16) for _ in range(3))
    wide = torch.float32
    close(TABLE["aten.mm.dtype"](a[0], b[0], wide), a[0].float() @ b[0].float())
    close(TABLE["aten.bmm.dtype"](a, b, wide), a.float() @ b.float())
    close(
        TABLE["aten.addmm.dtype"](c[0], a[0], b[0], wide, beta=2, alpha=3),
        2 * c[0].float() + 3 * (a[0].float() @ b[0].float()),
    )
    close(TABLE["aten.baddbmm.dtype"](c, a, b, wide), c.float() + a.float() @ b.float())
    out = torch.empty(4, 4)
    TABLE["aten.mm.dtype_out"](a[0], b[0], wide, out=out)
    close(out, a[0].float() @ b[0].float())


def test_weights_of_four_bits():
    weight = torch.randint(0, 256, (64, 32), dtype=torch.uint8)
    key = "aten._convert_weight_to_int4pack.default"
    packed = TABLE[key](weight, 2)
    assert looks([packed]) == looks([named(key)(weight.to("meta"), 2)])
    x = torch.randn(5, 64, dtype=torch.bfloat16)
    scales = torch.rand(2, 64, 2, dtype=torch.bfloat16)
    got = others.int4_mm(x, packed, 32, scales)
    whole = torch.stack([weight >> 4, weight & 15], -1).reshape(64, 64).float()
    by = scales.float().repeat_interleave(32, 0)  # [k, n, 2]
    dense = (whole - 8) * by[..., 0].T + by[..., 1].T
    assert got.dtype == torch.bfloat16
    close(got, x.float() @ dense.T, 0.5)


def test_products_of_groups():
    eight = torch.float8_e4m3fn
    a, b = torch.randn(6, 16).to(eight), torch.randn(2, 16, 8).to(eight)
    of_rows, of_columns = torch.rand(6), torch.rand(2, 8)
    ends = torch.tensor([2, 6], dtype=torch.int32)
    got = others.scaled_grouped_mm(a, b, of_rows, of_columns, ends, out_dtype=torch.float32)
    wanted = torch.cat(
        [
            a[:2].float() @ b[0].float() * of_columns[0],
            a[2:].float() @ b[1].float() * of_columns[1],
        ]
    )
    close(got, wanted * of_rows.unsqueeze(1))
    even = others.scaled_grouped_mm(a, b, of_rows, of_columns, ends * 0, out_dtype=torch.float32)
    assert even.shape == got.shape
    both = others.scaled_grouped_mm(
        b.transpose(1, 2), b, of_columns, of_columns, out_dtype=torch.float32
    )
    close(both[1], (b[1].float().T @ b[1].float()) * of_columns[1].outer(of_columns[1]))
    flat = others.scaled_grouped_mm(
        a.T.float().to(eight), torch.randn(6, 8).to(eight), torch.rand(32), torch.rand(16), ends,
        out_dtype=torch.float32,
    )  # fmt: skip
    assert flat.shape == (2, 16, 8)
    wide = others.scaled_grouped_mm(
        b.transpose(1, 2), torch.randn(16, 6).to(eight), of_columns, torch.rand(6), ends
    )
    assert (wide.shape, wide.dtype) == ((8, 6), torch.bfloat16)


# -- the rest -------------------------------------------------------------------------------------


def test_what_speaks_to_an_allocator():
    x = torch.randn(4)
    assert others.nothing(x, torch.Stream()) is None
    pinned = others.pinned(x)
    assert torch.equal(pinned, x)
    assert pinned.data_ptr() != x.data_ptr()


def test_numbers_from_keys():
    key = torch.tensor([3, 5], dtype=torch.uint64)
    keys = others.split_key(key, 4)
    assert (keys.shape, keys.dtype) == ((4, 2), torch.uint64)
    assert torch.equal(keys.view(torch.int64), others.split_key(key, 4).view(torch.int64))
    folded = [others.fold_key(key, data).view(torch.int64) for data in (1, 2)]
    assert not torch.equal(*folded)
    first, again = (others.philox_normal(torch.empty(100), key, 2.0, 0.1) for _ in range(2))
    assert torch.equal(first, again)
    assert abs(float(first.mean()) - 2.0) < 0.1
    drawn = others.philox_uniform(torch.empty(100), keys[0], 1.0, 3.0)
    assert float(drawn.min()) >= 1.0
    assert float(drawn.max()) <= 3.0


# -- recordings -----------------------------------------------------------------------------------


def recorded_calls(path):
    """The operators of a recording that have substitutes, once for each look."""
    seen = set()
    for node in read_execution_trace(path).nodes:
        operator = operator_of(node.schema) if node.schema else None
        if operator is None or operator.key not in TABLE:
            continue
        look = (
            operator.key,
            repr([(v.shape, v.dtype) if isinstance(v, TensorValue) else v for v in node.inputs]),
        )
        if look not in seen:
            seen.add(look)
            yield operator, node


def rebuilt(value):
    if isinstance(value, tuple):
        return [rebuilt(part) for part in value]
    if not isinstance(value, TensorValue):
        return value
    dtype = getattr(torch, value.dtype)
    if value.strides is None:
        return torch.empty(value.shape, dtype=dtype, device="meta")
    return torch.empty_strided(value.shape, value.strides, dtype=dtype, device="meta")


@pytest.mark.parametrize("name", ["gpt-base", "gpt-l6", "overlap"])
def test_results_look_as_recorded_on_a_gpu(name, public_data):
    found = 0
    for operator, node in recorded_calls(public_data / "h200" / name / "et.json.gz"):
        by_name = {
            a.name: rebuilt(v) for v, a in zip(node.inputs, operator.arguments) if a.by_name
        }
        plain = [rebuilt(v) for v, a in zip(node.inputs, operator.arguments) if not a.by_name]
        made = TABLE[operator.key](*plain, **by_name)
        for one, wanted in zip(made, node.outputs, strict=True):
            if not isinstance(wanted, TensorValue):
                assert not isinstance(wanted, int) or one == wanted
                continue
            assert tuple(one.shape) == wanted.shape
            assert one.dtype == getattr(torch, wanted.dtype)
            assert one.stride() == (wanted.strides or one.stride())
            found += 1
    assert found >= 6
