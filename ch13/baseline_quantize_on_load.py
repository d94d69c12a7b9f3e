"""The whole bf16 model is moved to the GPU, then quantized layer by layer: for a moment all of it is there."""

import torch
from torch import Tensor
from torch.nn.functional import linear

from common.python.workload import Cost, Draw, Inputs, Metered, Step, Workload


def inputs(draw: Draw, layers: int, width: int, tokens: int) -> Inputs:
    """A checkpoint in host memory, and tokens on the device."""
    return {
        "weights": [draw.host.normal(width, width, std=width**-0.5, dtype=torch.bfloat16) for _ in range(layers)],
        "x": draw.normal(tokens, width, dtype=torch.bfloat16),
    }


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of -127 to 127, and for each row the least power of two with which all fit; overwrites the weight.

    Powers of two, so that each quotient is exact, and so is the code that it is rounded to.
    """
    ratios = (
        torch.linalg.vector_norm(weight, torch.inf, dim=1).to(torch.promote_types(weight.dtype, torch.float32)) / 127
    )
    scales = (ratios / torch.frexp(ratios).mantissa).to(weight.dtype)
    return weight.div_(scales[:, None]).round_().to(torch.int8), scales


def answer(x: Tensor, layers: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
    """What the quantized model makes of the tokens, then its codes and scales."""
    for codes, scales in layers:
        x = x + linear(x, codes.to(x.dtype)) * scales
    return x, *(part for layer in layers for part in layer)


def cost(layers: int, width: int, tokens: int) -> Cost:
    """The host could quantize: it reads two bytes a weight, and one crosses PCIe."""
    weights = layers * width**2
    return Cost(pcie_bytes=weights, host_bytes=2 * weights, write=weights, items=weights, unit="weights")


workload = Workload(
    inputs=inputs,
    reference=lambda weights, x: answer(x, [quantized(weight) for weight in weights]),
    cost=cost,
    # 268 M weights: 537 MB in bf16, 34 MB a layer
    sizes={"bench": {"layers": 16, "width": 4096, "tokens": 4}, "test": {"layers": 3, "width": 83, "tokens": 5}},
    tolerance=2e-2,  # of bf16 sums, layer after layer; codes are compared exactly
    clock="end_to_end",
    goal="memory",
)


def metered(step: Step, weights: list[Tensor]) -> Metered:
    """What rounding costs, beside the step: the normwise relative error of the first layer's quantized weights."""

    def metrics() -> dict[str, float]:
        codes, scales = quantized(weights[0].float())
        rounded, exact = codes * scales[:, None], weights[0].float()
        return {"quantisation error": float((rounded - exact).norm() / exact.norm())}

    return Metered(step, metrics)


def prepare(weights: list[Tensor], x: Tensor) -> Metered:
    def step() -> tuple[Tensor, ...]:
        moved = [weight.to(x.device, copy=True) for weight in weights]
        layers = []
        while moved:
            layers.append(quantized(moved.pop(0)))
        return answer(x, layers)

    return metered(step, weights)
