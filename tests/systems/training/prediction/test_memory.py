from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.systems.training.prediction.analytic.style import (
    MEGATRON,
    MEGATRON_2022,
    STYLES,
    TORCH,
)
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.memory import (
    layer_kinds,
    least_recompute,
    parameter_counts,
    stage_layers,
    stage_memory,
    vocab_share,
)

WORKLOADS = {
    "gpt-base": Configuration(layers=12, hidden=2048, heads=16, seq=2048, batch=4),
    "gpt-l6": Configuration(layers=6, hidden=2048, heads=16, seq=2048, batch=4),
    "gpt-h1024": Configuration(layers=12, hidden=1024, heads=8, seq=2048, batch=4),
    "gpt-b2": Configuration(layers=12, hidden=2048, heads=16, seq=2048, batch=2),
    "gpt-cpubound": Configuration(layers=24, hidden=512, heads=8, seq=128, batch=2, vocab=8192),
}
DENSE = {"seq": 4096, "batch": 1, "gated": True, "vocab": 128256}
LATENT = {
    "seq": 4096, "batch": 1, "gated": True, "heads": 128, "head_dim": 128, "q_rank": 1536,
    "kv_rank": 512, "rope_dim": 64, "v_dim": 128, "dense_layers": 1,
}  # fmt: skip
MODELS = {
    "llama3_70b": DENSE | {"hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672},
    "llama3_405b": DENSE | {"hidden": 16384, "heads": 128, "kv_heads": 16, "ffn": 53248},
    "deepseekv2": LATENT | {"hidden": 5120, "ffn": 12288, "experts": 160, "top_k": 6,
                            "expert_ffn": 1536, "shared_ffn": 3072, "vocab": 102400},
    "deepseekv3": LATENT | {"hidden": 7168, "ffn": 18432, "experts": 256, "top_k": 8,
                            "expert_ffn": 2048, "shared_ffn": 2048, "vocab": 129280},
}  # fmt: skip
LAYOUT = r"_(l|tp|pp|dp|cp|ep|seq)(\d+)"


def of_case(name: str, micro_batches: int) -> Configuration:
    """The configuration that a case of SimuMax's table is named after."""
    model = next(model for model in MODELS if name.startswith(model))
    found = {key: int(value) for key, value in re.findall(LAYOUT, name)}
    layout = {"layers": found.pop("l"), "accumulation": micro_batches} | found
    return Configuration(**(MODELS[model] | layout))


@pytest.mark.data
@pytest.mark.parametrize("name", WORKLOADS)
def test_peak_of_one_gpu_is_met(public_data, name):
    meta = json.loads((public_data / "h200" / name / "meta.json").read_text())
    counts = parameter_counts(WORKLOADS[name], TORCH)
    layers = WORKLOADS[name].layers
    assert counts["embedding"] + layers * counts["layer"] + counts["head"] == meta["params"]
    assert stage_memory(WORKLOADS[name], TORCH).total == pytest.approx(
        meta["peak_bytes"], rel=0.02
    )


@pytest.mark.data
def test_peaks_of_eight_gpus_are_met(public_data):
    path = public_data / "public" / "simumax" / "b200_release_v1.2_summary.json.gz"
    rows = json.loads(gzip.decompress(path.read_bytes()))["rows"]
    errors = []
    for row in rows:
        held = stage_memory(of_case(row["case"], row["mbc"]), MEGATRON).total / 2**30
        errors.append(abs(held / row["real_alloc_gib"] - 1.0))
    assert len(errors) == 43
    assert np.mean(errors) < 0.0046  # SimuMax's own mean
    assert max(errors) < 0.01


def test_a_layer_of_eager_torch_keeps_what_its_operators_saved():
    """By hand: two norms' inputs and outputs, q, k, v, attention's output, gelu's both sides."""
    one, two = (
        Configuration(layers=n, hidden=256, heads=4, seq=128, batch=2, vocab=1024) for n in (1, 2)
    )
    tokens, hidden = 256, 256
    elements = 4 * hidden + 3 * hidden + hidden + 2 * 4 * hidden
    by_hand = 2 * tokens * elements + 4 * tokens * 4 + 2 * tokens * 8
    more = stage_memory(two, TORCH).activations - stage_memory(one, TORCH).activations
    assert more == by_hand


def test_earlier_stages_keep_more_micro_batches():
    c = Configuration(
        layers=16, hidden=1024, heads=8, seq=512, batch=1, pp=4, accumulation=8, vocab=4096
    )
    kept = [stage_memory(c, MEGATRON, stage).activations for stage in range(4)]
    assert kept == pytest.approx([4 * kept[3], 3 * kept[3], 2 * kept[3], kept[3]])


def test_interleaving_keeps_more():
    c = Configuration(
        layers=16, hidden=1024, heads=8, seq=512, batch=1, pp=4, accumulation=8, vocab=4096
    )
    chunks = c.changed({"interleave": 2})
    assert stage_memory(chunks, MEGATRON, 0).activations > stage_memory(c, MEGATRON, 0).activations


def test_stages_hold_all_layers_once():
    c = Configuration(
        layers=13, hidden=64, heads=4, seq=8, batch=1, pp=3, interleave=2, accumulation=3,
        experts=4, dense_layers=3, expert_ffn=64,
    )  # fmt: skip
    held = [kind for stage in range(3) for kind in stage_layers(c, stage)]
    assert sorted(held) == sorted(layer_kinds(c))
    assert layer_kinds(c)[:4] == ("dense", "dense", "dense", "layer")


def test_a_stage_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="no stage 2"):
        stage_memory(WORKLOADS["gpt-l6"], TORCH, 2)


