"""Queries, keys and values in fp8 are widened to fp16, and attention multiplies them at the rate of 16 bits."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, heads: int, tokens: int, width: int) -> Inputs:
    """Codes as the projections before attention leave them, and factors of each head: of its scores, of its values."""
    codes = [draw.normal(*shape).to(torch.float8_e4m3fn) for shape in [(heads, tokens, width)] * 2]
    return {
        "q": codes[0],
        "k": codes[1],
        "v": draw.normal(heads, width, tokens).to(torch.float8_e4m3fn),  # rows run along tokens
        "of_scores": torch.exp2(draw.integers(heads, low=-2, high=0).float()) * width**-0.5,
        "of_values": torch.exp2(draw.integers(heads, low=-1, high=1).float()),
    }


def reference(q: Tensor, k: Tensor, v: Tensor, of_scores: Tensor, of_values: Tensor) -> Tensor:
    heads = zip(q, k, v, of_scores, of_values)  # one at a time: its scores in float64 are 2 GiB at bench size
    return torch.stack([(a @ b.T).mul_(x).softmax(dim=1) @ c.T * y for a, b, c, x, y in heads])


def cost(heads: int, tokens: int, width: int) -> Cost:
    numbers = heads * tokens * width
    moved = {"read": 3 * numbers, "write": 2 * numbers}
    return Cost(flops=4 * numbers * tokens, dtype="fp8", **moved, items=tokens, unit="tokens")


workload = Workload(
    inputs=inputs,
    reference=reference,
    cost=cost,
    sizes={
        "bench": {"heads": 8, "tokens": 16384, "width": 256},
        "test": {"heads": 2, "tokens": 208, "width": 64},  # rows of values begin at multiples of 16 bytes
    },
    # Weights in e4m3 are off by 2.6% of the norm, each for itself, and so is their average of random values.
    tolerance=4e-2,
)


@triton.jit
def take_keys(
    q, keys, values, row, at, start, left, sums, total, peak, scale,
    WIDTH: tl.constexpr, KEYS: tl.constexpr, LIFT: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """KEYS keys from row `at`, of which `left` count, and their values: new sums [QUERIES, WIDTH], totals and peaks."""
    scores = tl.dot(q, keys.load([at, 0]).T)
    if PART:
        scores = tl.where(tl.arange(0, KEYS)[None, :] < left, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, axis=1) * scale)
    weights = tl.exp2(scores * scale - (higher - LIFT)[:, None])  # at most 2 ** LIFT
    shrink = tl.exp2(peak - higher)
    total = total * shrink + tl.sum(weights, axis=1)
    loaded = values.load([row, start])
    sums = tl.dot(weights.to(loaded.dtype), loaded.T, sums * shrink[:, None])
    return sums, total, higher


@triton.jit
def attend(
    q, keys, values, out, of_scores, of_values, tokens,
    WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, LIFT: tl.constexpr,
):  # fmt: skip
    """A tile of queries: q and keys describe [heads * tokens, WIDTH], values [heads * WIDTH, tokens]."""
    number, first = tl.program_id(1), tl.program_id(0) * QUERIES
    head, row = number * tokens, number * WIDTH
    mine, scale = q.load([head + first, 0]), tl.load(of_scores + number) * 1.4426950408889634
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    total, peak = tl.zeros((QUERIES,), tl.float32), tl.full((QUERIES,), float("-inf"), tl.float32)
    whole = tokens // KEYS * KEYS
    for at in range(0, whole, KEYS):
        sums, total, peak = take_keys(
            mine, keys, values, row, head + at, at, KEYS, sums, total, peak, scale, WIDTH, KEYS, LIFT, False
        )
    if whole < tokens:
        sums, total, peak = take_keys(
            mine, keys, values, row, head + whole, whole, tokens - whole, sums, total, peak, scale,
            WIDTH, KEYS, LIFT, True,
        )  # fmt: skip
    query, column = first + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    place = out + (head + query).to(tl.int64)[:, None] * WIDTH + column[None, :]
    tl.store(place, sums * (tl.load(of_values + number) / total)[:, None], mask=query[:, None] < tokens)


def tile() -> dict[str, int]:
    """On Hopper blocks of one warpgroup; elsewhere sums 256 wide do not quite fit the registers."""
    major = 0 if knobs.runtime.interpret else torch.cuda.get_device_capability()[0]
    shape = {9: (64, 128, 4, 1), 10: (128, 64, 8, 2)}.get(major, (64, 32, 8, 2))
    return dict(zip(("QUERIES", "KEYS", "num_warps", "num_stages"), shape))


def boxes(q: Tensor, k: Tensor, v: Tensor, options: dict[str, int]) -> list[TensorDescriptor]:
    width, rows = q.shape[2], (options["QUERIES"], options["KEYS"])
    described = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width]) for x, n in zip((q, k), rows)]
    return [*described, TensorDescriptor.from_tensor(v.view(-1, v.shape[2]), [width, rows[1]])]


def prepare(q: Tensor, k: Tensor, v: Tensor, of_scores: Tensor, of_values: Tensor) -> Step:
    (heads, tokens, width), options = q.shape, tile()
    wide = [torch.empty_like(x, dtype=torch.float16) for x in (q, k, v)]
    out, described = torch.empty_like(q, dtype=torch.bfloat16), boxes(*wide, options)

    def step() -> Tensor:
        for to, codes in zip(wide, (q, k, v)):
            to.copy_(codes)
        grid = triton.cdiv(tokens, options["QUERIES"]), heads
        attend[grid](*described, out, of_scores, of_values, tokens, width, LIFT=0, **options)
        return out

    return step
