"""One token of up to 16 sequences, or 16 tokens of one, through a decoder: five kernels a block, two to choose.

A product reads its matrix once for all rows, finds the norm of its input by itself, and adds to the stream of hidden
states in place. Only attention stands between two products. A row's position is on the device, for a replayed graph.
"""

from dataclasses import dataclass
from math import log2

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.models.caches import Cache, new_cache
from common.models.decoder import EPSILON, Shape, Weights

ROWS = tl.constexpr(16)  # the tensor cores' least; rows that are not there are zeros
TOKENS = tl.constexpr(64)  # of the cache, that attention takes at a time


@triton.jit
def keep_largest(out, indices, total, row, rows, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of this program's tile, each row's largest output and its index."""
    value, chosen = tl.max(total, axis=0, return_indices=True)
    slot = row * tl.num_programs(0) + tl.program_id(0)
    tl.store(out + slot, value, mask=row < rows)
    tl.store(indices + slot, tl.program_id(0) * TILE + chosen, mask=row < rows)


@triton.jit
def multiply(  # type: ignore[no-untyped-def]
    matrix, x, gain, out, indices, noise, made, places, rows, outputs, columns, epsilon,
    TILE: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr, GATED: tl.constexpr, ADDED: tl.constexpr,
):  # fmt: skip
    """matrix @ x of each row, of a normed x where there is a gain.

    A gated output takes a row of gate and one of up. An added one is added to `out`, by each program its share of the
    columns. Where there are indices, of each tile only the largest output is kept, with its index. If there is noise,
    that of the row's place (or of the last place) is added before.
    """
    PAIRED: tl.constexpr = 2 if GATED else 1
    index, row = tl.arange(0, TILE), tl.arange(0, ROWS)
    output = tl.program_id(0) * (TILE // PAIRED) + index // PAIRED
    at = (output + index % PAIRED * outputs).to(tl.int64)[:, None] * columns
    share = tl.cdiv(tl.cdiv(columns, tl.num_programs(1)), COLUMNS) * COLUMNS
    begin, end = tl.program_id(1) * share, tl.minimum((tl.program_id(1) + 1) * share, columns)
    total, squares = tl.zeros((TILE, ROWS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    if gain is not None:
        scale = tl.load(gain + begin + tl.arange(0, COLUMNS), mask=begin + tl.arange(0, COLUMNS) < end, other=0.0)
    for first in tl.range(begin, end, COLUMNS, num_stages=STAGES):
        column = first + tl.arange(0, COLUMNS)
        live = (column < end)[None, :]
        place = matrix + at + column[None, :]
        tile = tl.load(place, mask=(output < outputs)[:, None] & live, other=0.0, eviction_policy="evict_first")
        factor = tl.load(x + row[:, None] * columns + column[None, :], mask=(row < rows)[:, None] & live, other=0.0)
        if gain is not None:  # the norm itself is one factor for the whole product
            wide = factor.to(tl.float32)
            squares += wide * wide
            factor = wide * scale.to(tl.float32)[None, :]
            column += COLUMNS  # one turn ahead, by hand: Triton loads only a dot's operands ahead
            scale = tl.load(gain + column, mask=column < end, other=0.0)
        total = tl.dot(tile, tl.trans(factor.to(tile.dtype)), total, input_precision="ieee")
    if gain is not None:
        total *= tl.rsqrt(tl.sum(squares, axis=1) / columns + epsilon)[None, :]
    if GATED:
        gate, up = tl.split(tl.permute(tl.reshape(total, (TILE // 2, 2, ROWS)), (0, 2, 1)))
        total = gate * tl.sigmoid(gate) * up
        output = tl.program_id(0) * (TILE // 2) + tl.arange(0, TILE // 2)
    mask = (output < outputs)[:, None] & (row < rows)[None, :]
    if noise is not None:
        now = tl.minimum(tl.load(made + row, mask=row < rows, other=0), places - 1)
        total += tl.load(noise + now[None, :] * outputs + output[:, None], mask=mask, other=0.0)
    if indices is not None:
        keep_largest(out, indices, tl.where(mask, total, float("-inf")), row, rows, TILE)
    elif ADDED:
        tl.atomic_add(out + row[None, :] * outputs + output[:, None], total, mask=mask, sem="relaxed")
    else:
        tl.store(out + row[None, :] * outputs + output[:, None], total, mask=mask)


@triton.jit
def turns(position, log_base, DIM: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    pair = (tl.arange(0, WIDTH) % (DIM // 2)).to(tl.float32)
    angle = position.to(tl.float32)[:, None] * tl.exp2(-pair * (2.0 / DIM) * log_base)[None, :]
    return tl.cos(angle), tl.sin(angle)


@triton.jit
def turned(qkv, head, live, cos, sin, DIM: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Heads by their position: number i of a head and its partner, which is half a head away."""
    at = tl.arange(0, WIDTH)
    mask = live[:, None] & (at < DIM)[None, :]
    own = tl.load(qkv + head[:, None] * DIM + at[None, :], mask=mask, other=0.0).to(tl.float32)
    across = (at + DIM // 2) % DIM
    partner = tl.load(qkv + head[:, None] * DIM + across[None, :], mask=mask, other=0.0).to(tl.float32)
    return own * cos + tl.where(at < DIM // 2, -partner, partner) * sin


@triton.jit
def near(queries, key, value, known, WIDTH: tl.constexpr, TOGETHER: tl.constexpr):  # type: ignore[no-untyped-def]
    """What queries see of the new tokens: the largest score, the sum of shares, the sums of values."""
    if TOGETHER:
        scores = tl.dot(queries, tl.trans(key), input_precision="ieee")
        scores = tl.where(known[None, :], scores, float("-inf"))
        peak = tl.max(scores, axis=1)
        shares = tl.exp(scores - peak[:, None])
        total, sums = tl.sum(shares, axis=1), tl.dot(shares.to(key.dtype), value, input_precision="ieee")
    else:
        peak, total = tl.sum(queries.to(tl.float32) * key.to(tl.float32), axis=1), tl.full((ROWS,), 1.0, tl.float32)
        sums = tl.zeros((ROWS, WIDTH), tl.float32) + value.to(tl.float32)
    return peak, total, sums


@triton.jit
def places(  # type: ignore[no-untyped-def]
    page, token, of, shared, capacity, DIM: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr
):
    """Where the numbers of tokens lie in the cache: in pages with these numbers or, if `PAGE` is 0, in one row."""
    begin = (page * shared + of).to(tl.int64) * capacity * DIM
    if PAGE > 0:
        token, begin = token % PAGE, begin[:, None]
    return begin + token[:, None] * DIM + tl.arange(0, WIDTH)[None, :]


@triton.jit
def attend(  # type: ignore[no-untyped-def]
    qkv, keys, values, table, starts, made, out, first_position, group, capacity, span, log_base, scale,
    DIM: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """The queries that share a key head see the new token, which is appended to the cache, and the earlier ones.

    Rows that go together are tokens of one sequence: a row takes those before it from `qkv`, not from the cache.
    Token t of a sequence lies in its own `capacity` of the cache, or in page table[sequence, t // PAGE].
    """
    row, of, shared = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    at, query, heads = tl.arange(0, WIDTH), tl.arange(0, ROWS), (group + 2) * shared
    first, new = (0, tl.arange(0, ROWS)) if TOGETHER else (row, row + tl.arange(0, 1))
    now, live, known = first_position + tl.load(made + row), at < DIM, new <= row
    now += 0 if starts is None else tl.load(starts + first)
    before = now - (row - first)  # the cache's tokens
    dtype = keys.dtype.element_ty
    head, position = row * heads + of * group + query, before + new - first
    cos, sin = turns(now + tl.arange(0, 1), log_base, DIM, WIDTH)
    queries = (turned(qkv, head, query < group, cos, sin, DIM, WIDTH) * scale).to(dtype)
    if TOGETHER:  # else the row's own position is the only new one
        cos, sin = turns(position, log_base, DIM, WIDTH)
    head = new * heads + group * shared + of
    key = turned(qkv, head, known, cos, sin, DIM, WIDTH).to(dtype)
    fresh, mask = qkv + (head + shared)[:, None] * DIM + at[None, :], (new == row)[:, None] & live[None, :]
    value = tl.load(fresh, mask=known[:, None] & live[None, :], other=0.0)
    latest, page, token = first, first, tl.arange(0, TOKENS)
    if PAGE > 0:
        latest = tl.load(table + first * span + position // PAGE, mask=known, other=0)
        page = tl.load(table + first * span + token // PAGE, mask=token < before, other=0)
    place = places(latest, position, of, shared, capacity, DIM, WIDTH, PAGE)
    tl.store(keys + place, key, mask=mask)
    tl.store(values + place, value, mask=mask)
    peak, total, sums = near(queries, key, value, known, WIDTH, TOGETHER)
    for begin in tl.range(0, before, TOKENS, num_stages=3):
        token = begin + tl.arange(0, TOKENS)
        earlier = places(page, token, of, shared, capacity, DIM, WIDTH, PAGE)
        if PAGE > 0:  # one turn ahead, by hand: a page's number arrives before its rows are asked for
            later = token + TOKENS
            page = tl.load(table + first * span + later // PAGE, mask=later < before, other=0)
        seen = (token < before)[:, None] & live[None, :]
        loaded = tl.load(keys + earlier, mask=seen, other=0.0)
        scores = tl.dot(queries, tl.trans(loaded), input_precision="ieee")
        scores = tl.where((token < before)[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights, shrink = tl.exp(scores - higher[:, None]), tl.exp(peak - higher)
        loaded = tl.load(values + earlier, mask=seen, other=0.0)
        sums = tl.dot(weights.to(dtype), loaded, sums * shrink[:, None], input_precision="ieee")
        total, peak = total * shrink + tl.sum(weights, axis=1), higher
    to = out + (row * group * shared + of * group + query[:, None]) * DIM + at[None, :]
    tl.store(to, sums / total[:, None], mask=(query < group)[:, None] & live[None, :])


@triton.jit
def choose(  # type: ignore[no-untyped-def]
    largest, indices, tiles, stream, gain, embedding, tokens, states, made, new, columns, epsilon,
    TILES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The likeliest token of a row and the normed state that it was read from; its embedding starts the next stream.

    A row stays at its last place, `new` - 1. Where rows go together `new` is 0, and no place is the last.
    """
    row, at, tile = tl.program_id(0), tl.arange(0, WIDTH), tl.arange(0, TILES)
    value = tl.load(largest + row * tiles + tile, mask=tile < tiles, other=float("-inf"))
    token = tl.load(indices + row * tiles + tl.argmax(value, axis=0)).to(tl.int64)
    count, live = tl.load(made + row), at < columns
    x = tl.load(stream + row * columns + at, mask=live, other=0.0)
    normed = x * tl.rsqrt(tl.sum(x * x) / columns + epsilon) * tl.load(gain + at, mask=live, other=0.0).to(tl.float32)
    tl.store(tokens + row * new + count, token)
    tl.store(states + (row * new + count) * columns + at, normed, mask=live)
    tl.store(
        stream + row * columns + at, tl.load(embedding + token * columns + at, mask=live).to(tl.float32), mask=live
    )
    tl.store(made + row, tl.where(new > 0, tl.minimum(count + 1, new - 1), count + 1))


@dataclass(frozen=True)
class Tile:
    """How a product is cut: outputs and columns of a tile, tiles on their way, shares of the columns."""

    outputs: int = 64
    columns: int = 128
    stages: int = 4
    shares: int = 1
    warps: int = 4


# For the shape of Llama-3.1-8B: the more tiles there are, the smaller each is, so that all fit on the GPU at once.
NARROW = Tile(columns=64)
TILES = {"qkv": Tile(), "out": Tile(shares=4), "gate_up": NARROW, "down": Tile(shares=4), "head": NARROW}


class Decoder:
    """Greedy decoding of `batch` sequences that begin at position `start`, by at most `new` tokens each.

    `start` is one for all or, with a `cache` of the caller's, int32 (sequences). That cache has rows, or pages, which
    int32 `table` (sequences, pages of the longest) names. A replayed graph sees both anew.
    With `together` the rows are tokens of one sequence. `noise` (places, vocabulary) is added to the logits. `stream`
    (batch, width) is fp32; `tokens` (sequences, new) int64 and `states` (sequences, new, width) are the answer.
    """

    def __init__(
        self, weights: Weights, shape: Shape, batch: int, start: int | Tensor, new: int,
        tiles: dict[str, Tile] = TILES, noise: Tensor | None = None, together: bool = False,
        cache: Cache | None = None, table: Tensor | None = None,
    ):  # fmt: skip
        if batch > ROWS.value:
            raise ValueError(f"at most {ROWS.value} sequences at a time, not {batch}")
        if isinstance(start, Tensor) and cache is None:
            raise ValueError("a tensor `start` needs a cache with room for every sequence: pass `cache`")
        head = weights["head"]
        self.weights, self.shape, self.new, self.tiles, self.table = weights, shape, new, tiles, table
        self.starts = start if isinstance(start, Tensor) else None
        self.start = 0 if isinstance(start, Tensor) else start
        self.noise, self.together, sequences = noise, together, 1 if together else batch
        self.cache = cache or new_cache(shape, sequences, self.start + new, head)
        self.stream = head.new_zeros(batch, shape.width, dtype=torch.float32)
        self.tokens = torch.zeros(sequences, new, dtype=torch.int64, device=head.device)
        self.states = head.new_zeros(sequences, new, shape.width)
        self.made = torch.zeros(batch, dtype=torch.int32, device=head.device)
        self.qkv = head.new_zeros(batch, (shape.heads + 2 * shape.kv_heads) * shape.head_dim)
        self.attended = head.new_zeros(batch, shape.heads * shape.head_dim)
        self.gated = head.new_zeros(batch, shape.hidden)
        candidates = batch, triton.cdiv(shape.vocabulary, tiles["head"].outputs)
        self.largest = self.stream.new_zeros(candidates)
        self.indices = self.made.new_zeros(candidates)

    def multiply(self, name: str, matrix: Tensor, x: Tensor, out: Tensor, gain: Tensor | None = None) -> None:
        tile, gated, added, head = self.tiles[name], name == "gate_up", name in ("out", "down"), name == "head"
        outputs, columns = matrix.shape[0] // (2 if gated else 1), matrix.shape[1]
        grid = (triton.cdiv(matrix.shape[0], tile.outputs), tile.shares)
        sizes = len(x), outputs, columns, EPSILON, tile.outputs, tile.columns, tile.stages
        indices, noise = (self.indices, self.noise) if head else (None, None)
        places = self.made, 0 if noise is None else len(noise)
        multiply[grid](matrix, x, gain, out, indices, noise, *places, *sizes, gated, added, num_warps=tile.warps)

    def block(self, index: int) -> None:
        """The stream through block `index`."""
        shape, layer = self.shape, self.weights["layers"][index]
        group, dim, capacity = shape.heads // shape.kv_heads, shape.head_dim, self.cache.capacity
        span, page = (0, 0) if self.table is None else (self.table.shape[1], capacity)
        self.multiply("qkv", layer["qkv"], self.stream, self.qkv, layer["attention_norm"])
        attend[(len(self.stream), shape.kv_heads)](
            self.qkv, self.cache.keys[index], self.cache.values[index], self.table, self.starts, self.made,
            self.attended, self.start - 1, group, capacity, span, log2(shape.rope_base), dim**-0.5,
            dim, triton.next_power_of_2(dim), page, self.together,
        )  # fmt: skip
        self.multiply("out", layer["out"], self.attended, self.stream)
        self.multiply("gate_up", layer["gate_up"], self.stream, self.gated, layer["mlp_norm"])
        self.multiply("down", layer["down"], self.gated, self.stream)

    def choose(self) -> None:
        """The next token of each row from the stream, which is then that token's embedding."""
        weights, width = self.weights, self.shape.width
        self.multiply("head", weights["head"], self.stream, self.largest, weights["norm"])
        tiles = self.largest.shape[1]
        choose[(len(self.stream),)](
            self.largest, self.indices, tiles, self.stream, weights["norm"], weights["embedding"], self.tokens,
            self.states, self.made, 0 if self.together else self.new, width, EPSILON,
            triton.next_power_of_2(tiles), triton.next_power_of_2(width), num_warps=8,
        )  # fmt: skip

    def advance(self) -> None:
        for index in range(self.shape.layers):
            self.block(index)
        self.choose()
