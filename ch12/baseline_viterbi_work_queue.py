"""Sequences of very different lengths are dealt to blocks in advance: the block that got most work ends last."""

import torch
from torch import Tensor

from common.models.lengths import length_mix
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

requires = needs(sm=80)
STATES, PARTS = 64, 64  # log probabilities are whole 64ths, so that every sum is exact and ties are the same everywhere


def inputs(draw: Draw, count: int, mean: float, longest: int) -> Inputs:
    lengths = torch.tensor(length_mix(count, mean, longest, 1.0), device=draw.device)[draw.permutation(count)]
    starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return {
        "emissions": draw.integers(int(starts[-1]), STATES, low=-128, high=0).float() / PARTS,
        "transitions": draw.integers(STATES, STATES, low=-64, high=0).float() / PARTS,
        "starts": starts,  # of each sequence among the rows of emissions, and the end
    }


def reference(emissions: Tensor, transitions: Tensor, starts: Tensor) -> Tensor:
    """The state at each step of the best path; where two are equally good, the lower state number, from the end on."""
    lengths, order = starts.diff().sort(descending=True)
    first, states = starts[order], torch.arange(STATES, device=starts.device)
    left = (lengths[:, None] > torch.arange(int(lengths[0]), device=starts.device)).sum(0).tolist()

    def ranked(scores: Tensor, numbers: Tensor) -> Tensor:
        return scores * (PARTS * STATES) - numbers  # whole numbers: by score, then by state

    scores, back = emissions[first], [first]
    for step, active in enumerate(left[1:], start=1):
        best = ranked(scores[:active, :, None] + transitions, states[:, None]).amax(dim=1)
        back.append((-best).remainder(STATES).to(torch.uint8))
        scores[:active] = (best / STATES).ceil() / PARTS + emissions[first[:active] + step]
    state = (-ranked(scores, states).amax(dim=1)).remainder(STATES).long()
    path = torch.empty(len(emissions), dtype=torch.int32, device=starts.device)
    for step, active in reversed(list(enumerate(left))):
        path[first[:active] + step] = state[:active].int()
        if step > 0:
            state[:active] = back[step].gather(1, state[:active, None])[:, 0].long()
    return path


def cost(count: int, mean: float, longest: int) -> Cost:
    tokens = sum(length_mix(count, mean, longest, 1.0))  # an addition and a comparison for each pair of states
    flops, read = 2 * tokens * STATES**2, 4 * (tokens + STATES) * STATES
    return Cost(flops=flops, dtype="fp32", read=read, write=4 * tokens, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"count": 8192, "mean": 200.0, "longest": 1600},
        "test": {"count": 37, "mean": 20.0, "longest": 131},
    },
    tolerance=0.0,
)


def decoding(emissions: Tensor, transitions: Tensor, starts: Tensor, block_each: bool) -> Step:
    viterbi, back = load_cuda(__file__, "viterbi"), torch.empty_like(emissions, dtype=torch.uint8)
    path = starts.new_empty(len(emissions), dtype=torch.int32)

    def step() -> Tensor:
        viterbi(emissions, transitions, starts, back, path, len(starts) - 1, block_each)
        return path

    return step


def prepare(emissions: Tensor, transitions: Tensor, starts: Tensor) -> Step:
    return decoding(emissions, transitions, starts, block_each=False)
