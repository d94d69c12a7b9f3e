"""Copies begin at the diagonal and end with the window of the tile's first query; the band's edges alone are masked."""

import math

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_sliding_window import workload as workload
from common.models.attention import KEYS, QUERIES, SCORES, attend_tile, copy_tile, place_of, shared, turns
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma


@gluon.jit
def tile_of(turn, tokens, heads):
    """A head's first row and the tile's first query in it: all heads' last tile, which is longest, then that before."""
    rows, place = gl.cdiv(tokens, 2 * QUERIES), place_of(turn)
    return place % heads * tokens, (rows - 1 - place // heads) * (2 * QUERIES)


@gluon.jit
def band(first, window):
    """Tiles of keys before the diagonal's: how many all queries see whole, and how many the window's edge cuts."""
    last, lowest = first // KEYS, gl.maximum(first - window + 1, 0) // KEYS
    inside = gl.cdiv(gl.maximum(first + 2 * QUERIES - window, 0), KEYS)  # in the window of the last query from here
    whole = gl.maximum(last - inside, 0)
    return whole, last - lowest - whole


@gluon.jit
def copy(q, k, v, memory, tokens, window, heads, tiles):
    n = 0
    for turn in range(turns(tiles)):
        head, first = tile_of(turn, tokens, heads)
        whole, cut = band(first, window)
        n = copy_tile(q, k, v, memory, head, first, 1 + whole + cut, n, turn)


@gluon.jit
def consume(w: gl.constexpr, memory, out, tokens, window, heads, tiles, scale):
    n, begin = 0, w * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SCORES)) - window + 1
    for turn in range(turns(tiles)):
        head, first = tile_of(turn, tokens, heads)
        whole, cut = band(first, window)
        n = attend_tile(memory, out, head, first, begin, whole, cut, n, turn, tokens, scale, w)


@gluon.jit
def attend(q, k, v, out, tokens, window, heads, tiles, scale):
    memory, sizes = shared(q, k, v), (tokens, window, heads, tiles)
    rest = (memory, out) + sizes + (scale,)
    gl.warp_specialize(
        [(consume, (0,) + rest), (consume, (1,) + rest), (copy, (q, k, v, memory) + sizes)], [4, 1], [240, 24]
    )


def prepare(q: Tensor, k: Tensor, v: Tensor, window: int) -> Step:
    heads, tokens, width = q.shape
    out, tiles, scale = torch.empty_like(q), triton.cdiv(tokens, 128) * heads, width**-0.5 * math.log2(math.e)
    layout, sides = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16), ((q, 64), (k, 128), (v, 128))
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width], layout) for x, n in sides]
    programs = min(tiles, torch.cuda.get_device_properties().multi_processor_count)

    def step() -> Tensor:
        attend[(programs,)](*boxes, out, tokens, window, heads, tiles, scale, num_warps=4)
        return out

    return step
