"""Training of the decoder: inputs, cost, loss, a whole step, and one as formulas have it, for a reference."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adamw import adamw
from torch.utils._pytree import tree_leaves, tree_map

from common.models.caches import causal_attention
from common.models.decoder import EPSILON, Shape, Weights, draw_weights, turns
from common.models.references import hidden_states
from common.python.workload import Cost, Draw, Inputs, Step

DECAY, BETA1, BETA2, ADAM_EPSILON = 0.1, 0.9, 0.95, 1e-8


def adamw_options(shape: Shape) -> dict[str, float]:
    """AdamW's numbers. The rate is 0.3 of a weight's size: the update must show where bf16 is compared."""
    return {"lr": 0.3 * shape.width**-0.5, "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY, "eps": ADAM_EPSILON}


def step_inputs(draw: Draw, shape: Shape, batch: int, length: int, dtype: torch.dtype, history: float) -> Inputs:
    """Tokens, weights and AdamW's two moments. `history` is the means' size beside a gradient's, of which a tenth is
    added: of 0.1, an error of a block's gradient shows in the mean a fifth to three fifths as large; of more, less."""
    weights = draw_weights(draw, shape, dtype)
    del weights["successor"]  # training wants a head that is not yet sure of anything
    weights["head"] = draw.normal(shape.vocabulary, shape.width, std=shape.width**-0.5, dtype=dtype)
    size = (batch * length * shape.width) ** -0.5  # of a mean over tokens of unit noise times a slope of unit length
    return {
        "weights": weights,
        "means": tree_map(lambda w: draw.normal(*w.shape, std=history * size, dtype=dtype), weights),
        "squares": tree_map(lambda w: draw.uniform(*w.shape, low=size**2, high=2 * size**2, dtype=dtype), weights),
        "tokens": draw.integers(batch, length + 1, high=shape.vocabulary),
        "count": draw.host.integers(1, low=1, high=20),  # of this update; the training loop counts on the host
        "shape": shape,
    }


def step_cost(shape: Shape, batch: int, length: int, element: int, dtype: str) -> list[Cost]:
    """Two phases: the products forward and backward, then the optimizer, which needs all gradients.

    Model FLOPs: 6 for each weight and token, the blocks' in `dtype`, the head's and those of causal attention in bf16;
    what is computed again does not count. The optimizer reads and writes weights and two moments of `element` bytes.
    """
    tokens, blocks = batch * length, shape.layers * shape.layer_weights
    attention = shape.layers * length * shape.width  # a token sees half of all keys
    rest = 6 * tokens * (shape.read_weights - blocks + attention)
    numbers = shape.read_weights + shape.vocabulary * shape.width + (2 * shape.layers + 1) * shape.width
    optimizer = Cost(read=3 * element * numbers, write=3 * element * numbers)
    if dtype != "fp8":
        return [Cost(flops=6 * tokens * blocks + rest, dtype=dtype, items=tokens, unit="tokens"), optimizer]
    linear = Cost(flops=6 * tokens * blocks, dtype=dtype, items=tokens, unit="tokens")
    return [linear, Cost(flops=rest, dtype="bf16"), optimizer]


def loss_of(weights: Weights, shape: Shape, tokens: Tensor, run: Callable[..., Tensor]) -> Tensor:
    """Mean cross entropy of each next token of tokens (batch, length + 1); `run` is `block`, or calls it in its way."""
    x = F.embedding(tokens[:, :-1], weights["embedding"])
    cos, sin = turns(shape, torch.arange(x.shape[1], device=x.device)[None], x.dtype)
    for layer in weights["layers"]:
        x = run(layer, shape, x, cos, sin, causal_attention)
    logits = F.linear(F.rms_norm(x, (shape.width,), weights["norm"], EPSILON), weights["head"]).flatten(0, 1)
    return F.cross_entropy(logits.to(torch.promote_types(x.dtype, torch.float32)), tokens[:, 1:].flatten())


def training(
    weights: Weights,
    means: Weights,
    squares: Weights,
    tokens: Tensor,
    count: Tensor,
    shape: Shape,
    run: Callable[..., Tensor],
    fused: bool = False,
    loss_of: Callable[..., Tensor] = loss_of,
) -> Step:
    """Forward, backward and AdamW in place; the step gives the loss, then weights and moments."""
    leaves = tree_map(lambda weight: weight.detach().requires_grad_(), weights)  # the same memory
    p, m, v = (tree_leaves(tree) for tree in (weights, means, squares))
    updates = torch.empty(len(p), device=p[0].device if fused else "cpu")  # made so far, where the kernel reads them
    how: dict[str, Any] = {"foreach": not fused, "fused": fused, "amsgrad": False, "maximize": False}
    how |= adamw_options(shape)

    def step() -> tuple[Tensor, ...]:
        loss = loss_of(leaves, shape, tokens, run)
        gradients = list(torch.autograd.grad(loss, tree_leaves(leaves)))
        updates.fill_(int(count) - 1)
        adamw(p, gradients, m, v, [], list(updates.unbind()), **how)
        return loss.detach(), *p, *m, *v

    return step


def plain_step(
    weights: Weights, means: Weights, squares: Weights, tokens: Tensor, count: Tensor, shape: Shape
) -> tuple[Tensor, ...]:
    """The loss, then weights and moments after AdamW's update number `count`, through the network of `references`, one
    sequence at a time, since its attention keeps every score. All that is float64 is overwritten."""
    leaves, m, v = (tree_leaves(tree) for tree in (weights, means, squares))
    p = [leaf.requires_grad_() for leaf in leaves]
    total, gradients = torch.zeros_like(p[0][0, 0]), [torch.zeros_like(leaf) for leaf in p]
    for row in tokens:
        logits = hidden_states(weights, shape, row[:-1]) @ weights["head"].T
        loss = F.cross_entropy(logits, row[1:]) / len(tokens)
        torch._foreach_add_(gradients, torch.autograd.grad(loss, p))
        total = total + loss.detach()
    rate, unbias1, unbias2 = adamw_options(shape)["lr"], 1 - BETA1 ** int(count), 1 - BETA2 ** int(count)
    with torch.no_grad():
        for i, g in enumerate(gradients):
            m[i] = m[i].double().mul_(BETA1).add_(g, alpha=1 - BETA1)
            v[i] = v[i].double().mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
            p[i].mul_(1 - rate * DECAY).sub_(m[i] / unbias1 / ((v[i] / unbias2).sqrt() + ADAM_EPSILON), alpha=rate)
    return total, *(leaf.detach() for leaf in p), *m, *v
