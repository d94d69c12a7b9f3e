"""After each batch the garbage is collected and the allocator's cache given back: the next batch asks for all anew."""

import gc
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Metered, Workload


def inputs(draw: Draw, batches: int, tokens: int, width: int, layers: int) -> Inputs:
    shapes = [(4 * width, width), (width, 4 * width)] * layers
    texts = draw.normal(batches, tokens, width) * torch.arange(1, batches + 1, device=draw.device)[:, None, None]
    return {
        "texts": texts.bfloat16(),  # each batch has another loss
        "weights": [draw.normal(*shape, std=shape[1] ** -0.5, dtype=torch.bfloat16) for shape in shapes],
    }


def train(texts: Tensor, leaves: list[Tensor], after: Callable[[], object]) -> tuple[Tensor, ...]:
    """Each batch's loss and the sums of all gradients; `after` is called when a batch is done."""
    told = []
    for leaf in leaves:
        leaf.grad = None
    for x in texts:
        for up, down in zip(leaves[::2], leaves[1::2]):
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), up)), down)
        loss = x.to(torch.promote_types(x.dtype, torch.float32)).square().mean()
        loss.backward()
        told.append(loss.detach())
        after()
    return torch.stack(told), *(leaf.grad for leaf in leaves if leaf.grad is not None)


def cost(batches: int, tokens: int, width: int, layers: int) -> Cost:
    """Products forward and back, but for the gradient of what comes in; weights in, gradients out, texts in."""
    rows, weights = batches * tokens, 8 * layers * width**2
    flops, read = rows * (6 * weights - 8 * width**2), 2 * (weights + rows * width)
    return Cost(flops=flops, dtype="bf16", read=read, write=2 * weights, items=rows, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=lambda texts, weights: train(texts, [weight.requires_grad_() for weight in weights], lambda: None),
    cost=cost,
    sizes={
        "bench": {"batches": 4, "tokens": 2048, "width": 1024, "layers": 8},
        "test": {"batches": 3, "tokens": 29, "width": 37, "layers": 2},
    },
    tolerance=3e-2,  # bf16 rounds at 0.2%, after each product and for each batch whose gradients are added
    clock="end_to_end",
    isolated=True,  # the allocator serves the whole process
)


def metered(texts: Tensor, weights: list[Tensor], after: Callable[[], object]) -> Metered:
    """The training step, and how often the allocator asks the driver for memory in one."""
    leaves = [weight.detach().requires_grad_() for weight in weights]

    def metrics() -> dict[str, float]:
        if not texts.is_cuda:
            return {}
        before = torch.cuda.memory_stats()["num_device_alloc"]
        train(texts, leaves, after)
        return {"cudaMalloc calls": torch.cuda.memory_stats()["num_device_alloc"] - before}

    return Metered(lambda: train(texts, leaves, after), metrics)


def clean() -> None:
    gc.collect()
    torch.cuda.empty_cache()


def prepare(texts: Tensor, weights: list[Tensor]) -> Metered:
    return metered(texts, weights, clean)
