from __future__ import annotations

import pytest

from gnomon.errors import InputError
from gnomon.model.accelerator.gpu import (
    canonical_dtype,
    find_gpu,
    find_network,
    gpu_names,
    network_names,
)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a100", "A100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-PG509-200", "A100-40GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200", "H200"),
        ("H200 NVL 141GB", "H200"),
        ("NVIDIA B200", "B200"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("AMD Instinct MI300X VF", "MI300X"),
    ],
)
def test_gpus_go_by_the_names_that_drivers_give_them(written: str, name: str) -> None:
    assert find_gpu(written).name == name


def test_an_unknown_gpu_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no GPU is called 'L400'.*A100.*H200"):
        find_gpu("L400")
    with pytest.raises(InputError, match=r"no network is called 'token-ring'.*ib-ndr"):
        find_network("token-ring")
    with pytest.raises(InputError, match="no GPU"):
        find_gpu("")


def test_every_entry_is_found_by_its_names_and_makes_sense() -> None:
    for name in gpu_names():
        gpu = find_gpu(name)
        assert gpu.name == name
        assert all(find_gpu(alias) is gpu for alias in gpu.aliases)
        assert 0 < gpu.idle_w < gpu.power_w
        assert gpu.memory_gib > 0
        assert gpu.memory_gb_s > 0
        assert gpu.sms > 0
        assert gpu.node_gpus >= 1
        assert gpu.source
        assert bool(gpu.price_usd_h) == bool(gpu.price_source)
        assert all(rate > 0 for rate in gpu.tflops.values())
        if gpu.like:
            assert find_gpu(gpu.like).name == gpu.like
    for name in network_names():
        network = find_network(name)
        assert all(find_network(alias) is network for alias in network.aliases)
        assert network.gb_s > 0
        assert network.latency_us > 0


def test_names_are_no_one_elses() -> None:
    names = [n.lower() for g in gpu_names() for n in (g, *find_gpu(g).aliases)]
    assert len(names) == len(set(names))


def test_a_type_without_units_of_its_own_runs_as_a_wider_one() -> None:
    assert find_gpu("V100").peak_tflops("bf16") == find_gpu("V100").tflops["fp16"]
    assert find_gpu("A100").peak_tflops("fp8") == find_gpu("A100").tflops["bf16"]
    assert find_gpu("P4").peak_tflops("torch.float16") == find_gpu("P4").tflops["fp32"]
    with pytest.raises(InputError, match="no rate for 'int4'"):
        find_gpu("A100").peak_tflops("int4")


def test_types_are_told_from_any_of_their_names() -> None:
    assert canonical_dtype("c10::BFloat16") == canonical_dtype("torch.bfloat16") == "bf16"
    assert canonical_dtype("Half") == "fp16"
    assert canonical_dtype("float32") == canonical_dtype("fp32") == "fp32"
