"""Forward, backward and AdamW of a small GPT, operator by operator: each launch takes longer than its kernel."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adamw import adamw

from common.python.workload import Cost, Draw, Inputs, Step, Workload

HEADS, VOCABULARY = 4, 512
RATE, DECAY, BETA1, BETA2, EPSILON = 1e-3, 0.1, 0.9, 0.999, 1e-8
GRADIENT = 1e-3  # the moments are drawn at about the size of the gradients, so that both count in the update


def inputs(draw: Draw, layers: int, width: int, batch: int, length: int) -> Inputs:
    """Parameters are stacked over the layers: embedding, positions, then the four projections of every block."""
    shapes = [(VOCABULARY, width), (length, width)]
    shapes += [(layers, rows * width, columns * width) for rows, columns in ((3, 1), (1, 1), (4, 1), (1, 4))]
    return {
        "tokens": draw.integers(batch, length + 1, high=VOCABULARY),
        "parameters": [draw.normal(*shape, std=width**-0.5) for shape in shapes],
        "means": [draw.normal(*shape, std=GRADIENT) for shape in shapes],
        "squares": [draw.uniform(*shape, low=GRADIENT**2, high=2 * GRADIENT**2) for shape in shapes],
        "updates": draw.integers(len(shapes), low=1, high=20, dtype=torch.float32),  # made so far
    }


def loss_of(tokens: Tensor, parameters: list[Tensor]) -> Tensor:
    """Mean cross entropy of predicting each next token."""
    embedding, positions, *stacks = parameters
    x = F.embedding(tokens[:, :-1], embedding) + positions
    for qkv, out, up, down in zip(*(stack.unbind() for stack in stacks)):
        heads = F.linear(F.layer_norm(x, x.shape[-1:]), qkv).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
        x = x + F.linear(attended.transpose(1, 2).flatten(2), out)
        x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), up)), down)
    logits = F.linear(F.layer_norm(x, x.shape[-1:]), embedding)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def reference(
    tokens: Tensor, parameters: list[Tensor], means: list[Tensor], squares: list[Tensor], updates: Tensor
) -> tuple[Tensor, ...]:
    loss = loss_of(tokens, [parameter.requires_grad_() for parameter in parameters])
    gradients = torch.autograd.grad(loss, parameters)
    means = [BETA1 * m + (1 - BETA1) * g for m, g in zip(means, gradients)]
    squares = [BETA2 * v + (1 - BETA2) * g.square() for v, g in zip(squares, gradients)]
    moved = []
    for p, m, v, count in zip(parameters, means, squares, updates + 1):
        change = m / (1 - BETA1**count) / ((v / (1 - BETA2**count)).sqrt() + EPSILON)
        moved.append(p * (1 - RATE * DECAY) - RATE * change)
    return loss, *moved, *means, *squares, updates + 1


def cost(layers: int, width: int, batch: int, length: int) -> Cost:
    weights, tokens = 12 * layers * width**2 + VOCABULARY * width, batch * length
    flops = 6 * tokens * (weights + layers * length * width)  # causal attention is half of 12 * length * width a token
    moved = {"read": 12 * weights, "write": 12 * weights}  # weights and moments; gradients need not reach memory
    return Cost(flops=flops, **moved, launches=1, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"layers": 8, "width": 128, "batch": 8, "length": 64},
        "cpu": {"layers": 4, "width": 128, "batch": 4, "length": 64},
        "test": {"layers": 2, "width": 20, "batch": 3, "length": 7},
    },
    tolerance=1e-4,  # on an H200, memory-efficient attention's fp32 gradients are within 1e-5, one element within 4e-4
    mutates=("parameters", "means", "squares", "updates"),
    clock="end_to_end",
)


def update(
    parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor], counts: list[Tensor]
) -> None:
    """AdamW in place; its counts live on the device, where a captured step can advance them."""
    hyper = {"lr": RATE, "beta1": BETA1, "beta2": BETA2, "eps": EPSILON, "weight_decay": DECAY}
    adamw(parameters, gradients, means, squares, [], counts, fused=True, amsgrad=False, maximize=False, **hyper)


def prepare(
    tokens: Tensor, parameters: list[Tensor], means: list[Tensor], squares: list[Tensor], updates: Tensor
) -> Step:
    leaves = [parameter.detach().requires_grad_() for parameter in parameters]  # the same memory

    def step() -> tuple[Tensor, ...]:
        loss = loss_of(tokens, leaves)
        update(parameters, list(torch.autograd.grad(loss, leaves)), means, squares, list(updates.unbind()))
        return loss.detach(), *parameters, *means, *squares, updates

    return step
