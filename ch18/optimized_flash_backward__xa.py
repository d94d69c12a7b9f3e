"""Experiment: one pass; a third warpgroup multiplies and adds up gradients of queries, so no warpgroup waits."""

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

# ruff: noqa: RUF059
requires = needs(targets=["sm_90a"])  # wgmma
QUERIES, KEYS, PART = gl.constexpr(64), gl.constexpr(64), gl.constexpr(32)  # a tile's; a warpgroup's; columns
STAGES, BUFFERS = gl.constexpr(3), gl.constexpr(2)  # tiles of queries in memory; of changes of scores


@triton.jit
def sum_rows(
    out, grad, logs, notes, total, tokens, blocks, over, ROWS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr
):
    """For each tile of queries what its products with keys begin at, then with values; and zeros in `total`."""
    head, token = tl.program_id(1), tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask, column = token < tokens, tl.arange(0, WIDTH)[None, :]
    place = (head * tokens + token).to(tl.int64)[:, None] * WIDTH + column
    given = tl.load(out + place, mask=mask[:, None], other=0.0).to(tl.float32)
    above = tl.load(grad + place, mask=mask[:, None], other=0.0).to(tl.float32)
    summed = (head * (blocks * TILE) + token).to(tl.int64)[:, None] * WIDTH + column
    tl.store(total + summed, tl.zeros_like(given))
    note = notes + (head * blocks + token // TILE) * (2 * TILE) + token % TILE
    tl.store(note, tl.load(logs + head * tokens + token, mask=mask, other=0.0) * over)
    tl.store(note + TILE, -tl.sum(given * above, axis=1))


@triton.jit
def round_off(total, to_query, unit, tokens, blocks, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Gradients of a tile of queries, from sums of fp32 that lie in the order in which threads hold a product."""
    head, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    summed = tl.load(total + (head * blocks + block) * (TILE * WIDTH) + tl.arange(0, TILE * WIDTH)) * unit
    summed = summed.reshape(WIDTH // 32, 2, 2, 2, 4, 8, 4, 2).permute(4, 1, 5, 0, 2, 3, 6, 7).reshape(TILE, WIDTH)
    token, column = block * TILE + tl.arange(0, TILE)[:, None], tl.arange(0, WIDTH)[None, :]
    tl.store(to_query + (head * tokens + token) * WIDTH + column, summed, mask=token < tokens)


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
def fill(q, grad, notes, rest, turn):
    """The tile of queries of a turn, into memory. Programs begin at different tiles, to add to different rows."""
    queries, aboves, said, keys, values, parts, changes, ready, full, made, used, tokens, results = rest
    blocks, tiles = gl.cdiv(tokens, QUERIES), gl.cdiv(tokens, 2 * KEYS)
    head, tile = gl.program_id(0) // tiles, gl.program_id(0) % tiles
    slot, block = turn % STAGES, (turn + 2 * tile) % blocks
    if turn < blocks:
        bar = full.index(slot)
        mbarrier.expect(bar, 2 * q.block_type.nbytes + notes.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [head, block * QUERIES, 0], bar, queries.index(slot))
        tma.async_copy_global_to_shared(grad, [head, block * QUERIES, 0], bar, aboves.index(slot))
        tma.async_copy_global_to_shared(notes, [(head * blocks + block) * (2 * QUERIES)], bar, said.index(slot))


@gluon.jit
def consume(w: gl.constexpr, rest):
    """Gradients of 64 keys and values: queries stream past. Changes of scores go to the third warpgroup too."""
    queries, aboves, said, keys, values, parts, changes, ready, full, made, used, tokens, results = rest
    total, to_keys, to_values, scale, unit = results
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
        buffer, again = turn % BUFFERS, turn // BUFFERS & 1
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
        mbarrier.wait(used.index(buffer), again ^ 1)
        changes.index(buffer).slice(w * KEYS, KEYS).store(change)
        fence_async_shared()
        mbarrier.arrive(made.index(buffer))
        of_value = warpgroup_mma_wait(0, deps=(of_value,))
        of_key = warpgroup_mma(gl.convert_layout(change, LEFT), query, of_key, is_async=True)
        of_key = warpgroup_mma_wait(0, deps=(of_key,))
    row = (2 * tile + w) * KEYS + gl.arange(0, KEYS, gl.SliceLayout(1, SUMS))
    place = (head * tokens + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    gl.store(to_keys + place, (of_key * unit).to(keys.dtype), mask=(row < tokens)[:, None])
    gl.store(to_values + place, of_value.to(keys.dtype), mask=(row < tokens)[:, None])


@gluon.jit
def add_up(q, k, v, grad, narrow, notes, rest):
    """Copies tiles, and adds what 128 keys add to the gradient of each tile of queries."""
    queries, aboves, said, keys, values, parts, changes, ready, full, made, used, tokens, results = rest
    total, to_keys, to_values, scale, unit = results
    PARTS: gl.constexpr = parts.shape[0]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PART, 16])
    blocks, tiles = gl.cdiv(tokens, QUERIES), gl.cdiv(tokens, 2 * KEYS)
    head, tile = gl.program_id(0) // tiles, gl.program_id(0) % tiles
    none = gl.zeros([QUERIES, PART], gl.float32, SUMS)
    mbarrier.expect(ready, 4 * k.block_type.nbytes + PARTS * narrow.block_type.nbytes)
    for w in gl.static_range(2):
        tma.async_copy_global_to_shared(k, [head, (2 * tile + w) * KEYS, 0], ready, keys.index(w))
        tma.async_copy_global_to_shared(v, [head, (2 * tile + w) * KEYS, 0], ready, values.index(w))
    for n in gl.static_range(PARTS):
        tma.async_copy_global_to_shared(narrow, [head, 2 * tile * KEYS, n * PART], ready, parts.index(n))
    for turn in gl.static_range(STAGES):
        fill(q, grad, notes, rest, turn)
    mbarrier.wait(ready, 0)
    for turn in range(blocks):
        buffer, again = turn % BUFFERS, turn // BUFFERS & 1
        mbarrier.wait(made.index(buffer), again)  # both have done with the tile before, too
        if turn > 0:
            fill(q, grad, notes, rest, turn + STAGES - 1)
        place = (head * blocks + (turn + 2 * tile) % blocks).to(gl.int64) * (PARTS * QUERIES * PART)
        for piece in range(PARTS):
            change = changes.index(buffer).permute((1, 0))
            added = warpgroup_mma(change, flat(parts.index(piece)), none, use_acc=False, is_async=True)
            added = warpgroup_mma_wait(0, deps=(added,))
            mbarrier.arrive(used.index(buffer), pred=piece == PARTS - 1)
            added = added.reshape([4, 2, 8, PART // 16, 2, 4, 2]).permute((1, 3, 4, 0, 2, 5, 6))
            added = added.reshape([QUERIES * PART])
            order = piece * QUERIES * PART + gl.arange(0, QUERIES * PART, added.type.layout)
            gl.atomic_add(total + place + order, added, sem="relaxed")


@gluon.jit
def gradients(q, k, v, grad, narrow, notes, total, to_keys, to_values, tokens, scale, unit, WIDTH: gl.constexpr):
    queries = gl.allocate_shared_memory(q.dtype, [STAGES, 1, QUERIES, WIDTH], q.layout)
    aboves = gl.allocate_shared_memory(q.dtype, [STAGES, 1, QUERIES, WIDTH], q.layout)
    said = gl.allocate_shared_memory(gl.float32, [STAGES, 2 * QUERIES], notes.layout)
    keys = gl.allocate_shared_memory(q.dtype, [2, 1, KEYS, WIDTH], k.layout)
    values = gl.allocate_shared_memory(q.dtype, [2, 1, KEYS, WIDTH], v.layout)
    parts = gl.allocate_shared_memory(q.dtype, [WIDTH // PART, 1, 2 * KEYS, PART], narrow.layout)
    square: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    changes = gl.allocate_shared_memory(q.dtype, [BUFFERS, 2 * KEYS, QUERIES], square)
    bars = (barriers(1, 1).index(0), barriers(STAGES, 1), barriers(BUFFERS, 2))
    rest = (queries, aboves, said, keys, values, parts, changes) + bars + (barriers(BUFFERS, 1), tokens)
    rest = rest + ((total, to_keys, to_values, scale, unit),)
    gl.warp_specialize(
        [(consume, (0, rest)), (consume, (1, rest)), (add_up, (q, k, v, grad, narrow, notes, rest))],
        [4, 4],
        [224, 56],
    )


def prepare(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, out: Tensor, logs: Tensor) -> Step:
    heads, tokens, width = q.shape
    to_query, to_keys, to_values = (torch.empty_like(x) for x in (q, k, v))
    blocks = triton.cdiv(tokens, 64)
    total = q.new_empty(heads, blocks * 64, width, dtype=torch.float32)
    notes = logs.new_empty(heads * blocks * 128)
    boxes = []
    for x, rows, columns in ((q, 64, width), (k, 64, width), (v, 64, width), (grad, 64, width), (k, 128, 32)):
        layout = gl.NVMMASharedLayout(swizzle_byte_width=min(128, 2 * columns), element_bitwidth=16, rank=3)
        boxes.append(TensorDescriptor.from_tensor(x, [1, rows, columns], layout))
    boxes.append(TensorDescriptor.from_tensor(notes, [128], gl.NVMMASharedLayout(0, 32, 1)))
    grid, unit = (triton.cdiv(tokens, 128) * heads,), width**-0.5

    def step() -> tuple[Tensor, ...]:
        sum_rows[(4 * blocks, heads)](out, grad, logs, notes, total, tokens, blocks, -(width**0.5), 16, width, 64)
        gradients[grid](*boxes, total, to_keys, to_values, tokens, unit * math.log2(math.e), unit, width, num_warps=4)
        round_off[(blocks, heads)](total, to_query, unit, tokens, blocks, width, 64)
        return to_query, to_keys, to_values

    return step
