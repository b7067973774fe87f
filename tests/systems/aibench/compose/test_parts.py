"""What calls are part of: phases, families, layers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from gnomon.ingest.execution.trace import ExecutionTrace, Node, TensorValue, read_execution_trace
from gnomon.systems.aibench.builder.select import choose
from gnomon.systems.aibench.compose.parts import (
    FAMILIES,
    PHASES,
    family_of,
    layers_of,
    parts_of,
    phases_of,
)
from tests.systems.aibench.composing import MODELS, nn, record_et, torch, train

# -- traces written by hand ----------------------------------------------------------------------

THREAD = "[pytorch|profiler|execution_trace|thread]"


class Written:
    """A trace, call by call."""

    def __init__(self) -> None:
        self.nodes = [node(1, "[pytorch|profiler|execution_trace|process]", 1)]
        self.threads: dict[int, int] = {}

    def call(self, name: str, under: int | None = None, **more) -> int:
        thread = more.get("thread", 1)
        if thread not in self.threads:
            self.threads[thread] = self._add(THREAD, 1, thread=thread)
        return self._add(name, under or self.threads[thread], **more)

    def _add(self, name: str, parent: int, **more) -> int:
        self.nodes.append(node(len(self.nodes) + 1, name, parent, **more))
        return len(self.nodes)

    @property
    def trace(self) -> ExecutionTrace:
        return ExecutionTrace("trace", "1.1.1", tuple(self.nodes), ())


def node(id, name, parent, *, thread=1, sequence=-1, scope=0, ins=(), outs=(), forward_thread=0):
    is_mark = "::" not in name or name.startswith(("autograd::", "torch::"))
    schema = "" if is_mark else f"{name}(Tensor self) -> Tensor"
    return Node(id, name, parent, thread, forward_thread, 0, sequence, 7 if is_mark and not scope else scope,
                0, schema, tuple(map(tensor, ins)), tuple(map(tensor, outs)), "", "", {}, {})  # fmt: skip


def tensor(number: int, shape=(4, 4)) -> TensorValue:
    return TensorValue(number, number, 0, 16, 4, "cpu", "float32", shape, (4, 1))


def phase_of(trace: ExecutionTrace, id: int) -> str:
    return phases_of(trace)[id - 1]


def test_what_the_engine_calls_is_backward():
    written = Written()
    forward = written.call("aten::mm", ins=[1, 2], outs=[3], sequence=5)
    frame = written.call("autograd::engine::evaluate_function: MmBackward0", thread=2)
    back = written.call("MmBackward0", frame, thread=2, scope=1, sequence=5, forward_thread=1)
    product = written.call("aten::mm", back, thread=2)
    again = written.call("## forward ##", back, thread=2)
    recomputed = written.call("aten::relu", again, thread=2)
    adopted = written.call("aten::add", thread=2)  # its caller was never written
    phases = phases_of(written.trace)
    assert phases[forward - 1] == "forward"
    assert {phases[at - 1] for at in (back, product, recomputed, adopted)} == {"backward"}


@pytest.mark.parametrize(
    ("mark", "phase"),
    [
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("Optimizer.zero_grad#SGD.zero_grad", "optimizer"),
        ("## optimizer ##", "optimizer"),
        ("## backward ##", "backward"),
        ("forward-backward", "forward"),
        ("DistributedDataParallel.forward", "forward"),
    ],
)
def test_marks_name_phases(mark, phase):
    written = Written()
    above = written.call(mark)
    call = written.call("aten::add_", above)
    assert phase_of(written.trace, call) == phase


def test_the_nearest_mark_counts():
    written = Written()
    outer = written.call("## backward ##")
    inner = written.call("Optimizer.step#SGD.step", outer)
    call = written.call("aten::add_", inner)
    assert phase_of(written.trace, call) == "optimizer"


def test_gradients_lead_to_the_optimizer_without_marks():
    written = Written()
    written.call("aten::mm", ins=[1, 2], outs=[3], sequence=5)
    back = written.call("MmBackward0", scope=1, sequence=5, forward_thread=1)
    written.call("aten::mm", back, ins=[1, 3], outs=[4])
    norm = written.call("aten::_foreach_norm", ins=[4], outs=[5])
    scale = written.call("aten::mul", ins=[5], outs=[6])
    step = written.call("aten::_foreach_add_", ins=[2, 4])
    loss = written.call("aten::item", ins=[3])
    penalty = written.call("aten::square", ins=[4], outs=[7], sequence=6)
    following = written.call("aten::mm", ins=[1, 2], outs=[4], sequence=7)
    reused = written.call("aten::relu", ins=[4], outs=[8])
    phases = phases_of(written.trace)
    assert [phases[at - 1] for at in (norm, scale, step)] == ["optimizer"] * 3
    assert [phases[at - 1] for at in (loss, penalty, following, reused)] == ["forward"] * 4


def layers(written: Written) -> dict[int, int | None]:
    trace = written.trace
    chosen = [at for at, one in enumerate(trace.nodes) if one.schema]
    found = layers_of(trace, chosen, phases_of(trace))
    return {at + 1: found[at] for at in chosen}


@pytest.mark.parametrize(
    "name",
    ["## layer {} ##", "layers.{}.attention", "model/h.{}/mlp", "blocks[{}]", "Stage {}: MLP"],
)
def test_marks_number_layers(name):
    written = Written()
    calls = [written.call("aten::mm", written.call(name.format(at))) for at in (0, 1, 7)]
    outside = written.call("aten::mm")
    assert layers(written) == dict(zip([*calls, outside], [0, 1, 7, None]))


def test_a_block_goes_before_what_is_numbered_in_it():
    written = Written()
    calls = {}
    for layer in range(2):
        block = written.call(f"## layer {layer} ##")
        for expert in range(3):
            calls[written.call("aten::mm", written.call(f"## expert {expert} ##", block))] = layer
    assert layers(written) == calls


def test_time_is_no_layer():
    written = Written()
    for at in range(3):
        step = written.call(f"ProfilerStep#{at}")
        written.call("aten::mm", written.call(f"## iteration {at} ##", step))
    assert set(layers(written).values()) == {None}


def test_backward_calls_have_the_layer_of_their_forward_call():
    written = Written()
    forward = [
        written.call("aten::linear", written.call(f"## layer {at} ##"), sequence=10 + at)
        for at in range(2)
    ]
    head = written.call("aten::linear", sequence=12)
    found = {forward[0]: 0, forward[1]: 1, head: None}
    for number, layer in ((12, None), (11, 1), (10, 0)):
        frame = written.call("autograd::engine::evaluate_function: AddmmBackward0", thread=2)
        back = written.call(
            "AddmmBackward0", frame, thread=2, scope=1, sequence=number, forward_thread=1
        )
        found[written.call("aten::mm", back, thread=2)] = layer
        found[written.call("aten::add", frame, thread=2)] = layer
        sink = written.call("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                            thread=2)  # fmt: skip
        grad = written.call("torch::autograd::AccumulateGrad", sink, thread=2, scope=1)
        found[written.call("aten::detach", grad, thread=2)] = layer
    found[written.call("aten::add_", written.call("Optimizer.step#SGD.step"))] = None
    assert layers(written) == found


def test_blocks_are_found_by_repetition_and_cut_where_least_is_handed_on():
    """The sum before the first block looks like the one at the end of each block."""
    written = Written()
    names = ["aten::add"]
    for _ in range(4):
        names += ["aten::layer_norm", "aten::linear", "aten::gelu", "aten::linear", "aten::add"]
    names += ["aten::layer_norm", "aten::cross_entropy_loss"]
    # The sum takes what came in, and what came out.
    residual, last, fresh = 1, 2, 3
    calls = []
    for name in names:
        ins = [residual, last] if name == "aten::add" else [last]
        calls.append(written.call(name, ins=ins, outs=[fresh]))
        residual = fresh if name == "aten::add" else residual
        last, fresh = fresh, fresh + 1
    found = layers(written)
    assert [found[at] for at in calls] == [
        None, *(layer for layer in range(4) for _ in range(5)), None, None,
    ]  # fmt: skip


def test_steps_are_no_layers():
    written = Written()
    for _ in range(3):
        for name in ("aten::a", "aten::b", "aten::c", "aten::d", "aten::e", "aten::f"):
            written.call(name, ins=[1])
        written.call("aten::neg", written.call("## backward ##"))
    assert set(layers(written).values()) == {None}


@pytest.mark.parametrize(
    ("name", "schema", "family"),
    [
        ("aten::view", "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", "view"),
        ("aten::split.Tensor", "aten::split.Tensor(Tensor(a -> *) self) -> Tensor(a)[]", "view"),
        ("aten::empty", "aten::empty(SymInt[] size) -> Tensor", "allocation"),
        ("aten::copy_", "aten::copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)", "copy"),
        ("aten::item", "aten::item(Tensor self) -> Scalar", "copy"),
        ("aten::mm", "aten::mm(Tensor self, Tensor mat2) -> Tensor", "gemm"),
        ("aten::add_", "aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)", "elementwise"),
        (
            "c10d::allreduce_",
            "c10d::allreduce_(Tensor[] tensors) -> (Tensor[], Work)",
            "communication",
        ),
        ("record_param_comms", "", "communication"),
        ("mylib::thing", "mylib::thing(Tensor self) -> Tensor", "other"),
    ],
)
def test_families(name, schema, family):
    import msgspec

    one = msgspec.structs.replace(node(1, name, 1), schema=schema)
    assert family_of(one) == family
    assert family in FAMILIES
    assert (
        family_of(msgspec.structs.replace(node(1, "triton_0", 1), kernel_backend="triton"))
        == "compiled"
    )


# -- recorded here -------------------------------------------------------------------------------


def test_a_transformer_has_its_layers(tmp_path):
    trace = record_et(tmp_path / "et.json", MODELS["gpt"](4))
    parts = parts_of(trace, [one.at for one in choose(trace)])
    assert {part.phase for part in parts.values()} == set(PHASES)
    counts = Counter((part.phase, part.layer) for part in parts.values())
    for phase in ("forward", "backward"):
        assert counts[phase, 0] == counts[phase, 1] == counts[phase, 2] > 5
        assert (phase, 3) not in counts
    assert {layer for phase, layer in counts if phase == "optimizer"} == {None}
    assert all(part.family in FAMILIES for part in parts.values())


def test_recomputed_calls_are_backward_and_in_their_layer(tmp_path):
    from torch.utils.checkpoint import checkpoint

    layers = nn.ModuleList(
        nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(3)
    )
    x = torch.randn(4, 8)

    def loss():
        y = x
        for number, layer in enumerate(layers):
            with torch.profiler.record_function(f"layer {number}"):
                y = checkpoint(layer, y, use_reentrant=False)
        return y.sum()

    trace = record_et(tmp_path / "et.json", train(list(layers.parameters()), loss))
    parts = parts_of(trace, [one.at for one in choose(trace)])
    again = [p for at, p in parts.items() if trace.nodes[at].name == "aten::gelu"]
    assert Counter((part.phase, part.layer) for part in again) == {
        (phase, layer): 1 for phase in ("forward", "backward") for layer in range(3)
    }


@pytest.mark.parametrize(
    ("path", "layers", "phases"),
    [
        ("h200/gpt-base/et.json.gz", 12, 3),
        ("h200/linear/et.json.gz", 20, 3),
        ("h200/resnet50/et.json.gz", 5, 3),
        ("public/param/linear_et.json.gz", 21, 3),
        ("public/param/hf_GPT2_et.json.tar.gz", 36, 3),
        ("public/param/resnet_et.json.gz", 5, 3),
    ],
)
def test_layers_of_recorded_jobs(public_data: Path, path, layers, phases):
    trace = read_execution_trace(public_data / path)
    parts = parts_of(trace, [one.at for one in choose(trace)])
    for phase in ("forward", "backward"):
        own = Counter(p.layer for p in parts.values() if p.phase == phase and p.layer is not None)
        assert sorted(own) == list(range(layers))
    assert len({part.phase for part in parts.values()}) == phases
