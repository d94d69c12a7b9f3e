"""Heads are summed where their products are, in registers: a score for each query and key is all that is written."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_indexer_topk import TOP
from ch18.baseline_indexer_topk import workload as workload
from common.python.workload import AnyOrder, Step

TILE = {"QUERIES": 64, "KEYS": 128, "num_warps": 4, "num_stages": 3}


@triton.jit
def score(
    q, weights, k, scores, rows, keys, heads, width,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """A tile of keys stays, and the queries' heads come past it one by one."""
    query, key = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    column, asked = tl.arange(0, WIDTH), query < rows
    inside, live = (column < width)[None, :], (key < keys)[:, None]
    own = tl.load(k + key[:, None] * width + column[None, :], mask=live & inside, other=0.0).T
    total = tl.zeros((QUERIES, KEYS), tl.float32)
    for head in range(heads):
        row = query * heads + head
        left = tl.load(q + row[:, None] * width + column[None, :], mask=asked[:, None] & inside, other=0.0)
        weight = tl.load(weights + row, mask=asked, other=0.0)
        total += tl.maximum(tl.dot(left, own, input_precision="ieee"), 0.0) * weight[:, None]
    place = scores + query.to(tl.int64)[:, None] * keys + key[None, :]
    tl.store(place, total, mask=asked[:, None] & (key < keys)[None, :])


def scored(q: Tensor, weights: Tensor, k: Tensor, scores: Tensor) -> None:
    (rows, heads, width), keys = q.shape, len(k)
    grid = triton.cdiv(rows, TILE["QUERIES"]), triton.cdiv(keys, TILE["KEYS"])
    depth = max(16, triton.next_power_of_2(width))
    score[grid](q, weights, k, scores, rows, keys, heads, width, WIDTH=depth, **TILE)


def prepare(q: Tensor, weights: Tensor, k: Tensor) -> Step:
    rows, keys = len(q), len(k)
    scores, start = weights.new_empty(rows, keys), torch.arange(rows, device=k.device)[:, None] * keys

    def step() -> AnyOrder:
        scored(q, weights, k, scores)
        return AnyOrder((scores.topk(TOP, sorted=False).indices + start).flatten())

    return step
