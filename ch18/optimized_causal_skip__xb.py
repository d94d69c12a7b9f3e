"""Experiment: a program a tile, the longest rows of tiles first."""

import math

import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_causal_skip import workload as workload
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
def place_of(turn):
    """Which tile a program takes in a turn: programs take them in order, and every second turn from behind."""
    number, programs = gl.program_id(0), gl.num_programs(0)
    back = turn & 1
    return turn * programs + number + back * (programs - 1 - 2 * number)


@gluon.jit
def turns(tiles):
    whole = tiles // gl.num_programs(0)
    return whole + (place_of(whole) < tiles).to(gl.int32)


@gluon.jit
def where(place, heads, tokens):
    """The head's first row, and the tile's first query in it: all heads' last tile of queries, then that before it."""
    rows = gl.cdiv(tokens, 2 * QUERIES)
    return place % heads * tokens, (rows - 1 - place // heads) * (2 * QUERIES)


@gluon.jit
def copy(q, k, v, rest):
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free, _out, tokens, heads, tiles, _scale = rest
    n = 0
    for turn in range(turns(tiles)):
        head, first = where(place_of(turn), heads, tokens)
        for w in gl.static_range(2):
            fill(mine.index(w), q, head + first + w * QUERIES, q_full.index(w), q_free.index(w), turn & 1)
        blocks = first // KEYS + 1
        for block in range(blocks):
            row, slot, phase = head + (blocks - 1 - block) * KEYS, n % STAGES, n // STAGES & 1
            fill(keys.index(slot), k, row, k_full.index(slot), k_free.index(slot), phase)
            fill(values.index(slot), v, row, v_full.index(slot), v_free.index(slot), phase)
            n += 1


@gluon.jit
def keep(weights):
    """Sums of each row's weights that a thread holds already: four a row, which no instruction has to exchange."""
    split: gl.constexpr = [weights.shape[0], weights.shape[1] // 8, 4, 2]
    return gl.sum(gl.sum(weights.reshape(split), axis=3), axis=1)


@gluon.jit
def consume(w: gl.constexpr, rest):
    """Warpgroup `w`'s queries attend to keys, from the tile that the diagonal cuts to the first."""
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free, out, tokens, heads, tiles, scale = rest
    WIDTH: gl.constexpr = keys.shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    n = 0
    for turn in range(turns(tiles)):
        head, first = where(place_of(turn), heads, tokens)
        blocks = first // KEYS + 1
        mbarrier.wait(q_full.index(w), turn & 1)
        q, slot, none = mine.index(w), n % STAGES, gl.zeros([QUERIES, KEYS], gl.float32, SCORES)
        mbarrier.wait(k_full.index(slot), n // STAGES & 1)
        scores = warpgroup_mma(q, keys.index(slot).permute((1, 0)), none, use_acc=False)
        mbarrier.arrive(k_free.index(slot))
        column = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))[None, :]
        seen = column <= w * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SCORES))[:, None]
        scores = gl.where(seen, scores, float("-inf"))
        peak = gl.max(scores, axis=1) * scale
        weights = gl.exp2(scores * scale - peak[:, None])
        total, p = keep(weights), gl.convert_layout(weights.to(keys.dtype), WEIGHTS)
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
            slower = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
            total, peak = total * slower + keep(weights), higher
            sums = warpgroup_mma_wait(0, deps=(sums,))
            mbarrier.arrive(v_free.index(slot))
            p, slot, n = gl.convert_layout(weights.to(keys.dtype), WEIGHTS), ahead, n + 1
            sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
        mbarrier.arrive(q_free.index(w))
        mbarrier.wait(v_full.index(slot), n // STAGES & 1)
        sums = warpgroup_mma(p, values.index(slot), sums)
        mbarrier.arrive(v_free.index(slot))
        sums = sums / gl.convert_layout(gl.sum(total, axis=1), gl.SliceLayout(1, SUMS))[:, None]
        row = first + w * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
        place = (head + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
        gl.store(out + place, sums.to(keys.dtype), mask=(row < tokens)[:, None])
        n = n + 1


@gluon.jit
def attend(q, k, v, out, tokens, heads, tiles, scale, WIDTH: gl.constexpr):
    mine = gl.allocate_shared_memory(q.dtype, [2, QUERIES, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [STAGES, KEYS, WIDTH], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [STAGES, KEYS, WIDTH], v.layout)
    full = (barriers(2, 1), barriers(STAGES, 1), barriers(STAGES, 1))
    free = (barriers(2, 1), barriers(STAGES, 2), barriers(STAGES, 2))
    rest = (mine, keys, values) + full + free + (out, tokens, heads, tiles, scale)
    gl.warp_specialize([(consume, (0, rest)), (consume, (1, rest)), (copy, (q, k, v, rest))], [4, 1], [240, 24])


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    heads, tokens, width = q.shape
    out, tiles, scale = q.new_empty(q.shape), triton.cdiv(tokens, 128) * heads, width**-0.5 * math.log2(math.e)
    layout, sides = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16), ((q, 64), (k, 128), (v, 128))
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width], layout) for x, n in sides]
    programs = tiles

    def step() -> Tensor:
        attend[(programs,)](*boxes, out, tokens, heads, tiles, scale, width, num_warps=4)
        return out

    return step
