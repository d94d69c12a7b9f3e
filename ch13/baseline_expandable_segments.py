"""Batches that grow: no piece that the allocator kept is long enough for the next one, so it reserves new memory."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from common.python.workload import Cost, Draw, Inputs, Metered, Step, Workload


def lengths(first: int, last: int, batches: int) -> list[int]:
    """Tokens of each batch, growing by one factor, as in a curriculum that begins with short texts."""
    return [round(first * (last / first) ** (index / (batches - 1))) for index in range(batches)]


def inputs(draw: Draw, first: int, last: int, batches: int, width: int, layers: int) -> Inputs:
    shapes = [(4 * width, width), (width, 4 * width)] * layers
    scaled = enumerate(lengths(first, last, batches), start=1)  # of one scale, losses are too alike to tell them apart
    return {
        "texts": [draw.normal(tokens, width, std=scale, dtype=torch.bfloat16) for scale, tokens in scaled],
        "weights": [draw.normal(*shape, std=shape[1] ** -0.5, dtype=torch.bfloat16) for shape in shapes],
    }


def losses(texts: Iterable[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """The loss of each text; its gradients are added to the weights', and then what it left in memory is free."""
    found = []
    for x in texts:
        for up, down in zip(weights[::2], weights[1::2]):
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), up)), down)
        loss = x.to(torch.promote_types(x.dtype, torch.float32)).square().mean()
        loss.backward()
        found.append(loss.detach())
    return found


def reference(texts: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, ...]:
    leaves = [weight.requires_grad_() for weight in weights]
    found = losses(reversed(texts), leaves)[::-1]  # so that it does not reserve memory as the baseline does
    return torch.stack(found), *(leaf.grad for leaf in leaves)


def cost(first: int, last: int, batches: int, width: int, layers: int) -> Cost:
    """Products forward and back, but for the gradient of what comes in; weights in, gradients out, texts in."""
    tokens, weights = sum(lengths(first, last, batches)), 8 * layers * width**2
    flops, read = tokens * (6 * weights - 8 * width**2), 2 * (weights + tokens * width)
    return Cost(flops=flops, dtype="bf16", read=read, write=2 * weights, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"first": 1024, "last": 8192, "batches": 24, "width": 512, "layers": 4},
        "test": {"first": 5, "last": 61, "batches": 4, "width": 37, "layers": 2},
    },
    tolerance=0.04,  # bf16 rounds at 0.2%, again for each batch whose gradients are added; 0.007 was seen on a CPU
    clock="end_to_end",
    goal="memory",
    isolated=True,  # the allocator serves the whole process; the memory that counts is then what it reserves
)


def metered(step: Step, leaves: list[Tensor]) -> Metered:
    """The step, and what the allocator's statistics say of one: the most that tensors hold, above what was there.

    The free rest of segments that are there before serves the step, and is not in what it reserves.
    """

    def metrics() -> dict[str, float]:
        if not leaves[0].is_cuda:
            return {}
        for leaf in leaves:
            leaf.grad = None
        torch.cuda.empty_cache()
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        step()
        return {
            "allocated peak MB": (torch.cuda.max_memory_allocated() - allocated) / 1e6,
            "reserved peak MB": (torch.cuda.max_memory_reserved() - reserved) / 1e6,
            "free in segments before MB": (reserved - allocated) / 1e6,
        }

    return Metered(step, metrics)


def prepare(texts: list[Tensor], weights: list[Tensor]) -> Metered:
    leaves = [weight.detach().requires_grad_() for weight in weights]

    def step() -> tuple[Tensor, ...]:
        for leaf in leaves:
            leaf.grad = None
        return torch.stack(losses(texts, leaves)), *(leaf.grad for leaf in leaves)

    return metered(step, leaves)
