"""Names of real kernels, from H200, H100, MI300 and V100 traces."""

from __future__ import annotations

import pytest

from gnomon.model.accelerator.kernel_class import KERNEL_CLASSES, classify_kernel

GPU_KERNEL = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
REAL = {
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NTN": "gemm",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x5_nn>": "gemm",
    "Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x224x64_MI16x16x1": "gemm",
    "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true>": "gemm",
    "sm90_xmma_wgrad_implicit_gemm_indexed_wo_smem_bf16bf16_bf16f32": "gemm",
    "flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_3": "attention",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
    "namespace)::FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<c10::BFloat16, 4>>": "optimizer",
    f"{GPU_KERNEL}at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#3}}>": "elementwise",
    f"{GPU_KERNEL}at::native::GeluBackwardCUDAKernelImpl::{{lambda(float, float)#1}}>": "elementwise",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<"
    "float, at::native::sum_functor<float>::operator()::{lambda(float, float)#1}>>>": "reduction",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>": "normalisation",
    "void (anonymous namespace)::softMaxForward<8, float>": "normalisation",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>": "embedding",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "Memcpy HtoD (Pinned -> Device)": "copy",
    "Memset (Device)": "copy",
    "void convert_kernel<float, half>(float*)": "other",
    "some_kernel_nobody_knows": "other",
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_kernels(name):
    assert classify_kernel(name) == REAL[name]
    assert REAL[name] in KERNEL_CLASSES


def test_the_lambda_in_a_name_is_no_optimizer():
    for name in REAL:
        if "lambda" in name:
            assert classify_kernel(name) != "optimizer"
