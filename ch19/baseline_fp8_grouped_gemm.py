"""Each expert multiplies its rows, as many as chose it, with its bf16 weight: one grouped product for all of them."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def on_grid(draw: Draw, *shape: int) -> Tensor:
    """Each row e4m3 numbers times a power of two: a cast with a scale for each row loses nothing."""
    numbers = draw.normal(*shape, std=16.0, dtype=torch.bfloat16).to(torch.float8_e4m3fn).to(torch.bfloat16)
    return numbers.mul_(torch.exp2(draw.integers(*shape[:-1], 1, low=-7, high=-4).float()).bfloat16())


def inputs(draw: Draw, tokens: int, experts: int, width: int, outputs: int) -> Inputs:
    """Tokens sorted by expert, the end of each expert's rows, and the weights [experts, outputs, width]."""
    owners = draw.integers(tokens, high=experts).sort().values
    ends = torch.searchsorted(owners, torch.arange(experts, device=draw.device), right=True, out_int32=True)
    return {"x": on_grid(draw, tokens, width), "ends": ends, "weights": on_grid(draw, experts, outputs, width)}


def reference(x: Tensor, ends: Tensor, weights: Tensor) -> Tensor:
    parts = x.tensor_split(ends.tolist()[:-1])
    return torch.cat([part @ weight.to(x.dtype).T for part, weight in zip(parts, weights)])


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=lambda tokens, experts, width, outputs: Cost(
        flops=2 * tokens * width * outputs,
        dtype="fp8",
        read=2 * tokens * width + experts * width * outputs,  # a byte a weight, which may be cast ahead
        write=2 * tokens * outputs,
        items=tokens,
        unit="tokens",
    ),
    sizes={
        # 512 tokens an expert; weights of 1.9 GB in bf16, and half of that in fp8
        "bench": {"tokens": 16384, "experts": 32, "width": 7168, "outputs": 4096},
        "test": {"tokens": 431, "experts": 3, "width": 144, "outputs": 272},
    },
    # Rounding to bf16 is off by 1.7e-3, with sums in the 14 bits of Hopper's fp8 2.5e-3; one element may be off by ten
    # times the tolerance, and those sums are by up to 9% of the rms.
    tolerance=1.5e-2,
    frozen=("weights",),
    as_drawn=("weights",),
)


def prepare(x: Tensor, ends: Tensor, weights: Tensor) -> Step:
    def step() -> Tensor:
        return torch._grouped_mm(x, weights.mT, offs=ends)

    return step
