"""Experts lie on the ranks by their numbers: who holds the popular ones works for all tokens while the others wait."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import silu

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def popularity(experts: int) -> list[float]:
    """Each expert's share of the tokens, known from earlier batches: Zipf's law with an exponent of 0.7."""
    weights = [(expert + 1) ** -0.7 for expert in range(experts)]
    return [weight / sum(weights) for weight in weights]


def inputs(draw: Draw, tokens: int, experts: int, width: int, hidden: int) -> Inputs:
    """A rank's tokens, each with its expert, and all experts, of which a rank is to use those that it holds."""
    ends, std = torch.tensor(popularity(experts)).cumsum(0)[:-1].to(draw.device), width**-0.5
    return {
        "x": draw.normal(tokens, width, dtype=torch.bfloat16),
        "expert": torch.searchsorted(ends, draw.uniform(tokens)),
        "up": draw.shared.normal(experts, width, hidden, std=std, dtype=torch.bfloat16),
        "down": draw.shared.normal(experts, hidden, width, std=std, dtype=torch.bfloat16),
    }


def reference(rank: int, x: list[Tensor], expert: list[Tensor], up: list[Tensor], down: list[Tensor]) -> Tensor:
    out = torch.empty_like(x[rank])
    for index, (a, b) in enumerate(zip(up[rank], down[rank])):
        chosen = expert[rank] == index
        out[chosen] = silu(x[rank][chosen] @ a.double()) @ b.double()
    return out


def cost(tokens: int, experts: int, width: int, hidden: int) -> Cost:
    """Of two ranks, each with half of the work. If both hold all experts, nothing has to cross the link."""
    flops = 4 * tokens * width * hidden
    return Cost(flops=flops, dtype="bf16", read=2 * tokens * width, write=2 * tokens * width, items=tokens)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"tokens": 32768, "experts": 16, "width": 4096, "hidden": 4096},
        "test": {"tokens": 211, "experts": 6, "width": 40, "hidden": 56},
    },
    tolerance=0.02,  # two products, each rounded to bfloat16
    frozen=("up", "down"),
    as_drawn=("up", "down"),
    gpus=2,
    clock="end_to_end",
)


def exchanging(x: Tensor, expert: Tensor, up: Tensor, down: Tensor, homes: Sequence[Sequence[int]]) -> Step:
    """A step in which a token of rank r goes to rank homes[r][expert], and comes back when its expert is through."""
    rank, experts, ranks = dist.get_rank(), range(len(up)), range(dist.get_world_size())
    numbers, home = (torch.tensor(held, device=x.device) for held in (list(experts), homes[rank]))
    counts, returned, out = expert.new_empty(len(ranks), len(up)), torch.empty_like(x), torch.empty_like(x)
    held = [(e, [r for r in ranks if homes[r][e] == rank]) for e in experts if any(h[e] == rank for h in homes)]

    def step() -> Tensor:
        order = (home[expert] * len(up) + expert).argsort(stable=True)
        dist.all_gather_into_tensor(counts.view(-1), (expert == numbers[:, None]).sum(dim=1))
        sizes = counts.tolist()  # the host waits: it must know the sizes before it can ask for the transfer
        here = [sum(sizes[rank][e] for e in experts if homes[rank][e] == r) for r in ranks]
        there = [sum(sizes[r][e] for e, senders in held if r in senders) for r in ranks]
        received = x.new_empty(sum(there), x.shape[1])
        dist.all_to_all_single(received, x[order], there, here)
        pieces = [(r, e) for r in ranks for e, senders in held if r in senders]  # in the order in which they came
        rows = dict(zip(pieces, received.split([sizes[r][e] for r, e in pieces])))
        for e, senders in held:
            answer = silu(torch.cat([rows[r, e] for r in senders]) @ up[e]) @ down[e]
            for r, part in zip(senders, answer.split([sizes[r][e] for r in senders])):
                rows[r, e] = part
        dist.all_to_all_single(returned, torch.cat([rows[piece] for piece in pieces]), here, there)
        return out.index_copy_(0, order, returned)

    return step


def prepare(x: Tensor, expert: Tensor, up: Tensor, down: Tensor) -> Step:
    ranks = dist.get_world_size()
    return exchanging(x, expert, up, down, [[e * ranks // len(up) for e in range(len(up))]] * ranks)
