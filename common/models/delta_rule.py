"""The gated delta rule in chunks: what each chunk of tokens needs before it meets the state."""

# mypy: disable-error-code="no-untyped-def"

import triton
import triton.language as tl


@triton.jit
def solve(q, k, g, b, inverse, weights, totals, tokens, heads, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    """For each chunk by itself: logs (base 2) of decay since its begin, and two matrices of its tokens.

    `weights` say how much of which token's correction a query reads; `inverse` makes of what is wrong for each token by
    the state before the chunk what is to be added for it, given what is added for the tokens before it.
    """
    chunk, line, i, j = tl.program_id(0), tl.program_id(1), tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    row, column = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    at, live = ((line // heads).to(tl.int64) * tokens + row) * heads + line % heads, row < tokens
    total = tl.cumsum(tl.load(g + at, mask=live, other=0.0), axis=0) * 1.4426950408889634
    rate = tl.load(b + at, mask=live, other=0.0)
    keys = tl.load(k + at[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
    queries = tl.load(q + at[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
    decay = tl.exp2(tl.where(i >= j, total[:, None] - total[None, :], float("-inf")))
    place = line.to(tl.int64) * tl.num_programs(0) + chunk
    tl.store(totals + place * CHUNK + tl.arange(0, CHUNK), total)
    place = place * CHUNK * CHUNK + i * CHUNK + j
    tl.store(weights + place, tl.dot(queries, keys.T) * decay)
    lower = tl.where(i > j, tl.dot(keys, keys.T) * decay * rate[:, None], 0.0)
    found = tl.where(i == j, 1.0, 0.0) - tl.where(i // 2 == j // 2, lower, 0.0)  # inverse of diagonal blocks of 2
    for level in tl.static_range(1, 6):  # of 4, 8, ... 64: two inverses and what lies below the first make one
        below = tl.where((i >> level + 1 == j >> level + 1) & (i >> level > j >> level), lower, 0.0)
        half = found.to(tl.float16)  # no number is above 1
        found -= tl.dot(tl.dot(half, below.to(tl.float16)).to(tl.float16), half)
    tl.store(inverse + place, found * rate[None, :])
