"""ZeRO-1 in one kernel: it reads all gradients of its share, updates, and stores the new weights on every rank."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory

from ch13.baseline_zero1_optimizer import BETA1, BETA2, DECAY, EPSILON, RATE, UPDATE
from ch13.baseline_zero1_optimizer import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)
BLOCK, WARPS = 2048, 8


@triton.jit
def update_share(
    weight, mean, square, gradients, outs, first, n, size, root, rate, decay, beta1, beta2, eps,
    RANKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The share begins at `first` of all numbers; `size` is rate / (1 - beta1^t), `root` 1 / sqrt(1 - beta2^t)."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    g = tl.zeros([BLOCK], tl.float32)
    for rank in tl.static_range(RANKS):
        theirs = tl.multiple_of(tl.load(gradients + rank).to(tl.pointer_type(tl.bfloat16)), 16)
        g += tl.load(theirs + first + at, mask=inside).to(tl.float32)
    g /= RANKS
    m = tl.load(mean + at, mask=inside)
    v = tl.load(square + at, mask=inside)
    p = tl.load(weight + at, mask=inside)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    p = p * (1 - rate * decay) - size * m / (tl.sqrt(v) * root + eps)
    tl.store(mean + at, m, mask=inside)
    tl.store(square + at, v, mask=inside)
    tl.store(weight + at, p, mask=inside)
    for rank in tl.static_range(RANKS):
        theirs = tl.multiple_of(tl.load(outs + rank).to(tl.pointer_type(tl.bfloat16)), 16)
        tl.store(theirs + first + at, p.to(tl.bfloat16), mask=inside)


def prepare(gradient: Tensor, weight: Tensor, mean: Tensor, square: Tensor) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    share = tuple(state.chunk(ranks)[rank] for state in (weight, mean, square))  # all that it would have to hold
    held = symmetric_memory.empty((2, len(gradient)), dtype=gradient.dtype, device=gradient.device)
    handle = symmetric_memory.rendezvous(held, dist.group.WORLD)
    out = held[1]
    gradient.data = held[0].copy_(gradient)  # the backward pass writes it where the other ranks can read it
    gradients = torch.tensor(handle.buffer_ptrs, device=gradient.device)
    outs, n = gradients + out.nbytes, len(share[0])
    corrected = RATE / (1 - BETA1**UPDATE), (1 - BETA2**UPDATE) ** -0.5

    def step() -> tuple[Tensor, ...]:
        handle.barrier()  # all gradients are there, and nobody reads the last weights any more
        update_share[(triton.cdiv(n, BLOCK),)](
            *share, gradients, outs, rank * n, n, *corrected, RATE, DECAY, BETA1, BETA2, EPSILON,
            RANKS=ranks, BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip
        handle.barrier()  # everywhere, all new weights have come
        return out, *share

    return step
