"""Attention with a dense mask of the band: all scores are computed, and seven of eight are thrown away."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from common.models.grouped_query import attended, live_pairs
from common.python.workload import Cost, Draw, Inputs, Step, Workload

ROWS = 1024  # of the reference at a time


def inputs(draw: Draw, heads: int, tokens: int, window: int, width: int, dtype: str) -> Inputs:
    spread = {"q": 0.5, "k": 1.0, "v": 1.0}  # scores of standard deviation 0.5, as in flash_forward
    element = getattr(torch, dtype)
    drawn = {name: draw.normal(heads, tokens, width, std=std, dtype=element) for name, std in spread.items()}
    return drawn | {"window": window}


def live(row: Tensor, column: Tensor, window: int) -> Tensor:
    """Whether a query sees a key: itself, and the window - 1 before it."""
    return (column[None, :] <= row[:, None]) & (column[None, :] > row[:, None] - window)


def reference(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """In bands of queries, each with the keys that any of them sees."""
    every, parts = torch.arange(q.shape[1], device=q.device), []
    for row in every.split(ROWS):
        column = every[max(0, int(row[0]) - window + 1) : int(row[-1]) + 1]
        parts.append(attended(q[:, row], k[:, column], v[:, column], live(row, column, window)))
    return torch.cat(parts, 1)


def cost(heads: int, tokens: int, window: int, width: int, dtype: str) -> Cost:
    """Products of the pairs in the band."""
    pairs, numbers = heads * live_pairs([tokens], window), heads * tokens * width
    return Cost(flops=4 * width * pairs, dtype="bf16", read=6 * numbers, write=2 * numbers, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # The window and the length of Mistral 7B, and a quarter of its heads.
        "bench": {"heads": 8, "tokens": 32768, "window": 4096, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"heads": 2, "tokens": 333, "window": 77, "width": 64, "dtype": "float16"},
    },
    # The first queries see few keys, so their outputs are forty times the rms; rounding those to bf16 is what
    # one element may be off by, ten times the tolerance.
    tolerance=4e-2,
)


def prepare(q: Tensor, k: Tensor, v: Tensor, window: int) -> Step:
    every = torch.arange(q.shape[1], device=q.device)
    mask = live(every, every, window)

    def step() -> Tensor:
        return scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)[0]

    return step
