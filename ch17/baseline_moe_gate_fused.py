"""The router as separate operators: softmax, top-k, renormalise, count, sum up, sort; each takes a few launches."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

CHOSEN = 8  # experts a token
SKEW = 0.5  # standard deviation of the experts' popularity, in those of a token's own preferences


def inputs(draw: Draw, tokens: int, experts: int) -> Inputs:
    """Logits from -4 to 4 whose order a token's preferences give: neighbours lie half a step apart, so none can tie."""
    preferences = draw.normal(tokens, experts) + draw.normal(experts, std=SKEW)
    ranks = preferences.argsort(dim=1).argsort(dim=1)
    noise = draw.uniform(tokens, experts, low=-0.25, high=0.25)
    return {"logits": (ranks + noise) * (8 / experts) - 4}


def routing(logits: Tensor) -> tuple[Tensor, ...]:
    """Shares and ids [tokens, CHOSEN], the end of each expert's rows [experts], and the choices in order of expert."""
    best, ids = logits.softmax(dim=1).topk(CHOSEN, dim=1)
    shares = best / best.sum(dim=1, keepdim=True)
    ends = torch.bincount(ids.flatten(), minlength=logits.shape[1]).cumsum(0)
    order = ids.flatten().argsort(stable=True)
    return shares, ids, ends, order


workload = Workload(
    inputs=inputs,
    reference=routing,
    cost=lambda tokens, experts: Cost(
        # logits in; shares of 4 bytes, ids and order of 8 out, and the ends
        read=4 * tokens * experts,
        write=20 * tokens * CHOSEN + 8 * experts,
        launches=1,
        items=tokens,
        unit="tokens",
    ),
    sizes={
        "bench": {"tokens": 4096, "experts": 256},
        "cpu": {"tokens": 4096, "experts": 256},
        "test": {"tokens": 37, "experts": 77},
    },
    tolerance=1e-5,
)


def prepare(logits: Tensor) -> Step:
    def step() -> tuple[Tensor, ...]:
        return routing(logits)

    return step
