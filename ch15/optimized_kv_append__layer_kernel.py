"""The cache has room for what comes, and one kernel a layer writes the new token's key and value in their place."""

import triton
import triton.language as tl
from torch import Tensor

from ch15.baseline_kv_append import workload as workload
from common.python.workload import Step


@triton.jit
def append(fresh, keys, values, position, numbers, room, HEADS: tl.constexpr, DIM: tl.constexpr):
    """A program for a row of the caches (rows, HEADS, room, DIM); in fresh (2, rows, HEADS, DIM) are keys, then values,
    `numbers` of each."""
    first, place = tl.program_id(0).to(tl.int64) * HEADS, tl.load(position)
    head, dim = first + tl.arange(0, HEADS)[:, None], tl.arange(0, DIM)[None, :]
    source, target = fresh + head * DIM + dim, (head * room + place) * DIM + dim
    key, value = tl.load(source), tl.load(source + numbers)
    tl.store(keys + target, key)
    tl.store(values + target, value)


def prepare(keys: list[Tensor], values: list[Tensor], fresh: Tensor, positions: Tensor) -> Step:
    rows, heads, room, dim = keys[0].shape

    def step() -> tuple[Tensor, ...]:
        for of_step, position in zip(fresh, positions):
            for store, other, new in zip(keys, values, of_step):
                append[(rows,)](new, store, other, position, new[0].numel(), room, heads, dim, num_warps=4)
        return *keys, *values

    return step
