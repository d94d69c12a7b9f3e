"""Gradients are averaged over the ranks, and then every rank updates all weights: each does the same work again."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

RATE, DECAY, BETA1, BETA2, EPSILON, UPDATE = 1e-3, 0.1, 0.9, 0.999, 1e-8, 10  # of the tenth update
HYPER = {"lr": RATE, "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY, "eps": EPSILON}
Update = Callable[[Tensor], Tensor]


def inputs(draw: Draw, numbers: int) -> Inputs:
    """A rank's bf16 gradients, and what all have alike: weights and AdamW's moments in fp32."""
    return {
        "gradient": draw.normal(numbers, dtype=torch.bfloat16),
        "weight": draw.shared.normal(numbers),
        "mean": draw.shared.normal(numbers),
        "square": draw.shared.uniform(numbers, low=0.5),
    }


def reference(
    rank: int, gradient: list[Tensor], weight: list[Tensor], mean: list[Tensor], square: list[Tensor]
) -> tuple[Tensor, ...]:
    """All weights, for the next forward pass, and this rank's share of weights and moments, which go on in fp32."""
    g, p, ranks = sum(gradient) / len(gradient), weight[rank], len(gradient)
    m, v = BETA1 * mean[rank] + (1 - BETA1) * g, BETA2 * square[rank] + (1 - BETA2) * g.square()
    m_hat, v_hat = m / (1 - BETA1**UPDATE), v / (1 - BETA2**UPDATE)
    p = p - RATE * (DECAY * p + m_hat / (v_hat.sqrt() + EPSILON))
    return p, *(state.chunk(ranks)[rank] for state in (p, m, v))


workload = Workload(
    inputs=inputs,
    reference=reference,
    # For two ranks: each updates half, for 12 bytes a weight both ways, and sends half of gradients and of weights.
    cost=lambda numbers: Cost(
        read=8 * numbers, write=8 * numbers, nvlink_bytes=2 * numbers, items=numbers, unit="weights"
    ),
    sizes={"bench": {"numbers": 1 << 27}, "test": {"numbers": 9000}},
    tolerance=4e-3,  # weights and the gradients' sum are rounded to bfloat16
    mutates=("gradient", "weight", "mean", "square"),
    gpus=2,
    clock="end_to_end",
)


def adamw(weight: Tensor, mean: Tensor, square: Tensor) -> Update:
    """A function that takes the mean gradient in bf16, updates these in place, and gives the new weights in bf16."""
    wide, narrow = torch.empty_like(weight), torch.empty_like(weight, dtype=torch.bfloat16)
    states = [weight], [wide], [mean], [square], [], [weight.new_full((), UPDATE)]

    def update(gradient: Tensor) -> Tensor:
        wide.copy_(gradient)
        torch._fused_adamw_(*states, amsgrad=False, maximize=False, **HYPER)
        return narrow.copy_(weight)

    return update


def prepare(gradient: Tensor, weight: Tensor, mean: Tensor, square: Tensor) -> Step:
    rank, ranks, update = dist.get_rank(), dist.get_world_size(), adamw(weight, mean, square)
    share = tuple(state.chunk(ranks)[rank] for state in (weight, mean, square))

    def step() -> tuple[Tensor, ...]:
        dist.all_reduce(gradient)
        return update(gradient.div_(ranks)), *share

    return step
