"""A linear layer's three products in bf16: the output, the input's gradient and the weight's gradient."""

from collections.abc import Callable

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, width: int, wide: int) -> Inputs:
    """Activations, weight [wide, width] and upstream gradient, each of a magnitude of its own that changes every draw.

    Their values are e4m3 numbers times a power of two, so that a cast with such scales loses nothing, and what a
    variant computes can be held against one exact answer. What the cast costs in accuracy is another question.
    """

    def drawn(*shape: int) -> Tensor:
        codes = draw.normal(*shape, std=16.0, dtype=torch.bfloat16).to(torch.float8_e4m3fn)
        exponent = draw.integers(1, low=-12, high=5)
        return codes.to(torch.bfloat16).mul_(torch.exp2(exponent.float()).bfloat16())

    return {"x": drawn(tokens, width), "weight": drawn(wide, width), "slope": drawn(tokens, wide)}


workload = Workload(
    inputs=inputs,
    reference=lambda x, weight, slope: (x @ weight.T, slope @ weight, slope.T @ x),
    cost=lambda tokens, width, wide: Cost(
        flops=6 * tokens * width * wide,
        dtype="fp8",
        # three tensors in, three out, in bf16
        read=2 * (tokens * width + wide * width + tokens * wide),
        write=2 * (tokens * width + wide * width + tokens * wide),
        items=tokens,
        unit="tokens",
    ),
    sizes={
        "bench": {"tokens": 16384, "width": 4096, "wide": 14336},  # a projection of an 8B Llama's MLP
        "test": {"tokens": 80, "width": 48, "wide": 112},  # fp8 products want multiples of 16
    },
    tolerance=4e-3,  # of rounding the outputs to bf16
)


def noise_like(x: Tensor, weight: Tensor, slope: Tensor) -> list[Tensor]:
    """Normal noise, which lies on no grid, in the shapes of weight and of x and slope, these of 2048 tokens at most."""
    generator = torch.Generator(x.device).manual_seed(0)
    shapes = (x[:2048].shape, weight.shape, slope[:2048].shape)
    return [torch.randn(shape, generator=generator, device=x.device).bfloat16() for shape in shapes]


def casting_errors(
    cast: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor, weight: Tensor, slope: Tensor
) -> dict[str, float]:
    """What a cast costs each product in accuracy, whatever computes it: normwise relative errors.

    cast: a matrix as it is after the cast, in float32, with a scale for each row, and with one for each column.
    """
    x_rows, x_columns, weight_rows, weight_columns, slope_rows, slope_columns = (*cast(x), *cast(weight), *cast(slope))
    rounded = x_rows @ weight_rows.T, slope_rows @ weight_columns, slope_columns.T @ x_columns
    full = workload.reference(x.float(), weight.float(), slope.float())
    names = "output", "input's gradient", "weight's gradient"
    return {f"quantisation error, {n}": float((r - f).norm() / f.norm()) for n, r, f in zip(names, rounded, full)}


def prepare(x: Tensor, weight: Tensor, slope: Tensor) -> Step:
    out, to_x, to_weight = x.new_empty(len(x), len(weight)), torch.empty_like(x), torch.empty_like(weight)

    def step() -> tuple[Tensor, ...]:
        torch.mm(x, weight.T, out=out)
        torch.mm(slope, weight, out=to_x)
        torch.mm(slope.T, x, out=to_weight)
        return out, to_x, to_weight

    return step
