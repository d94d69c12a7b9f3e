"""64 tokens at a time: their corrections of each other are a triangular inverse, and the rest is products of tiles."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch18.baseline_chunked_linear_attention import workload as workload
from common.models.delta_rule import solve
from common.python.workload import Step

CHUNK, COLUMNS = 64, 64  # tokens of a chunk, columns of the state of a program


@triton.jit
def scan(
    q, k, v, inverse, weights, totals, out, tokens, heads,
    WIDTH: tl.constexpr, CHUNK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
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
        old, kept = state.to(keys.dtype), tl.exp2(total)[:, None]
        wrong = (values - tl.dot(keys, old) * kept).to(keys.dtype)
        fix = tl.dot(tl.load(inverse + square), wrong)
        reads = tl.dot(tl.load(weights + square), fix.to(keys.dtype), tl.dot(queries, old) * kept)
        tl.store(out + at + column, reads, mask=live)
        fix = (fix * tl.exp2(last - total)[:, None]).to(keys.dtype)
        state = tl.dot(keys.T, fix, state * tl.exp2(last))


def prepare(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor) -> Step:
    (sequences, tokens, heads, width), out = q.shape, torch.empty_like(v)
    chunks, lines, columns = triton.cdiv(tokens, CHUNK), sequences * heads, min(width, COLUMNS)
    inverse, weights = (q.new_empty(lines, chunks, CHUNK, CHUNK) for _ in range(2))
    totals, shape = g.new_empty(lines, chunks, CHUNK), (tokens, heads, width, CHUNK)

    def step() -> Tensor:
        solve[(chunks, lines)](q, k, g, b, inverse, weights, totals, *shape, num_warps=4)
        grid = (lines, width // columns)
        scan[grid](q, k, v, inverse, weights, totals, out, *shape, columns, num_warps=4, num_stages=1)
        return out

    return step
