"""Blocks of tokens are looked up by what they hold and what precedes them: a first pass prefills what several share."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right

from ch16.baseline_prefix_cache import BLOCK, shared_blocks
from ch16.baseline_prefix_cache import workload as workload
from common.models.caches import Cache, new_cache, prefilling
from common.models.decoder import Attend, Shape, Weights, forward, greedy
from common.models.timeline import Deliver, median_ms, metered
from common.python.workload import Metered


def after(prefix: Cache) -> Attend:
    """Each row's tokens see all of the prefix, which is one row for all of them, and their own up to themselves."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        stores = prefix.keys[layer], prefix.values[layer]
        keys, values = (
            torch.cat([store.expand(len(k), -1, -1, -1), own.transpose(1, 2)], 2) for store, own in zip(stores, (k, v))
        )
        mask = causal_lower_right(q.shape[1], keys.shape[2])  # a name and no tensor, so that fused kernels can serve
        return F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, mask, enable_gqa=True).transpose(1, 2)

    return attend


def prefill(weights: Weights, shape: Shape, tokens: Tensor, blocks: int) -> Tensor:
    """Last states (batch, width) of requests (batch, length) whose first blocks are the same: these pass once."""
    start, positions = blocks * BLOCK, torch.arange(tokens.shape[1], device=tokens.device)[None]
    prefix = new_cache(shape, 1, start, weights["head"])
    if start:
        forward(weights, shape, tokens[:1, :start], positions[:, :start], prefilling(prefix))
    return forward(weights, shape, tokens[:, start:], positions[:, start:], after(prefix))[:, -1]


def prepare(weights: Weights, shape: Shape, tokens: Tensor) -> Metered:
    states = weights["head"].new_empty(len(tokens), shape.width)

    def look_up() -> list[tuple[list[int], int]]:
        return shared_blocks(tokens.cpu().numpy())

    @torch.inference_mode()
    def serve(deliver: Deliver) -> tuple[Tensor, Tensor]:
        groups = look_up()
        order = torch.tensor([row for rows, _ in groups for row in rows]).to(tokens.device, non_blocking=True)
        parts = tokens[order].split([len(rows) for rows, _ in groups])
        last = [prefill(weights, shape, part, blocks) for part, (_, blocks) in zip(parts, groups)]
        states[order] = torch.cat(last)
        chosen = greedy(weights, states)
        deliver(range(len(tokens)))
        return chosen, states

    served = metered(serve, tokens.device)

    def metrics() -> dict[str, float]:
        reused = sum((len(rows) - 1) * blocks * BLOCK for rows, blocks in look_up())
        told, took = {**served.metrics(), "prompt tokens reused %": 100 * reused / tokens.numel()}, median_ms(look_up)
        return told | {"look-up ms": took, "look-up % of first token": 100 * took / told["first token p50 ms"]}

    return Metered(served.step, metrics)
