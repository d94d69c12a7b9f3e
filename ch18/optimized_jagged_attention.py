"""Roles of warps: one copies tiles, two warpgroups multiply out of step; programs share out tiles, longest first."""

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_jagged_attention import plan, tiles_of
from ch18.baseline_jagged_attention import workload as workload
from common.models.attention import KEYS, QUERIES, SCORES, STAGES, place_of, shared, turns
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma


@gluon.jit
def tile_of(turn, tiles, starts, most, heads):
    """Where a user's tokens begin, how many there are, the tile's first query and its head."""
    place = place_of(turn)
    entry = gl.load(tiles + place // heads)
    start = gl.load(starts + entry // most)
    return start, gl.load(starts + entry // most + 1) - start, entry % most * (2 * QUERIES), place % heads


@gluon.jit
def fill(memory, box, row, column, full, free, phase):
    mbarrier.wait(free, phase ^ 1)
    mbarrier.expect(full, box.block_type.nbytes)
    tma.async_copy_global_to_shared(box, [row, column], full, memory)


@gluon.jit
def copy(q, k, v, memory, tiles, number, starts, most, heads):
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free = memory
    WIDTH: gl.constexpr = keys.shape[2]
    n = 0
    for turn in range(turns(number)):
        start, _length, first, head = tile_of(turn, tiles, starts, most, heads)
        for w in gl.static_range(2):
            row = start + first + w * QUERIES
            fill(mine.index(w), q, row, head * WIDTH, q_full.index(w), q_free.index(w), turn & 1)
        for block in range(first // KEYS + 1):  # from the diagonal's down
            row, slot, phase = start + first - block * KEYS, n % STAGES, n // STAGES & 1
            fill(keys.index(slot), k, row, head * WIDTH, k_full.index(slot), k_free.index(slot), phase)
            fill(values.index(slot), v, row, head * WIDTH, v_full.index(slot), v_free.index(slot), phase)
            n += 1


@gluon.jit
def silu(half):
    """y sigmoid(y) of y = 2 `half`, by one instruction of the special function unit."""
    return half + half * gl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [half], gl.float32, True, 1)


@gluon.jit
def consume(w: gl.constexpr, memory, out, tiles, number, starts, most, heads, scale, share):
    """Warpgroup `w`'s queries: a tile's scores are made beside the sums of the tile before."""
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free = memory
    WIDTH: gl.constexpr = keys.shape[2]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    none, n = gl.zeros([QUERIES, KEYS], gl.float32, SCORES), 0
    row = w * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SCORES))
    later = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))[None, :] > row[:, None]
    for turn in range(turns(number)):
        start, length, first, head = tile_of(turn, tiles, starts, most, heads)
        q, slot = mine.index(w), n % STAGES
        mbarrier.wait(q_full.index(w), turn & 1)
        mbarrier.wait(k_full.index(slot), n // STAGES & 1)
        scores = warpgroup_mma(q, keys.index(slot).permute((1, 0)), none, use_acc=False)
        mbarrier.arrive(k_free.index(slot))
        weights = gl.where(later, 0.0, silu(scores * scale))
        p, sums = gl.convert_layout(weights.to(keys.dtype), WEIGHTS), gl.zeros([QUERIES, WIDTH], gl.float32, SUMS)
        for _ in range(first // KEYS):
            ahead = (n + 1) % STAGES
            mbarrier.wait(k_full.index(ahead), (n + 1) // STAGES & 1)
            scores = warpgroup_mma(q, keys.index(ahead).permute((1, 0)), none, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(slot), n // STAGES & 1)
            sums = warpgroup_mma(p, values.index(slot), sums, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            mbarrier.arrive(k_free.index(ahead))
            weights = silu(scores * scale)
            sums = warpgroup_mma_wait(0, deps=(sums,))
            mbarrier.arrive(v_free.index(slot))
            p, slot, n = gl.convert_layout(weights.to(keys.dtype), WEIGHTS), ahead, n + 1
        mbarrier.arrive(q_free.index(w))
        mbarrier.wait(v_full.index(slot), n // STAGES & 1)
        sums, n = warpgroup_mma(p, values.index(slot), sums) * share, n + 1
        mbarrier.arrive(v_free.index(slot))
        query = first + gl.convert_layout(row, gl.SliceLayout(1, SUMS))
        column = gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))
        place = ((start + query).to(gl.int64) * heads + head)[:, None] * WIDTH + column[None, :]
        gl.store(out + place, sums.to(keys.dtype), mask=(query < length)[:, None])


@gluon.jit
def attend(q, k, v, out, tiles, number, starts, most, heads, scale, share):
    memory, sizes = shared(q, k, v), (tiles, number, starts, most, heads)
    given, rest = (q, k, v, memory) + sizes, (memory, out) + sizes + (scale, share)
    gl.warp_specialize([(consume, (0,) + rest), (consume, (1,) + rest), (copy, given)], [4, 1], [240, 24])


def prepare(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, starts: Tensor) -> Step:
    (tokens, heads, width), users, out = q.shape, len(lengths), torch.empty_like(q)
    layout, sides = gl.NVMMASharedLayout(min(128, 2 * width), 16), ((q, 64), (k, 128), (v, 128))
    boxes = [TensorDescriptor.from_tensor(x.view(tokens, -1), [n, width], layout) for x, n in sides]
    tiles, programs = starts.new_empty(users + tokens // 128), torch.cuda.get_device_properties().multi_processor_count

    def step() -> Tensor:
        longest, most, number = tiles_of(lengths, 128)
        plan(starts, tiles, most, 128)
        sizes = number * heads, starts, most, heads, width**-0.5 / 2, 1 / longest
        attend[(programs,)](*boxes, out, tiles, *sizes, num_warps=4)
        return out

    return step
