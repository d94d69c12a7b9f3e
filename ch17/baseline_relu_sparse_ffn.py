"""Two dense products for one token: of the second one's weights nine in ten are read to be multiplied with zero."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, width: int, wide: int, active: int, dtype: str) -> Inputs:
    """Weights [wide, width], a neuron's in a row. Its sign is turned where that takes it to keep `active` neurons > 0.

    Which neurons these are is drawn anew with the token; in a trained model the token decides it.
    """
    element = getattr(torch, dtype)
    x, up = draw.normal(width, dtype=element), draw.normal(wide, width, std=width**-0.5, dtype=element)
    wanted = torch.where(draw.permutation(wide) < active, 1, -1)
    up *= (torch.mv(up, x).sign() * wanted).to(element)[:, None]
    return {"x": x, "up": up, "down": draw.normal(wide, width, std=active**-0.5, dtype=element)}


workload = Workload(
    inputs=inputs,
    reference=lambda x, up, down: (up @ x).relu().square() @ down,
    cost=lambda width, wide, active, dtype: Cost(
        read=2 * width * (wide + active + 1),
        write=2 * width,
        flops=2 * width * (wide + active),
        dtype="bf16",
        items=1,
        unit="tokens",
    ),
    sizes={
        # The width of a 70B Llama: 470 MB of weights each way. A tenth of the neurons is active.
        "bench": {"width": 8192, "wide": 28672, "active": 2867, "dtype": "bfloat16"},
        # rows of whole 16 bytes, which the kernel in CUDA loads at a time
        "test": {"width": 536, "wide": 211, "active": 23, "dtype": "bfloat16"},
    },
    tolerance=8e-3,  # bf16 rounds sums, squares and the output
)


def prepare(x: Tensor, up: Tensor, down: Tensor) -> Step:
    out = torch.empty_like(x)

    def step() -> Tensor:
        return torch.mv(down.T, torch.mv(up, x).relu_().square_(), out=out)

    return step
