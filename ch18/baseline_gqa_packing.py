"""Keys and values are repeated for each query head that shares them, and attention then reads the copies."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from common.models.grouped_query import attended
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, requests: int, heads: int, group: int, keys: int, width: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {
        "q": draw.normal(requests, heads * group, width, dtype=element),  # one new token a request
        "k": draw.normal(requests, heads, keys, width, dtype=element),
        "v": draw.normal(requests, heads, keys, width, dtype=element),
    }


def cost(requests: int, heads: int, group: int, keys: int, width: int, dtype: str) -> Cost:
    cache, queries = 2 * requests * heads * keys * width, requests * heads * group * width
    moved = {"read": 2 * (cache + queries), "write": 2 * queries}
    return Cost(flops=2 * group * cache, dtype="bf16", **moved, items=requests, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=lambda q, k, v: torch.stack([attended(*one) for one in zip(q, k, v)]),
    cost=cost,
    sizes={
        # One layer of an 8B model: 1.07 GB of keys and values. 256 key heads are enough for all multiprocessors.
        "bench": {"requests": 32, "heads": 8, "group": 4, "keys": 8192, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"requests": 2, "heads": 3, "group": 5, "keys": 301, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # weights and outputs are rounded to bf16, by 0.17% on average
)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    group = q.shape[1] // k.shape[1]

    def step() -> Tensor:
        repeated = [x.repeat_interleave(group, dim=1) for x in (k, v)]
        return scaled_dot_product_attention(q[:, :, None], *repeated)[:, :, 0]

    return step
