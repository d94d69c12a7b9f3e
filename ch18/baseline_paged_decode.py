"""Pages of the cache are first copied together, request by request, and attention then reads the copy."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from common.models.grouped_query import attended, decode_cost
from common.python.workload import Cost, Draw, Inputs, Step, Workload

PAGE = 16  # tokens


def inputs(draw: Draw, requests: int, heads: int, group: int, pages: int, width: int, dtype: str) -> Inputs:
    """A pool of pages, and for each request which of them are its own, in order; they lie scattered."""
    element = getattr(torch, dtype)
    pool = (requests * pages, PAGE, heads, width)
    return {
        "q": draw.normal(requests, heads * group, width, dtype=element),  # one new token a request
        "k": draw.normal(*pool, dtype=element),
        "v": draw.normal(*pool, dtype=element),
        "table": draw.permutation(requests * pages).view(requests, pages).int(),
    }


def reference(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    caches = ((pool[own].flatten(0, 1).transpose(0, 1) for pool in (k, v)) for own in table.long())
    return torch.stack([attended(queries, *cache) for queries, cache in zip(q, caches)])


def cost(requests: int, heads: int, group: int, pages: int, width: int, dtype: str) -> Cost:
    return decode_cost(requests, heads, group, pages * PAGE, width, dtype, table=4 * requests * pages)


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # One layer of an 8B model: 32 requests of 8,192 tokens, 1.07 GB of keys and values.
        "bench": {"requests": 32, "heads": 8, "group": 4, "pages": 512, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"requests": 3, "heads": 2, "group": 5, "pages": 19, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # weights and outputs are rounded to bf16, by 0.17% on average
    as_drawn=("table",),
)


def prepare(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Step:
    requests, pages = table.shape

    def step() -> Tensor:
        own = [pool.index_select(0, table.flatten()) for pool in (k, v)]
        keys, values = (x.view(requests, pages * PAGE, *x.shape[2:]).transpose(1, 2) for x in own)
        return scaled_dot_product_attention(q[:, :, None], keys, values, enable_gqa=True)[:, :, 0]

    return step
