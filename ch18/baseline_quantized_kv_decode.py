"""The 8-bit cache is widened to bf16 in memory, and attention reads the copy: five times the traffic of the codes."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from common.models.grouped_query import attended
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, requests: int, heads: int, group: int, keys: int, width: int, dtype: str) -> Inputs:
    """Codes of keys and values, and a scale for each of their rows, as large as makes numbers of unit size."""
    drawn = {"q": draw.normal(requests, heads * group, width, dtype=getattr(torch, dtype))}
    for name in ("k", "v"):
        drawn[name] = draw.integers(requests, heads, keys, width, low=-127, high=128, dtype=torch.int8)
        drawn[f"{name}_scale"] = draw.uniform(requests, heads, keys, low=0.01, high=0.017)
    return drawn


def reference(q: Tensor, k: Tensor, v: Tensor, k_scale: Tensor, v_scale: Tensor) -> Tensor:
    requests = zip(q, k, v, k_scale[..., None], v_scale[..., None])
    return torch.stack([attended(a, b * of_b, c * of_c) for a, b, c, of_b, of_c in requests])


def cost(requests: int, heads: int, group: int, keys: int, width: int, dtype: str) -> Cost:
    rows, queries = 2 * requests * heads * keys, requests * heads * group * width
    moved = {"read": rows * (width + 4) + 2 * queries, "write": 2 * queries}
    return Cost(flops=2 * group * rows * width, dtype="bf16", **moved, items=requests, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # One layer of an 8B model: 1.07 GB of codes.
        "bench": {"requests": 32, "heads": 8, "group": 4, "keys": 16384, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"requests": 2, "heads": 3, "group": 5, "keys": 301, "width": 64, "dtype": "float16"},
    },
    tolerance=2e-2,  # widened numbers, weights and outputs are rounded to bf16, by 0.17% on average each
)


def prepare(q: Tensor, k: Tensor, v: Tensor, k_scale: Tensor, v_scale: Tensor) -> Step:
    def step() -> Tensor:
        keys, values = (codes * scale[..., None].to(q.dtype) for codes, scale in ((k, k_scale), (v, v_scale)))
        return scaled_dot_product_attention(q[:, :, None], keys, values, enable_gqa=True)[:, :, 0]

    return step
