"""The three products of each linear layer run on fp8 tensor cores, and casts are fused with what stands before."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

from ch20.baseline_train_step_fp8 import workload as workload
from common.models.codes import own
from common.models.decoder import Linear, Shape, Weights, block
from common.models.training import loss_of, training
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=89, memory_gib=60, tools=["g++"])
CODES = torch.float8_e4m3fn  # for gradients as well: e5m2 has a bit of mantissa less, and its range is not needed here


def cast(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix as codes, its transpose as codes, and the least power of two with which all of it fits.

    Several kernels find the scale anew, and all must find the same. So the largest magnitude is in float32: in bf16
    two of them disagreed now and then, most likely as one had it before it was rounded. The power comes from its bits.
    """
    bits = x.float().abs().amax().clamp(min=2.0**-100).view(torch.int32)
    scale = (((bits + 0x1FFFFF) & 0x7F800000) - (8 << 23)).view(torch.float32)  # all are 1.75 x 2^8, 448, at most
    codes = (x.float() / scale).to(CODES)
    return codes, codes.T.contiguous(), scale


class Fp8Linear(torch.autograd.Function):
    """x @ weight.T and its two gradients; for each product both operands lie along the sum, as the hardware wants."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x_codes, x_turned, x_scale = cast(x)
        codes, turned, scale = cast(weight)
        ctx.save_for_backward(x_turned, x_scale, turned, scale)
        return torch._scaled_mm(x_codes, codes.T, x_scale, scale, out_dtype=x.dtype, use_fast_accum=True)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        x_turned, x_scale, turned, scale = ctx.saved_tensors
        codes, slope_turned, slope_scale = cast(slope)
        to_x = torch._scaled_mm(codes, turned.T, slope_scale, scale, out_dtype=slope.dtype)
        to_weight = torch._scaled_mm(slope_turned, x_turned.T, slope_scale, x_scale, out_dtype=slope.dtype)
        return to_x, to_weight


def fp8_linear(x: Tensor, weight: Tensor) -> Tensor:
    """x (..., in) and a weight (out, in) to (..., out); in, out and the number of rows are multiples of 16."""
    out: Tensor = Fp8Linear.apply(x.flatten(0, -2), weight)
    return out.unflatten(0, x.shape[:-1])


def prepare(weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape) -> Metered:
    run = partial(torch.compile(own(block, __file__), fullgraph=True, dynamic=False), linear=fp8_linear)

    def gradient(linear: Linear) -> list[Tensor]:
        leaves = tree_map(lambda weight: weight.detach().requires_grad_(), weights)
        loss = loss_of(leaves, shape, tokens, partial(block, linear=linear))
        return list(torch.autograd.grad(loss, tree_leaves(leaves)))

    def metrics() -> dict[str, float]:
        """What fp8 costs: how far the gradients are off those of bf16 products."""
        errors = [
            float((a.float() - b.float()).norm() / b.float().norm())
            for a, b in zip(gradient(fp8_linear), gradient(F.linear))
        ]
        return {"gradient's error, median": sorted(errors)[len(errors) // 2], "gradient's error, worst": max(errors)}

    return Metered(training(weights, means, squares, tokens, count, shape, run=run, fused=True), metrics)
