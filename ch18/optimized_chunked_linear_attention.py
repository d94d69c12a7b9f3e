"""64 tokens at a time: their corrections of each other are a triangular inverse, and the rest is products of tiles."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_chunked_linear_attention import workload as workload
from common.python.workload import Step

CHUNK, COLUMNS = 64, 64  # tokens of a chunk, columns of the state of a program


@triton.jit
def solve(q, k, g, b, inverse, weights, totals, tokens, heads, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    """What needs no state, for each chunk by itself: logs of decay since its begin, and two matrices of its tokens."""
    chunk, line, i, j = tl.program_id(0), tl.program_id(1), tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    row, column = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    at, live = ((line // heads).to(tl.int64) * tokens + row) * heads + line % heads, row < tokens
    total = tl.cumsum(tl.load(g + at, mask=live, other=0.0), axis=0)
    rate = tl.load(b + at, mask=live, other=0.0)
    keys = tl.load(k + at[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
    queries = tl.load(q + at[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
    decay = tl.exp(tl.where(i >= j, total[:, None] - total[None, :], float("-inf")))
    lower = tl.where(i > j, tl.dot(keys, keys.T) * decay * rate[:, None], 0.0)
    found = tl.where(i == j, 1.0, 0.0) - tl.where(i // 2 == j // 2, lower, 0.0)  # inverse of diagonal blocks of 2
    for level in tl.static_range(1, 6):  # of 4, 8, ... 64: two inverses and what lies below the first make one
        below = tl.where((i >> level + 1 == j >> level + 1) & (i >> level > j >> level), lower, 0.0)
        half = found.to(tl.float16)  # no number is above 1
        found -= tl.dot(tl.dot(half, below.to(tl.float16)).to(tl.float16), half)
    place = line.to(tl.int64) * tl.num_programs(0) + chunk
    tl.store(totals + place * CHUNK + tl.arange(0, CHUNK), total)
    place = place * CHUNK * CHUNK + i * CHUNK + j
    tl.store(inverse + place, found * rate[None, :])
    tl.store(weights + place, tl.dot(queries, keys.T) * decay)


@triton.jit
def scan(
    q,
    k,
    v,
    inverse,
    weights,
    totals,
    out,
    tokens,
    heads,
    WIDTH: tl.constexpr,
    CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Chunk after chunk: the state gives what it says for all keys, and takes all corrections, in products."""
    line, chunks, i = tl.program_id(0).to(tl.int64), tl.cdiv(tokens, CHUNK), tl.arange(0, CHUNK)
    wide, column = tl.arange(0, WIDTH)[None, :], (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    state = tl.zeros((WIDTH, COLUMNS), tl.float32)
    for chunk in range(chunks):
        row = chunk * CHUNK + i
        live = (row < tokens)[:, None]
        at, place = ((line // heads * tokens + row) * heads + line % heads)[:, None] * WIDTH, line * chunks + chunk
        square = place * CHUNK * CHUNK + i[:, None] * CHUNK + i[None, :]
        keys = tl.load(k + at + wide, mask=live, other=0.0)
        queries = tl.load(q + at + wide, mask=live, other=0.0)
        values = tl.load(v + at + column, mask=live, other=0.0)
        total, last = tl.load(totals + place * CHUNK + i), tl.load(totals + place * CHUNK + CHUNK - 1)
        old, kept = state.to(keys.dtype), tl.exp(total)[:, None]
        wrong = (values - tl.dot(keys, old) * kept).to(keys.dtype)
        fix = tl.dot(tl.load(inverse + square), wrong)
        reads = tl.dot(tl.load(weights + square), fix.to(keys.dtype), tl.dot(queries, old) * kept)
        tl.store(out + at + column, reads, mask=live)
        fix = (fix * tl.exp(last - total)[:, None]).to(keys.dtype)
        state = tl.dot(keys.T, fix, state * tl.exp(last))


def prepare(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor) -> Step:
    (sequences, tokens, heads, width), out = q.shape, torch.empty_like(v)
    chunks, lines, columns = triton.cdiv(tokens, CHUNK), sequences * heads, min(width, COLUMNS)
    inverse, weights = (q.new_empty(lines, chunks, CHUNK, CHUNK) for _ in range(2))
    totals, shape = g.new_empty(lines, chunks, CHUNK), (tokens, heads, width, CHUNK)

    def step() -> Tensor:
        solve[(chunks, lines)](q, k, g, b, inverse, weights, totals, *shape, num_warps=4)
        grid = (lines, width // columns)
        scan[grid](q, k, v, inverse, weights, totals, out, *shape, columns, num_warps=8, num_stages=1)
        return out

    return step
