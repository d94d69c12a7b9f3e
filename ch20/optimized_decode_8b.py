"""Weights keep four bits until they meet the tensor cores; a kernel loads its own before it waits for the last one.

A word holds the eight weights that a lane gives to one instruction of the tensor cores. A kernel starts while the one
before it still runs, and waits for that one only when its first weights are on their way.
"""

from collections.abc import Callable
from math import log2

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from ch20.baseline_decode_8b import Pair
from ch20.baseline_decode_8b import workload as workload
from common.models.decoder import EPSILON, Shape, Weights
from common.models.graphs import replayable
from common.models.int4 import codes_of, scales_of
from common.models.timeline import Deliver, metered
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=80, memory_gib=44)
Packed = tuple[Tensor, Tensor]  # words and scales, as the kernel's tiles have them
ROWS, PARTS = 16, 4  # of a tile, and groups that a warp takes of it
STORED, GATED, ADDED = range(3)  # what becomes of a product


def tiled(rows: Tensor, gated: bool) -> Tensor:
    """Rows (rows, ...) as tiles (tiles, 2, 8, ...), zeros filling the last; a gated tile has 8 of gate and 8 of up."""
    halves = rows.chunk(2) if gated else (rows,)
    height = ROWS // len(halves)
    padded = [F.pad(half, (0, 0) * (half.dim() - 1) + (0, -len(half) % height)) for half in halves]
    return torch.cat([half.unflatten(0, (-1, height)) for half in padded], 1).unflatten(1, (2, 8))


def packed(matrix: Tensor, gated: bool = False) -> Packed:
    """Lane 4 g + t of a group has, of rows g and g + 8, weights 16 t to 16 t + 15 of each 64: four words of eight."""
    scales = scales_of(matrix)
    rest = -scales.shape[1] % PARTS  # groups of zeros
    codes = F.pad(codes_of(matrix, scales).to(torch.int8), (0, 0, 0, rest))
    codes = tiled(codes, gated) + 8  # tile, upper or lower, g, group, weight
    codes = codes.unflatten(4, (2, 4, 4, 4)).permute(0, 3, 4, 2, 5, 6, 1, 7)  # tile, group, half, g, t, word, upper, e
    words = torch.zeros(codes.shape[:6], dtype=torch.int32, device=matrix.device)
    for lower in range(2):
        for element in range(4):
            place = 4 * (lower + element // 2 * 2) + element % 2 * 16
            words |= codes[..., lower, element].to(torch.int32) << place
    return words, tiled(F.pad(scales.to(torch.bfloat16), (0, rest)), gated).permute(0, 3, 2, 1).contiguous()


@triton.jit
def settle(token, stream, gain, embedding, tokens, states, position, context, width, epsilon, WIDTH: tl.constexpr):
    """Notes the chosen token and its normed state, and begins the next token's stream, which is its embedding."""
    at, chosen, now = tl.arange(0, WIDTH), tl.load(token), tl.load(position)
    live, place = at < width, now - context
    x = tl.load(stream + at, mask=live, other=0.0)
    x *= tl.rsqrt(tl.sum(x * x) / width + epsilon) * tl.load(gain + at, mask=live, other=0.0).to(tl.float32)
    tl.store(states + place * width + at, x.to(states.dtype.element_ty), mask=live)
    tl.store(stream + at, tl.load(embedding + chosen * width + at, mask=live).to(tl.float32), mask=live)
    tl.store(tokens + place, chosen)
    tl.store(position, now + 1)  # the sum above had all threads read it


def prepare(weights: Weights, shape: Shape, first: Tensor, earlier: Tensor, new: int) -> Metered:
    linear, attend = (load_cuda(__file__, name) for name in ("linear", "attend"))
    width, dim, hidden = shape.width, shape.head_dim, shape.hidden
    layers = [
        {n: packed(m, n == "gate_up") if m.ndim == 2 else m.bfloat16() for n, m in layer.items()}
        for layer in weights["layers"]
    ]
    head, norm, embedding = packed(weights["head"]), weights["norm"].bfloat16(), weights["embedding"].bfloat16()
    context, cache = earlier.shape[3], F.pad(earlier.bfloat16(), (0, 0, 0, new)).transpose(0, 1)
    stream = torch.zeros(width, dtype=torch.float32, device=first.device)
    qkv, attended = (stream.new_zeros((shape.heads + n) * dim) for n in (2 * shape.kv_heads, 0))
    active, logits = stream.new_zeros(hidden + -hidden % 8), stream.new_zeros(shape.vocabulary)
    tokens, states = first.new_zeros(1, new), weights["norm"].new_zeros(1, new, width)
    position, token = torch.full_like(first[0], context), torch.zeros_like(first[0])
    shares = stream.new_zeros(shape.kv_heads, 32, 4, 132)
    arrived = torch.zeros(shape.kv_heads, dtype=torch.int32, device=first.device)
    group, wide = shape.heads // shape.kv_heads, triton.next_power_of_2(width)
    sizes = shape.heads, group, context + new, context, dim, log2(shape.rope_base)

    def advance() -> None:
        for layer, (keys, values) in zip(layers, cache):
            linear(*layer["qkv"], stream, layer["attention_norm"], qkv, STORED, len(qkv), width, EPSILON)
            attend(qkv, keys, values, position, attended, shares, arrived, *sizes)
            linear(*layer["out"], attended, norm, stream, ADDED, width, len(attended), EPSILON)
            linear(*layer["gate_up"], stream, layer["mlp_norm"], active, GATED, hidden, width, EPSILON)
            linear(*layer["down"], active, norm, stream, ADDED, width, hidden, EPSILON)
        linear(*head, stream, norm, logits, STORED, len(logits), width, EPSILON)
        torch.argmax(logits, 0, keepdim=True, out=token)
        notes = tokens, states, position, context
        settle[(1,)](token, stream, norm, embedding, *notes, width, EPSILON, wide, num_warps=8)

    def begin() -> None:
        position.fill_(context), stream.copy_(embedding.index_select(0, first[0])[0])

    begin()
    again: Callable[[], None] = replayable(advance, first.device)

    @torch.inference_mode()
    def serve(deliver: Deliver) -> Pair:
        begin()
        for _ in range(new):
            again()
            deliver([0])
        return tokens, states

    return metered(serve, first.device)
