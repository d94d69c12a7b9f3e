"""Attention to a band of keys, in Gluon for Hopper: one warp copies tiles, and two warpgroups take them out of step.

A tile is 128 queries, 64 for each warpgroup. A query sees itself and keys before it. Tiles of keys are visited from the
diagonal down: the diagonal's, then those that all queries see whole, then those that the band's lower edge cuts. What
bounds the band is a pair's own: `copy_tile` and `attend_tile` take the number of tiles of each kind.
"""

# mypy: disable-error-code="no-untyped-def"

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

QUERIES, KEYS, STAGES = gl.constexpr(64), gl.constexpr(128), gl.constexpr(3)  # a warpgroup's, a tile's; tiles in memory
SCORES = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16]))  # where threads hold them


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
    """What a program takes in a turn, of a list from long to short: every second turn programs choose from behind."""
    number, programs = gl.program_id(0), gl.num_programs(0)
    return turn * programs + number + (turn & 1) * (programs - 1 - 2 * number)


@gluon.jit
def turns(tiles):
    whole = tiles // gl.num_programs(0)
    return whole + (place_of(whole) < tiles).to(gl.int32)


@gluon.jit
def shared(q, k, v):
    """Shared memory for queries, keys and values, and for each of them barriers that say it is full, or free again."""
    mine = gl.allocate_shared_memory(q.dtype, [2, QUERIES, q.block_type.shape[1]], q.layout)
    keys = gl.allocate_shared_memory(k.dtype, [STAGES, KEYS, k.block_type.shape[1]], k.layout)
    values = gl.allocate_shared_memory(v.dtype, [STAGES, KEYS, v.block_type.shape[1]], v.layout)
    full = (barriers(2, 1), barriers(STAGES, 1), barriers(STAGES, 1))
    return (mine, keys, values) + full + (barriers(2, 1), barriers(STAGES, 2), barriers(STAGES, 2))


@gluon.jit
def copy_tile(q, k, v, memory, head, first, blocks, n, turn):
    """Queries from row `head + first`, and `blocks` tiles of keys and values: the `n`-th tile that is copied and on."""
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free = memory
    for w in gl.static_range(2):
        fill(mine.index(w), q, head + first + w * QUERIES, q_full.index(w), q_free.index(w), turn & 1)
    for block in range(blocks):
        row, slot, phase = head + first - block * KEYS, n % STAGES, n // STAGES & 1
        fill(keys.index(slot), k, row, k_full.index(slot), k_free.index(slot), phase)
        fill(values.index(slot), v, row, v_full.index(slot), v_free.index(slot), phase)
        n += 1
    return n


@gluon.jit
def row_sums(weights):
    """Sums of each row's weights that a thread holds already: four a row, which no instruction has to exchange."""
    split: gl.constexpr = [weights.shape[0], weights.shape[1] // 8, 4, 2]
    return gl.sum(gl.sum(weights.reshape(split), axis=3), axis=1)


@gluon.jit
def attend_tile(memory, out, head, first, begin, whole, cut, n, turn, tokens, scale, w: gl.constexpr):
    """Warpgroup `w`'s queries attend to keys from `begin`, a row's first counted from the tile's first query, on."""
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free = memory
    WIDTH: gl.constexpr = keys.shape[2]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    mbarrier.wait(q_full.index(w), turn & 1)
    q, slot, none = mine.index(w), n % STAGES, gl.zeros([QUERIES, KEYS], gl.float32, SCORES)
    mbarrier.wait(k_full.index(slot), n // STAGES & 1)
    scores = warpgroup_mma(q, keys.index(slot).permute((1, 0)), none, use_acc=False)
    mbarrier.arrive(k_free.index(slot))
    column = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))[None, :]
    row = w * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SCORES))
    scores = gl.where((column <= row[:, None]) & (column >= begin[:, None]), scores, float("-inf"))
    peak = gl.max(scores, axis=1) * scale  # finite: each query sees itself
    weights = gl.exp2(scores * scale - peak[:, None])
    total, p = row_sums(weights), gl.convert_layout(weights.to(keys.dtype), WEIGHTS)
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
            scores = gl.where(column >= begin[:, None] + block * KEYS, scores, float("-inf"))
        higher = gl.maximum(peak, gl.max(scores, axis=1) * scale)
        weights, shrink = gl.exp2(scores * scale - higher[:, None]), gl.exp2(peak - higher)
        slower = gl.convert_layout(shrink, gl.SliceLayout(1, total.type.layout))[:, None]
        total, peak = total * slower + row_sums(weights), higher
        sums = warpgroup_mma_wait(0, deps=(sums,))
        mbarrier.arrive(v_free.index(slot))
        p, slot, n = gl.convert_layout(weights.to(keys.dtype), WEIGHTS), ahead, n + 1
        sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
    mbarrier.arrive(q_free.index(w))
    mbarrier.wait(v_full.index(slot), n // STAGES & 1)
    sums = warpgroup_mma(p, values.index(slot), sums)
    mbarrier.arrive(v_free.index(slot))
    sums = sums / gl.convert_layout(gl.sum(total, axis=1), gl.SliceLayout(1, SUMS))[:, None]
    query = first + w * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
    place = (head + query).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    gl.store(out + place, sums.to(keys.dtype), mask=(query < tokens)[:, None])
    return n + 1
