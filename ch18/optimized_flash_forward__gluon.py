"""One warp copies tiles, and two warpgroups out of step multiply and find weights: the tensor cores seldom wait."""

import math

import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_flash_forward import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma
QUERIES, KEYS, STAGES = gl.constexpr(64), gl.constexpr(128), gl.constexpr(2)  # a warpgroup's, a tile's; tiles in memory


@gluon.jit
def barriers(number: gl.constexpr, arrivals: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(made.index(i), count=arrivals)
    return made


@gluon.jit
def fill(memory, box, row, full, free, phase):
    mbarrier.wait(free, phase ^ 1)
    mbarrier.expect(full, box.block_type.nbytes)
    tma.async_copy_global_to_shared(box, [row, 0], full, memory)


@gluon.jit
def copy(q, k, v, rest):
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free, _out, tokens, tiles, _scale = rest
    blocks, rows, n, turn = gl.cdiv(tokens, KEYS), gl.cdiv(tokens, 2 * QUERIES), 0, 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, first = tile // rows * tokens, tile % rows * 2 * QUERIES
        for w in gl.static_range(2):
            fill(mine.index(w), q, head + first + w * QUERIES, q_full.index(w), q_free.index(w), turn & 1)
        for block in range(blocks):
            row, slot, phase = head + (blocks - 1 - block) * KEYS, n % STAGES, n // STAGES & 1
            fill(keys.index(slot), k, row, k_full.index(slot), k_free.index(slot), phase)
            fill(values.index(slot), v, row, v_full.index(slot), v_free.index(slot), phase)
            n += 1
        turn = turn + 1


@gluon.jit
def consume(w: gl.constexpr, rest):
    """Warpgroup `w`'s queries attend to all keys, from the last tile of keys, which may be a part, to the first."""
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free, out, tokens, tiles, scale = rest
    WIDTH: gl.constexpr = keys.shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    blocks, rows, n, turn = gl.cdiv(tokens, KEYS), gl.cdiv(tokens, 2 * QUERIES), 0, 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, first = tile // rows * tokens, tile % rows * 2 * QUERIES + w * QUERIES
        mbarrier.wait(q_full.index(w), turn & 1)
        q, slot, none = mine.index(w), n % STAGES, gl.zeros([QUERIES, KEYS], gl.float32, SCORES)
        mbarrier.wait(k_full.index(slot), n // STAGES & 1)
        scores = warpgroup_mma(q, keys.index(slot).permute((1, 0)), none, use_acc=False)
        mbarrier.arrive(k_free.index(slot))
        left = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))[None, :] < tokens - (blocks - 1) * KEYS
        scores = gl.where(left, scores, float("-inf"))
        peak = gl.max(scores, axis=1) * scale
        weights = gl.exp2(scores * scale - peak[:, None])
        total, p = gl.sum(weights, axis=1), gl.convert_layout(weights.to(keys.dtype), WEIGHTS)
        sums = gl.zeros([QUERIES, WIDTH], gl.float32, SUMS)
        for _ in range(1, blocks):
            ahead = (n + 1) % STAGES
            mbarrier.wait(k_full.index(ahead), (n + 1) // STAGES & 1)
            scores = warpgroup_mma(q, keys.index(ahead).permute((1, 0)), none, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(slot), n // STAGES & 1)
            sums = warpgroup_mma(p, values.index(slot), sums, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            mbarrier.arrive(k_free.index(ahead))
            higher = gl.maximum(peak, gl.max(scores, axis=1) * scale)
            weights, shrink = gl.exp2(scores * scale - higher[:, None]), gl.exp2(peak - higher)
            total, peak = total * shrink + gl.sum(weights, axis=1), higher
            sums = warpgroup_mma_wait(0, deps=(sums,))
            mbarrier.arrive(v_free.index(slot))
            p, slot, n = gl.convert_layout(weights.to(keys.dtype), WEIGHTS), ahead, n + 1
            sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
        mbarrier.arrive(q_free.index(w))
        mbarrier.wait(v_full.index(slot), n // STAGES & 1)
        sums = warpgroup_mma(p, values.index(slot), sums)
        mbarrier.arrive(v_free.index(slot))
        sums = sums / gl.convert_layout(total, gl.SliceLayout(1, SUMS))[:, None]
        row = first + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
        place = (head + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
        gl.store(out + place, sums.to(keys.dtype), mask=(row < tokens)[:, None])
        n, turn = n + 1, turn + 1


@gluon.jit
def attend(q, k, v, out, tokens, tiles, scale, WIDTH: gl.constexpr):
    mine = gl.allocate_shared_memory(q.dtype, [2, QUERIES, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [STAGES, KEYS, WIDTH], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [STAGES, KEYS, WIDTH], v.layout)
    full = (barriers(2, 1), barriers(STAGES, 1), barriers(STAGES, 1))
    free = (barriers(2, 1), barriers(STAGES, 2), barriers(STAGES, 2))
    rest = (mine, keys, values) + full + free + (out, tokens, tiles, scale)
    gl.warp_specialize([(consume, (0, rest)), (consume, (1, rest)), (copy, (q, k, v, rest))], [4, 1], [240, 24])


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    out, tiles, scale = q.new_empty(q.shape), triton.cdiv(tokens, 128) * heads, width**-0.5 * math.log2(math.e)
    layout, sides = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16), ((q, 64), (k, 128), (v, 128))
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width], layout) for x, n in sides]

    def step() -> Tensor:
        attend[(tiles,)](*boxes, out, tokens, tiles, scale, width, num_warps=4)
        return out

    return step
