"""The int8 checkpoint is widened once to a bf16 weight: decoding four tokens then reads two bytes per weight."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Metered, Step, Workload


def inputs(draw: Draw, tokens: int, features: int, outputs: int, dtype: str) -> dict[str, Tensor]:
    # Scales are powers of two, so the widened weight equals codes * scales to the last bit: one answer for all sides.
    exponents = draw.integers(outputs, low=-14, high=-11)
    element = getattr(torch, dtype)
    return {
        "x": draw.normal(tokens, features, dtype=element),
        "codes": draw.integers(outputs, features, low=-127, high=128, dtype=torch.int8),
        "scales": torch.exp2(exponents.float()).to(element),
    }


workload = Workload(
    inputs=inputs,
    reference=lambda x, codes, scales: x @ codes.double().T * scales,
    cost=lambda tokens, features, outputs, dtype: Cost(
        read=outputs * features + 2 * (outputs + tokens * features),
        write=2 * tokens * outputs,
        flops=2 * tokens * features * outputs,
        dtype="bf16",
        items=tokens,
        unit="tokens",
    ),
    sizes={
        # The gate and up projections of a 70B Llama: 470 MB of codes, eight times the L2 cache of an H200.
        "bench": {"tokens": 4, "features": 8192, "outputs": 57344, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; the kernel takes its element type from x.
        "test": {"tokens": 3, "features": 331, "outputs": 77, "dtype": "float16"},
    },
    tolerance=4e-3,  # of rounding the output to bf16
    frozen=("codes", "scales"),
)


def on_int8_grid(weight: Tensor) -> Tensor:
    """Each output's weights rounded to codes of -127 to 127 times the least power of two with which all of them fit."""
    scales = torch.exp2((weight.abs().amax(1, keepdim=True) / 127).log2().ceil())
    return (weight / scales).round() * scales


def rounding_error(x: Tensor, weight: Tensor) -> float:
    """What eight bits a weight cost in accuracy, whatever multiplies with them: normwise, of the output."""
    full, rounded = (x.float() @ each.T for each in (weight, on_int8_grid(weight)))
    return float((rounded - full).norm() / full.norm())


def metered(step: Step, x: Tensor, outputs: int) -> Metered:
    """The step, and the error with normal weights rounded to a checkpoint like this one, of 4096 outputs at most."""
    generator, shape = torch.Generator(x.device).manual_seed(0), (min(outputs, 4096), x.shape[1])

    def metrics() -> dict[str, float]:
        weight = torch.randn(shape, generator=generator, device=x.device)
        return {"quantisation error": rounding_error(x, weight)}

    return Metered(step, metrics)


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    weight = codes.to(x.dtype).mul_(scales[:, None])
    out = x.new_empty(x.shape[0], codes.shape[0])

    def step() -> Tensor:
        return torch.mm(x, weight.T, out=out)

    return metered(step, x, len(codes))
