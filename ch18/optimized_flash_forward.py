"""A warp copies tiles; two warpgroups share the tensor cores out of step: one multiplies, one finds weights."""

import math

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_flash_forward import workload as workload
from common.models.attention import KEYS, QUERIES, SCORES, STAGES, fill, shared
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma


@gluon.jit
def copy(q, k, v, memory, tokens):
    mine, keys, values, q_full, k_full, v_full, q_free, k_free, v_free = memory
    head, blocks = gl.program_id(1) * tokens, gl.cdiv(tokens, KEYS)
    for w in gl.static_range(2):
        fill(mine.index(w), q, head + (2 * gl.program_id(0) + w) * QUERIES, q_full.index(w), q_free.index(w), 0)
    for n in range(blocks):
        row, slot, phase = head + (blocks - 1 - n) * KEYS, n % STAGES, n // STAGES & 1
        fill(keys.index(slot), k, row, k_full.index(slot), k_free.index(slot), phase)
        fill(values.index(slot), v, row, v_full.index(slot), v_free.index(slot), phase)


@gluon.jit
def consume(w: gl.constexpr, memory, out, tokens, scale):
    """Warpgroup `w`'s queries attend to all keys, from the last tile of keys, which may be a part, to the first."""
    mine, keys, values, q_full, k_full, v_full, _q_free, k_free, v_free = memory
    WIDTH: gl.constexpr = keys.shape[2]
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    head, first, blocks = gl.program_id(1) * tokens, (2 * gl.program_id(0) + w) * QUERIES, gl.cdiv(tokens, KEYS)
    q, slot, none = mine.index(w), 0, gl.zeros([QUERIES, KEYS], gl.float32, SCORES)
    mbarrier.wait(q_full.index(w), 0)
    mbarrier.wait(k_full.index(0), 0)
    scores = warpgroup_mma(q, keys.index(0).permute((1, 0)), none, use_acc=False)
    mbarrier.arrive(k_free.index(0))
    left = gl.arange(0, KEYS, gl.SliceLayout(0, SCORES))[None, :] < tokens - (blocks - 1) * KEYS
    scores = gl.where(left, scores, float("-inf"))
    peak = gl.max(scores, axis=1) * scale
    weights = gl.exp2(scores * scale - peak[:, None])
    total, p = gl.sum(weights, axis=1), gl.convert_layout(weights.to(keys.dtype), WEIGHTS)
    sums = gl.zeros([QUERIES, WIDTH], gl.float32, SUMS)
    for n in range(1, blocks):  # scores of the tile ahead are made beside the sums of the one before
        ahead = n % STAGES
        mbarrier.wait(k_full.index(ahead), n // STAGES & 1)
        scores = warpgroup_mma(q, keys.index(ahead).permute((1, 0)), none, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(slot), (n - 1) // STAGES & 1)
        sums = warpgroup_mma(p, values.index(slot), sums, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(scores,))
        mbarrier.arrive(k_free.index(ahead))
        higher = gl.maximum(peak, gl.max(scores, axis=1) * scale)
        weights, shrink = gl.exp2(scores * scale - higher[:, None]), gl.exp2(peak - higher)
        total, peak = total * shrink + gl.sum(weights, axis=1), higher
        sums = warpgroup_mma_wait(0, deps=(sums,))
        mbarrier.arrive(v_free.index(slot))
        p, slot = gl.convert_layout(weights.to(keys.dtype), WEIGHTS), ahead
        sums = sums * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
    mbarrier.wait(v_full.index(slot), (blocks - 1) // STAGES & 1)
    sums = warpgroup_mma(p, values.index(slot), sums)
    sums = sums / gl.convert_layout(total, gl.SliceLayout(1, SUMS))[:, None]
    row = first + gl.arange(0, QUERIES, gl.SliceLayout(1, SUMS))
    place = (head + row).to(gl.int64)[:, None] * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, SUMS))[None, :]
    gl.store(out + place, sums.to(keys.dtype), mask=(row < tokens)[:, None])


@gluon.jit
def attend(q, k, v, out, tokens, scale):
    memory = shared(q, k, v)
    rest = (memory, out, tokens, scale)
    gl.warp_specialize(
        [(consume, (0,) + rest), (consume, (1,) + rest), (copy, (q, k, v, memory, tokens))], [4, 1], [240, 24]
    )


def prepare(q: Tensor, k: Tensor, v: Tensor) -> Step:
    (heads, tokens, width), out, scale = q.shape, torch.empty_like(q), q.shape[2] ** -0.5 * math.log2(math.e)
    layout, sides = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16), ((q, 64), (k, 128), (v, 128))
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width], layout) for x, n in sides]

    def step() -> Tensor:
        attend[triton.cdiv(tokens, 128), heads](*boxes, out, tokens, scale, num_warps=4)
        return out

    return step
