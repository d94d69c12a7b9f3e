"""After each router the host reads which expert was chosen and launches its products: the GPU idles meanwhile."""

import torch
from torch import Tensor

from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
MARGIN = 8.0  # of the planted expert's logit, where the others' are noise of deviation 1


def inputs(draw: Draw, layers: int, experts: int, width: int, inner: int) -> Inputs:
    x, planted = draw.normal(width), draw.integers(layers, 1, high=experts)
    toward = torch.zeros(layers, experts, device=draw.device).scatter_(1, planted, MARGIN / width)
    return {
        "x": x,
        "router": draw.normal(layers, experts, width, std=width**-0.5) + toward[:, :, None] * x,
        "up": draw.normal(layers, experts, inner, width, std=width**-0.5, dtype=torch.bfloat16),
        # Small enough that what the layers add leaves each planted expert in front.
        "down": draw.normal(layers, experts, width, inner, std=0.1 * inner**-0.5, dtype=torch.bfloat16),
    }


def reference(x: Tensor, router: Tensor, up: Tensor, down: Tensor) -> Tensor:
    for own, first, second in zip(router, up, down):
        expert = int((own @ x).argmax())
        x = x + second[expert].to(x.dtype) @ (first[expert].to(x.dtype) @ x).relu()
    return x


workload = Workload(
    inputs=inputs,
    reference=reference,
    # In each layer one expert's weights, and the router's; no other expert is touched.
    cost=lambda layers, experts, width, inner: Cost(read=layers * width * (4 * inner + 4 * experts), write=4 * width),
    # Layers as narrow as Qwen3-30B-A3B's. A step reads 0.3 of 2.4 GB, so that weights come from memory.
    sizes={
        "bench": {"layers": 48, "experts": 8, "width": 2048, "inner": 768},
        "test": {"layers": 3, "experts": 5, "width": 40, "inner": 72},
    },
    tolerance=5e-3,  # activations are rounded to bf16 (0.2%) before each product
    frozen=("up", "down"),
    as_drawn=("up", "down"),
    clock="end_to_end",
)


def prepare(x: Tensor, router: Tensor, up: Tensor, down: Tensor) -> Step:
    forward, shape = load_cuda(__file__, "forward"), down.shape
    out, rounded, hidden = torch.empty_like(x), up.new_empty(shape[2]), up.new_empty(shape[3])
    chosen = x.new_empty(1, dtype=torch.int32)
    seen = torch.empty(1, dtype=torch.int32, pin_memory=True)

    def step() -> Tensor:
        forward(x, router, up, down, out, rounded, hidden, chosen, seen, *shape)
        return out

    return step
