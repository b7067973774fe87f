"""Families of operators, by their names and those of their kernels."""

from __future__ import annotations

import pytest

from gnomon.model.accelerator.kernel_class import KERNEL_CLASSES
from gnomon.model.accelerator.operator_family import (
    FRAMEWORK,
    WORK_FAMILIES,
    operator_family,
    work_family,
)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("aten::mm", "gemm"),
        ("aten::convolution_backward", "gemm"),
        ("aten::_cudnn_rnn", "gemm"),
        ("aten::linear", "gemm"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::_foreach_addcdiv_", "elementwise"),
        ("aten::_embedding_bag", "embedding"),
        ("aten::index_add_", "embedding"),
        ("aten::native_batch_norm", "normalisation"),
        ("aten::_log_softmax", "normalisation"),
        ("aten::nll_loss_backward", "reduction"),
        ("aten::sum", "reduction"),
        ("aten::max_pool2d_with_indices", "reduction"),
        ("aten::_to_copy", "copy"),
        ("aten::add_", "elementwise"),
        ("aten::threshold_backward", "elementwise"),
        ("aten::upsample_bilinear2d", "elementwise"),
        ("aten::maximum", "elementwise"),
        ("aten::transpose", "other"),
        ("aten::empty_strided", "other"),
        ("ours::magic", "other"),
        ("gloo:send", "communication"),
        ("c10d::recv_any_source_", "communication"),
        ("_c10d_functional_autograd::all_to_all_single", "communication"),
        ("autograd::engine::evaluate_function: MmBackward0", FRAMEWORK),
        ("torch::autograd::AccumulateGrad", FRAMEWORK),
        ("Torch-Compiled Region: 0/0", FRAMEWORK),
    ],
)
def test_families_of_operators(name, family):
    assert operator_family(name) == family
    assert family in (*KERNEL_CLASSES, FRAMEWORK)


@pytest.mark.parametrize(
    ("operator", "kernel", "family"),
    [
        ("aten::addmm", "nvjet_tst", "gemm"),
        ("aten::addmm", "Memset (Device)", "copy"),
        ("aten::_scaled_dot_product_flash_attention", "flash_fwd", "attention"),
        ("aten::native_layer_norm", "vectorized_layer_norm_kernel", "normalisation"),
        ("aten::_log_softmax", "cunn_SoftMaxForward", "softmax"),
        ("aten::embedding_dense_backward", "radix_sort", "embedding"),
        ("aten::gelu", "vectorized_elementwise_kernel", "elementwise"),
        ("aten::sum", "reduce_kernel", "reduction"),
        ("aten::_fused_adamw_", "multi_tensor_apply_kernel<FusedOptimizer>", "optimizer"),
        ("", "ncclDevKernel_AllReduce", "communication"),
        ("c10d::send", "", "communication"),
        ("", "some_triton_thing", "elementwise"),
    ],
)  # fmt: skip
def test_families_of_work(operator, kernel, family):
    assert work_family(operator, kernel) == family
    assert family in WORK_FAMILIES
