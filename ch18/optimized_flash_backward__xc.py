"""Experiment: two kernels as before, each with a warp that copies and two warpgroups that never wait for each other."""

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

from ch18.baseline_flash_backward import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

# ruff: noqa: RUF059
requires = needs(targets=["sm_90a"])  # wgmma
QUERIES, KEYS = gl.constexpr(64), gl.constexpr(64)  # a tile's or a warpgroup's
STAGES, MANY = gl.constexpr(4), gl.constexpr(128)  # tiles of queries in memory; keys that stream past queries


@triton.jit
def sum_rows(out, grad, logs, notes, tokens, blocks, over, ROWS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """For each tile of queries what its products with keys begin at, then with values."""
    head, token = tl.program_id(1), tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask, column = token < tokens, tl.arange(0, WIDTH)[None, :]
    place = (head * tokens + token).to(tl.int64)[:, None] * WIDTH + column
    given = tl.load(out + place, mask=mask[:, None], other=0.0).to(tl.float32)
    above = tl.load(grad + place, mask=mask[:, None], other=0.0).to(tl.float32)
    note = notes + (head * blocks + token // TILE) * (2 * TILE) + token % TILE
    tl.store(note, tl.load(logs + head * tokens + token, mask=mask, other=0.0) * over)
    tl.store(note + TILE, -tl.sum(given * above, axis=1))


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
def copy(q, k, v, grad, notes, rest):
    queries, aboves, said, keys, values, ready, full, free, tokens, results = rest
    blocks, tiles = gl.cdiv(tokens, QUERIES), gl.cdiv(tokens, 2 * KEYS)
    head, tile = gl.program_id(0) // tiles, gl.program_id(0) % tiles
    mbarrier.expect(ready, 4 * k.block_type.nbytes)
    for w in gl.static_range(2):
        tma.async_copy_global_to_shared(k, [head, (2 * tile + w) * KEYS, 0], ready, keys.index(w))
        tma.async_copy_global_to_shared(v, [head, (2 * tile + w) * KEYS, 0], ready, values.index(w))
    for block in range(blocks):
        slot = block % STAGES
        mbarrier.wait(free.index(slot), block // STAGES & 1 ^ 1)
        bar = full.index(slot)
        mbarrier.expect(bar, 2 * q.block_type.nbytes + notes.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [head, block * QUERIES, 0], bar, queries.index(slot))
        tma.async_copy_global_to_shared(grad, [head, block * QUERIES, 0], bar, aboves.index(slot))
        tma.async_copy_global_to_shared(notes, [(head * blocks + block) * (2 * QUERIES)], bar, said.index(slot))


@gluon.jit
def consume(w: gl.constexpr, rest):
    """Gradients of 64 keys and values: queries stream past."""
    queries, aboves, said, keys, values, ready, full, free, tokens, results = rest
    to_keys, to_values, scale, unit = results
    WIDTH: gl.constexpr = keys.shape[3]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, QUERIES, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    COLUMN: gl.constexpr = gl.SliceLayout(0, SCORES)
    blocks, tiles = gl.cdiv(tokens, QUERIES), gl.cdiv(tokens, 2 * KEYS)
    head, tile = gl.program_id(0) // tiles, gl.program_id(0) % tiles
    of_key = gl.zeros([KEYS, WIDTH], gl.float32, SUMS)
    of_value = gl.zeros([KEYS, WIDTH], gl.float32, SUMS)
    none = gl.zeros([KEYS, QUERIES], gl.float32, SCORES)
    mbarrier.wait(ready, 0)
    key, value = flat(keys.index(w)), flat(values.index(w))
    for turn in range(blocks):
        slot, phase = turn % STAGES, turn // STAGES & 1
        mbarrier.wait(full.index(slot), phase)
        query, above, note = flat(queries.index(slot)), flat(aboves.index(slot)), said.index(slot)
        power, _ = gl.broadcast(note.slice(0, QUERIES).load(COLUMN)[None, :], none)
        scores = warpgroup_mma(key, query.permute((1, 0)), power, is_async=True)
        change = warpgroup_mma(value, above.permute((1, 0)), none, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(scores,))
        weights = gl.exp2(scores * scale).to(query.dtype)
        p = gl.convert_layout(weights, LEFT)
        of_value = warpgroup_mma(p, above, of_value, is_async=True)
        change = warpgroup_mma_wait(1, deps=(change,))
        change = change + note.slice(QUERIES, QUERIES).load(COLUMN)[None, :]
        change = (weights.to(gl.float32) * change).to(query.dtype)
        of_value = warpgroup_mma_wait(0, deps=(of_value,))
        of_key = warpgroup_mma(gl.convert_layout(change, LEFT), query, of_key, is_async=True)
        of_key = warpgroup_mma_wait(0, deps=(of_key,))
        mbarrier.arrive(free.index(slot))
    row = (2 * tile + w) * KEYS + gl.arange(0, KEYS, gl.SliceLayout(1, SUMS))
    place = (head * tokens + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    gl.store(to_keys + place, (of_key * unit).to(keys.dtype), mask=(row < tokens)[:, None])
    gl.store(to_values + place, of_value.to(keys.dtype), mask=(row < tokens)[:, None])


@gluon.jit
def keys_and_values(q, k, v, grad, notes, to_keys, to_values, tokens, scale, unit, WIDTH: gl.constexpr):
    queries = gl.allocate_shared_memory(q.dtype, [STAGES, 1, QUERIES, WIDTH], q.layout)
    aboves = gl.allocate_shared_memory(q.dtype, [STAGES, 1, QUERIES, WIDTH], q.layout)
    said = gl.allocate_shared_memory(gl.float32, [STAGES, 2 * QUERIES], notes.layout)
    keys = gl.allocate_shared_memory(q.dtype, [2, 1, KEYS, WIDTH], k.layout)
    values = gl.allocate_shared_memory(q.dtype, [2, 1, KEYS, WIDTH], v.layout)
    bars = (barriers(1, 1).index(0), barriers(STAGES, 1), barriers(STAGES, 2))
    rest = (queries, aboves, said, keys, values) + bars + (tokens, (to_keys, to_values, scale, unit))
    gl.warp_specialize(
        [(consume, (0, rest)), (consume, (1, rest)), (copy, (q, k, v, grad, notes, rest))], [4, 1], [240, 24]
    )


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
    said, to_query, scale, unit = results
    WIDTH: gl.constexpr = keys.shape[3]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, MANY, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    blocks, tiles = gl.cdiv(tokens, MANY), gl.cdiv(tokens, 2 * QUERIES)
    head, tile = gl.program_id(0) // tiles, gl.program_id(0) % tiles
    of_query, none = gl.zeros([QUERIES, WIDTH], gl.float32, SUMS), gl.zeros([QUERIES, MANY], gl.float32, SCORES)
    noted = gl.cdiv(tokens, QUERIES)  # tiles of a head; the last tile of a program may be beyond them
    note = said + (head * noted + gl.minimum(2 * tile + w, noted - 1)) * (2 * QUERIES)
    note += gl.arange(0, QUERIES, gl.SliceLayout(1, SCORES))
    power, _ = gl.broadcast(gl.load(note)[:, None], none)
    mean, _ = gl.broadcast(gl.load(note + QUERIES)[:, None], none)
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
    row = (2 * tile + w) * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
    place = (head * tokens + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    gl.store(to_query + place, (of_query * unit).to(keys.dtype), mask=(row < tokens)[:, None])


@gluon.jit
def only_queries(q, k, v, grad, said, to_query, tokens, scale, unit, WIDTH: gl.constexpr):
    queries = gl.allocate_shared_memory(q.dtype, [2, 1, QUERIES, WIDTH], q.layout)
    aboves = gl.allocate_shared_memory(q.dtype, [2, 1, QUERIES, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(q.dtype, [2, 1, MANY, WIDTH], k.layout)
    values = gl.allocate_shared_memory(q.dtype, [2, 1, MANY, WIDTH], v.layout)
    bars = (barriers(1, 1).index(0), barriers(2, 1), barriers(2, 2))
    rest = (queries, aboves, keys, values) + bars + (tokens, (said, to_query, scale, unit))
    gl.warp_specialize(
        [(consume_keys, (0, rest)), (consume_keys, (1, rest)), (copy_keys, (q, k, v, grad, rest))], [4, 1], [240, 24]
    )


def prepare(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, out: Tensor, logs: Tensor) -> Step:
    heads, tokens, width = q.shape
    to_query, to_keys, to_values = (torch.empty_like(x) for x in (q, k, v))
    blocks = triton.cdiv(tokens, 64)
    notes = logs.new_empty(heads * blocks * 128)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3)
    a, b, c, above, many_k, many_v = (
        TensorDescriptor.from_tensor(x, [1, rows, width], layout)
        for x, rows in ((q, 64), (k, 64), (v, 64), (grad, 64), (k, 128), (v, 128))
    )
    said = TensorDescriptor.from_tensor(notes, [128], gl.NVMMASharedLayout(0, 32, 1))
    grid, unit = (triton.cdiv(tokens, 128) * heads,), width**-0.5
    rest = tokens, unit * math.log2(math.e), unit, width

    def step() -> tuple[Tensor, ...]:
        sum_rows[(4 * blocks, heads)](out, grad, logs, notes, tokens, blocks, -(width**0.5), 16, width, 64)
        keys_and_values[grid](a, b, c, above, said, to_keys, to_values, *rest, num_warps=4)
        only_queries[grid](a, many_k, many_v, above, notes, to_query, *rest, num_warps=4)
        return to_query, to_keys, to_values

    return step
