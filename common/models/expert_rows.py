"""The way of a mixture's tokens to their experts and back: rows to the places of their choices, and their sum."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def spread_rows(x, places, rows, width, CHOSEN: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A token's row, read once, to each of its places."""
    token, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    row = tl.load(x + token * width + column, mask=column < width)
    for slot in tl.static_range(CHOSEN):
        place = tl.load(places + token * CHOSEN + slot).to(tl.int64)
        tl.store(rows + place * width + column, row, mask=column < width)


@triton.jit
def add_rows(rows, places, shares, out, width, CHOSEN: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """The rows at a token's places, added by their shares."""
    token, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.float32)
    for slot in tl.static_range(CHOSEN):
        place = tl.load(places + token * CHOSEN + slot).to(tl.int64)
        row = tl.load(rows + place * width + column, mask=column < width, other=0.0)
        total += tl.load(shares + token * CHOSEN + slot).to(tl.float32) * row.to(tl.float32)
    tl.store(out + token * width + column, total.to(out.dtype.element_ty), mask=column < width)


def spread(x: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    """`rows` with each token's at the places of its choices; `x` [tokens, width], `places` [choices]."""
    tokens, width = x.shape
    spread_rows[(tokens,)](x, places, rows, width, len(places) // tokens, triton.next_power_of_2(width))
    return rows


def added(rows: Tensor, places: Tensor, shares: Tensor, out: Tensor) -> Tensor:
    """The tokens' sums [tokens, width] of the rows at their places, weighted by their shares [tokens, chosen]."""
    (tokens, chosen), width = shares.shape, out.shape[1]
    add_rows[(tokens,)](rows, places, shares, out, width, chosen, triton.next_power_of_2(width))
    return out
