"""One kernel makes scores, weights and sums of a tile of queries in registers, up to the diagonal; padding stays."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch18.baseline_jagged_attention import packed, padded, silu
from ch18.baseline_jagged_attention import workload as workload
from common.python.workload import Step

QUERIES, KEYS = 64, 64


@triton.jit
def attend(
    q, keys, values, starts, out, heads, scale, share,
    WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """A tile of queries of a user and head: keys and values describe [tokens, heads * WIDTH]."""
    user, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    first = (tl.num_programs(1) - 1 - tl.program_id(1)) * QUERIES  # a user's last tiles see the most keys
    start = tl.load(starts + user)
    length = tl.load(starts + user + 1) - start
    if first < length:
        row, column = first + tl.arange(0, QUERIES), head * WIDTH
        place = (start + row).to(tl.int64)[:, None] * heads * WIDTH + column + tl.arange(0, WIDTH)[None, :]
        mine = tl.load(q + place, mask=row[:, None] < length, other=0.0)
        sums = tl.zeros((QUERIES, WIDTH), tl.float32)
        for at in range(0, first, KEYS):  # every query sees every key
            weights = silu(tl.dot(mine, keys.load([start + at, column]).T) * scale, FAST)
            loaded = values.load([start + at, column])
            sums = tl.dot(weights.to(loaded.dtype), loaded, sums)
        for at in range(first, tl.minimum(first + QUERIES, length), KEYS):  # tiles that the diagonal cuts
            weights = silu(tl.dot(mine, keys.load([start + at, column]).T) * scale, FAST)
            weights = tl.where(at + tl.arange(0, KEYS)[None, :] <= row[:, None], weights, 0.0)
            loaded = values.load([start + at, column])
            sums = tl.dot(weights.to(loaded.dtype), loaded, sums)
        tl.store(out + place, (sums * share).to(out.dtype.element_ty), mask=row[:, None] < length)


def prepare(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, starts: Tensor) -> Step:
    (_, heads, width), users = q.shape, len(lengths)
    scale, fast = width**-0.5 / 2, not triton.knobs.runtime.interpret
    number = torch.arange(users + 1, dtype=torch.int32, device=q.device)

    def step() -> Tensor:
        queries, *sides = (padded(x, lengths) for x in (q, k, v))
        longest, out = queries.shape[1], torch.empty_like(queries)
        keys, values = (TensorDescriptor.from_tensor(x.view(users * longest, -1), [KEYS, width]) for x in sides)
        grid = users * heads, triton.cdiv(longest, QUERIES)
        sizes = (heads, scale, 1 / longest, width, QUERIES, KEYS, fast)
        attend[grid](queries, keys, values, number * longest, out, *sizes, num_warps=4, num_stages=3)
        return packed(out, lengths)

    return step
