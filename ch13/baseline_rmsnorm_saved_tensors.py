"""RMSNorm in operators of its own formula: autograd keeps what each of them needs, six bytes for a bf16 number."""

from collections.abc import Callable

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

EPSILON = 1e-5


def inputs(draw: Draw, rows: int, width: int, layers: int) -> Inputs:
    return {
        "x": draw.normal(rows, width, dtype=torch.bfloat16),
        "weights": [draw.uniform(width, low=0.5, high=1.5, dtype=torch.bfloat16) for _ in range(layers)],
        "upstream": draw.normal(rows, width, dtype=torch.bfloat16),
    }


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """As Llama's model code has it: the mean in fp32, the result in the input's type."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype)


def train_step(norm: Callable[[Tensor, Tensor], Tensor], x: Tensor, weights: list[Tensor], upstream: Tensor) -> Step:
    """A residual stream through one norm after the other, and back; what stands between them in a model is left out."""
    leaf, *scales = (tensor.detach().requires_grad_() for tensor in (x, *weights))

    def step() -> tuple[Tensor, ...]:
        stream = leaf
        for scale in scales:
            stream = stream + norm(stream, scale)
        return stream.detach(), *torch.autograd.grad(stream, [leaf, *scales], upstream)

    return step


workload = Workload(
    inputs=inputs,
    reference=lambda **given: train_step(rms_norm, **given)(),
    # a row could stay on chip from its way forward to its way back
    cost=lambda rows, width, layers: Cost(
        read=2 * (2 * rows * width + layers * width), write=2 * (2 * rows * width + layers * width)
    ),
    # 67 MB for two bytes a number; nothing of it stays in a cache
    sizes={
        "bench": {"rows": 8192, "width": 4096, "layers": 8},
        "test": {"rows": 37, "width": 83, "layers": 3},
    },
    tolerance=2e-2,  # bf16 rounds at 0.2%, at each norm and each sum
    goal="memory",
)


def prepare(x: Tensor, weights: list[Tensor], upstream: Tensor) -> Step:
    return train_step(rms_norm, x, weights, upstream)
