"""The int8 checkpoint is widened once to a bf16 weight, for 8,192 tokens by cuBLAS: the bf16 tensor cores decide."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Metered, Step, Workload


def inputs(draw: Draw, tokens: int, features: int, outputs: int) -> Inputs:
    """Activations on the grid that their largest number gives, so that rounding loses nothing: one answer for all."""
    x = draw.normal(tokens, features, std=32.0).round_().clamp_(-127, 127)
    x[:, :1] = 127.0  # a row's largest
    x.mul_(torch.exp2(draw.integers(tokens, 1, low=-7, high=-5).float()))
    return {
        "x": x.to(torch.bfloat16),
        "codes": draw.integers(outputs, features, low=-127, high=128, dtype=torch.int8),
        "scales": torch.exp2(draw.integers(outputs, low=-14, high=-12).float()),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda x, codes, scales: x @ codes.to(x.dtype).T * scales,
    # Operations at fp8's rate, which is int8's on Hopper too: cuBLAS' int8 in the survey is too slow to be a bound.
    cost=lambda tokens, features, outputs: Cost(
        read=outputs * features + 2 * tokens * features,
        write=2 * tokens * outputs,
        flops=2 * tokens * features * outputs,
        dtype="fp8",
        items=tokens,
        unit="tokens",
    ),
    sizes={
        "bench": {"tokens": 8192, "features": 4096, "outputs": 14336},  # the up projection of an 8B Llama
        "test": {"tokens": 77, "features": 272, "outputs": 136},
    },
    rungs="triton",
    tolerance=6e-3,  # of rounding to bf16 numbers of very different size
    frozen=("codes", "scales"),
)


def metered(step: Step, x: Tensor) -> Metered:
    """The step, and what eight bits an activation lose, normwise, of noise and of noise with outliers."""
    generator = torch.Generator(x.device).manual_seed(0)

    def lost(noise: Tensor) -> float:
        grid = noise.abs().amax(1, keepdim=True) / 127
        return float(((noise / grid).round() * grid - noise).norm() / noise.norm())

    def metrics() -> dict[str, float]:
        noise = torch.randn(1024, x.shape[1], generator=generator, device=x.device)
        large = torch.rand(noise.shape, generator=generator, device=x.device) < 1e-3
        return {"rounding of noise": lost(noise), "rounding beside outliers": lost(noise * (1 + 30 * large))}

    return Metered(step, metrics)


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    weight = (codes * scales[:, None]).to(x.dtype)
    out = x.new_empty(len(x), len(codes))

    def step() -> Tensor:
        return torch.mm(x, weight.T, out=out)

    return metered(step, x)
