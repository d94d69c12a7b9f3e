"""Attention of 32 heads in bf16: matrix products and exponentials share the time."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, heads: int, tokens: int, width: int) -> Inputs:
    return {name: draw.normal(1, heads, tokens, width, dtype=torch.bfloat16) for name in ("query", "key", "value")}


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, key, value)


workload = Workload(
    inputs=inputs,
    reference=attention,
    cost=lambda heads, tokens, width: Cost(
        flops=4 * heads * tokens**2 * width, dtype="bf16", read=4 * 2 * heads * tokens * width
    ),
    sizes={
        "bench": {"heads": 32, "tokens": 2048, "width": 128},
        "cpu": {"heads": 4, "tokens": 128, "width": 32},
        "test": {"heads": 3, "tokens": 37, "width": 16},
    },
    tolerance=1e-2,  # weights and answer are rounded to bf16, the weights before they are summed
)


def prepare(query: Tensor, key: Tensor, value: Tensor) -> Step:
    def step() -> Tensor:
        return attention(query, key, value)

    return step
