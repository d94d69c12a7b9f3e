"""A graph of few kernels: products write symmetric memory, where one kernel sums all ranks' parts, adds and norms."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention

from ch20.baseline_tp_decode_70b import workload as workload
from common.models.decoder import EPSILON
from common.models.graphs import replayable
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=2, sm=80)


@triton.jit
def turn(heads, angles, cache, queries, rows, past, HEADS: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr):
    """One head of a row: a query is turned, a key too, and it and the value go to the last place of their caches."""
    row, head, at = tl.program_id(0), tl.program_id(1), tl.arange(0, HALF)
    inside = at < DIM // 2
    angle = tl.load(angles + row * (DIM // 2) + at, mask=inside)
    cos, sin = tl.cos(angle), tl.sin(angle)
    if head > HEADS:
        cos, sin = tl.full([HALF], 1.0, tl.float32), tl.zeros([HALF], tl.float32)
    source = heads + (row * (HEADS + 2) + head) * DIM + at
    low = tl.load(source, mask=inside).to(tl.float32)
    high = tl.load(source + DIM // 2, mask=inside).to(tl.float32)
    if head < HEADS:
        out = queries + (row * HEADS + head) * DIM + at
    else:
        out = cache + (((head - HEADS) * rows + row).to(tl.int64) * (past + 1) + past) * DIM + at
    tl.store(out, (low * cos - high * sin).to(tl.bfloat16), mask=inside)
    tl.store(out + DIM // 2, (high * cos + low * sin).to(tl.bfloat16), mask=inside)


@triton.jit
def gate(both, out, hidden, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < hidden
    x = tl.load(both + row * 2 * hidden + at, mask=inside).to(tl.float32)
    up = tl.load(both + row * 2 * hidden + hidden + at, mask=inside).to(tl.float32)
    tl.store(out + row * hidden + at, (x * tl.sigmoid(x) * up).to(tl.bfloat16), mask=inside)


@triton.jit
def sum_and_norm(parts, offset, states, gain, kept, normed, width, eps, RANKS: tl.constexpr, BLOCK: tl.constexpr):
    """A row: what all ranks' buffers have at `offset` is added to the states, which are kept, and normed."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside, place = at < width, row * width + at
    total = tl.load(states + place, mask=inside, other=0.0).to(tl.float32)
    for rank in tl.static_range(RANKS):
        part = tl.multiple_of(tl.load(parts + rank).to(tl.pointer_type(tl.bfloat16)), 16)
        total += tl.load(part + offset + place, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total, 0) / width + eps) * tl.load(gain + at, mask=inside).to(tl.float32)
    tl.store(kept + place, total.to(tl.bfloat16), mask=inside)
    tl.store(normed + place, (total * scale).to(tl.bfloat16), mask=inside)


def prepare(x: Tensor, angles: Tensor, gains: Tensor, layers: list[dict[str, Tensor]], caches: Tensor) -> Step:
    (rows, width), dim, past = x.shape, caches.shape[-1], caches.shape[-2] - 1
    heads, hidden = layers[0]["out"].shape[1] // dim, layers[0]["down"].shape[1]
    # Sums take turns with two buffers: once all ranks are at the next sum's barrier, this one's is free again.
    parts = symmetric_memory.empty((2, rows, width), dtype=x.dtype, device=x.device)
    handle = symmetric_memory.rendezvous(parts, dist.group.WORLD)
    buffers, ranks = torch.tensor(handle.buffer_ptrs, device=x.device), dist.get_world_size()
    queries, gated = x.new_empty(rows, 1, heads, dim), x.new_empty(rows, hidden)
    states, normed = torch.empty_like(x), torch.empty_like(x)

    def add(product: tuple[Tensor, Tensor], before: Tensor, slot: int, gain: Tensor) -> None:
        torch.mm(product[0], product[1].T, out=parts[slot])
        handle.barrier()  # all parts are there
        sum_and_norm[(rows,)](
            buffers, slot * parts[0].numel(), before, gain, states, normed, width, EPSILON,
            RANKS=ranks, BLOCK=triton.next_power_of_2(width), num_warps=16,
        )  # fmt: skip

    def work() -> None:
        normed.copy_(rms_norm(x, x.shape[1:], gains[0], EPSILON))
        for number, (layer, cache) in enumerate(zip(layers, caches)):
            turn[(rows, heads + 2)](
                linear(normed, layer["qkv"]), angles, cache, queries, rows, past,
                HEADS=heads, DIM=dim, HALF=triton.next_power_of_2(dim // 2), num_warps=1,
            )  # fmt: skip
            seen = scaled_dot_product_attention(queries, cache[0], cache[1])
            add((seen.flatten(1), layer["out"]), states if number else x, 0, gains[2 * number + 1])
            gate[(rows, triton.cdiv(hidden, 1024))](linear(normed, layer["gate_up"]), gated, hidden, BLOCK=1024)
            add((gated, layer["down"]), states, 1, gains[2 * number + 2])

    again = replayable(work, x.device)

    def step() -> Tensor:
        again()
        return normed

    return step
