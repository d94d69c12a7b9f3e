"""Every query meets every tile of keys, and a mask throws away what comes after it: half of all products."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from common.models.grouped_query import attended, live_pairs
from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, heads: int, tokens: int, width: int, dtype: str) -> Inputs:
    spread = {"q": 0.5, "k": 1.0, "v": 1.0}  # scores of standard deviation 0.5, as in flash_forward
    return {
        name: draw.normal(heads, tokens, width, std=std, dtype=getattr(torch, dtype)) for name, std in spread.items()
    }


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attended(q, k, v, torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).tril_())


def cost(heads: int, tokens: int, width: int, dtype: str) -> Cost:
    """Products of the pairs that are live: a query sees itself and what came before."""
    numbers, pairs = heads * tokens * width, heads * live_pairs([tokens])
    return Cost(flops=4 * width * pairs, dtype="bf16", read=6 * numbers, write=2 * numbers, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"heads": 8, "tokens": 16384, "width": 128, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot
        "test": {"heads": 2, "tokens": 197, "width": 64, "dtype": "float16"},
    },
    # The first queries see few keys, so their outputs are forty times the rms; rounding those to bf16 is what
    # one element may be off by, ten times the tolerance.
    tolerance=4e-2,
)


@triton.jit
def take_keys(q, keys, values, at, row, column, sums, total, peak, scale, MASKED: tl.constexpr):
    """Rows `at` and further of keys and values: new sums, totals and peaks. Weights are powers of 2."""
    scores = tl.dot(q, keys.load([at, 0]).T) * scale
    if MASKED:
        scores = tl.where(column[None, :] <= row[:, None], scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, axis=1))  # finite: the first tile has a key for every query
    weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(peak - higher)
    loaded = values.load([at, 0])
    sums = tl.dot(weights.to(loaded.dtype), loaded, sums * shrink[:, None])
    return sums, total * shrink + tl.sum(weights, axis=1), higher


@triton.jit
def attend(q, keys, values, out, tokens, scale, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    head, first = tl.program_id(1) * tokens, tl.program_id(0) * QUERIES
    mine, row = q.load([head + first, 0]), first + tl.arange(0, QUERIES)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    for start in range(0, tokens, KEYS):
        column = start + tl.arange(0, KEYS)
        sums, total, peak = take_keys(mine, keys, values, head + start, row, column, sums, total, peak, scale, True)
    place = out + (head + row).to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(place, sums / total[:, None], mask=row[:, None] < tokens)


def tile() -> tuple[int, int, int, int]:
    """Queries and keys of a tile, warps, and tiles of keys that there is room for; as in flash_forward."""
    major = 0 if knobs.runtime.interpret else torch.cuda.get_device_capability()[0]
    return {8: (128, 32, 8, 2), 9: (64, 128, 4, 1), 10: (128, 128, 8, 3)}.get(major, (128, 64, 8, 2))


def boxes(q: Tensor, k: Tensor, v: Tensor, queries: int, keys: int) -> list[TensorDescriptor]:
    """What TMA copies: boxes of all columns of some rows. A box may reach into the next head; that is masked."""
    rows, width = (queries, keys, keys), q.shape[2]
    return [TensorDescriptor.from_tensor(x.view(-1, width), [n, width]) for x, n in zip((q, k, v), rows)]


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    out, (queries, keys, warps, stages) = torch.empty_like(q), tile()
    described, scale = boxes(q, k, v, queries, keys), width**-0.5 * math.log2(math.e)
    grid = (triton.cdiv(tokens, queries), heads)

    def step() -> Tensor:
        attend[grid](*described, out, tokens, scale, width, queries, keys, num_warps=warps, num_stages=stages)
        return out

    return step
