"""Experiment: a tile of values and the next one of keys share a place in memory and its barriers."""

import math

import torch
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
QUERIES, KEYS, STAGES = gl.constexpr(64), gl.constexpr(128), gl.constexpr(3)  # a warpgroup's, a tile's; tiles in memory


@gluon.jit
def barriers(number: gl.constexpr, arrivals: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(made.index(i), count=arrivals)
    return made


@gluon.jit
def copy(q, k, v, rest):
    """Pairs of tiles: first keys alone, then values and the keys after them, at last values alone."""
    mine, keys, values, q_full, full, q_free, free, _out, tokens, tiles, _scale = rest
    blocks, rows, n, turn = gl.cdiv(tokens, KEYS), gl.cdiv(tokens, 2 * QUERIES), 0, 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, first = tile // rows * tokens, tile % rows * 2 * QUERIES
        mbarrier.wait(q_free, turn & 1 ^ 1)
        mbarrier.expect(q_full, 2 * q.block_type.nbytes)
        for w in gl.static_range(2):
            tma.async_copy_global_to_shared(q, [head + first + w * QUERIES, 0], q_full, mine.index(w))
        for block in range(blocks + 1):
            row, slot = head + (blocks - 1 - block) * KEYS, n % STAGES
            mbarrier.wait(free.index(slot), n // STAGES & 1 ^ 1)
            alone = (block == 0) | (block == blocks)
            mbarrier.expect(full.index(slot), k.block_type.nbytes, pred=alone)
            mbarrier.expect(full.index(slot), 2 * k.block_type.nbytes, pred=block * (blocks - block) > 0)
            tma.async_copy_global_to_shared(k, [row, 0], full.index(slot), keys.index(slot), pred=block < blocks)
            tma.async_copy_global_to_shared(v, [row + KEYS, 0], full.index(slot), values.index(slot), pred=block > 0)
            n += 1
        turn = turn + 1


@gluon.jit
def keep(weights):
    """Sums of each row's weights that a thread holds already: four a row, which no instruction has to exchange."""
    split: gl.constexpr = [weights.shape[0], weights.shape[1] // 8, 4, 2]
    return gl.sum(gl.sum(weights.reshape(split), axis=3), axis=1)


@gluon.jit
def consume(w: gl.constexpr, rest):
    """Warpgroup `w`'s queries attend to all keys, from the last tile of keys, which may be a part, to the first."""
    mine, keys, values, q_full, full, q_free, free, out, tokens, tiles, scale = rest
    WIDTH: gl.constexpr = keys.shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    blocks, rows, n, turn = gl.cdiv(tokens, KEYS), gl.cdiv(tokens, 2 * QUERIES), 0, 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, first = tile // rows * tokens, tile % rows * 2 * QUERIES + w * QUERIES
        mbarrier.wait(q_full, turn & 1)
        q, slot, none = mine.index(w), n % STAGES, gl.zeros([QUERIES, KEYS], gl.float32, SCORES)
        mbarrier.wait(full.index(slot), n // STAGES & 1)
        scores = warpgroup_mma(q, keys.index(slot).permute((1, 0)), none, use_acc=False)
        mbarrier.arrive(free.index(slot))
        left = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))[None, :] < tokens - (blocks - 1) * KEYS
        scores = gl.where(left, scores, float("-inf"))
        peak = gl.max(scores, axis=1) * scale
        weights = gl.exp2(scores * scale - peak[:, None])
        total, p = keep(weights), gl.convert_layout(weights.to(keys.dtype), WEIGHTS)
        sums = gl.zeros([QUERIES, WIDTH], gl.float32, SUMS)
        n += 1
        for _ in range(1, blocks):
            slot = n % STAGES
            mbarrier.wait(full.index(slot), n // STAGES & 1)
            scores = warpgroup_mma(q, keys.index(slot).permute((1, 0)), none, use_acc=False, is_async=True)
            sums = warpgroup_mma(p, values.index(slot), sums, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            higher = gl.maximum(peak, gl.max(scores, axis=1) * scale)
            sums = warpgroup_mma_wait(0, deps=(sums,))
            mbarrier.arrive(free.index(slot))
            weights, shrink = gl.exp2(scores * scale - higher[:, None]), gl.exp2(peak - higher)
            slower = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
            total, peak = total * slower + keep(weights), higher
            p, n = gl.convert_layout(weights.to(keys.dtype), WEIGHTS), n + 1
            sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
        mbarrier.arrive(q_free)
        slot = n % STAGES
        mbarrier.wait(full.index(slot), n // STAGES & 1)
        sums = warpgroup_mma(p, values.index(slot), sums)
        mbarrier.arrive(free.index(slot))
        sums = sums / gl.convert_layout(gl.sum(total, axis=1), gl.SliceLayout(1, SUMS))[:, None]
        row = first + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
        place = (head + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
        gl.store(out + place, sums.to(keys.dtype), mask=(row < tokens)[:, None])
        n, turn = n + 1, turn + 1


@gluon.jit
def attend(q, k, v, out, tokens, tiles, scale, WIDTH: gl.constexpr):
    mine = gl.allocate_shared_memory(q.dtype, [2, QUERIES, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [STAGES, KEYS, WIDTH], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [STAGES, KEYS, WIDTH], v.layout)
    bars = (barriers(1, 1).index(0), barriers(STAGES, 1), barriers(1, 2).index(0), barriers(STAGES, 2))
    rest = (mine, keys, values) + bars + (out, tokens, tiles, scale)
    gl.warp_specialize([(consume, (0, rest)), (consume, (1, rest)), (copy, (q, k, v, rest))], [4, 1], [240, 24])


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    out, tiles, scale = q.new_empty(q.shape), triton.cdiv(tokens, 128) * heads, width**-0.5 * math.log2(math.e)
    layout, sides = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16), ((q, 64), (k, 128), (v, 128))
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width], layout) for x, n in sides]

    programs = min(tiles, torch.cuda.get_device_properties().multi_processor_count)

    def step() -> Tensor:
        attend[(programs,)](*boxes, out, tokens, tiles, scale, width, num_warps=4)
        return out

    return step
