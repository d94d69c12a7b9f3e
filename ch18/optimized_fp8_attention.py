"""Two warpgroups out of step multiply in fp8: while one does, the other lifts its weights to e4m3's range."""

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_fp8_attention import workload as workload
from common.models.attention import KEYS, QUERIES, barriers, row_sums
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma
STAGES = gl.constexpr(2)  # tiles of keys, and of values, in memory
LIFT = gl.constexpr(
    8
)  # weights are 2 ** 8 at most, of e4m3's 448: those 2 ** 14 times smaller still have all their bits


@gluon.jit
def copy(q, k, v, memory, tokens):
    """Tiles come in pairs: keys alone, then values and the keys after them, at last values alone."""
    mine, keys, values, q_full, full, free = memory
    blocks, head = gl.cdiv(tokens, KEYS), gl.program_id(1)
    mbarrier.expect(q_full, 2 * q.block_type.nbytes)
    for w in gl.static_range(2):
        row = head * tokens + (2 * gl.program_id(0) + w) * QUERIES
        tma.async_copy_global_to_shared(q, [row, 0], q_full, mine.index(w))
    for n in range(blocks + 1):
        start, slot = (blocks - 1 - n) * KEYS, n % STAGES
        mbarrier.wait(free.index(slot), n // STAGES & 1 ^ 1)
        ready, both = full.index(slot), (n > 0) & (n < blocks)
        mbarrier.expect(ready, 2 * k.block_type.nbytes, pred=both)
        mbarrier.expect(ready, k.block_type.nbytes, pred=(n == 0) | (n == blocks))
        tma.async_copy_global_to_shared(k, [head * tokens + start, 0], ready, keys.index(slot), pred=n < blocks)
        row = head * values.shape[1]
        tma.async_copy_global_to_shared(v, [row, start + KEYS], ready, values.index(slot), pred=n > 0)


@gluon.jit
def weigh(scores, total, sums, peak, shrink, scale, SUMS: gl.constexpr, dtype: gl.constexpr):
    """A tile's weights in fp8, and on the same scale their total and the sums of all values before."""
    weights = gl.exp2(scores * scale - (peak - LIFT)[:, None])
    slower = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
    p = gl.convert_layout(weights.to(dtype), gl.DotOperandLayout(0, SUMS, 4))
    return p, total * slower + row_sums(weights), sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]


@gluon.jit
def consume(w: gl.constexpr, memory, out, tokens, of_scores, of_values):
    """Warpgroup `w`'s queries attend to all keys, from the last tile of keys, which may be a part, to the first."""
    mine, keys, values, q_full, full, free = memory
    WIDTH: gl.constexpr = keys.shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 32])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 32])
    blocks, head, first = gl.cdiv(tokens, KEYS), gl.program_id(1), (2 * gl.program_id(0) + w) * QUERIES
    scale = gl.load(of_scores + head) * 1.4426950408889634
    q, none = mine.index(w), gl.zeros([QUERIES, KEYS], gl.float32, SCORES)
    mbarrier.wait(q_full, 0)
    mbarrier.wait(full.index(0), 0)
    scores = warpgroup_mma(q, keys.index(0).permute((1, 0)), none, use_acc=False)
    mbarrier.arrive(free.index(0))
    left = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))[None, :] < tokens - (blocks - 1) * KEYS
    scores = gl.where(left, scores, float("-inf"))
    peak = gl.max(scores, axis=1) * scale
    shrink, total = gl.zeros_like(peak), row_sums(none)
    sums = gl.zeros([QUERIES, WIDTH], gl.float32, SUMS)
    for n in range(1, blocks):
        p, total, sums = weigh(scores, total, sums, peak, shrink, scale, SUMS, keys.dtype)
        slot = n % STAGES
        mbarrier.wait(full.index(slot), n // STAGES & 1)
        scores = warpgroup_mma(q, keys.index(slot).permute((1, 0)), none, use_acc=False, is_async=True)
        sums = warpgroup_mma(p, values.index(slot).permute((1, 0)), sums, is_async=True)
        scores, sums = warpgroup_mma_wait(0, deps=(scores, sums))
        mbarrier.arrive(free.index(slot))
        higher = gl.maximum(peak, gl.max(scores, axis=1) * scale)
        shrink, peak = gl.exp2(peak - higher), higher
    p, total, sums = weigh(scores, total, sums, peak, shrink, scale, SUMS, keys.dtype)
    mbarrier.wait(full.index(blocks % STAGES), blocks // STAGES & 1)
    sums = warpgroup_mma(p, values.index(blocks % STAGES).permute((1, 0)), sums)
    factor = gl.load(of_values + head) / gl.convert_layout(gl.sum(total, axis=1), gl.SliceLayout(1, SUMS))
    row = first + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
    column = gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    place = (head * tokens + row).to(gl.int64)[:, None] * WIDTH + column
    gl.store(out + place, (sums * factor[:, None]).to(gl.bfloat16), mask=(row < tokens)[:, None])


@gluon.jit
def attend(q, k, v, out, tokens, of_scores, of_values, WIDTH: gl.constexpr):
    mine = gl.allocate_shared_memory(q.dtype, [2, QUERIES, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [STAGES, KEYS, WIDTH], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [STAGES, WIDTH, KEYS], v.layout)
    memory = (mine, keys, values, barriers(1, 1).index(0), barriers(STAGES, 1), barriers(STAGES, 2))
    rest = (memory, out, tokens, of_scores, of_values)
    gl.warp_specialize(
        [(consume, (0,) + rest), (consume, (1,) + rest), (copy, (q, k, v, memory, tokens))], [4, 1], [240, 24]
    )


def prepare(q: Tensor, k: Tensor, v: Tensor, of_scores: Tensor, of_values: Tensor) -> Step:
    (heads, tokens, width), out = q.shape, torch.empty_like(q, dtype=torch.bfloat16)
    sides = (q.view(-1, width), [64, width]), (k.view(-1, width), [128, width]), (v.view(-1, tokens), [width, 128])
    boxes = []
    for matrix, box in sides:
        layout = gl.NVMMASharedLayout(swizzle_byte_width=min(128, box[1]), element_bitwidth=8)
        boxes.append(TensorDescriptor.from_tensor(matrix, box, layout))

    def step() -> Tensor:
        attend[triton.cdiv(tokens, 128), heads](*boxes, out, tokens, of_scores, of_values, width, num_warps=4)
        return out

    return step
