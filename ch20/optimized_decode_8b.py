"""Five kernels a block, captured and replayed: norms, gate and residuals ride with the products, attention is one."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from ch20.baseline_decode_8b import decode_block, generation
from ch20.baseline_decode_8b import workload as workload
from common.models.decoder import EPSILON, Linear, Shape, Weights
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(memory_gib=60)
ROWS = 64 if knobs.runtime.interpret else 8  # of a program: the interpreter takes as long over a small one
COLUMNS = tl.constexpr(512)  # of a tile: 8 KB of bf16, and four numbers of x a thread, whose copies L1 may keep
STAGES = tl.constexpr(4)  # tiles on their way or in use: a program that had one only would wait for memory each time
WARPS = 4
TOKENS = tl.constexpr(16)  # of the cache, that attention takes at a time


@triton.jit
def multiply(matrix, x, gain, residual, out, outputs, columns, epsilon, ROWS: tl.constexpr, GATED: tl.constexpr):
    """matrix @ x, of a normed x where there is a gain; a gated output takes a row of gate and one of up."""
    PAIRED: tl.constexpr = 2 if GATED else 1
    index = tl.arange(0, ROWS)
    output = tl.program_id(0) * (ROWS // PAIRED) + index // PAIRED
    row = (output + index % PAIRED * outputs).to(tl.int64)[:, None]
    total, squares = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((COLUMNS,), tl.float32)
    for first in tl.range(0, columns, COLUMNS, num_stages=STAGES):
        column = first + tl.arange(0, COLUMNS)
        mask = (output < outputs)[:, None] & (column < columns)[None, :]
        tile = tl.load(matrix + row * columns + column[None, :], mask=mask, other=0.0, eviction_policy="evict_first")
        factor = tl.load(x + column, mask=column < columns, other=0.0).to(tl.float32)
        if gain is not None:  # the norm itself is one factor for the whole product, which each program finds by itself
            squares += factor * factor
            factor *= tl.load(gain + column, mask=column < columns, other=0.0).to(tl.float32)
        total += tile.to(tl.float32) * factor[None, :]
    sums = tl.sum(total, axis=1)
    if gain is not None:
        sums *= tl.rsqrt(tl.sum(squares, axis=0) / columns + epsilon)
    if GATED:
        gate, up = tl.split(tl.reshape(sums, (ROWS // 2, 2)))
        sums = gate * tl.sigmoid(gate) * up
        output = tl.program_id(0) * (ROWS // 2) + tl.arange(0, ROWS // 2)
    if residual is not None:
        sums += tl.load(residual + output, mask=output < outputs, other=0.0).to(tl.float32)
    tl.store(out + output, sums, mask=output < outputs)


@triton.jit
def turned(start, cos, sin, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """A head by its position: number i and its partner, which is half a head away."""
    at = tl.arange(0, WIDTH)
    own = tl.load(start + at, mask=at < DIM, other=0.0).to(tl.float32)
    partner = tl.load(start + (at + DIM // 2) % DIM, mask=at < DIM, other=0.0).to(tl.float32)
    other = tl.where(at < DIM // 2, -partner, partner)
    return own * tl.load(cos + at % (DIM // 2)).to(tl.float32) + other * tl.load(sin + at % (DIM // 2)).to(tl.float32)


@triton.jit
def attend(qkv, cos, sin, keys, values, position, out, group, capacity, scale, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """A query head sees the new token's key and value, which the first of its group appends, and the earlier ones."""
    head, heads, now, at = tl.program_id(0), tl.num_programs(0), tl.load(position), tl.arange(0, WIDTH)
    of, live = head // group, at < DIM  # keys and values that the group shares
    query = turned(qkv + head * DIM, cos, sin, DIM, WIDTH) * scale
    key = turned(qkv + (heads + of) * DIM, cos, sin, DIM, WIDTH).to(keys.dtype.element_ty)
    value = tl.load(qkv + (heads + heads // group + of) * DIM + at, mask=live, other=0.0)
    if head % group == 0:
        place = (of * capacity + now) * DIM + at
        tl.store(keys + place, key, mask=live)
        tl.store(values + place, value, mask=live)
    peak, total, sums = tl.sum(query * key.to(tl.float32)), 1.0, value.to(tl.float32)
    for first in range(0, now, TOKENS):
        token = first + tl.arange(0, TOKENS)
        places, seen = (of * capacity + token[:, None]) * DIM + at[None, :], (token < now)[:, None] & live[None, :]
        scores = tl.sum(query[None, :] * tl.load(keys + places, mask=seen, other=0.0).to(tl.float32), axis=1)
        scores = tl.where(token < now, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores))
        weights, shrink = tl.exp(scores - higher), tl.exp(peak - higher)
        loaded = tl.load(values + places, mask=seen, other=0.0).to(tl.float32)
        sums = sums * shrink + tl.sum(weights[:, None] * loaded, axis=0)
        total, peak = total * shrink + tl.sum(weights), higher
    tl.store(out + head * DIM + at, sums / total, mask=live)


def product(
    x: Tensor, matrix: Tensor, gain: Tensor | None = None, residual: Tensor | None = None, gated: bool = False
) -> Tensor:
    rows, columns = matrix.shape
    out = x.new_empty(*x.shape[:-1], rows // 2 if gated else rows)
    grid = (triton.cdiv(rows, ROWS),)
    multiply[grid](matrix, x, gain, residual, out, out.shape[-1], columns, EPSILON, ROWS, gated, num_warps=WARPS)
    return out


def block(layer: Weights, shape: Shape, x: Tensor, at: tuple[Tensor, ...], linear: Linear) -> Tensor:
    (cos, sin, keys, values, position), dim = at, shape.head_dim
    qkv, attended = product(x, layer["qkv"], layer["attention_norm"]), torch.empty_like(x)
    group, capacity, width = shape.heads // shape.kv_heads, keys.shape[2], triton.next_power_of_2(dim)
    rest = (group, capacity, dim**-0.5, dim, width)
    attend[(shape.heads,)](qkv, cos, sin, keys, values, position, attended, *rest)
    x = product(attended, layer["out"], residual=x)
    return product(product(x, layer["gate_up"], layer["mlp_norm"], gated=True), layer["down"], residual=x)


def by_hand(code: Any) -> Any:
    """In a compiler's place: the block is that above, and the choice after the last one is left as it is."""
    return block if code is decode_block else code


def prepare(weights: Weights, shape: Shape, first: Tensor, new: int) -> Metered:
    return generation(weights, shape, first, new, product, by_hand, replayable)
