"""The cache has room for what comes, and one kernel writes all layers' new tokens: a table tells where caches lie."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ch15.baseline_kv_append import workload as workload
from common.python.workload import Step

EACH = 2  # heads of a program


@triton.jit
def append(
    fresh, places, positions, steps, room,
    STEPS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """A program for a few heads of a row of a cache (rows, HEADS, room, DIM): all of the tokens (steps, caches, rows,
    HEADS, DIM) that they get."""
    row, rows = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    cache, caches = tl.program_id(2), tl.num_programs(2)
    slot, dim = tl.arange(0, EACH * STEPS)[:, None], tl.arange(0, DIM)[None, :]
    head, step = (
        tl.program_id(0) * EACH + slot // STEPS,
        slot % STEPS,
    )  # neighbours in the cache
    given = step < steps
    new = tl.load(fresh + (((step * caches + cache) * rows + row) * HEADS + head) * DIM + dim, given)
    place = tl.load(positions + step, given)
    target = tl.multiple_of(tl.load(places + cache).to(tl.pointer_type(fresh.dtype.element_ty)), 16)
    tl.store(target + ((row * HEADS + head) * room + place) * DIM + dim, new, given)


def prepare(keys: list[Tensor], values: list[Tensor], fresh: Tensor, positions: Tensor) -> Step:
    rows, heads, room, dim = keys[0].shape
    caches = [cache for layer in zip(keys, values) for cache in layer]
    places = torch.tensor([cache.data_ptr() for cache in caches], device=fresh.device)
    steps, power = len(positions), triton.next_power_of_2(len(positions))

    def step() -> tuple[Tensor, ...]:
        grid = heads // EACH, rows, len(caches)
        append[grid](fresh, places, positions, steps, room, power, heads, dim, EACH, num_warps=4)
        return *keys, *values

    return step
