"""Logits exist only as tiles in registers: once for each token's sum, once more for a slab of words' gradients."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch09.baseline_linear_cross_entropy import workload as workload
from common.python.workload import Step

SLABS = 8  # of the vocabulary: the gradient of the logits stands in memory a slab at a time
TILE = {"TOKENS": 128, "WORDS": 128, "WIDTH": 64, "num_warps": 8, "num_stages": 3}


@triton.jit
def tile_of_logits(
    hidden, weight, tokens, words, width, TOKENS: tl.constexpr, WORDS: tl.constexpr, WIDTH: tl.constexpr
):
    """A program's tokens [TOKENS] and words [WORDS], and the logits of each with each, in fp32."""
    # Eight rows of tiles take turns, so that what one reads the next still finds in the L2 cache. swizzle2d counts
    # along rows of tiles, and so must program_id(0), in whose order programs begin.
    i, j = tl.swizzle2d(tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), 8)
    token, word = i * TOKENS + tl.arange(0, TOKENS), j * WORDS + tl.arange(0, WORDS)
    left, right = hidden + token.to(tl.int64)[:, None] * width, weight + word.to(tl.int64)[None, :] * width
    total = tl.zeros((TOKENS, WORDS), tl.float32)
    for first in range(0, width, WIDTH):
        at = first + tl.arange(0, WIDTH)
        x = tl.load(left + at[None, :], mask=(token < tokens)[:, None] & (at < width)[None, :], other=0.0)
        w = tl.load(right + at[:, None], mask=(at < width)[:, None] & (word < words)[None, :], other=0.0)
        total = tl.dot(x, w, total)
    return token, word, total


@triton.jit
def sum_tile(
    hidden,
    weight,
    targets,
    sums,
    hits,
    tokens,
    words,
    width,
    TOKENS: tl.constexpr,
    WORDS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The log of each token's sum over the words of one tile, and the target's logit from the tile that has it."""
    token, word, logits = tile_of_logits(hidden, weight, tokens, words, width, TOKENS, WORDS, WIDTH)
    logits = tl.where((word < words)[None, :], logits, float("-inf"))
    peak = tl.max(logits, axis=1)
    total = peak + tl.log(tl.sum(tl.exp(logits - peak[:, None]), axis=1))
    tile = tl.min(word, axis=0) // WORDS
    tl.store(sums + tile.to(tl.int64) * tokens + token, total, mask=token < tokens)
    target = tl.load(targets + token, mask=token < tokens, other=0)
    hit = tl.sum(tl.where(word[None, :] == target[:, None], logits, 0.0), axis=1)
    tl.store(hits + token, hit, mask=(token < tokens) & (target // WORDS == tile))


@triton.jit
def slope_tile(
    hidden,
    weight,
    targets,
    log_sums,
    slopes,
    start,
    tokens,
    words,
    width,
    TOKENS: tl.constexpr,
    WORDS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The loss's gradient with respect to the logits of one tile of a slab, whose first word is `start`."""
    token, word, logits = tile_of_logits(hidden, weight, tokens, words, width, TOKENS, WORDS, WIDTH)
    share = tl.exp(logits - tl.load(log_sums + token, mask=token < tokens, other=0.0)[:, None])
    target = tl.load(targets + token, mask=token < tokens, other=0)
    slope = tl.where(start + word[None, :] == target[:, None], share - 1.0, share)
    mask = (token < tokens)[:, None] & (word < words)[None, :]
    tl.store(slopes + token.to(tl.int64)[:, None] * words + word[None, :], slope, mask=mask)


def prepare(hidden: Tensor, weight: Tensor, targets: Tensor) -> Step:
    (tokens, width), vocabulary = hidden.shape, len(weight)
    blocks, tiles = triton.cdiv(tokens, TILE["TOKENS"]), triton.cdiv(vocabulary, TILE["WORDS"])
    slab = triton.cdiv(vocabulary, SLABS)
    sums, hits = (hidden.new_empty(*shape, tokens, dtype=torch.float32) for shape in ((tiles,), ()))
    room = hidden.new_empty(tokens * slab)
    to_hidden, to_weight = torch.empty_like(hidden), torch.empty_like(weight)

    def step() -> tuple[Tensor, ...]:
        sum_tile[tiles, blocks](hidden, weight, targets, sums, hits, tokens, vocabulary, width, **TILE)
        log_sums = sums.logsumexp(dim=0)
        for start, w, to_w in zip(range(0, vocabulary, slab), weight.split(slab), to_weight.split(slab)):
            slopes = room[: tokens * len(w)].view(tokens, len(w))
            grid = triton.cdiv(len(w), TILE["WORDS"]), blocks
            slope_tile[grid](hidden, w, targets, log_sums, slopes, start, tokens, len(w), width, **TILE)
            to_w.addmm_(slopes.T, hidden, beta=0, alpha=1 / tokens)
            to_hidden.addmm_(slopes, w, beta=int(start > 0), alpha=1 / tokens)  # 0: what was there does not count
        return (log_sums - hits).mean(), to_hidden, to_weight

    return step
