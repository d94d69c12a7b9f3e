"""Heads are summed in registers; a sample tells what the best keys reach, and one read of the scores collects those."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_indexer_topk import TOP
from ch18.baseline_indexer_topk import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import AnyOrder, Step

requires = needs(sm=80)
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
    select, scores = load_cuda(__file__, "select_top"), weights.new_empty(len(q), len(k))
    best = k.new_empty(len(q) * TOP, dtype=torch.int64)

    def step() -> AnyOrder:
        scored(q, weights, k, scores)
        select(scores, best, len(q), len(k), TOP)
        return AnyOrder(best)

    return step
