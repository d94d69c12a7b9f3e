"""Experiment: the state on its side in registers: no product waits for shared memory, and a warp copies chunks ahead."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_chunked_linear_attention import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma
CHUNK, COLUMNS, STAGES = gl.constexpr(64), gl.constexpr(64), gl.constexpr(3)  # tokens; a warpgroup's columns of the state; chunks in memory


@triton.jit
def solve(q, k, g, b, inverse, weights, totals, tokens, heads, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    """What needs no state, for each chunk by itself: logs of decay since its begin, and two matrices of its tokens."""
    chunk, line, i, j = tl.program_id(0), tl.program_id(1), tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    row, column = chunk * CHUNK + tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    at, live = ((line // heads).to(tl.int64) * tokens + row) * heads + line % heads, row < tokens
    total = tl.cumsum(tl.load(g + at, mask=live, other=0.0), axis=0)
    rate = tl.load(b + at, mask=live, other=0.0)
    keys = tl.load(k + at[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
    queries = tl.load(q + at[:, None] * WIDTH + column[None, :], mask=live[:, None], other=0.0)
    decay = tl.exp(tl.where(i >= j, total[:, None] - total[None, :], float("-inf")))
    place = line.to(tl.int64) * tl.num_programs(0) + chunk
    tl.store(totals + place * CHUNK + tl.arange(0, CHUNK), total * 1.4426950408889634)
    place = place * CHUNK * CHUNK + i * CHUNK + j
    tl.store(weights + place, tl.dot(queries, keys.T) * decay)
    lower = tl.where(i > j, tl.dot(keys, keys.T) * decay * rate[:, None], 0.0)
    found = tl.where(i == j, 1.0, 0.0) - tl.where(i // 2 == j // 2, lower, 0.0)  # inverse of diagonal blocks of 2
    for level in tl.static_range(1, 6):  # of 4, 8, ... 64: two inverses and what lies below the first make one
        below = tl.where((i >> level + 1 == j >> level + 1) & (i >> level > j >> level), lower, 0.0)
        half = found.to(tl.float16)  # no number is above 1
        found -= tl.dot(tl.dot(half, below.to(tl.float16)).to(tl.float16), half)
    tl.store(inverse + place, found * rate[None, :])


@gluon.jit
def barriers(number: gl.constexpr, arrivals: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(made.index(i), count=arrivals)
    return made


@gluon.jit
def copy(q, k, v, inverse, weights, rest):
    queries, keys, values, inverses, shares, _given, full, free, _totals, _out, tokens, heads = rest
    WIDTH: gl.constexpr = keys.shape[2]
    line, chunks = gl.program_id(0), gl.cdiv(tokens, CHUNK)
    size: gl.constexpr = 2 * k.block_type.nbytes + 2 * v.block_type.nbytes + 2 * inverse.block_type.nbytes
    for chunk in range(chunks):
        slot, row, column = chunk % STAGES, line // heads * tokens + chunk * CHUNK, line % heads * WIDTH
        mbarrier.wait(free.index(slot), chunk // STAGES & 1 ^ 1)
        ready, square = full.index(slot), (line * chunks + chunk) * CHUNK
        mbarrier.expect(ready, size)
        tma.async_copy_global_to_shared(k, [row, column], ready, keys.index(slot))
        tma.async_copy_global_to_shared(inverse, [square, 0], ready, inverses.index(slot))
        for w in gl.static_range(2):
            tma.async_copy_global_to_shared(v, [row, column + w * COLUMNS], ready, values.index(2 * slot + w))
        tma.async_copy_global_to_shared(q, [row, column], ready, queries.index(slot))
        tma.async_copy_global_to_shared(weights, [square, 0], ready, shares.index(slot))


@gluon.jit
def scan(w: gl.constexpr, rest):
    """Chunk after chunk, for COLUMNS columns of the state, which are rows here: left operands stay in registers."""
    queries, keys, values, inverses, shares, given, full, free, totals, out, tokens, heads = rest
    WIDTH: gl.constexpr = keys.shape[2]
    TOKENS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CHUNK, 16])
    STATE: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, TOKENS, 2)
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    line, chunks = gl.program_id(0), gl.cdiv(tokens, CHUNK)
    state, none = gl.zeros([COLUMNS, WIDTH], gl.float32, STATE), gl.zeros([COLUMNS, CHUNK], gl.float32, TOKENS)
    column = w * COLUMNS + gl.arange(0, COLUMNS, gl.SliceLayout(0, ROWS))
    at = totals + line * chunks * CHUNK
    token = gl.arange(0, CHUNK, gl.SliceLayout(0, TOKENS))
    total, last = gl.load(at + token), gl.load(at + CHUNK - 1)
    for chunk in range(chunks):
        slot = chunk % STAGES
        old = gl.convert_layout(state.to(keys.dtype), LEFT)
        mbarrier.wait(full.index(slot), chunk // STAGES & 1)
        key, inverse = keys.index(slot), inverses.index(slot).permute((1, 0))
        said = warpgroup_mma(old, key.permute((1, 0)), none, use_acc=False, is_async=True)
        reads = warpgroup_mma(old, queries.index(slot).permute((1, 0)), none, use_acc=False, is_async=True)
        fix = warpgroup_mma(values.index(2 * slot + w).permute((1, 0)), inverse, none, use_acc=False, is_async=True)
        said = warpgroup_mma_wait(2, deps=(said,))
        wrong = gl.convert_layout((said * (0.0 - gl.exp2(total))[None, :]).to(keys.dtype), LEFT)
        fix = warpgroup_mma(wrong, inverse, fix, is_async=True)
        fix, reads = warpgroup_mma_wait(0, deps=(fix, reads))
        half = gl.convert_layout(fix.to(keys.dtype), LEFT)
        reads = warpgroup_mma(half, shares.index(slot).permute((1, 0)), reads * gl.exp2(total)[None, :], is_async=True)
        half = gl.convert_layout((fix * gl.exp2(last - total)[None, :]).to(keys.dtype), gl.DotOperandLayout(0, STATE, 2))
        state = warpgroup_mma(half, key, state * gl.exp2(last), is_async=True)
        at += CHUNK * (chunk + 1 < chunks).to(gl.int32)
        total, last = gl.load(at + token), gl.load(at + CHUNK - 1)
        reads, state = warpgroup_mma_wait(0, deps=(reads, state))
        mbarrier.arrive(free.index(slot))
        given.index(w).permute((1, 0)).store(reads.to(keys.dtype))
        row = chunk * CHUNK + gl.arange(0, CHUNK, gl.SliceLayout(1, ROWS))
        place = ((line // heads * tokens + row).to(gl.int64) * heads + line % heads)[:, None] * WIDTH + column[None, :]
        gl.store(out + place, given.index(w).load(ROWS), mask=(row < tokens)[:, None] & (column < WIDTH)[None, :])


@gluon.jit
def scan_all(q, k, v, inverse, weights, totals, out, tokens, heads, WIDTH: gl.constexpr):
    queries = gl.allocate_shared_memory(q.dtype, [STAGES, CHUNK, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [STAGES, CHUNK, WIDTH], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [2 * STAGES, CHUNK, COLUMNS], v.layout)
    inverses = gl.allocate_shared_memory(k.dtype, [STAGES, CHUNK, CHUNK], inverse.layout)
    shares = gl.allocate_shared_memory(k.dtype, [STAGES, CHUNK, CHUNK], weights.layout)
    given = gl.allocate_shared_memory(k.dtype, [2, CHUNK, COLUMNS], v.layout)
    rest = (queries, keys, values, inverses, shares, given, barriers(STAGES, 1), barriers(STAGES, 2))
    rest = rest + (totals, out, tokens, heads)
    gl.warp_specialize(
        [(scan, (0, rest)), (scan, (1, rest)), (copy, (q, k, v, inverse, weights, rest))], [4, 1], [240, 24]
    )


def prepare(q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor) -> Step:
    (sequences, tokens, heads, width), out = q.shape, torch.empty_like(v)
    chunks, lines = triton.cdiv(tokens, 64), sequences * heads
    inverse, weights = (q.new_empty(lines, chunks, 64, 64) for _ in range(2))
    totals, shape = g.new_empty(lines, chunks, 64), (tokens, heads, width, 64)
    boxes = []
    for matrix, columns, side in ((q, heads * width, width), (k, heads * width, width), (v, heads * width, 64), (inverse, 64, 64), (weights, 64, 64)):
        layout = gl.NVMMASharedLayout(swizzle_byte_width=min(128, 2 * side), element_bitwidth=16)
        boxes.append(TensorDescriptor.from_tensor(matrix.view(-1, columns), [64, side], layout))

    def step() -> Tensor:
        solve[(chunks, lines)](q, k, g, b, inverse, weights, totals, *shape, num_warps=4, maxnreg=128)
        scan_all[(lines,)](*boxes, totals, out, tokens, heads, width, num_warps=4)
        return out

    return step
