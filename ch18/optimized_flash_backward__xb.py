"""Experiment: one pass whose next scores are multiplied while sums are added: five products a tile, and gradients of queries are added up in memory by atomics."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_flash_backward import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma
QUERIES, KEYS, STAGES = gl.constexpr(64), gl.constexpr(64), gl.constexpr(2)  # a tile's; a warpgroup's; tiles in memory


@triton.jit
def sum_rows(
    out, grad, logs, notes, total, tokens, blocks, count, ROWS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    """For each tile of queries the logs (base 2), then the sums of outputs times gradients; and zeros in `total`."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place, mask = row.to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], row < count
    given = tl.load(out + place, mask=mask[:, None], other=0.0).to(tl.float32)
    above = tl.load(grad + place, mask=mask[:, None], other=0.0).to(tl.float32)
    head, token = row // tokens, row % tokens
    summed = (head * (blocks * TILE) + token).to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(total + summed, tl.zeros_like(given), mask=mask[:, None])
    note = notes + (head * blocks + token // TILE) * (2 * TILE) + token % TILE
    tl.store(note, tl.load(logs + row, mask=mask) * 1.4426950408889634, mask=mask)
    tl.store(note + TILE, tl.sum(given * above, axis=1), mask=mask)


@triton.jit
def round_off(total, to_query, unit, tokens, rows, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Gradients of a tile of queries from sums of fp32; a head has `rows` of these, whole tiles."""
    head, token = tl.program_id(1).to(tl.int64), tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    column, mask = tl.arange(0, WIDTH)[None, :], token < tokens
    summed = tl.load(total + (head * rows + token) * WIDTH + column, mask=mask)
    tl.store(to_query + (head * tokens + token) * WIDTH + column, summed * unit, mask=mask)


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
def copy(q, k, v, grad, halves, notes, rest):
    queries, aboves, said, keys, values, parts, changes, ready, full, free, made, used, tokens, total, rest_ = rest
    blocks, tiles = gl.cdiv(tokens, QUERIES), gl.cdiv(tokens, 2 * KEYS)
    head, tile = gl.program_id(0) // tiles, gl.program_id(0) % tiles
    mbarrier.expect(ready, 4 * k.block_type.nbytes + 2 * halves.block_type.nbytes)
    for w in gl.static_range(2):
        tma.async_copy_global_to_shared(k, [head, (2 * tile + w) * KEYS, 0], ready, keys.index(w))
        tma.async_copy_global_to_shared(v, [head, (2 * tile + w) * KEYS, 0], ready, values.index(w))
        tma.async_copy_global_to_shared(halves, [head, 2 * tile * KEYS, w * parts.shape[3]], ready, parts.index(w))
    for turn in range(blocks + 1):  # the last is only looked at ahead
        slot, block = turn % STAGES, (turn + 2 * tile) % blocks  # programs add to different rows at a time
        mbarrier.wait(free.index(slot), turn // STAGES & 1 ^ 1)
        bar = full.index(slot)
        mbarrier.expect(bar, 2 * q.block_type.nbytes + notes.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [head, block * QUERIES, 0], bar, queries.index(slot))
        tma.async_copy_global_to_shared(grad, [head, block * QUERIES, 0], bar, aboves.index(slot))
        tma.async_copy_global_to_shared(notes, [(head * blocks + block) * (2 * QUERIES)], bar, said.index(slot))


@gluon.jit
def consume(w: gl.constexpr, rest):
    queries, aboves, said, keys, values, parts, changes, ready, full, free, made, used, tokens, total, rest_ = rest
    to_keys, to_values, scale, unit = rest_
    WIDTH: gl.constexpr = keys.shape[3]
    HALF: gl.constexpr = WIDTH // 2
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, QUERIES, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    PART: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    COLUMN: gl.constexpr = gl.SliceLayout(0, SCORES)
    blocks, tiles = gl.cdiv(tokens, QUERIES), gl.cdiv(tokens, 2 * KEYS)
    head, tile = gl.program_id(0) // tiles, gl.program_id(0) % tiles
    of_key, of_value = gl.zeros([KEYS, WIDTH], gl.float32, SUMS), gl.zeros([KEYS, WIDTH], gl.float32, SUMS)
    none, empty = gl.zeros([KEYS, QUERIES], gl.float32, SCORES), gl.zeros([QUERIES, HALF], gl.float32, PART)
    i = gl.arange(0, QUERIES, gl.SliceLayout(1, PART))
    column = w * HALF + gl.arange(0, HALF, gl.SliceLayout(0, PART))
    mbarrier.wait(ready, 0)
    key, value, part = flat(keys.index(w)), flat(values.index(w)), flat(parts.index(w))
    mbarrier.wait(full.index(0), 0)
    first = flat(queries.index(0))
    scores = warpgroup_mma(key, first.permute((1, 0)), none, use_acc=False)
    for turn in range(blocks):
        slot, phase, block = turn % STAGES, turn // STAGES & 1, (turn + 2 * tile) % blocks
        query, above, note = flat(queries.index(slot)), flat(aboves.index(slot)), said.index(slot)
        change = warpgroup_mma(value, above.permute((1, 0)), none, use_acc=False, is_async=True)
        weights = gl.exp2(scores * scale - note.slice(0, QUERIES).load(COLUMN)[None, :])
        p = gl.convert_layout(weights.to(query.dtype), LEFT)
        of_value = warpgroup_mma(p, above, of_value, is_async=True)
        change = warpgroup_mma_wait(1, deps=(change,))
        change = (weights * (change - note.slice(QUERIES, QUERIES).load(COLUMN)[None, :])).to(query.dtype)
        mbarrier.wait(used.index(slot), phase ^ 1)
        changes.index(slot).slice(w * KEYS, KEYS).store(change)
        fence_async_shared()
        mbarrier.arrive(made.index(slot))
        of_key = warpgroup_mma(gl.convert_layout(change, LEFT), query, of_key, is_async=True)
        of_value = warpgroup_mma_wait(1, deps=(of_value,))
        ahead = (turn + 1) % STAGES
        mbarrier.wait(full.index(ahead), (turn + 1) // STAGES & 1)
        after = flat(queries.index(ahead))
        scores = warpgroup_mma(key, after.permute((1, 0)), none, use_acc=False, is_async=True)
        mbarrier.wait(made.index(slot), phase)
        added = warpgroup_mma(changes.index(slot).permute((1, 0)), part, empty, use_acc=False, is_async=True)
        of_key, scores, added = warpgroup_mma_wait(0, deps=(of_key, scores, added))
        mbarrier.arrive(free.index(slot))
        mbarrier.arrive(used.index(slot))
        place = ((head * blocks + block) * QUERIES).to(gl.int64) * WIDTH
        gl.atomic_add(total + place + (i[:, None] * WIDTH + column[None, :]), added, sem="relaxed")
    row = (2 * tile + w) * KEYS + gl.arange(0, KEYS, gl.SliceLayout(1, SUMS))
    place = (head * tokens + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    gl.store(to_keys + place, (of_key * unit).to(keys.dtype), mask=(row < tokens)[:, None])
    gl.store(to_values + place, of_value.to(keys.dtype), mask=(row < tokens)[:, None])


@gluon.jit
def gradients(q, k, v, grad, halves, notes, total, to_keys, to_values, tokens, scale, unit, WIDTH: gl.constexpr):
    queries = gl.allocate_shared_memory(q.dtype, [STAGES, 1, QUERIES, WIDTH], q.layout)
    aboves = gl.allocate_shared_memory(q.dtype, [STAGES, 1, QUERIES, WIDTH], q.layout)
    said = gl.allocate_shared_memory(gl.float32, [STAGES, 2 * QUERIES], notes.layout)
    keys = gl.allocate_shared_memory(q.dtype, [2, 1, KEYS, WIDTH], k.layout)
    values = gl.allocate_shared_memory(q.dtype, [2, 1, KEYS, WIDTH], v.layout)
    parts = gl.allocate_shared_memory(q.dtype, [2, 1, 2 * KEYS, WIDTH // 2], halves.layout)
    flat_layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    changes = gl.allocate_shared_memory(q.dtype, [STAGES, 2 * KEYS, QUERIES], flat_layout)
    bars = (barriers(1, 1).index(0), barriers(STAGES, 1), barriers(STAGES, 2), barriers(STAGES, 2), barriers(STAGES, 2))
    rest = (queries, aboves, said, keys, values, parts, changes) + bars
    rest = rest + (tokens, total, (to_keys, to_values, scale, unit))
    gl.warp_specialize(
        [(consume, (0, rest)), (consume, (1, rest)), (copy, (q, k, v, grad, halves, notes, rest))], [4, 1], [240, 24]
    )


def prepare(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, out: Tensor, logs: Tensor) -> Step:
    heads, tokens, width = q.shape
    to_query, to_keys, to_values = (torch.empty_like(x) for x in (q, k, v))
    blocks = triton.cdiv(tokens, 64)
    total = q.new_empty(heads, blocks * 64, width, dtype=torch.float32)
    notes = logs.new_zeros(heads * blocks * 128)
    boxes = []
    for matrix, rows, columns in (
        (q, 64, width),
        (k, 64, width),
        (v, 64, width),
        (grad, 64, width),
        (k, 128, width // 2),
    ):
        layout = gl.NVMMASharedLayout(swizzle_byte_width=min(128, 2 * columns), element_bitwidth=16, rank=3)
        boxes.append(TensorDescriptor.from_tensor(matrix, [1, rows, columns], layout))
    boxes.append(TensorDescriptor.from_tensor(notes, [128], gl.NVMMASharedLayout(0, 32, 1)))
    grid, unit = (triton.cdiv(tokens, 128) * heads,), width**-0.5

    def step() -> tuple[Tensor, ...]:
        count = logs.numel()
        sum_rows[(triton.cdiv(count, 16),)](out, grad, logs, notes, total, tokens, blocks, count, 16, width, 64)
        gradients[grid](*boxes, total, to_keys, to_values, tokens, unit * math.log2(math.e), unit, width, num_warps=4)
        round_off[(blocks, heads)](total, to_query, unit, tokens, blocks * 64, width, 64)
        return to_query, to_keys, to_values

    return step
