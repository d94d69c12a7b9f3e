"""Made for all 128 heads: a program takes 64, two warpgroups share their products, and a warp copies tiles by TMA."""

import math

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_mla_absorbed_decode import ROTARY
from ch18.baseline_mla_absorbed_decode import workload as workload
from common.models.attention import barriers
from common.models.merge import merge
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma
HEADS, KEYS = gl.constexpr(64), gl.constexpr(64)  # of a program, of a tile
STAGES, PARTS = gl.constexpr(2), 4  # tiles in memory; of a request's cache, a program (or two) each


@gluon.jit
def place_of(keys, share):
    """A program's first head, its request, its first key, and the end of its keys."""
    first = gl.program_id(1) * share
    return gl.program_id(0) * HEADS, gl.program_id(2), first, gl.minimum(first + share, keys)


@gluon.jit
def copy(q, q_rotary, cache, rotary, memory, heads, keys, share):
    mine, turned, latent, own, q_full, full, free = memory
    head, request, first, end = place_of(keys, share)
    mbarrier.expect(q_full, q.block_type.nbytes + q_rotary.block_type.nbytes)
    tma.async_copy_global_to_shared(q, [head, request * latent.shape[2]], q_full, mine)
    tma.async_copy_global_to_shared(q_rotary, [request * heads + head, 0], q_full, turned)
    for n in range(gl.cdiv(end - first, KEYS)):
        slot, row = n % STAGES, request * keys + first + n * KEYS
        ready = full.index(slot)
        mbarrier.wait(free.index(slot), n // STAGES & 1 ^ 1)
        mbarrier.expect(ready, cache.block_type.nbytes + rotary.block_type.nbytes)
        tma.async_copy_global_to_shared(cache, [row, 0], ready, latent.index(slot))
        tma.async_copy_global_to_shared(rotary, [row, 0], ready, own.index(slot))


@gluon.jit
def consume(memory, sums_of, logs_of, heads, keys, share, scale):
    """The attention of 64 heads to a part of a request's cache: a warpgroup has half of the keys, then of the sums."""
    mine, turned, latent, own, q_full, full, free = memory
    LATENT: gl.constexpr = latent.shape[2]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, KEYS // 2, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, LATENT // 2, 16])
    head, request, first, end = place_of(keys, share)
    sums, none = gl.zeros([HEADS, LATENT], gl.float32, SUMS), gl.zeros([HEADS, KEYS], gl.float32, SCORES)
    total = gl.zeros([HEADS], gl.float32, gl.SliceLayout(1, SCORES))
    peak = gl.full([HEADS], float("-inf"), gl.float32, gl.SliceLayout(1, SCORES))
    mbarrier.wait(q_full, 0)
    for n in range(gl.cdiv(end - first, KEYS)):
        slot, key = n % STAGES, first + n * KEYS + gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))
        mbarrier.wait(full.index(slot), n // STAGES & 1)
        scores = warpgroup_mma(turned, own.index(slot).permute((1, 0)), none, use_acc=False, is_async=True)
        scores = warpgroup_mma(mine, latent.index(slot).permute((1, 0)), scores)
        scores = gl.where((key < end)[None, :], scores * scale, float("-inf"))
        higher = gl.maximum(peak, gl.max(scores, axis=1))
        weights, shrink = gl.exp2(scores - higher[:, None]), gl.exp2(peak - higher)
        p = gl.convert_layout(weights.to(latent.dtype), gl.DotOperandLayout(0, SUMS, 2))
        sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
        sums = warpgroup_mma(p, latent.index(slot), sums, is_async=True)
        total, peak = total * shrink + gl.sum(weights, axis=1), higher
        sums = warpgroup_mma_wait(0, deps=(sums,))
        mbarrier.arrive(free.index(slot))
    row = head + gl.arange(0, HEADS, gl.SliceLayout(1, SUMS))
    slots = (request.to(gl.int64) * heads + row) * gl.num_programs(1) + gl.program_id(1)
    place = slots[:, None] * LATENT + gl.arange(0, LATENT, gl.SliceLayout(0, SUMS))[None, :]
    sums = sums / gl.convert_layout(total, gl.SliceLayout(1, SUMS))[:, None]
    gl.store(sums_of + place, sums, mask=(row < heads)[:, None])
    gl.store(logs_of + slots, gl.convert_layout(peak + gl.log2(total), gl.SliceLayout(1, SUMS)), mask=row < heads)


@gluon.jit
def attend(q, q_rotary, cache, rotary, sums_of, logs_of, heads, keys, share, scale):
    mine = gl.allocate_shared_memory(q.dtype, q.block_type.shape, q.layout)
    turned = gl.allocate_shared_memory(q.dtype, q_rotary.block_type.shape, q.layout)
    latent = gl.allocate_shared_memory(q.dtype, [STAGES] + cache.block_type.shape, q.layout)
    own = gl.allocate_shared_memory(q.dtype, [STAGES] + rotary.block_type.shape, q.layout)
    memory = (mine, turned, latent, own, barriers(1, 1).index(0), barriers(STAGES, 1), barriers(STAGES, 1))
    gl.warp_specialize(
        [
            (consume, (memory, sums_of, logs_of, heads, keys, share, scale)),
            (copy, (q, q_rotary, cache, rotary, memory, heads, keys, share)),
        ],
        [1],
        [24],
    )


def prepare(q: Tensor, q_rotary: Tensor, cache: Tensor, rotary: Tensor, to_keys: Tensor, to_values: Tensor) -> Step:
    (requests, heads, width), (_, keys, latent) = q.shape, cache.shape
    share = triton.cdiv(triton.cdiv(keys, PARTS), KEYS.value) * KEYS.value
    parts = triton.cdiv(keys, share)
    sums = q.new_empty(requests, heads, parts, latent, dtype=torch.float32)
    logs = q.new_empty(requests, heads, parts, dtype=torch.float32)
    absorbed, attended = q.new_empty(heads, requests, latent), q.new_empty(requests, heads, latent)
    sides = absorbed.view(heads, -1), q_rotary.view(-1, ROTARY), cache.view(-1, latent), rotary.view(-1, ROTARY)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16)
    boxes = [TensorDescriptor.from_tensor(x, [64, n], layout) for x, n in zip(sides, (latent, ROTARY) * 2)]
    scale = (width + ROTARY) ** -0.5 * math.log2(math.e)  # weights are powers of 2
    grid = triton.cdiv(heads, HEADS.value), parts, requests

    def step() -> Tensor:
        torch.bmm(q.transpose(0, 1), to_keys, out=absorbed)
        attend[grid](*boxes, sums, logs, heads, keys, share, scale, num_warps=8)
        merge[1, requests * heads](sums, logs, attended, 1, parts, latent, PARTS, num_warps=4)
        return (attended.transpose(0, 1) @ to_values).transpose(0, 1)

    return step
