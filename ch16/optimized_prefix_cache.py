"""Blocks of tokens are looked up by what they hold and what precedes them: what several share is prefilled once."""

from collections import Counter

import numpy
import torch
from torch import Tensor

from ch16.baseline_prefix_cache import workload as workload
from common.models.caches import continuing_pages, new_cache, prefilling_pages
from common.models.decoder import Shape, Weights, forward, greedy
from common.python.workload import Metered

BLOCK = 64  # tokens


def shared_blocks(tokens: numpy.ndarray) -> list[tuple[list[int], int]]:
    """Requests (rows) that share their deepest block, and how many blocks that makes. Each request is in one group.

    A block's name is its tokens and the number of the block before it, so that equal names mean equal prefixes. A
    request's last token is never in a shared block: its state is what is asked for.
    """
    numbers: dict[tuple[int, bytes], int] = {}
    chains = []
    for row in tokens:
        chain = [0]
        for start in range(0, (len(row) - 1) // BLOCK * BLOCK, BLOCK):
            name = chain[-1], row[start : start + BLOCK].tobytes()
            chain.append(numbers.setdefault(name, len(numbers) + 1))
        chains.append(chain[1:])
    uses = Counter(block for chain in chains for block in chain)
    groups: dict[int, tuple[list[int], int]] = {}
    for row, chain in enumerate(chains):
        shared = [block for block in chain if uses[block] > 1]
        groups.setdefault(shared[-1] if shared else 0, ([], len(shared)))[0].append(row)
    return list(groups.values())


def prefill(weights: Weights, shape: Shape, tokens: Tensor, blocks: int) -> Tensor:
    """Last states (batch, width) of requests (batch, length) whose first blocks are the same: these pass once."""
    (batch, length), start, device = tokens.shape, blocks * BLOCK, tokens.device
    own = -(-(length - start) // BLOCK)
    pool = new_cache(shape, blocks + batch * own, BLOCK, weights["head"])
    pages = torch.arange(blocks + batch * own, device=device)
    table = torch.cat([pages[:blocks].expand(batch, -1), pages[blocks:].view(batch, own)], 1)
    positions = torch.arange(length, device=device).expand(batch, -1)
    if start:
        attend = prefilling_pages(pool, table[:1], positions[:1, :start])
        forward(weights, shape, tokens[:1, :start], positions[:1, :start], attend)
    attend = continuing_pages(pool, table, positions[:, start:])
    return forward(weights, shape, tokens[:, start:], positions[:, start:], attend)[:, -1]


def prepare(weights: Weights, shape: Shape, tokens: Tensor) -> Metered:
    states = weights["head"].new_empty(len(tokens), shape.width)

    @torch.inference_mode()
    def step() -> tuple[Tensor, Tensor]:
        for rows, blocks in shared_blocks(tokens.cpu().numpy()):
            states[rows] = prefill(weights, shape, tokens[rows], blocks)
        return greedy(weights, states), states

    def metrics() -> dict[str, float]:
        reused = sum((len(rows) - 1) * blocks * BLOCK for rows, blocks in shared_blocks(tokens.cpu().numpy()))
        return {"prompt tokens reused %": 100 * reused / tokens.numel()}

    return Metered(step, metrics)
