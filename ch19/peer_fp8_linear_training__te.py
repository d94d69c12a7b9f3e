"""Transformer Engine's Linear under autocast: one scale a tensor, cast and transpose fused, cuBLAS's fp8 products.

For version 2.17, whose names these are; an earlier one says fp8_autocast. The workload's numbers are e4m3 numbers times
one power of two a tensor. So a scale a tensor loses nothing, if it is a power of two, and if gradients, too, are e4m3:
by default it is neither, and e5m2 has two bits of mantissa.
"""

import torch
from torch import Tensor

from ch19.baseline_fp8_linear_training import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

with torch._dynamo.config.patch(error_on_nested_jit_trace=True):  # Transformer Engine changes it for the whole process
    from transformer_engine.common.recipe import Float8CurrentScaling, Format, MMParams, QParams
    from transformer_engine.pytorch import Linear, autocast

requires = needs(modules=["transformer_engine.pytorch"], sm=89)


def exact_recipe() -> Float8CurrentScaling:
    """Scales of this step, as powers of two, and sums in fp32, which is what `torch._scaled_mm` does by default."""
    recipe = Float8CurrentScaling(fp8_format=Format.E4M3, fp8_gemm_fprop=MMParams(use_split_accumulator=True))
    recipe.fp8_quant_fwd_inp = recipe.fp8_quant_fwd_weight = recipe.fp8_quant_bwd_grad = QParams(power_2_scale=True)
    return recipe


def prepare(x: Tensor, weight: Tensor, slope: Tensor) -> Step:
    wide, width = weight.shape
    linear = Linear(width, wide, bias=False, params_dtype=weight.dtype, device=weight.device)
    linear.weight.data = weight  # not a copy: the weight changes between steps, and is cast anew in each
    leaves, recipe = (x.detach().requires_grad_(), linear.weight), exact_recipe()

    def step() -> tuple[Tensor, ...]:
        with autocast(enabled=True, recipe=recipe):
            out = linear(leaves[0])
        return out.detach(), *torch.autograd.grad(out, leaves, slope)

    return step
