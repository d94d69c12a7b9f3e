"""Requests are embedded 64 at a time as they came: each batch is padded to its longest, and most of it is padding."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, gelu, linear, normalize, rms_norm, scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence

from common.models.lengths import ALPACA_ANSWER, SPREAD, length_mix
from common.python.workload import Cost, Draw, Inputs, Step, Workload

BATCH = 64  # requests


def mix(requests: int, mean: float, longest: int) -> list[int]:
    return length_mix(requests, mean, longest, SPREAD)


def inputs(draw: Draw, requests: int, mean: float, longest: int, budget: int, dtype: str, **encoder: int) -> Inputs:
    """Requests are on the host, packed end to end: the tokens of all, and how many each has.

    budget: tokens, padding included, that are enough to keep the machine's arithmetic busy.
    """
    lengths, width, layers = torch.tensor(mix(requests, mean, longest)), encoder["width"], encoder["layers"]
    shapes = {"qkv": (3 * width, width), "out": (width, width), "up": (4 * width, width), "down": (width, 4 * width)}
    weights: dict[str, Any] = {
        name: [draw.normal(*shape, std=shape[1] ** -0.5, dtype=getattr(torch, dtype)) for _ in range(layers)]
        for name, shape in shapes.items()
    }
    weights["tokens"] = draw.normal(encoder["words"], width, dtype=getattr(torch, dtype))
    weights["positions"] = draw.normal(longest, width, dtype=getattr(torch, dtype))
    return {
        "tokens": draw.host.integers(int(lengths.sum()), high=encoder["words"]),
        "lengths": lengths[draw.host.permutation(requests)],
        "weights": weights,
        "heads": encoder["heads"],
        "budget": budget,
    }


def encoded(tokens: Tensor, lengths: Tensor, weights: dict[str, Any], heads: int) -> Tensor:
    """Unit vectors (batch, width): the mean state of each row's first `lengths` of tokens (batch, longest)."""
    x = embedding(tokens, weights["tokens"]) + weights["positions"][: tokens.shape[1]]
    real = torch.arange(tokens.shape[1], device=x.device) < lengths[:, None]
    mask, width = real[:, None, None].expand(-1, -1, tokens.shape[1], -1), x.shape[-1]
    for qkv, out, up, down in zip(*(weights[name] for name in ("qkv", "out", "up", "down"))):
        q, k, v = linear(rms_norm(x, (width,)), qkv).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + linear(attended.transpose(1, 2).flatten(2), out)
        x = x + linear(gelu(linear(rms_norm(x, (width,)), up)), down)
    return normalize(rms_norm(x, (width,)).masked_fill(~real[..., None], 0.0).sum(1), dim=-1)


def reference(tokens: Tensor, lengths: Tensor, weights: dict[str, Any], heads: int, budget: int) -> Tensor:
    """Requests of one length together, so that none is padded."""
    requests, out = tokens.split(lengths.tolist()), weights["tokens"].new_empty(len(lengths), len(weights["out"][0]))
    for length in lengths.unique():
        alike = (lengths == length).nonzero()[:, 0]
        rows = torch.stack([requests[index] for index in alike])
        out[alike] = encoded(rows, lengths[alike], weights, heads)
    return out


def cost(requests: int, mean: float, longest: int, budget: int, dtype: str, **encoder: int) -> Cost:
    """The products of real tokens, and attention of each to the tokens of its own request."""
    lengths, layers, width = mix(requests, mean, longest), encoder["layers"], encoder["width"]
    return Cost(
        flops=layers * (24 * width**2 * sum(lengths) + 4 * width * sum(length**2 for length in lengths)),
        dtype="bf16",
        read=2 * 12 * layers * width**2,
        pcie_bytes=2 * sum(lengths),  # an id fits two bytes
        items=requests,
        unit="requests",
    )


BERT = {"layers": 6, "width": 768, "heads": 12, "words": 30522}  # of DistilBERT's shape
SMALL = {"layers": 2, "width": 36, "heads": 3, "words": 101}
QUERIES = {"mean": ALPACA_ANSWER, "longest": 512}

workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        # 118,289 tokens; batches as they come are padded to six times that
        "bench": {"requests": 2048, **QUERIES, "budget": 4096, "dtype": "bfloat16", **BERT},
        "cpu": {"requests": 160, "mean": 16.0, "longest": 120, "budget": 256, "dtype": "float32", **SMALL},
        "test": {"requests": 71, "mean": 9.0, "longest": 41, "budget": 97, "dtype": "float32", **SMALL},
    },
    tolerance=2e-2,  # of bf16 through all layers
    frozen=("weights",),
    rungs="sorted eager_batches",
    clock="end_to_end",
)


def embedded(batch: list[Tensor], weights: dict[str, Any], heads: int) -> Tensor:
    """Of the requests in one batch, padded to the longest of them on the host."""
    device, lengths = weights["tokens"].device, torch.tensor([len(request) for request in batch])
    padded = pad_sequence(batch, batch_first=True)
    return encoded(padded.to(device), lengths.to(device), weights, heads)


def prepare(tokens: Tensor, lengths: Tensor, weights: dict[str, Any], heads: int, budget: int) -> Step:
    @torch.inference_mode()
    def step() -> Tensor:
        requests = tokens.split(lengths.tolist())
        starts = range(0, len(requests), BATCH)
        return torch.cat([embedded(list(requests[at : at + BATCH]), weights, heads) for at in starts])

    return step
