"""Two kernels for each of Sinkhorn's 40 normalisations of tiny matrices, then the streams are mixed in three passes."""

import torch
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

STREAMS, ITERATIONS = 4, 20


def inputs(draw: Draw, tokens: int, width: int, dtype: str) -> Inputs:
    """Streams around a layer, the layer's output, and logits that a projection made of the streams before the layer.

    Logits, by token: 4 of what the layer read (used there), 4 of where its output goes, 16 of the mixing matrix.
    """
    element = getattr(torch, dtype)
    return {
        "streams": draw.normal(tokens, STREAMS, width, dtype=element),
        "update": draw.normal(tokens, width, dtype=element),
        "logits": draw.normal(tokens, STREAMS * (STREAMS + 2), std=6.0),  # 18 iterations in place of 20 are refused
    }


def connect(streams: Tensor, update: Tensor, logits: Tensor) -> Tensor:
    """New streams: the old ones times a doubly stochastic matrix, and a share of the update for each."""
    _, gates, mix = logits.split([STREAMS, STREAMS, STREAMS**2], dim=1)
    mix = mix.unflatten(1, (STREAMS, STREAMS)).exp()
    for _ in range(ITERATIONS):
        mix = mix / mix.sum(dim=2, keepdim=True)
        mix = mix / mix.sum(dim=1, keepdim=True)
    gates = 2 * torch.sigmoid(gates)
    mixed = torch.einsum("tij,tjc->tic", mix.to(streams.dtype), streams)
    return mixed + gates.to(update.dtype)[:, :, None] * update[:, None, :]


workload = Workload(
    inputs=inputs,
    reference=connect,
    # Four streams, update and 20 fp32 logits a token in, four streams out.
    cost=lambda tokens, width, dtype: Cost(
        read=tokens * (10 * width + 80), write=tokens * 8 * width, items=tokens, unit="tokens"
    ),
    sizes={
        # Two sequences in the 27B model of the mHC paper (arXiv 2512.24880): 377 MB in and out.
        "bench": {"tokens": 8192, "width": 2560, "dtype": "bfloat16"},
        "test": {"tokens": 37, "width": 200, "dtype": "float16"},  # interpreted: no bf16
    },
    # Weights, products and sums are rounded to bf16, by 0.17% on average each. At worst all three are off by half a
    # unit of numbers from 8 to 16, which makes 0.11 for an element, or ten times 7e-3 of the outputs' rms.
    tolerance=7e-3,
)


def prepare(streams: Tensor, update: Tensor, logits: Tensor) -> Step:
    def step() -> Tensor:
        return connect(streams, update, logits)

    return step
