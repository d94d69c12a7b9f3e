"""Experiment: Gluon kernel that visits live tiles, longest rows first; a small kernel finds them from the documents."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_flex_document_mask import workload as workload
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


@triton.jit
def begin_of(document, row, steps):
    """The first token of the document that a row is in: documents' numbers ascend."""
    mine = tl.load(document + row)
    low, high = row * 0, row
    for _ in range(steps):
        middle = (low + high) // 2
        less = tl.load(document + middle) < mine
        low, high = tl.where(less, middle + 1, low), tl.where(less, high, middle)
    return high


@triton.jit
def plan(document, begins, tiles, tokens, rows, steps, TILE: tl.constexpr, ROWS: tl.constexpr):
    """A tile of queries' rows in `begins`, and its place in `tiles`, the longest first.

    There stand its number, and how many tiles of keys before its own are seen whole and in part.
    """
    number = tl.program_id(0)
    row = tl.minimum(number * TILE + tl.arange(0, TILE), tokens - 1)
    begin = begin_of(document, row, steps)
    tl.store(begins + number * TILE + tl.arange(0, TILE), begin)
    every = tl.arange(0, ROWS)
    length = every - begin_of(document, tl.minimum(every * TILE, tokens - 1), steps) // TILE
    length = tl.where(every < rows, length, -1)
    mine = tl.sum(tl.where(every == number, length, 0), axis=0)
    rank = tl.sum(((length > mine) | ((length == mine) & (every < number))).to(tl.int32), axis=0)
    inside = tl.cdiv(tl.max(begin, axis=0), TILE)  # from here on every query of the tile sees every key
    whole = tl.maximum(number - inside, 0)
    tl.store(tiles + rank * 3, number)
    tl.store(tiles + rank * 3 + 1, whole)
    tl.store(tiles + rank * 3 + 2, mine - whole)


@gluon.jit
def take_tile(tiles, place, heads, tokens):
    """The head's first row, the tile's first query in it, and the tiles of keys that are seen whole and in part."""
    entry = tiles + place // heads * 3
    return place % heads * tokens, gl.load(entry) * (2 * QUERIES), gl.load(entry + 1), gl.load(entry + 2)


@gluon.jit
def copy(q, k, v, rest):
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free, _out, tokens, heads, _begins, tiles, number, _scale = rest
    n = 0
    for turn in range(turns(number)):
        head, first, whole, cut = take_tile(tiles, place_of(turn), heads, tokens)
        for w in gl.static_range(2):
            fill(mine.index(w), q, head + first + w * QUERIES, q_full.index(w), q_free.index(w), turn & 1)
        for block in range(1 + whole + cut):
            row, slot, phase = head + first - block * KEYS, n % STAGES, n // STAGES & 1
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
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free, out, tokens, heads, begins, tiles, number, scale = rest
    WIDTH: gl.constexpr = keys.shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    n = 0
    for turn in range(turns(number)):
        head, first, whole, cut = take_tile(tiles, place_of(turn), heads, tokens)
        row = first + w * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SCORES))
        begin = gl.load(begins + row)[:, None] - first
        mbarrier.wait(q_full.index(w), turn & 1)
        q, slot, none = mine.index(w), n % STAGES, gl.zeros([QUERIES, KEYS], gl.float32, SCORES)
        mbarrier.wait(k_full.index(slot), n // STAGES & 1)
        scores = warpgroup_mma(q, keys.index(slot).permute((1, 0)), none, use_acc=False)
        mbarrier.arrive(k_free.index(slot))
        column = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))[None, :]
        seen = (column <= row[:, None] - first) & (column >= begin)
        scores = gl.where(seen, scores, float("-inf"))
        peak = gl.max(scores, axis=1) * scale
        weights = gl.exp2(scores * scale - peak[:, None])
        total, p = keep(weights), gl.convert_layout(weights.to(keys.dtype), WEIGHTS)
        sums = gl.zeros([QUERIES, WIDTH], gl.float32, SUMS)
        for block in range(1, 1 + whole + cut):
            ahead = (n + 1) % STAGES
            mbarrier.wait(k_full.index(ahead), (n + 1) // STAGES & 1)
            scores = warpgroup_mma(q, keys.index(ahead).permute((1, 0)), none, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(slot), n // STAGES & 1)
            sums = warpgroup_mma(p, values.index(slot), sums, is_async=True)
            scores = warpgroup_mma_wait(1, deps=(scores,))
            mbarrier.arrive(k_free.index(ahead))
            if block > whole:
                scores = gl.where(column >= begin + block * KEYS, scores, float("-inf"))
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
def attend(q, k, v, out, tokens, heads, begins, tiles, number, scale, WIDTH: gl.constexpr):
    mine = gl.allocate_shared_memory(q.dtype, [2, QUERIES, WIDTH], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [STAGES, KEYS, WIDTH], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [STAGES, KEYS, WIDTH], v.layout)
    full = (barriers(2, 1), barriers(STAGES, 1), barriers(STAGES, 1))
    free = (barriers(2, 1), barriers(STAGES, 2), barriers(STAGES, 2))
    rest = (mine, keys, values) + full + free + (out, tokens, heads, begins, tiles, number, scale)
    gl.warp_specialize([(consume, (0, rest)), (consume, (1, rest)), (copy, (q, k, v, rest))], [4, 1], [240, 24])


def prepare(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Step:
    _, heads, tokens, width = q.shape
    out, rows, scale = torch.empty_like(q), triton.cdiv(tokens, 128), width**-0.5 * math.log2(math.e)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=min(128, 2 * width), element_bitwidth=16)
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width], layout) for x, n in ((q, 64), (k, 128), (v, 128))]
    begins, tiles = document.new_empty(rows * 128, dtype=torch.int32), document.new_empty(rows, 3, dtype=torch.int32)
    number, steps = rows * heads, tokens.bit_length()
    programs = min(number, torch.cuda.get_device_properties().multi_processor_count)

    def step() -> Tensor:
        plan[(rows,)](document, begins, tiles, tokens, rows, steps, 128, triton.next_power_of_2(rows))
        attend[(programs,)](*boxes, out, tokens, heads, begins, tiles, number, scale, width, num_warps=4)
        return out

    return step
