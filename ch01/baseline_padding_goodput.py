"""Every request is padded to the longest, and the MLP multiplies the padding too: over two thirds of all its rows."""

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from common.models.lengths import SHAREGPT_ANSWER, SPREAD, length_mix
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def mlp(tokens: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Each token by itself, without biases: what is zero stays zero."""
    return linear(gelu(linear(tokens, up), approximate="tanh"), down)


def mix(requests: int, mean: float, longest: int) -> list[int]:
    return length_mix(requests, mean, longest, SPREAD)


def inputs(draw: Draw, requests: int, mean: float, longest: int, width: int, dtype: str) -> Inputs:
    lengths = torch.tensor(mix(requests, mean, longest))[draw.host.permutation(requests)]  # the host made the batch
    element = getattr(torch, dtype)
    x = draw.normal(requests, longest, width, dtype=element)
    padding = torch.arange(longest, device=draw.device) >= lengths.to(draw.device)[:, None]
    return {
        "x": x.masked_fill_(padding[..., None], 0.0),
        "lengths": lengths,
        "up": draw.normal(4 * width, width, std=width**-0.5, dtype=element),
        "down": draw.normal(width, 4 * width, std=(4 * width) ** -0.5, dtype=element),
    }


def reference(x: Tensor, lengths: Tensor, up: Tensor, down: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for target, request, count in zip(out, x, lengths.tolist()):
        target[:count] = mlp(request[:count], up, down)
    return out


def cost(requests: int, mean: float, longest: int, width: int, dtype: str) -> Cost:
    tokens = sum(mix(requests, mean, longest))
    return Cost(
        flops=16 * tokens * width**2,
        dtype="bf16",
        read=2 * (tokens * width + 8 * width**2),
        write=2 * requests * longest * width,  # zeros where there is no token
        items=tokens,
        unit="tokens",
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 14,624 tokens of 49,152: the lengths of ShareGPT's answers, cut at 1,024
        "bench": {"requests": 48, "mean": SHAREGPT_ANSWER, "longest": 1024, "width": 4096, "dtype": "bfloat16"},
        "cpu": {"requests": 16, "mean": 32.0, "longest": 120, "width": 96, "dtype": "float32"},
        "test": {"requests": 5, "mean": 8.0, "longest": 17, "width": 19, "dtype": "bfloat16"},
    },
    tolerance=1e-2,  # bf16 rounds (2e-3) the product, gelu and the second product
    frozen=("up", "down"),
)


def prepare(x: Tensor, lengths: Tensor, up: Tensor, down: Tensor) -> Step:
    def step() -> Tensor:
        return mlp(x, up, down)

    return step
