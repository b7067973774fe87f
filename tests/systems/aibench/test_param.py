"""Public execution traces, in every schema, built and run on this machine."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from gnomon.systems.aibench.benchmark import build
from gnomon.systems.aibench.pipeline import Options
from tests.systems.aibench.recordings import run

PARAM = "public/param"
DLRM = "dlrm_pytorch_et.tar.gz:dlrm_pytorch_et/dlrm_eg_0.json"
SMALL = ["linear_et.json.gz"]
LARGE = [
    "1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz",
    "1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz",
    "resnet_et.json.gz",
    "resnet_1gpu_et.json.tar.gz",
]


def is_whole(answer):
    return answer["placeholders"] == answer["skipped"] == 0 and answer["ops"] == answer["replayed"]


@pytest.mark.data
@pytest.mark.parametrize("name", [*SMALL, *LARGE, "hf_GPT2_et.json.tar.gz", DLRM])
def test_every_trace_is_rebuilt_whole(name, public_data, tmp_path):
    made = build(public_data / PARAM / name, tmp_path / "bench")
    assert made.coverage_ops_pct == 100.0, made.placeholders


@pytest.mark.data
@pytest.mark.parametrize("name", SMALL)
def test_small_traces_run(name, public_data, tmp_path):
    build(public_data / PARAM / name, tmp_path / "bench")
    assert is_whole(run(tmp_path / "bench"))


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LARGE)
def test_large_traces_run(name, public_data, tmp_path):
    build(public_data / PARAM / name, tmp_path / "bench")
    assert is_whole(run(tmp_path / "bench"))


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("options", "more"),
    [
        (Options(), []),
        (Options(), ["--ranks", "2", "--backend", "gloo"]),
        (Options(emulate_world=8), []),
    ],
    ids=["alone", "two ranks", "a world of eight"],
)
def test_the_recommender_runs_alone_together_and_emulated(options, more, public_data, tmp_path):
    build(public_data / PARAM / DLRM, tmp_path / "bench", options=options)
    answer = run(tmp_path / "bench", *more)
    assert is_whole(answer)
    assert answer["collectives"]["kinds"] == {"all_to_all": 5, "all_reduce": 3}
