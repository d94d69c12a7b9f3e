"""A CUDA graph for each padded length takes the next of the sorted requests up to a budget of tokens: few launches."""

from functools import partial
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import embedding, gelu, linear, normalize, rms_norm, scaled_dot_product_attention

from ch17.baseline_token_budget_batching import workload as workload
from common.models.codes import own
from common.models.graphs import replayable
from common.python.workload import Step


def before(x: Tensor, qkv: Tensor) -> Tensor:
    return linear(rms_norm(x, x.shape[-1:]), qkv)


def after(x: Tensor, attended: Tensor, out: Tensor, up: Tensor, down: Tensor) -> Tensor:
    x = x + linear(attended, out)
    return x + linear(gelu(linear(rms_norm(x, x.shape[-1:]), up)), down)


def prepare(tokens: Tensor, lengths: Tensor, weights: dict[str, Any], heads: int, budget: int) -> Step:
    requests, (longest, width), device = len(lengths), weights["positions"].shape, weights["tokens"].device
    padded = [each for each in (*range(8, 129, 8), *range(160, longest + 32, 32)) if each < longest + 32]
    budget = max(budget, padded[-1])
    ids = torch.zeros_like(tokens, device=device)
    # Where a request begins, how long it is and its number, by falling length; places behind the last have one token.
    queue = ids.new_ones(3, requests + budget // padded[0])
    first, (stream, mixed) = ids.new_zeros(1), weights["tokens"].new_zeros(2, budget, width)
    embedded = stream.new_zeros(requests + 1, width)
    fused = partial(torch.compile, fullgraph=True, dynamic=False, disable=device.type == "cpu")
    opening, closing = (fused(own(code, __file__)) for code in (before, after))

    def work(length: int) -> None:
        """The next `budget // length` requests of the queue. Products have `budget` rows in every batch."""
        rows, at = budget // length, torch.arange(length, device=device)
        begin, count, number = queue[:, first + torch.arange(rows, device=device)]
        real, live = at < count[:, None], rows * length
        mask = torch.zeros_like(real, dtype=stream.dtype).masked_fill(~real, -torch.inf)[:, None, None]
        words = embedding(ids[torch.where(real, begin[:, None] + at, 0)], weights["tokens"])
        stream[:live] = (words + weights["positions"][at.clamp(max=longest - 1)]).flatten(0, 1)
        x = stream
        for qkv, *rest in zip(*(weights[name] for name in ("qkv", "out", "up", "down"))):
            q, k, v = opening(x, qkv)[:live].view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            attended = scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(-1, -1, length, -1))
            mixed[:live] = attended.transpose(1, 2).flatten(2).flatten(0, 1)
            x = closing(x, mixed, *rest)
        last = rms_norm(x[:live], (width,)).view(rows, length, width)
        embedded[number] = normalize(last.masked_fill(~real[..., None], 0.0).sum(1), dim=-1)

    pool = torch.cuda.graph_pool_handle() if device.type != "cpu" else None
    again = {length: replayable(partial(work, length), device, pool) for length in padded}

    @torch.inference_mode()
    def step() -> Tensor:
        counts = lengths.numpy()
        order = numpy.argsort(-counts, kind="stable")
        listed = numpy.tile([[0], [1], [requests]], (1, queue.shape[1]))
        listed[:, :requests] = (numpy.cumsum(counts) - counts)[order], counts[order], order
        ids.copy_(tokens)
        queue.copy_(torch.from_numpy(listed))
        batches, at = list[tuple[int, int]](), 0
        while at < requests:
            batches.append((at, next(length for length in padded if length >= counts[order[at]])))
            at += budget // batches[-1][1]
        for start, (_, length) in zip(torch.tensor([at for at, _ in batches]).to(device), batches):
            first.copy_(start)
            again[length]()
        return embedded[:-1]

    return step
