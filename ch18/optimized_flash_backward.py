"""One pass: two warpgroups keep keys and values; a third copies queries and adds up their gradients in memory."""

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_flash_backward import workload as workload
from common.models.attention import barriers
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma
ROWS, STAGES, PART = gl.constexpr(64), gl.constexpr(3), gl.constexpr(32)  # of a tile; tiles in memory; columns
SCORES = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))  # [keys, queries]


@gluon.jit
def consume(w: gl.constexpr, memory, to_keys, to_values, tokens, scale, unit):
    """Gradients of 64 keys and values, as queries stream past."""
    passing, notes, kept, _parts, changes, full, made, used = memory
    WIDTH: gl.constexpr = kept.shape[2]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    head, first = gl.program_id(1) * tokens, (2 * gl.program_id(0) + w) * ROWS
    to_key, to_value = gl.zeros([ROWS, WIDTH], gl.float32, SUMS), gl.zeros([ROWS, WIDTH], gl.float32, SUMS)
    none, key, value = gl.zeros([ROWS, ROWS], gl.float32, SCORES), kept.index(w), kept.index(2 + w)
    own = first + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES)) < tokens
    mbarrier.wait(full.index(STAGES), 0)
    for n in range(gl.cdiv(tokens, ROWS)):
        query, above, note = passing.index(n % STAGES), passing.index(STAGES + n % STAGES), notes.index(n % STAGES)
        mbarrier.wait(full.index(n % STAGES), n // STAGES & 1)
        power, _ = gl.broadcast(note.slice(0, ROWS).load(gl.SliceLayout(0, SCORES))[None, :], none)
        scores = warpgroup_mma(key, query.permute((1, 0)), power)
        weights = gl.exp2(scores * scale + gl.where(own, 0.0, float("-inf"))[:, None]).to(query.dtype)
        mean, _ = gl.broadcast(note.slice(ROWS, ROWS).load(gl.SliceLayout(0, SCORES))[None, :], none)
        change = warpgroup_mma(value, above.permute((1, 0)), mean, is_async=True)
        to_value = warpgroup_mma(gl.convert_layout(weights, LEFT), above, to_value, is_async=True)
        change = (weights.to(gl.float32) * warpgroup_mma_wait(1, deps=(change,))).to(query.dtype)
        mbarrier.wait(used.index(n % 2), n // 2 & 1 ^ 1)
        changes.index(n % 2).slice(w * ROWS, ROWS).store(change)
        hopper.fence_async_shared()
        mbarrier.arrive(made.index(n % 2))
        to_value = warpgroup_mma_wait(0, deps=(to_value,))
        to_key = warpgroup_mma(gl.convert_layout(change, LEFT), query, to_key)
    row = first + gl.arange(0, ROWS, gl.SliceLayout(1, SUMS))
    place = (head + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    gl.store(to_keys + place, (to_key * unit).to(kept.dtype), mask=(row < tokens)[:, None])
    gl.store(to_values + place, to_value.to(kept.dtype), mask=(row < tokens)[:, None])


@gluon.jit
def add_up(q, k, v, grad, narrow, said, memory, total, tokens):
    """Copies tiles of queries, two ahead, and adds to their gradients what 128 keys say about them."""
    passing, notes, kept, parts, changes, full, made, used = memory
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PART, 16])
    PARTS: gl.constexpr = parts.shape[0]
    blocks, ready, none = gl.cdiv(tokens, ROWS), full.index(STAGES), gl.zeros([ROWS, PART], gl.float32, SUMS)
    head, tile = gl.program_id(1), 2 * gl.program_id(0)  # programs begin at their own tile, to add to different rows
    mbarrier.expect(ready, 4 * k.block_type.nbytes + PARTS * narrow.block_type.nbytes)
    for w in gl.static_range(2):
        tma.async_copy_global_to_shared(k, [head * tokens + (tile + w) * ROWS, 0], ready, kept.index(w))
        tma.async_copy_global_to_shared(v, [head * tokens + (tile + w) * ROWS, 0], ready, kept.index(2 + w))
    for i in gl.static_range(PARTS):
        tma.async_copy_global_to_shared(narrow, [head * tokens + tile * ROWS, i * PART], ready, parts.index(i))
    mbarrier.wait(ready, 0)
    for ahead in range(blocks + STAGES - 1):
        n, slot, block = ahead - (STAGES - 1), ahead % STAGES, (ahead + tile) % blocks
        if n >= 0:
            mbarrier.wait(made.index(n % 2), n // 2 & 1)  # nobody reads the tile before `n` any more
        if ahead < blocks:
            bar = full.index(slot)
            mbarrier.expect(bar, 2 * q.block_type.nbytes + said.block_type.nbytes)
            tma.async_copy_global_to_shared(q, [head * tokens + block * ROWS, 0], bar, passing.index(slot))
            tma.async_copy_global_to_shared(grad, [head * tokens + block * ROWS, 0], bar, passing.index(STAGES + slot))
            tma.async_copy_global_to_shared(said, [(head * blocks + block) * 2 * ROWS], bar, notes.index(slot))
        if n >= 0:
            place = (head * blocks + (n + tile) % blocks).to(gl.int64) * (PARTS * ROWS * PART)
            for part in range(PARTS):
                added = warpgroup_mma(changes.index(n % 2).permute((1, 0)), parts.index(part), none, use_acc=False)
                mbarrier.arrive(used.index(n % 2), pred=part == PARTS - 1)
                added = added.reshape([4, 2, 8, 2, 2, 4, 2]).permute((1, 3, 4, 0, 2, 5, 6)).reshape([ROWS * PART])
                order = part * ROWS * PART + gl.arange(0, ROWS * PART, added.type.layout)
                gl.atomic_add(total + place + order, added, sem="relaxed")


@gluon.jit
def gradients(q, k, v, grad, narrow, said, total, to_keys, to_values, tokens, scale, unit, WIDTH: gl.constexpr):
    passing = gl.allocate_shared_memory(q.dtype, [2 * STAGES, ROWS, WIDTH], q.layout)  # queries, what is above them
    notes = gl.allocate_shared_memory(gl.float32, [STAGES, 2 * ROWS], said.layout)
    kept = gl.allocate_shared_memory(q.dtype, [4, ROWS, WIDTH], q.layout)  # keys and values of two warpgroups
    parts = gl.allocate_shared_memory(q.dtype, [WIDTH // PART, 2 * ROWS, PART], narrow.layout)
    changes = gl.allocate_shared_memory(q.dtype, [2, 2 * ROWS, ROWS], q.layout)
    memory = (passing, notes, kept, parts, changes, barriers(STAGES + 1, 1), barriers(2, 2), barriers(2, 1))
    rest = (memory, to_keys, to_values, tokens, scale, unit)
    copied = (q, k, v, grad, narrow, said, memory, total, tokens)
    gl.warp_specialize([(consume, (0,) + rest), (consume, (1,) + rest), (add_up, copied)], [4, 4], [224, 56])


def prepare(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, out: Tensor, logs: Tensor) -> Step:
    begin, finish = (load_cuda(__file__, f"{name}_{q.dtype}".replace("torch.", "")) for name in ("begin", "finish"))
    (heads, tokens, width), results = q.shape, [x.new_empty(x.shape) for x in (q, k, v)]
    blocks, unit = -(-tokens // 64), width**-0.5
    total, notes = logs.new_empty(heads, blocks * 64, width), logs.new_empty(heads * blocks * 128)
    wide, narrow = (gl.NVMMASharedLayout(swizzle_byte_width=n, element_bitwidth=16) for n in (128, 64))
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [64, width], wide) for x in (q, k, v, grad)]
    boxes.append(TensorDescriptor.from_tensor(k.view(-1, width), [128, 32], narrow))
    boxes.append(TensorDescriptor.from_tensor(notes, [128], gl.NVMMASharedLayout(0, 32, 1)))

    def step() -> tuple[Tensor, ...]:
        begin(out, grad, logs, notes, total, heads, tokens, width, unit)
        rest = tokens, unit * 1.4426950408889634, unit, width
        gradients[-(-tokens // 128), heads](*boxes, total, *results[1:], *rest, num_warps=4)
        finish(total, results[0], heads, tokens, width, unit)
        return tuple(results)

    return step
