"""One pass: two warpgroups keep keys and values; a third copies queries and adds up their gradients in memory."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_flash_backward import workload as workload
from common.models.attention import barriers
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma
ROWS, STAGES, PART = gl.constexpr(64), gl.constexpr(3), gl.constexpr(32)  # of a tile; tiles in memory; columns


@triton.jit
def sum_rows(out, grad, logs, notes, total, tokens, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """What products of a tile's queries begin at: with keys -logs, with values -(output times gradient); zeros."""
    head, tile, row = tl.program_id(1), tl.program_id(1) * tl.num_programs(0) + tl.program_id(0), tl.arange(0, ROWS)
    token, column = tl.program_id(0) * ROWS + row, tl.arange(0, WIDTH)[None, :]
    place, mask = (head * tokens + token).to(tl.int64)[:, None] * WIDTH + column, token < tokens
    given = tl.load(out + place, mask=mask[:, None], other=0.0).to(tl.float32)
    above = tl.load(grad + place, mask=mask[:, None], other=0.0).to(tl.float32)
    tl.store(total + (tile * ROWS + row).to(tl.int64)[:, None] * WIDTH + column, tl.zeros_like(given))
    log = tl.load(logs + head * tokens + token, mask=mask, other=float("inf"))  # no weight for rows beyond the head
    tl.store(notes + tile * (2 * ROWS) + row, log * -tl.sqrt(WIDTH * 1.0))
    tl.store(notes + tile * (2 * ROWS) + ROWS + row, -tl.sum(given * above, axis=1))


