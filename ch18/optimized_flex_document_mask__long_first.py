"""A small kernel finds from documents' begins which tiles are live; a large one visits those, long rows first."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ch18.baseline_flex_document_mask import workload as workload
from common.models.attention import QUERIES, SCORES, attend_tile, copy_tile, place_of, shared, turns
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])  # wgmma


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
    """Where a tile's rows begin, and at its place in `tiles`, the longest first: its number, and how many tiles of keys
    before the diagonal's its queries see whole and in part."""
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
def tile_of(turn, tiles, tokens, heads):
    """A head's first row, the tile's first query in it, and the tiles of keys that it sees whole and in part."""
    place = place_of(turn)
    entry = tiles + place // heads * 3
    return place % heads * tokens, gl.load(entry) * (2 * QUERIES), gl.load(entry + 1), gl.load(entry + 2)


@gluon.jit
def copy(q, k, v, memory, tiles, tokens, heads, number):
    n = 0
    for turn in range(turns(number)):
        head, first, whole, cut = tile_of(turn, tiles, tokens, heads)
        n = copy_tile(q, k, v, memory, head, first, 1 + whole + cut, n, turn)


@gluon.jit
def consume(w: gl.constexpr, memory, out, begins, tiles, tokens, heads, number, scale):
    n, i = 0, w * QUERIES + gl.arange(0, QUERIES, gl.SliceLayout(1, SCORES))
    for turn in range(turns(number)):
        head, first, whole, cut = tile_of(turn, tiles, tokens, heads)
        begin = gl.load(begins + first + i) - first
        n = attend_tile(memory, out, head, first, begin, whole, cut, n, turn, tokens, scale, w)


@gluon.jit
def attend(q, k, v, out, begins, tiles, tokens, heads, number, scale):
    memory, sizes = shared(q, k, v), (tiles, tokens, heads, number)
    rest = (memory, out, begins) + sizes + (scale,)
    gl.warp_specialize(
        [(consume, (0,) + rest), (consume, (1,) + rest), (copy, (q, k, v, memory) + sizes)], [4, 1], [240, 24]
    )


def prepare(q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Step:
    _, heads, tokens, width = q.shape
    out, rows, scale = torch.empty_like(q), triton.cdiv(tokens, 128), width**-0.5 * math.log2(math.e)
    layout = gl.NVMMASharedLayout(swizzle_byte_width=min(128, 2 * width), element_bitwidth=16)
    sides = (q, 64), (k, 128), (v, 128)
    boxes = [TensorDescriptor.from_tensor(x.view(-1, width), [n, width], layout) for x, n in sides]
    begins, tiles = (document.new_empty(rows, n, dtype=torch.int32) for n in (128, 3))
    number, steps, places = rows * heads, tokens.bit_length(), triton.next_power_of_2(rows)
    programs = min(number, torch.cuda.get_device_properties().multi_processor_count)

    def step() -> Tensor:
        plan[(rows,)](document, begins, tiles, tokens, rows, steps, 128, places)
        attend[(programs,)](*boxes, out, begins, tiles, tokens, heads, number, scale, num_warps=4)
        return out

    return step
