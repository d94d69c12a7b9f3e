"""Product, softmax, product: the scores of every query with every key stand in HBM, and their softmax beside them."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, heads: int, tokens: int, width: int, dtype: str) -> Inputs:
    return {name: draw.normal(heads, tokens, width, dtype=getattr(torch, dtype)) for name in ("q", "k", "v")}


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads = zip(q, k, v)  # one at a time: its scores in float64 are 2 GiB at bench size
    return torch.stack([(a @ b.T).mul_(a.shape[1] ** -0.5).softmax(dim=1) @ c for a, b, c in heads])


def cost(heads: int, tokens: int, width: int, dtype: str) -> Cost:
    numbers = heads * tokens * width
    return Cost(flops=2 * 2 * numbers * tokens, dtype="bf16", hbm_bytes=2 * 4 * numbers, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # Scores and weights of bf16 are 512 MiB a head each. Every query sees every key, as in an encoder.
        "bench": {"heads": 8, "tokens": 16384, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"heads": 3, "tokens": 197, "width": 64, "dtype": "float16"},
    },
    tolerance=1e-2,  # scores, weights and outputs are each rounded to bf16, by 0.17% on average
)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    scores, weights, out = q.new_empty(heads, tokens, tokens), q.new_empty(heads, tokens, tokens), torch.empty_like(q)

    def step() -> Tensor:
        torch.baddbmm(scores, q, k.mT, beta=0, alpha=width**-0.5, out=scores)
        torch.softmax(scores, dim=2, out=weights)
        return torch.bmm(weights, v, out=out)

    return step
