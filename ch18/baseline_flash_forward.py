"""Product, softmax, product: the scores of every query with every key stand in HBM, and their softmax beside them."""

import torch
from torch import Tensor

from common.models.grouped_query import attended
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, heads: int, tokens: int, width: int, dtype: str) -> Inputs:
    # Scores of standard deviation 0.5. At 1, the largest of two billion are above 6, where bf16 rounds by up to 0.016:
    # a key with a weight of 2% or more then moves an output by a tenth of the rms, and in some draws by a fifth.
    spread = {"q": 0.5, "k": 1.0, "v": 1.0}
    return {
        name: draw.normal(heads, tokens, width, std=std, dtype=getattr(torch, dtype)) for name, std in spread.items()
    }


def cost(heads: int, tokens: int, width: int, dtype: str) -> Cost:
    numbers = heads * tokens * width
    moved = {"read": 2 * 3 * numbers, "write": 2 * numbers}
    return Cost(flops=2 * 2 * numbers * tokens, dtype="bf16", **moved, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=attended,
    cost=cost,
    sizes={
        # Scores and weights of bf16 are 512 MiB a head each. Every query sees every key, as in an encoder.
        "bench": {"heads": 8, "tokens": 16384, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"heads": 3, "tokens": 197, "width": 64, "dtype": "float16"},
    },
    # Scores, weights and outputs are each rounded to bf16: 0.27% in all, and 2% of the rms in the worst element of a
    # head, by a simulation at bench size. 10% is allowed.
    tolerance=1e-2,
)


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    scores, weights, out = q.new_empty(heads, tokens, tokens), q.new_empty(heads, tokens, tokens), torch.empty_like(q)

    def step() -> Tensor:
        torch.baddbmm(scores, q, k.mT, beta=0, alpha=width**-0.5, out=scores)
        torch.softmax(scores, dim=2, out=weights)
        return torch.bmm(weights, v, out=out)

    return step
