"""The state lies on its side in registers, every product's left operand, and a warp copies chunks ahead of it."""

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_chunked_linear_attention import workload as workload
from common.models.attention import barriers
from common.models.delta_rule import solve
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma
CHUNK, COLUMNS = gl.constexpr(64), gl.constexpr(64)  # tokens of a chunk, columns of the state of a warpgroup
STAGES = gl.constexpr(3)  # chunks in memory


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
        half = gl.convert_layout(
            (fix * gl.exp2(last - total)[None, :]).to(keys.dtype), gl.DotOperandLayout(0, STATE, 2)
        )
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
    boxes, wide, options = [], heads * width, {"num_warps": 4, "maxnreg": 168}  # three programs a multiprocessor
    sides = (q, wide, width), (k, wide, width), (v, wide, 64), (inverse, 64, 64), (weights, 64, 64)
    for matrix, columns, side in sides:
        layout = gl.NVMMASharedLayout(swizzle_byte_width=min(128, 2 * side), element_bitwidth=16)
        boxes.append(TensorDescriptor.from_tensor(matrix.view(-1, columns), [64, side], layout))

    def step() -> Tensor:
        solve[(chunks, lines)](q, k, g, b, inverse, weights, totals, *shape, **options)
        scan_all[(lines,)](*boxes, totals, out, tokens, heads, width, num_warps=4)
        return out

    return step
