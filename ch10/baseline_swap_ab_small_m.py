"""Tokens are wgmma's rows, 16 of 64 in use; e4m3 weights, its right operand, are widened into shared memory."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(targets=["sm_90a"])


def inputs(draw: Draw, tokens: int, features: int, outputs: int) -> Inputs:
    return {
        "x": draw.normal(tokens, features, dtype=torch.float16),
        "weight": draw.normal(outputs, features).to(torch.float8_e4m3fn),
        "scales": draw.uniform(outputs) + 0.5,
    }


workload = Workload(
    inputs=inputs,
    reference=lambda x, weight, scales: x @ weight.T * scales,
    cost=lambda tokens, features, outputs: Cost(
        read=outputs * features + 4 * outputs + 2 * tokens * features,
        write=2 * tokens * outputs,
        flops=2 * tokens * features * outputs,
        dtype="fp16",
        items=tokens,
        unit="tokens",
    ),
    sizes={
        # The output projection of Llama-3.1-405B: 268 MB, and 128 tiles of 128 outputs, one for nearly each SM.
        "bench": {"tokens": 16, "features": 16384, "outputs": 16384},
        # TMA copies rows that begin at multiples of 16 bytes: features are a multiple of 16.
        "test": {"tokens": 13, "features": 592, "outputs": 328},
    },
    tolerance=1e-3,  # the sums are fp32; rounding them to fp16 is off by 2e-4
    frozen=("weight", "scales"),
)


def prepare(x: Tensor, weight: Tensor, scales: Tensor) -> Step:
    multiply, out = load_cuda(__file__, "multiply"), x.new_empty(len(x), len(weight))

    def step() -> Tensor:
        multiply(x, weight, scales, out, *out.shape, x.shape[1])
        return out

    return step
