"""Weights come back tile by tile from scores and saved logs, once for a tile of keys and once for one of queries."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from ch18.baseline_flash_backward import workload as workload
from common.python.workload import Step


@triton.jit
def sum_rows(out, grad, logs, sums, powers, count, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """A row's sum over all weights times their gradients is what it gave times the gradient of that."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place, mask = row.to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], row < count
    given = tl.load(out + place, mask=mask[:, None], other=0.0).to(tl.float32)
    above = tl.load(grad + place, mask=mask[:, None], other=0.0).to(tl.float32)
    tl.store(sums + row, tl.sum(given * above, axis=1), mask=mask)
    tl.store(powers + row, tl.load(logs + row, mask=mask) * 1.4426950408889634, mask=mask)


# All matrices are described as [heads, tokens, width]. Rows beyond a head's tokens are zeros: they add nothing.
@triton.jit
def keys_and_values(
    q, k, v, grad, sums, powers, of_k, of_v, tokens, scale, unit,
    KEYS: tl.constexpr, QUERIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of keys and values: queries stream past, and the scores stand on their side."""
    head, first = tl.program_id(1), tl.program_id(0) * KEYS
    key, value = k.load([head, first, 0]).reshape(KEYS, WIDTH), v.load([head, first, 0]).reshape(KEYS, WIDTH)
    to_key, to_value = tl.zeros((KEYS, WIDTH), tl.float32), tl.zeros((KEYS, WIDTH), tl.float32)
    for start in range(0, tokens, QUERIES):
        query = q.load([head, start, 0]).reshape(QUERIES, WIDTH)
        above = grad.load([head, start, 0]).reshape(QUERIES, WIDTH)
        row = start + tl.arange(0, QUERIES)
        power = tl.load(powers + head * tokens + row, mask=row < tokens, other=0.0)
        mean = tl.load(sums + head * tokens + row, mask=row < tokens, other=0.0)
        weights = tl.exp2(tl.dot(key, query.T) * scale - power[None, :])
        to_value = tl.dot(weights.to(above.dtype), above, to_value)
        change = weights * (tl.dot(value, above.T) - mean[None, :])
        to_key = tl.dot(change.to(query.dtype), query, to_key)
    of_k.store([head, first, 0], (to_key * unit).to(of_k.dtype).reshape(1, KEYS, WIDTH))
    of_v.store([head, first, 0], to_value.to(of_v.dtype).reshape(1, KEYS, WIDTH))


@triton.jit
def queries(
    q, k, v, grad, sums, powers, of_q, tokens, scale, unit,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of queries: keys and values stream past."""
    head, first = tl.program_id(1), tl.program_id(0) * QUERIES
    query = q.load([head, first, 0]).reshape(QUERIES, WIDTH)
    above = grad.load([head, first, 0]).reshape(QUERIES, WIDTH)
    row = first + tl.arange(0, QUERIES)
    power = tl.load(powers + head * tokens + row, mask=row < tokens, other=0.0)
    mean = tl.load(sums + head * tokens + row, mask=row < tokens, other=0.0)
    total = tl.zeros((QUERIES, WIDTH), tl.float32)
    for start in range(0, tokens, KEYS):
        key, value = k.load([head, start, 0]).reshape(KEYS, WIDTH), v.load([head, start, 0]).reshape(KEYS, WIDTH)
        weights = tl.exp2(tl.dot(query, key.T) * scale - power[:, None])
        change = weights * (tl.dot(above, value.T) - mean[:, None])
        total = tl.dot(change.to(key.dtype), key, total)
    of_q.store([head, first, 0], (total * unit).to(of_q.dtype).reshape(1, QUERIES, WIDTH))


def tile() -> tuple[int, int, int, int]:
    """Rows that stay, rows that stream past, warps and stages. On Hopper two blocks of one warpgroup share an SM."""
    major = 0 if knobs.runtime.interpret else torch.cuda.get_device_capability()[0]
    return {9: (64, 64, 4, 2), 10: (128, 64, 8, 2)}.get(major, (64, 32, 4, 2))


def prepare(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, out: Tensor, logs: Tensor) -> Step:
    heads, tokens, width = q.shape
    results = [torch.empty_like(x) for x in (q, k, v)]
    sums, powers = torch.empty_like(logs), torch.empty_like(logs)
    stay, pass_by, warps, stages = tile()

    def boxes(rows: int, *matrices: Tensor) -> list[TensorDescriptor]:
        return [TensorDescriptor.from_tensor(x, [1, rows, width]) for x in matrices]

    a, b, c, above, into_q, *into = boxes(stay, q, k, v, grad, *results)
    passing_q, passing_k, passing_v, passing_grad = boxes(pass_by, q, k, v, grad)
    rest = tokens, width**-0.5 * math.log2(math.e), width**-0.5, stay, pass_by, width
    grid, options = (triton.cdiv(tokens, stay), heads), {"num_warps": warps, "num_stages": stages}

    def step() -> tuple[Tensor, ...]:
        sum_rows[(triton.cdiv(logs.numel(), 16),)](out, grad, logs, sums, powers, logs.numel(), 16, width)
        keys_and_values[grid](passing_q, b, c, passing_grad, sums, powers, *into, *rest, **options)
        queries[grid](a, passing_k, passing_v, above, sums, powers, into_q, *rest, **options)
        return tuple(results)

    return step
