"""A policy learns from eight responses to one prompt: each sequence repeats the prompt, which is computed each time."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

from common.models.caches import uncached
from common.models.decoder import Shape, Weights, draw_weights, forward, turns
from common.models.references import hidden_states
from common.python.workload import Cost, Draw, Inputs, Step, Workload

# Two blocks of Llama-3.1-8B, and a small vocabulary.
EIGHT_B = {"layers": 2, "vocabulary": 4096, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
TINY = {"layers": 2, "vocabulary": 512, "width": 128, "heads": 4, "kv_heads": 2, "hidden": 344}
SMALL = {"layers": 2, "vocabulary": 97, "width": 96, "heads": 6, "kv_heads": 2, "hidden": 131}


def inputs(draw: Draw, shape: dict[str, int], prompt: int, responses: int, length: int, dtype: str) -> Inputs:
    """`advantages` says of each response how much better than the others it was: GRPO's weight of its tokens."""
    network, element = Shape(**shape), getattr(torch, dtype)
    weights = draw_weights(draw, network, element)
    del weights["successor"]  # training wants a head that is not yet sure of anything
    weights["head"] = draw.normal(network.vocabulary, network.width, std=network.width**-0.5, dtype=element)
    return {
        "weights": weights,
        "shape": network,
        "prompt": draw.integers(prompt, high=network.vocabulary),
        "responses": draw.integers(responses, length, high=network.vocabulary),
        "advantages": draw.normal(responses),
    }


def learnt(weights: Weights) -> list[Tensor]:
    """All weights but the embedding, which is left as it is."""
    return tree_leaves({name: part for name, part in weights.items() if name != "embedding"})


def loss_of(states: Tensor, head: Tensor, responses: Tensor, advantages: Tensor) -> Tensor:
    """The policy's loss, of the states (responses, length, width) that choose each token."""
    logits = F.linear(states, head).flatten(0, 1)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    surprise = F.cross_entropy(logits, responses.flatten(), reduction="none").view(responses.shape)
    return (advantages[:, None] * surprise).mean()


def reference(
    weights: Weights, shape: Shape, prompt: Tensor, responses: Tensor, advantages: Tensor
) -> tuple[Tensor, ...]:
    leaves = [leaf.requires_grad_() for leaf in learnt(weights)]
    loss, gradients = torch.zeros_like(advantages[0]), [torch.zeros_like(leaf) for leaf in leaves]
    for response, advantage in zip(responses, advantages):  # one at a time: its attention keeps every score
        states = hidden_states(weights, shape, torch.cat([prompt, response[:-1]]))[len(prompt) - 1 :]
        part = loss_of(states[None], weights["head"], response[None], advantage[None]) / len(responses)
        torch._foreach_add_(gradients, torch.autograd.grad(part, leaves))
        loss = loss + part.detach()
    return loss, *gradients


def cost(shape: dict[str, int], prompt: int, responses: int, length: int, dtype: str) -> Cost:
    """6 FLOPs for each weight and token, 12 for each number of a query that meets a key; the prompt counts once."""
    network, chosen = Shape(**shape), responses * length
    blocks, head = network.layers * network.layer_weights, network.width * network.vocabulary
    pairs = prompt**2 // 2 + responses * (length - 1) * (prompt + length // 2)
    products = blocks * (prompt + responses * (length - 1)) + head * chosen
    flops = 6 * products + 12 * network.layers * network.width * pairs
    moved = getattr(torch, dtype).itemsize * (blocks + head)
    return Cost(flops=flops, dtype="bf16", read=moved, write=moved, items=chosen, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"shape": EIGHT_B, "prompt": 2048, "responses": 8, "length": 256, "dtype": "bfloat16"},
        "cpu": {"shape": TINY, "prompt": 96, "responses": 8, "length": 16, "dtype": "float32"},
        "test": {"shape": SMALL, "prompt": 29, "responses": 3, "length": 11, "dtype": "float32"},
    },
    tolerance=3e-2,  # of bf16 through all blocks and back
    clock="end_to_end",
)


def learning(loss: Callable[[Weights], Tensor], weights: Weights) -> Step:
    """A step that gives the loss and its gradients; torch fuses what stands between the products, both ways."""
    leaves = tree_map(lambda weight: weight.detach().requires_grad_(), weights)  # the same memory
    leaves["embedding"] = weights["embedding"]
    compiled = torch.compile(loss, fullgraph=False, dynamic=False, disable=not weights["head"].is_cuda)

    def step() -> tuple[Tensor, ...]:
        value = compiled(leaves)
        return value.detach(), *torch.autograd.grad(value, learnt(leaves))

    return step


def prepare(weights: Weights, shape: Shape, prompt: Tensor, responses: Tensor, advantages: Tensor) -> Step:
    positions = torch.arange(len(prompt) + responses.shape[1] - 1, device=prompt.device)[None]
    turning = turns(shape, positions, weights["head"].dtype)

    def loss(leaves: Weights) -> Tensor:
        tokens = torch.cat([prompt.expand(len(responses), -1), responses[:, :-1]], 1)
        states = forward(leaves, shape, tokens, turning, uncached())[:, len(prompt) - 1 :]
        return loss_of(states, leaves["head"], responses, advantages)

    return learning(loss, weights)
