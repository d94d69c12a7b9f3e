"""A causal mask in a tensor: the flash kernels take none, so a slower one reads it and computes the masked half too."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, batch: int, heads: int, length: int, width: int, dtype: str) -> Inputs:
    """Queries are large: sharp scores, else late tokens see the mean of all, and the first ones' rounding decides."""
    spread = {"q": 2.0, "k": 1.0, "v": 1.0}
    shape, element = (batch, heads, length, width), getattr(torch, dtype)
    return {name: draw.normal(*shape, std=std, dtype=element) for name, std in spread.items()}


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    out = torch.empty_like(q)
    for a, b, c, to in zip(*(x.flatten(0, 1) for x in (q, k, v, out))):  # a head at a time: its scores are 128 MiB
        torch.mm((a @ b.T).mul_(a.shape[1] ** -0.5).masked_fill_(future, -torch.inf).softmax(1), c, out=to)
    return out


def cost(batch: int, heads: int, length: int, width: int, dtype: str) -> Cost:
    """A query meets itself and the keys before it, twice; queries, keys and values in, and as many numbers out."""
    rows = batch * heads * length
    flops = 4 * width * rows * (length + 1) // 2
    return Cost(flops=flops, dtype="bf16", read=6 * rows * width, write=2 * rows * width, items=rows, unit="queries")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"batch": 4, "heads": 16, "length": 4096, "width": 128, "dtype": "bfloat16"},
        "cpu": {"batch": 1, "heads": 4, "length": 1024, "width": 64, "dtype": "float32"},
        "test": {"batch": 2, "heads": 3, "length": 77, "width": 64, "dtype": "bfloat16"},
    },
    tolerance=1e-2,  # weights and outputs are rounded to bf16 (0.2%), and scores of up to 16 move by as much
    isolated=True,  # `sdpa_kernel` with a priority, before any other attention, leaves the process without cuDNN first
)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    mask = q.new_full((q.shape[2], q.shape[2]), torch.finfo(q.dtype).min).triu(1)  # to be added, as models make it

    def step() -> Tensor:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return step