def test_recomputation_is_as_little_as_fits():
    c = Configuration(
        layers=24, hidden=2048, heads=16, seq=1024, batch=8, dtype="fp16", vocab=50257
    )
    needs = {
        kind: stage_memory(c, MEGATRON_2022.changed(recompute=kind)).total
        for kind in ("none", "selective", "full")
    }
    assert needs["none"] > needs["selective"] > needs["full"]
    for kind, bytes_ in needs.items():
        assert least_recompute(c, MEGATRON_2022, bytes_).recompute == kind
    assert least_recompute(c, MEGATRON_2022, 1e9).recompute == "full"


def test_a_sharded_optimiser_is_divided():
    c = Configuration(layers=4, hidden=512, heads=8, seq=128, batch=1, dp=4)
    one, shared = stage_memory(c.changed({"dp": 1}), MEGATRON), stage_memory(c, MEGATRON)
    assert shared.optimizer == one.optimizer / 4
    assert shared.parameters == one.parameters


def test_experts_are_sharded_over_the_ranks_that_hold_the_same():
    c = Configuration(
        layers=2, hidden=256, heads=4, seq=64, batch=1, experts=8, expert_ffn=512, dp=8, ep=8,
        vocab=1024,
    )  # fmt: skip
    alone = stage_memory(c, MEGATRON).optimizer
    together = stage_memory(c.changed({"dp": 16}), MEGATRON).optimizer
    expert = 2 * 2 * 256 * 512 * 12
    # Eight ranks hold each expert once; sixteen hold it twice, and share its state.
    assert alone - 2 * together == pytest.approx(0.0, abs=1.0)
    assert alone > expert


def test_words_are_padded_where_the_style_says():
    c = Configuration(layers=1, hidden=64, heads=4, seq=8, batch=1, vocab=1000, tp=2)
    assert vocab_share(c, MEGATRON) == 512
    assert vocab_share(c, TORCH) == 500


@given(
    style=st.sampled_from(sorted(STYLES)),
    what=st.sampled_from(["batch", "layers", "seq", "vocab", "ffn"]),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 2])),
)
def test_prop_more_work_needs_more_memory(style, what, sizes):
    batch, layers, tp = sizes
    c = Configuration(
        layers=2 * layers, hidden=256, heads=4, seq=128, batch=batch, vocab=2048, tp=tp
    )
    larger = c.changed({what: 2 * getattr(c, what)})
    assert stage_memory(larger, STYLES[style]).total > stage_memory(c, STYLES[style]).total


@given(tp=st.sampled_from([2, 4, 8]), style=st.sampled_from(sorted(STYLES)))
def test_prop_tensor_parallelism_needs_less(tp, style):
    c = Configuration(layers=4, hidden=512, heads=8, seq=128, batch=2, vocab=8192)
    shared = c.changed({"tp": tp})
    assert stage_memory(shared, STYLES[style]).total < stage_memory(c, STYLES[style]).total
