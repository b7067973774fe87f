from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.model.accelerator.kernel_time import KernelTimes
from gnomon.systems.training.prediction.analytic.operators import build_program
from gnomon.systems.training.prediction.analytic.style import (
    MEGATRON,
    MEGATRON_2022,
    STYLES,
    TORCH,
)
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.assemble import assemble
from gnomon.systems.training.prediction.program import PARTS

WORKLOADS = {
    "gpt-base": {"layers": 12, "hidden": 2048, "heads": 16, "seq": 2048, "batch": 4},
    "gpt-l6": {"layers": 6, "hidden": 2048, "heads": 16, "seq": 2048, "batch": 4},
    "gpt-h1024": {"layers": 12, "hidden": 1024, "heads": 8, "seq": 2048, "batch": 4},
    "gpt-b2": {"layers": 12, "hidden": 2048, "heads": 16, "seq": 2048, "batch": 2},
    "gpt-cpubound": {
        "layers": 24, "hidden": 512, "heads": 8, "seq": 128, "batch": 2, "vocab": 8192,
    },
}  # fmt: skip
SMALL = Configuration(layers=4, hidden=512, heads=8, seq=256, batch=2, vocab=2048)


def program_of(c: Configuration, style=TORCH, gpu="H200"):
    return build_program(c, KernelTimes.of(gpu), CollectiveTimes.of(gpu), style)


def device_ns(part) -> float:
    return sum(piece.device_ns for piece in part)


def step_ms(c: Configuration, style, gpu="H200") -> float:
    collectives = CollectiveTimes.of(gpu)
    program = build_program(c, KernelTimes.of(gpu), collectives, style)
    return assemble(program, collectives, fine=False, steps=2, node_gpus=8).step_ms


@pytest.mark.data
@pytest.mark.parametrize("name", WORKLOADS)
def test_steps_of_our_own_recordings_are_met_without_them(public_data, name):
    meta = json.loads((public_data / "h200" / name / "meta.json").read_text())
    found = step_ms(Configuration(**WORKLOADS[name]), TORCH)
    assert found == pytest.approx(meta["step_ms_median"], rel=0.10)


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_every_style_makes_a_program_that_can_be_put_together(style):
    c = SMALL.changed({"tp": 2, "pp": 2, "dp": 2, "accumulation": 4})
    program = program_of(c, style)
    assert set(PARTS) <= set(program.parts)
    pieces = [piece for part in program.parts.values() for piece in part]
    assert all(piece.device_ns >= 0 and piece.host_ns >= 0 for piece in pieces)
    assert {piece.model for piece in pieces} <= {"table", "roofline", "alpha-beta"}
    assert assemble(program, CollectiveTimes.of("H200"), fine=False, node_gpus=8).step_ms > 0


def test_experts_and_latent_attention_make_a_program():
    c = Configuration(
        layers=4, hidden=512, heads=8, head_dim=64, seq=256, batch=1, dp=4, ep=4, gated=True,
        experts=8, top_k=2, expert_ffn=256, shared_ffn=256, dense_layers=1, q_rank=96,
        kv_rank=64, rope_dim=32,
    )  # fmt: skip
    program = program_of(c, MEGATRON)
    assert program.layer_kinds == ("dense", "layer", "layer", "layer")
    # Two of the eight experts are here, each of three matrices; the router has no bias.
    more = program.parameters["layer"] - program.parameters["dense"]
    assert more == 2 * 3 * 512 * 256 + 3 * 512 * 256 + 8 * 512 - 3 * 512 * 2048
    assert program.expert_parameters == {"layer": 2 * 3 * 512 * 256}
    waits = [p for p in program.parts["layer.forward"] if p.name == "expert up"]
    assert waits[0].device_ns > 1e3 * MEGATRON.pause_routing_us


def test_recomputing_adds_the_forward_pass_to_the_backward():
    none = program_of(SMALL, MEGATRON_2022.changed(recompute="none"))
    full = program_of(SMALL, MEGATRON_2022)
    forward = device_ns(none.parts["layer.forward"])
    backward = device_ns(none.parts["layer.backward"])
    assert device_ns(full.parts["layer.backward"]) == pytest.approx(backward + forward)


def test_an_odd_vocabulary_is_slower_than_a_larger_even_one():
    odd, even = (
        next(
            piece.device_ns
            for piece in program_of(SMALL.changed({"vocab": vocab})).parts["head.forward"]
            if piece.name == "head"
        )
        for vocab in (50257, 50304)
    )
    assert odd > 2 * even


def test_a_host_that_stops_for_transfers_is_felt_in_every_pass():
    slow_host = MEGATRON_2022.changed(host_us=1000.0, recompute="none")
    c = SMALL.changed({"pp": 2, "accumulation": 4})
    for name, part in program_of(c, slow_host).parts.items():
        host_ns = sum(piece.host_ns for piece in part)
        assert device_ns(part) == pytest.approx(max(host_ns, device_ns(part))), name
    alone = program_of(c.changed({"pp": 1}), slow_host).parts["layer.forward"]
    assert device_ns(alone) < sum(piece.host_ns for piece in alone)


def test_a_slow_host_bounds_the_step():
    fast, slow = (step_ms(SMALL, TORCH.changed(host_us=us)) for us in (1.0, 500.0))
    launches = sum(
        piece.host_ns / 500e3
        for name, part in program_of(SMALL, TORCH.changed(host_us=500.0)).parts.items()
        for piece in part * (SMALL.layers if "layer" in name else 1)
    )
    assert slow == pytest.approx(0.5 * launches, rel=0.05)
    assert fast < slow / 5


def test_what_leaves_a_stage_is_shared_with_sequence_parallelism():
    c = SMALL.changed({"tp": 4})
    whole = program_of(c, MEGATRON_2022).boundary_bytes
    assert program_of(c, MEGATRON).boundary_bytes == whole / 4


def test_groups_that_do_not_fit_a_node_are_slower():
    c = Configuration(
        layers=2, hidden=512, heads=8, seq=256, batch=1, experts=8, expert_ffn=256, ep=8, dp=8,
    )  # fmt: skip
    inside = program_of(c, MEGATRON.changed(sequence_parallel=False))
    across = program_of(c.changed({"tp": 8}), MEGATRON.changed(sequence_parallel=False))
    communication = [
        next(p.device_ns for p in program.parts["layer.forward"] if p.name == "tokens to experts")
        for program in (inside, across)
    ]
    assert communication[1] > communication[0]


@given(
    style=st.sampled_from(sorted(STYLES)),
    what=st.sampled_from(["batch", "seq", "hidden", "ffn", "vocab"]),
    tp=st.sampled_from([1, 2]),
)
def test_prop_more_work_takes_longer(style, what, tp):
    c = SMALL.changed({"tp": tp})
    larger = c.changed({what: 2 * getattr(c, what)})
    one, other = (program_of(x, STYLES[style]) for x in (c, larger))
    assert sum(map(device_ns, one.parts.values())) <= sum(map(device_ns, other.parts.values()))
