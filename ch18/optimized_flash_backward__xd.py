"""Experiment: as the headline, but gradients of queries come from two warpgroups that a third warp copies for."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor as Box

from ch18.baseline_flash_backward import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

# ruff: noqa: RUF059
requires = needs(targets=["sm_90a"])  # wgmma
QUERIES = gl.constexpr(64)  # a warpgroup's
MANY = gl.constexpr(128)  # keys that stream past queries


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


@gluon.jit
def barriers(number: gl.constexpr, arrivals: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(made.index(i), count=arrivals)
    return made


@gluon.jit
def flat(memory):
    """A box of one head as a matrix."""
    WIDTH: gl.constexpr = memory.shape[2]
    layout: gl.constexpr = gl.NVMMASharedLayout(min(128, 2 * WIDTH), 16, 2)
    return memory._reinterpret(memory.dtype, [memory.shape[1], WIDTH], layout)


@gluon.jit
def copy_keys(q, k, v, grad, rest):
    queries, aboves, keys, values, ready, full, free, tokens, results = rest
    blocks, tiles = gl.cdiv(tokens, MANY), gl.cdiv(tokens, 2 * QUERIES)
    head, tile = gl.program_id(0) // tiles, gl.program_id(0) % tiles
    mbarrier.expect(ready, 4 * q.block_type.nbytes)
    for w in gl.static_range(2):
        tma.async_copy_global_to_shared(q, [head, (2 * tile + w) * QUERIES, 0], ready, queries.index(w))
        tma.async_copy_global_to_shared(grad, [head, (2 * tile + w) * QUERIES, 0], ready, aboves.index(w))
    for block in range(blocks):
        slot = block % 2
        mbarrier.wait(free.index(slot), block // 2 & 1 ^ 1)
        mbarrier.expect(full.index(slot), 2 * k.block_type.nbytes)
        tma.async_copy_global_to_shared(k, [head, block * MANY, 0], full.index(slot), keys.index(slot))
        tma.async_copy_global_to_shared(v, [head, block * MANY, 0], full.index(slot), values.index(slot))


@gluon.jit
def consume_keys(w: gl.constexpr, rest):
    """The gradient of 64 queries: keys and values stream past."""
    queries, aboves, keys, values, ready, full, free, tokens, results = rest
    sums, powers, to_query, scale, unit = results
    WIDTH: gl.constexpr = keys.shape[3]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, MANY, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    blocks, tiles = gl.cdiv(tokens, MANY), gl.cdiv(tokens, 2 * QUERIES)
    head, tile = gl.program_id(0) // tiles, gl.program_id(0) % tiles
    of_query, none = gl.zeros([QUERIES, WIDTH], gl.float32, SUMS), gl.zeros([QUERIES, MANY], gl.float32, SCORES)
    row = (2 * tile + w) * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SCORES))
    power = gl.load(powers + head * tokens + row, mask=row < tokens, other=0.0)
    mean = gl.load(sums + head * tokens + row, mask=row < tokens, other=0.0)
    power, _ = gl.broadcast(power[:, None] / -scale, none)
    mean, _ = gl.broadcast(-mean[:, None], none)
    mbarrier.wait(ready, 0)
    query, above = flat(queries.index(w)), flat(aboves.index(w))
    for block in range(blocks):
        slot = block % 2
        mbarrier.wait(full.index(slot), block // 2 & 1)
        key, value = flat(keys.index(slot)), flat(values.index(slot))
        scores = warpgroup_mma(query, key.permute((1, 0)), power, is_async=True)
        change = warpgroup_mma(above, value.permute((1, 0)), mean, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(scores,))
        weights = gl.exp2(scores * scale)
        change = warpgroup_mma_wait(0, deps=(change,))
        change = gl.convert_layout((weights * change).to(query.dtype), LEFT)
        of_query = warpgroup_mma(change, key, of_query, is_async=True)
        of_query = warpgroup_mma_wait(0, deps=(of_query,))
        mbarrier.arrive(free.index(slot))
    line = (2 * tile + w) * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
    place = (head * tokens + line).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    gl.store(to_query + place, (of_query * unit).to(keys.dtype), mask=(line < tokens)[:, None])


@gluon.jit
def only_queries(q, k, v, grad, sums, powers, to_query, tokens, scale, unit, WIDTH: gl.constexpr):
    queries = gl.allocate_shared_memory(q.dtype, [2, 1, QUERIES, WIDTH], q.layout)
    aboves = gl.allocate_shared_memory(q.dtype, [2, 1, QUERIES, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(q.dtype, [2, 1, MANY, WIDTH], k.layout)
    values = gl.allocate_shared_memory(q.dtype, [2, 1, MANY, WIDTH], v.layout)
    bars = (barriers(1, 1).index(0), barriers(2, 1), barriers(2, 2))
    rest = (queries, aboves, keys, values) + bars + (tokens, (sums, powers, to_query, scale, unit))
    gl.warp_specialize(
        [(consume_keys, (0, rest)), (consume_keys, (1, rest)), (copy_keys, (q, k, v, grad, rest))], [4, 1], [240, 24]
    )


def prepare(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, out: Tensor, logs: Tensor) -> Step:
    heads, tokens, width = q.shape
    to_query, to_keys, to_values = (torch.empty_like(x) for x in (q, k, v))
    sums, powers = torch.empty_like(logs), torch.empty_like(logs)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3)
    boxes = [
        TensorDescriptor.from_tensor(x, [1, rows, width], layout)
        for x, rows in ((q, 64), (k, 128), (v, 128), (grad, 64))
    ]
    a, b, c, above, *into = [Box.from_tensor(x, [1, 64, width]) for x in (q, k, v, grad, to_keys, to_values)]
    rest = tokens, width**-0.5 * math.log2(math.e), width**-0.5
    grid, halves = (triton.cdiv(tokens, 64), heads), (triton.cdiv(tokens, 128) * heads,)

    def step() -> tuple[Tensor, ...]:
        sum_rows[(triton.cdiv(logs.numel(), 16),)](out, grad, logs, sums, powers, logs.numel(), 16, width)
        keys_and_values[grid](a, b, c, above, sums, powers, *into, *rest, 64, 64, width, num_warps=4, num_stages=2)
        only_queries[halves](*boxes, sums, powers, to_query, *rest, width, num_warps=4)
        return to_query, to_keys, to_values

    return step
