"""The chunks' products are collected in a list and joined by torch.cat: the result is read and written once more."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

CHUNKS = 8


def inputs(draw: Draw, tokens: int, latent: int, width: int, dtype: str) -> Inputs:
    """Compressed keys and values of `tokens`, and the matrix that expands them for all heads (multi-head latent
    attention: DeepSeek-V2 has 512 to 128 heads of 128 + 128)."""
    element = getattr(torch, dtype)
    return {
        "compressed": draw.normal(tokens, latent, dtype=element),
        "expand": draw.normal(latent, width, std=latent**-0.5, dtype=element),
    }


def cost(tokens: int, latent: int, width: int, dtype: str) -> Cost:
    size = getattr(torch, dtype).itemsize
    return Cost(
        read=size * latent * (tokens + width),
        write=size * tokens * width,
        flops=2 * tokens * latent * width,
        dtype="bf16" if size == 2 else "fp32",
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=lambda compressed, expand: compressed @ expand,
    cost=cost,
    sizes={
        "bench": {"tokens": 16384, "latent": 512, "width": 32768, "dtype": "bfloat16"},  # 1 GiB comes out
        "cpu": {"tokens": 2048, "latent": 64, "width": 4096, "dtype": "float32"},
        "test": {"tokens": 61, "latent": 19, "width": 131, "dtype": "bfloat16"},
    },
    tolerance=5e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)


def prepare(compressed: Tensor, expand: Tensor) -> Step:
    def step() -> Tensor:
        return torch.cat([torch.mm(chunk, expand) for chunk in compressed.chunk(CHUNKS)])

    return step
