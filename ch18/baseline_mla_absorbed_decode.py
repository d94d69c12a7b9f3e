"""Keys and values of all heads are made from the latent cache in each step, and attention then reads them."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from common.python.workload import Cost, Draw, Inputs, Step, Workload

ROTARY = 64  # numbers of a key that carry its position; all heads share them


def inputs(draw: Draw, requests: int, heads: int, keys: int, latent: int, width: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        "q": draw.normal(requests, heads, width, dtype=element),  # one new token a request
        "q_rotary": draw.normal(requests, heads, ROTARY, dtype=element),
        "cache": draw.normal(requests, keys, latent, dtype=element),
        "rotary": draw.normal(requests, keys, ROTARY, dtype=element),
        "to_keys": draw.normal(heads, width, latent, std=latent**-0.5, dtype=element),
        "to_values": draw.normal(heads, latent, width, std=latent**-0.5, dtype=element),
    }


def reference(q: Tensor, q_rotary: Tensor, cache: Tensor, rotary: Tensor, to_keys: Tensor, to_values: Tensor) -> Tensor:
    parts = []
    for queries, turned, rows, own in zip(q, q_rotary, cache, rotary):
        keys, values = rows @ to_keys.mT, rows @ to_values  # heads, keys, width
        scores = (keys @ queries[:, :, None])[:, :, 0] + turned @ own.mT
        weights = (scores * (q.shape[2] + ROTARY) ** -0.5).softmax(dim=1)
        parts.append((weights[:, None] @ values)[:, 0])
    return torch.stack(parts)


def cost(requests: int, heads: int, keys: int, latent: int, width: int, dtype: str) -> Cost:
    rows, queries, weights = requests * keys, requests * heads, 2 * heads * width * latent
    moved = {
        "read": 2 * (rows * (latent + ROTARY) + queries * (width + ROTARY) + weights),
        "write": 2 * queries * width,
    }
    flops = 2 * heads * rows * (2 * latent + ROTARY)  # to expand a row takes more: width * latent products a head
    return Cost(flops=flops, dtype="bf16", **moved, items=requests, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # DeepSeek-V3's sizes, 16 of its 128 heads as on one GPU of eight: 1.2 GB of latent cache.
        "bench": {"requests": 32, "heads": 16, "keys": 32768, "latent": 512, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"requests": 3, "heads": 5, "keys": 203, "latent": 128, "width": 32, "dtype": "float16"},
    },
    tolerance=2e-2,  # keys or absorbed queries, weights and outputs are rounded to bf16, by 0.17% on average each
)


def prepare(q: Tensor, q_rotary: Tensor, cache: Tensor, rotary: Tensor, to_keys: Tensor, to_values: Tensor) -> Step:
    heads = q.shape[1]

    def step() -> Tensor:
        both = (to_keys.flatten(0, 1).mT, to_values.transpose(0, 1).flatten(1, 2))  # a product for all heads
        keys, values = ((cache @ matrix).unflatten(2, (heads, -1)).transpose(1, 2) for matrix in both)
        whole = torch.cat([keys, rotary[:, None].expand(-1, heads, -1, -1)], dim=3)
        queries = torch.cat([q, q_rotary], dim=2)[:, :, None]
        return scaled_dot_product_attention(queries, whole, values)[:, :, 0]

    return step