@triton.jit
def round_off(total, to_query, unit, tokens, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Gradients of a tile of queries, from sums that lie in the order in which threads hold a product."""
    head, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    tile = total + (head * tl.num_programs(0) + block) * (ROWS * WIDTH)
    summed = tl.load(tile + tl.arange(0, ROWS * WIDTH)).reshape(WIDTH // 32, 2, 2, 2, 4, 8, 4, 2)
    summed = summed.permute(4, 1, 5, 0, 2, 3, 6, 7).reshape(ROWS, WIDTH) * unit
    token, column = block * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    tl.store(to_query + (head * tokens + token) * WIDTH + column, summed, mask=token < tokens)


@gluon.jit
def consume(w: gl.constexpr, memory, to_keys, to_values, tokens, scale, unit):
    """Gradients of 64 keys and values, as queries stream past."""
    queries, aboves, notes, keys, values, _parts, changes, ready, full, made, used = memory
    WIDTH: gl.constexpr = keys.shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    first = (2 * gl.program_id(0) + w) * ROWS
    to_key, to_value = gl.zeros([ROWS, WIDTH], gl.float32, SUMS), gl.zeros([ROWS, WIDTH], gl.float32, SUMS)
    none, key, value = gl.zeros([ROWS, ROWS], gl.float32, SCORES), keys.index(w), values.index(w)
    own = first + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES)) < tokens
    none_beyond = gl.where(own, 0.0, float("-inf"))[:, None]
    mbarrier.wait(ready, 0)
    for n in range(gl.cdiv(tokens, ROWS)):
        slot, buffer = n % STAGES, n % 2
        query, above, note = queries.index(slot), aboves.index(slot), notes.index(slot)
        mbarrier.wait(full.index(slot), n // STAGES & 1)
        power, _ = gl.broadcast(note.slice(0, ROWS).load(gl.SliceLayout(0, SCORES))[None, :], none)
        scores = warpgroup_mma(key, query.permute((1, 0)), power)
        weights = gl.exp2(scores * scale + none_beyond).to(query.dtype)
        mean, _ = gl.broadcast(note.slice(ROWS, ROWS).load(gl.SliceLayout(0, SCORES))[None, :], none)
        change = warpgroup_mma(value, above.permute((1, 0)), mean, is_async=True)
        to_value = warpgroup_mma(gl.convert_layout(weights, LEFT), above, to_value, is_async=True)
        change = warpgroup_mma_wait(1, deps=(change,))
        change = (weights.to(gl.float32) * change).to(query.dtype)
        mbarrier.wait(used.index(buffer), n // 2 & 1 ^ 1)
        changes.index(buffer).slice(w * ROWS, ROWS).store(change)
        fence_async_shared()
        mbarrier.arrive(made.index(buffer))
        to_value = warpgroup_mma_wait(0, deps=(to_value,))
        to_key = warpgroup_mma(gl.convert_layout(change, LEFT), query, to_key)
    row = first + gl.arange(0, ROWS, gl.SliceLayout(1, SUMS))
    place = (gl.program_id(1) * tokens + row).to(gl.int64)[:, None] * WIDTH
    place += gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    gl.store(to_keys + place, (to_key * unit).to(keys.dtype), mask=(row < tokens)[:, None])
    gl.store(to_values + place, to_value.to(keys.dtype), mask=(row < tokens)[:, None])


@gluon.jit
def fill(q, grad, said, memory, tokens, n):
    """The `n`-th tile of queries. Programs begin at different tiles, so that they add to different rows."""
    blocks, slot, bar = gl.cdiv(tokens, ROWS), n % STAGES, memory[8].index(n % STAGES)
    block, head = (n + 2 * gl.program_id(0)) % blocks, gl.program_id(1)
    if n < blocks:
        mbarrier.expect(bar, 2 * q.block_type.nbytes + said.block_type.nbytes)
        tma.async_copy_global_to_shared(q, [head * tokens + block * ROWS, 0], bar, memory[0].index(slot))
        tma.async_copy_global_to_shared(grad, [head * tokens + block * ROWS, 0], bar, memory[1].index(slot))
        tma.async_copy_global_to_shared(said, [(head * blocks + block) * 2 * ROWS], bar, memory[2].index(slot))


@gluon.jit
def add_up(q, k, v, grad, narrow, said, memory, total, tokens):
    """Copies tiles, and adds to the gradient of each tile of queries what 128 keys say about it."""
    _queries, _aboves, _notes, keys, values, parts, changes, ready, _full, made, used = memory
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PART, 16])
    PARTS: gl.constexpr = parts.shape[0]
    blocks, none = gl.cdiv(tokens, ROWS), gl.zeros([ROWS, PART], gl.float32, SUMS)
    first = gl.program_id(1) * tokens + 2 * gl.program_id(0) * ROWS
    mbarrier.expect(ready, 4 * k.block_type.nbytes + PARTS * narrow.block_type.nbytes)
    for w in gl.static_range(2):
        tma.async_copy_global_to_shared(k, [first + w * ROWS, 0], ready, keys.index(w))
        tma.async_copy_global_to_shared(v, [first + w * ROWS, 0], ready, values.index(w))
    for i in gl.static_range(PARTS):
        tma.async_copy_global_to_shared(narrow, [first, i * PART], ready, parts.index(i))
    for i in gl.static_range(STAGES):
        fill(q, grad, said, memory, tokens, i)
    mbarrier.wait(ready, 0)
    for n in range(blocks):
        mbarrier.wait(made.index(n % 2), n // 2 & 1)
        if n > 0:
            fill(q, grad, said, memory, tokens, n + STAGES - 1)  # both have done with the tile before
        tile = total + (gl.program_id(1) * blocks + (n + 2 * gl.program_id(0)) % blocks).to(gl.int64) * (
            PARTS * ROWS * PART
        )
        for part in range(PARTS):
            added = warpgroup_mma(changes.index(n % 2).permute((1, 0)), parts.index(part), none, use_acc=False)
            mbarrier.arrive(used.index(n % 2), pred=part == PARTS - 1)
            added = added.reshape([4, 2, 8, 2, 2, 4, 2]).permute((1, 3, 4, 0, 2, 5, 6)).reshape([ROWS * PART])
            place = part * ROWS * PART + gl.arange(0, ROWS * PART, added.type.layout)
            gl.atomic_add(tile + place, added, sem="relaxed")


@gluon.jit
def gradients(q, k, v, grad, narrow, said, total, to_keys, to_values, tokens, scale, unit, WIDTH: gl.constexpr):
    queries = gl.allocate_shared_memory(q.dtype, [STAGES, ROWS, WIDTH], q.layout)
    aboves = gl.allocate_shared_memory(q.dtype, [STAGES, ROWS, WIDTH], q.layout)
    notes = gl.allocate_shared_memory(gl.float32, [STAGES, 2 * ROWS], said.layout)
    keys = gl.allocate_shared_memory(q.dtype, [2, ROWS, WIDTH], q.layout)
    values = gl.allocate_shared_memory(q.dtype, [2, ROWS, WIDTH], q.layout)
    parts = gl.allocate_shared_memory(q.dtype, [WIDTH // PART, 2 * ROWS, PART], narrow.layout)
    changes = gl.allocate_shared_memory(q.dtype, [2, 2 * ROWS, ROWS], q.layout)
    memory = (queries, aboves, notes, keys, values, parts, changes)
    memory = memory + (barriers(1, 1).index(0), barriers(STAGES, 1), barriers(2, 2), barriers(2, 1))
    rest = (memory, to_keys, to_values, tokens, scale, unit)
    copied = (q, k, v, grad, narrow, said, memory, total, tokens)
    gl.warp_specialize([(consume, (0,) + rest), (consume, (1,) + rest), (add_up, copied)], [4, 4], [224, 56])


def prepare(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, out: Tensor, logs: Tensor) -> Step:
    heads, tokens, width = q.shape
    blocks, unit, results = triton.cdiv(tokens, 64), width**-0.5, [torch.empty_like(x) for x in (q, k, v)]
    total, notes = logs.new_empty(heads, blocks * 64, width), logs.new_empty(heads * blocks * 128)
    layout, narrow = (gl.NVMMASharedLayout(swizzle_byte_width=n, element_bitwidth=16) for n in (128, 64))
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [64, width], layout) for x in (q, k, v, grad)]
    boxes.append(TensorDescriptor.from_tensor(k.view(-1, width), [128, 32], narrow))
    boxes.append(TensorDescriptor.from_tensor(notes, [128], gl.NVMMASharedLayout(0, 32, 1)))
    grid, rest = (triton.cdiv(tokens, 128), heads), (tokens, unit * math.log2(math.e), unit, width)

    def step() -> tuple[Tensor, ...]:
        sum_rows[blocks, heads](out, grad, logs, notes, total, tokens, 64, width)
        gradients[grid](*boxes, total, *results[1:], *rest, num_warps=4)
        round_off[blocks, heads](total, results[0], unit, tokens, 64, width)
        return tuple(results)

    return step
