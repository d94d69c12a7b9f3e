"""The checkpoint's fp8 weight is widened to bf16, multiplied by its blocks' scales, and given to the bf16 product."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from common.python.workload import Cost, Draw, Inputs, Step, Workload

BLOCK = 128  # features that share a scale; of a weight, by as many outputs


def scales(draw: Draw, *shape: int) -> Tensor:
    return torch.exp2(draw.integers(*shape, low=-7, high=-4).float())


def inputs(draw: Draw, tokens: int, features: int, outputs: int) -> Inputs:
    """A weight as DeepSeek stores it, and activations that lie on e4m3's grid, so that their cast loses nothing."""
    codes, blocks = draw.normal(outputs, features, std=32.0).to(torch.float8_e4m3fn), features // BLOCK
    x = draw.normal(tokens, blocks, BLOCK, std=16.0).to(torch.float8_e4m3fn).float() * scales(draw, tokens, blocks, 1)
    return {
        "x": x.view(tokens, features).to(torch.bfloat16),
        "codes": codes,
        "by_block": scales(draw, outputs // BLOCK, blocks),
    }


def widened(codes: Tensor, by_block: Tensor, dtype: torch.dtype) -> Tensor:
    tiles = codes.to(dtype).view(len(by_block), BLOCK, -1, BLOCK)
    return (tiles * by_block.to(dtype)[:, None, :, None]).view(codes.shape)


workload = Workload(
    inputs=inputs,
    # float64 holds all codes; the cast from them is exact
    reference=lambda x, codes, by_block: linear(x, widened(codes, by_block, x.dtype)),
    cost=lambda tokens, features, outputs: Cost(
        flops=2 * tokens * features * outputs,
        dtype="fp8",
        read=2 * tokens * features + features * outputs,
        write=2 * tokens * outputs,
        items=tokens,
        unit="tokens",
    ),
    sizes={
        "bench": {"tokens": 1024, "features": 7168, "outputs": 16384},  # a chunk of a prompt, a weight of 117 MB
        "test": {"tokens": 76, "features": 512, "outputs": 256},
    },
    tolerance=4e-3,  # of rounding the output to bf16
    rungs="triton split_k",
)


def prepare(x: Tensor, codes: Tensor, by_block: Tensor) -> Step:
    def step() -> Tensor:
        return linear(x, widened(codes, by_block, x.dtype))

    return step
