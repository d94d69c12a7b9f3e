"""save_on_cpu around each checkpointed block: the host waits for each copy out, and the backward for each copy in."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, tokens: int, width: int, hidden: int, layers: int) -> Inputs:
    return {
        "x": draw.normal(tokens, width, dtype=torch.bfloat16),
        "slope": draw.normal(tokens, width, dtype=torch.bfloat16),  # of the loss in what comes out
        "up": [draw.normal(hidden, width, std=width**-0.5, dtype=torch.bfloat16) for _ in range(layers)],
        "down": [draw.normal(width, hidden, std=hidden**-0.5, dtype=torch.bfloat16) for _ in range(layers)],
    }


def block(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return x + F.linear(F.gelu(F.linear(x, up)), down)


def reference(x: Tensor, slope: Tensor, up: list[Tensor], down: list[Tensor]) -> tuple[Tensor, ...]:
    leaves = [tensor.requires_grad_() for tensor in (x, *up, *down)]
    for first, second in zip(up, down):
        x = block(x, first, second)
    return x.detach(), *torch.autograd.grad(x, leaves, slope)


def cost(tokens: int, width: int, hidden: int, layers: int) -> Cost:
    """Two products forward and four back; nothing has to be computed twice or to leave the GPU."""
    rows, weights = 2 * tokens * width, 4 * layers * width * hidden
    flops = 12 * tokens * width * hidden * layers
    return Cost(
        flops=flops, dtype="bf16", read=2 * rows + weights, write=2 * rows + weights, items=tokens, unit="tokens"
    )


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    # A block's input is 16 MiB, 0.30 ms on PCIe 5; its two products take 0.45 ms at 600 TFLOP/s, and 1.4 ms backward.
    sizes={
        "bench": {"tokens": 4096, "width": 2048, "hidden": 8192, "layers": 8},
        "test": {"tokens": 29, "width": 37, "hidden": 53, "layers": 4},
    },
    tolerance=0.04,  # bf16 rounds at 0.2%, some ten times one after the other, forward and back
    clock="end_to_end",
)


def trained(
    x: Tensor, slope: Tensor, up: list[Tensor], down: list[Tensor], saving: Callable[[], saved_tensors_hooks]
) -> Step:
    """Forward and backward through checkpointed blocks, each of which saves its input alone, in the way of `saving`."""
    leaves = [tensor.detach().requires_grad_() for tensor in (x, *up, *down)]
    layers = [*zip(leaves[1 : 1 + len(up)], leaves[1 + len(up) :])]

    def step() -> tuple[Tensor, ...]:
        for leaf in leaves:
            leaf.grad = None
        out = leaves[0]
        for first, second in layers:
            with saving():  # a reentrant checkpoint saves what it is called with: the input, not the weights
                out = checkpoint(
                    lambda x, first=first, second=second: block(x, first, second),
                    out,
                    use_reentrant=True,
                    preserve_rng_state=False,
                )
        out.backward(slope)
        return out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)

    return step


def prepare(x: Tensor, slope: Tensor, up: list[Tensor], down: list[Tensor]) -> Step:
    return trained(x, slope, up, down, lambda: save_on_cpu(pin_memory=x.is_cuda))
