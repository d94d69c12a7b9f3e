"""Experiment: rows of keys are permuted on their way, so that weights lie where the second product wants them."""

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_fp8_attention import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma
QUERIES, KEYS, STAGES = gl.constexpr(64), gl.constexpr(128), gl.constexpr(2)  # a warpgroup's, a tile's; tiles in memory
LIFT = gl.constexpr(8)  # weights are 2 ** 8 at most, of e4m3's 448


@gluon.jit
def barriers(number: gl.constexpr, arrivals: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(made.index(i), count=arrivals)
    return made


@gluon.jit
def copy(q, k, v, rest):
    """Pairs of tiles: first keys alone, then values and the keys after them, at last values alone."""
    mine, keys, values, q_full, full, q_free, free, _out, tokens, tiles, _of_scores, _of_values = rest
    blocks, rows, n, turn = gl.cdiv(tokens, KEYS), gl.cdiv(tokens, 2 * QUERIES), 0, 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, first = tile // rows * tokens, tile % rows * 2 * QUERIES
        mbarrier.wait(q_free, turn & 1 ^ 1)
        mbarrier.expect(q_full, 2 * q.block_type.nbytes)
        for w in gl.static_range(2):
            tma.async_copy_global_to_shared(q, [head + first + w * QUERIES, 0], q_full, mine.index(w))
        for block in range(blocks + 1):
            start, slot = (blocks - 1 - block) * KEYS, n % STAGES
            mbarrier.wait(free.index(slot), n // STAGES & 1 ^ 1)
            alone = (block == 0) | (block == blocks)
            mbarrier.expect(full.index(slot), k.block_type.nbytes, pred=alone)
            mbarrier.expect(full.index(slot), 2 * k.block_type.nbytes, pred=block * (blocks - block) > 0)
            tma.async_copy_global_to_shared(k, [(head + start) // 16, 0, 0, 0, 0], full.index(slot), keys.index(slot), pred=block < blocks)
            tma.async_copy_global_to_shared(v, [tile // rows * values.shape[1], start + KEYS], full.index(slot), values.index(slot), pred=block > 0)
            n += 1
        turn = turn + 1


@gluon.jit
def keep(weights):
    """Sums of each row's weights that a thread holds already: four a row, which no instruction has to exchange."""
    split: gl.constexpr = [weights.shape[0], weights.shape[1] // 8, 4, 2]
    return gl.sum(gl.sum(weights.reshape(split), axis=3), axis=1)


@gluon.jit
def as_operand(weights, dtype: gl.constexpr, layout: gl.constexpr):
    """Weights of keys in the order that memory has them in: four a thread in a row, which it holds already."""
    split: gl.constexpr = [weights.shape[0], weights.shape[1] // 16, 2, 4, 2]
    ordered = weights.to(dtype).reshape(split).permute((0, 1, 3, 2, 4)).reshape(weights.shape)
    return gl.convert_layout(ordered, layout, assert_trivial=True)


@gluon.jit
def keys_of(keys, slot):
    WIDTH: gl.constexpr = keys.shape[5]
    layout: gl.constexpr = gl.NVMMASharedLayout(min(128, WIDTH), 8, 2)
    return keys.index(slot)._reinterpret(keys.dtype, [KEYS, WIDTH], layout).permute((1, 0))


@gluon.jit
def consume(w: gl.constexpr, rest):
    """Warpgroup `w`'s queries attend to all keys, from the last tile of keys, which may be a part, to the first."""
    mine, keys, values, q_full, full, q_free, free, out, tokens, tiles, of_scores, of_values = rest
    WIDTH: gl.constexpr = keys.shape[5]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 32])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 32])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 4)
    blocks, rows, n, turn = gl.cdiv(tokens, KEYS), gl.cdiv(tokens, 2 * QUERIES), 0, 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, first = tile // rows * tokens, tile % rows * 2 * QUERIES + w * QUERIES
        scale = gl.load(of_scores + tile // rows) * 1.4426950408889634
        mbarrier.wait(q_full, turn & 1)
        q, slot, none = mine.index(w), n % STAGES, gl.zeros([QUERIES, KEYS], gl.float32, SCORES)
        mbarrier.wait(full.index(slot), n // STAGES & 1)
        scores = warpgroup_mma(q, keys_of(keys, slot), none, use_acc=False)
        mbarrier.arrive(free.index(slot))
        place = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))
        key = place // 16 * 16 + place // 2 % 4 * 4 + place // 8 % 2 * 2 + place % 2  # in the order that tiles have here
        left = key[None, :] < tokens - (blocks - 1) * KEYS
        scores = gl.where(left, scores, float("-inf"))
        peak = gl.max(scores, axis=1) * scale
        total, sums = keep(gl.zeros_like(scores)), gl.zeros([QUERIES, WIDTH], gl.float32, SUMS)
        n, shrink = n + 1, gl.exp2(peak - peak)
        for _ in range(1, blocks):
            slot = n % STAGES
            weights = gl.exp2(scores * scale - (peak - LIFT)[:, None])
            slower = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
            total, p = total * slower + keep(weights), as_operand(weights, keys.dtype, WEIGHTS)
            sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
            mbarrier.wait(full.index(slot), n // STAGES & 1)
            scores = warpgroup_mma(q, keys_of(keys, slot), none, use_acc=False, is_async=True)
            sums = warpgroup_mma(p, values.index(slot).permute((1, 0)), sums, is_async=True)
            scores, sums = warpgroup_mma_wait(0, deps=(scores, sums))
            mbarrier.arrive(free.index(slot))
            higher = gl.maximum(peak, gl.max(scores, axis=1) * scale)
            shrink, peak, n = gl.exp2(peak - higher), higher, n + 1
        mbarrier.arrive(q_free)
        weights = gl.exp2(scores * scale - (peak - LIFT)[:, None])
        slower = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
        total, p = total * slower + keep(weights), as_operand(weights, keys.dtype, WEIGHTS)
        sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
        slot = n % STAGES
        mbarrier.wait(full.index(slot), n // STAGES & 1)
        sums = warpgroup_mma(p, values.index(slot).permute((1, 0)), sums)
        mbarrier.arrive(free.index(slot))
        factor = gl.load(of_values + tile // rows) / gl.convert_layout(gl.sum(total, axis=1), gl.SliceLayout(1, SUMS))
        sums = sums * factor[:, None]
        row = first + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
        place = (head + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
        gl.store(out + place, sums.to(gl.bfloat16), mask=(row < tokens)[:, None])
        n, turn = n + 1, turn + 1


@gluon.jit
def attend(q, k, v, out, tokens, tiles, of_scores, of_values, WIDTH: gl.constexpr):
    mine = gl.allocate_shared_memory(q.dtype, [2, QUERIES, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [STAGES, KEYS // 16, 2, 4, 2, WIDTH], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [STAGES, WIDTH, KEYS], v.layout)
    bars = (barriers(1, 1).index(0), barriers(STAGES, 1), barriers(1, 2).index(0), barriers(STAGES, 2))
    rest = (mine, keys, values) + bars + (out, tokens, tiles, of_scores, of_values)
    gl.warp_specialize([(consume, (0, rest)), (consume, (1, rest)), (copy, (q, k, v, rest))], [4, 1], [240, 24])


def prepare(q: Tensor, k: Tensor, v: Tensor, of_scores: Tensor, of_values: Tensor) -> Step:
    heads, tokens, width = q.shape
    out, tiles = torch.empty_like(q, dtype=torch.bfloat16), triton.cdiv(tokens, 128) * heads
    ordered = k.view(-1, 4, 2, 2, width).transpose(1, 2)
    sides = (q.view(-1, width), [64, width]), (ordered, [8, 2, 4, 2, width]), (v.view(-1, tokens), [width, 128])
    boxes = []
    for matrix, box in sides:
        layout = gl.NVMMASharedLayout(swizzle_byte_width=min(128, box[-1]), element_bitwidth=8, rank=len(box))
        boxes.append(TensorDescriptor.from_tensor(matrix, box, layout))

    def step() -> Tensor:
        attend[(tiles,)](*boxes, out, tokens, tiles, of_scores, of_values, width, num_warps=4)
        return out

    return step
@gluon.jit
def copy(q, k, v, rest):
    """Pairs of tiles: first keys alone, then values and the keys after them, at last values alone."""
    mine, keys, values, q_full, full, q_free, free, _out, tokens, tiles, _of_scores, _of_values = rest
    blocks, rows, n, turn = gl.cdiv(tokens, KEYS), gl.cdiv(tokens, 2 * QUERIES), 0, 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, first = tile // rows * tokens, tile % rows * 2 * QUERIES
        mbarrier.wait(q_free, turn & 1 ^ 1)
        mbarrier.expect(q_full, 2 * q.block_type.nbytes)
        for w in gl.static_range(2):
            tma.async_copy_global_to_shared(q, [head + first + w * QUERIES, 0], q_full, mine.index(w))
        for block in range(blocks + 1):
            start, slot = (blocks - 1 - block) * KEYS, n % STAGES
            mbarrier.wait(free.index(slot), n // STAGES & 1 ^ 1)
            alone = (block == 0) | (block == blocks)
            mbarrier.expect(full.index(slot), k.block_type.nbytes, pred=alone)
            mbarrier.expect(full.index(slot), 2 * k.block_type.nbytes, pred=block * (blocks - block) > 0)
            tma.async_copy_global_to_shared(k, [(head + start) // 16, 0, 0, 0, 0], full.index(slot), keys.index(slot), pred=block < blocks)
            tma.async_copy_global_to_shared(v, [tile // rows * values.shape[1], start + KEYS], full.index(slot), values.index(slot), pred=block > 0)
            n += 1
        turn = turn + 1


@gluon.jit
def keep(weights):
    """Sums of each row's weights that a thread holds already: four a row, which no instruction has to exchange."""
    split: gl.constexpr = [weights.shape[0], weights.shape[1] // 8, 4, 2]
    return gl.sum(gl.sum(weights.reshape(split), axis=3), axis=1)


@gluon.jit
def as_operand(weights, dtype: gl.constexpr, layout: gl.constexpr):
    """Weights of keys in the order that memory has them in: four a thread in a row, which it holds already."""
    split: gl.constexpr = [weights.shape[0], weights.shape[1] // 16, 2, 4, 2]
    ordered = weights.to(dtype).reshape(split).permute((0, 1, 3, 2, 4)).reshape(weights.shape)
    return gl.convert_layout(ordered, layout, assert_trivial=True)


@gluon.jit
def keys_of(keys, slot):
    WIDTH: gl.constexpr = keys.shape[5]
    layout: gl.constexpr = gl.NVMMASharedLayout(min(128, WIDTH), 8, 2)
    return keys.index(slot)._reinterpret(keys.dtype, [KEYS, WIDTH], layout).permute((1, 0))


@gluon.jit
def consume(w: gl.constexpr, rest):
    """Warpgroup `w`'s queries attend to all keys, from the last tile of keys, which may be a part, to the first."""
    mine, keys, values, q_full, full, q_free, free, out, tokens, tiles, of_scores, of_values = rest
    WIDTH: gl.constexpr = keys.shape[5]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 32])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 32])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 4)
    blocks, rows, n, turn = gl.cdiv(tokens, KEYS), gl.cdiv(tokens, 2 * QUERIES), 0, 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        head, first = tile // rows * tokens, tile % rows * 2 * QUERIES + w * QUERIES
        scale = gl.load(of_scores + tile // rows) * 1.4426950408889634
        mbarrier.wait(q_full, turn & 1)
        q, slot, none = mine.index(w), n % STAGES, gl.zeros([QUERIES, KEYS], gl.float32, SCORES)
        mbarrier.wait(full.index(slot), n // STAGES & 1)
        scores = warpgroup_mma(q, keys_of(keys, slot), none, use_acc=False)
        mbarrier.arrive(free.index(slot))
        place = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))
        key = place // 16 * 16 + place // 2 % 4 * 4 + place // 8 % 2 * 2 + place % 2  # in the order that tiles have here
        left = key[None, :] < tokens - (blocks - 1) * KEYS
        scores = gl.where(left, scores, float("-inf"))
        peak = gl.max(scores, axis=1) * scale
        total, sums = keep(gl.zeros_like(scores)), gl.zeros([QUERIES, WIDTH], gl.float32, SUMS)
        n, shrink = n + 1, gl.exp2(peak - peak)
        for _ in range(1, blocks):
            slot = n % STAGES
            weights = gl.exp2(scores * scale - (peak - LIFT)[:, None])
            slower = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
            total, p = total * slower + keep(weights), as_operand(weights, keys.dtype, WEIGHTS)
            sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
            mbarrier.wait(full.index(slot), n // STAGES & 1)
            scores = warpgroup_mma(q, keys_of(keys, slot), none, use_acc=False, is_async=True)
            sums = warpgroup_mma(p, values.index(slot).permute((1, 0)), sums, is_async=True)
            scores, sums = warpgroup_mma_wait(0, deps=(scores, sums))
            mbarrier.arrive(free.index(slot))
            higher = gl.maximum(peak, gl.max(scores, axis=1) * scale)
            shrink, peak, n = gl.exp2(peak - higher), higher, n + 1
        mbarrier.arrive(q_free)
        weights = gl.exp2(scores * scale - (peak - LIFT)[:, None])
        slower = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
        total, p = total * slower + keep(weights), as_operand(weights, keys.dtype, WEIGHTS)
        sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
        slot = n % STAGES
        mbarrier.wait(full.index(slot), n // STAGES & 1)
        sums = warpgroup_mma(p, values.index(slot).permute((1, 0)), sums)
        mbarrier.arrive(free.index(slot))
        factor = gl.load(of_values + tile // rows) / gl.convert_layout(gl.sum(total, axis=1), gl.SliceLayout(1, SUMS))
        sums = sums * factor[:, None]
        row = first + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
        place = (head + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
        gl.store(out + place, sums.to(gl.bfloat16), mask=(row < tokens)[:, None])
        n, turn = n + 1, turn + 1


@gluon.jit
def attend(q, k, v, out, tokens, tiles, of_scores, of_values, WIDTH: gl.constexpr):
    mine = gl.allocate_shared_memory(q.dtype, [2, QUERIES, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [STAGES, KEYS // 16, 2, 4, 2, WIDTH], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [STAGES, WIDTH, KEYS], v.layout)
    bars = (barriers(1, 1).index(0), barriers(STAGES, 1), barriers(1, 2).index(0), barriers(STAGES, 2))
    rest = (mine, keys, values) + bars + (out, tokens, tiles, of_scores, of_values)
    gl.warp_specialize([(consume, (0, rest)), (consume, (1, rest)), (copy, (q, k, v, rest))], [4, 1], [240, 24])


def prepare(q: Tensor, k: Tensor, v: Tensor, of_scores: Tensor, of_values: Tensor) -> Step:
    heads, tokens, width = q.shape
    out, tiles = torch.empty_like(q, dtype=torch.bfloat16), triton.cdiv(tokens, 128) * heads
    ordered = k.view(-1, 4, 2, 2, width).transpose(1, 2)
    sides = (q.view(-1, width), [64, width]), (ordered, [8, 2, 4, 2, width]), (v.view(-1, tokens), [width, 128])
    boxes = []
    for matrix, box in sides:
        layout = gl.NVMMASharedLayout(swizzle_byte_width=min(128, box[-1]), element_bitwidth=8, rank=len(box))
        boxes.append(TensorDescriptor.from_tensor(matrix, box, layout))

    def step() -> Tensor:
        attend[(tiles,)](*boxes, out, tokens, tiles, of_scores, of_values, width, num_warps=4)
        return out

    return step
