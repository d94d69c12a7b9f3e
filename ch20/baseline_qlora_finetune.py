"""Adapters are trained beside a frozen base, which is expanded to bf16 when loaded and stays so: two bytes a weight."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint

from common.models.decoder import Shape, block
from common.models.references import hidden_states
from common.models.training import loss_of
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(memory_gib=40)  # the reference in float64
GROUP = 64  # weights of a row that share a scale
BELOW = (-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0)  # NF4: quantiles of normal noise
VALUES = (*BELOW, 0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.723, 1.0)
EIGHT_B = {"layers": 6, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336, "vocabulary": 8064}
SMALL = {"layers": 2, "width": 128, "heads": 4, "kv_heads": 2, "hidden": 192, "vocabulary": 97}
Base = dict[str, Any]  # embedding, norm, head; layers: dicts of norms, and of each matrix its codes and scales
Adapters = list[dict[str, tuple[Tensor, Tensor]]]  # by layer and matrix: (rank, features) and (outputs, rank)


def sides(shape: Shape) -> dict[str, tuple[int, int]]:  # outputs and features of a layer's matrices
    width, inner, hidden = shape.width, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, shape.hidden
    return {"qkv": (inner, width), "out": (width, width), "gate_up": (2 * hidden, width), "down": (width, hidden)}


def inputs(draw: Draw, shape: dict[str, int], rank: int, batch: int, length: int) -> Inputs:
    """Codes two a byte, the even feature in the low bits. Adapters are past their first step: no product is zero.
    Scales have both signs, since NF4's values do not add up to zero: a mean common to all weights would grow."""
    network, normal, uniform = Shape(**shape), *(partial(f, dtype=torch.bfloat16) for f in (draw.normal, draw.uniform))
    width, vocabulary, std = network.width, network.vocabulary, 0.3 * rank**-0.5

    def matrix(m: int, k: int) -> tuple[Tensor, Tensor]:
        return draw.integers(m, k // 2, high=256, dtype=torch.uint8), normal(m, k // GROUP, std=1.8 * k**-0.5)

    def layer() -> dict[str, Any]:
        norms = {name: uniform(width, low=0.5, high=1.5) for name in ("attention_norm", "mlp_norm")}
        return {name: matrix(*side) for name, side in sides(network).items()} | norms

    layers, each = [layer() for _ in range(network.layers)], sides(network).items()
    own = [{n: (normal(rank, k, std=k**-0.5), normal(m, rank, std=std)) for n, (m, k) in each} for _ in layers]
    ends = {"norm": uniform(width, low=0.5, high=1.5), "head": normal(vocabulary, width, std=width**-0.5)}
    base, tokens = {**ends, "embedding": normal(vocabulary, width), "layers": layers}, (batch, length + 1)
    return {"base": base, "adapters": own, "tokens": draw.integers(*tokens, high=vocabulary), "shape": network}


def expanded(codes: Tensor, scales: Tensor) -> Tensor:
    """A matrix of the base, bf16: to this its numbers are rounded."""
    values = torch.tensor(VALUES, device=codes.device)[torch.stack((codes & 15, codes >> 4), dim=2).int()]
    return (values.view(*scales.shape, GROUP) * scales.float()[..., None]).flatten(1).bfloat16()


def joined(base: Base, adapters: Adapters, join: Callable[..., Any]) -> Base:
    pairs = zip(base["layers"], adapters)
    return {**base, "layers": [layer | {n: join(*layer[n], *own[n]) for n in own} for layer, own in pairs]}


def reference(base: Base, adapters: Adapters, tokens: Tensor, shape: Shape) -> tuple[Tensor, ...]:
    """The loss and the adapters' gradients, of weights to which each adapter's product is added."""
    leaves = [leaf.requires_grad_() for leaf in tree_leaves(adapters)]
    loss, gradients = torch.zeros_like(base["norm"][0]), [torch.zeros_like(leaf) for leaf in leaves]
    for row in tokens:  # one at a time: its attention keeps every score
        weights = joined(base, adapters, lambda codes, scales, a, b: expanded(codes, scales).double() + b @ a)
        part = F.cross_entropy(hidden_states(weights, shape, row[:-1]) @ base["head"].T, row[1:]) / len(tokens)
        torch._foreach_add_(gradients, torch.autograd.grad(part, leaves))
        loss = loss + part.detach()
    return loss, *gradients


def cost(shape: dict[str, int], rank: int, batch: int, length: int) -> Cost:
    """Two products of a frozen matrix, none back under the first qkv, three of an adapter's; half of attention."""
    network, tokens = Shape(**shape), batch * length
    frozen, own = network.layers * network.layer_weights, network.layers * rank * sum(map(sum, sides(network).values()))
    products = (
        4 * (frozen + network.width * network.vocabulary) - 2 * network.width * sides(network)["qkv"][0] + 6 * own
    )
    flops, read = tokens * (products + 6 * network.layers * length * network.width), frozen * 17 // 32 + 2 * own
    return Cost(read=read, write=2 * own, flops=flops, dtype="bf16", items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": EIGHT_B, "rank": 16, "batch": 2, "length": 1024},
        "test": {"shape": SMALL, "rank": 3, "batch": 2, "length": 13},
    },
    tolerance=4e-2,  # of bf16 through six blocks and back
    frozen=("base",),
    clock="end_to_end",
    goal="memory",
)


def training(base: Base, adapters: Adapters, tokens: Tensor, shape: Shape, make: Any, multiply: Any) -> Step:
    leaves = tree_map(lambda tensor: tensor.detach().requires_grad_(), adapters)  # the same memory
    weights = joined(base, leaves, lambda codes, scales, a, b: (make(codes, scales), a, b))

    def linear(x: Tensor, matrix: Any) -> Tensor:
        return multiply(x, matrix[0]) + F.linear(F.linear(x, matrix[1]), matrix[2])

    run = partial(checkpoint, partial(block, linear=linear), use_reentrant=False)

    def step() -> tuple[Tensor, ...]:
        loss = loss_of(weights, shape, tokens, run)
        return loss.detach(), *torch.autograd.grad(loss, tree_leaves(leaves))

    return step


def prepare(base: Base, adapters: Adapters, tokens: Tensor, shape: Shape) -> Step:
    return training(base, adapters, tokens, shape, expanded, F.linear)
