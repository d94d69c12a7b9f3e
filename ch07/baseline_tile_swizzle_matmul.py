"""Programs take the tiles of the product row by row: those that run together read 132 different tiles of b."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.python.workload import Cost, Draw, Inputs, Step, Workload


def inputs(draw: Draw, m: int, n: int, k: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {"a": draw.normal(m, k, dtype=element), "b": draw.normal(n, k, dtype=element)}  # b as a linear keeps it


workload = Workload(
    inputs=inputs,
    reference=lambda a, b: a @ b.T,
    cost=lambda m, n, k, dtype: Cost(flops=2 * m * n * k, dtype="bf16", read=2 * (m * k + n * k), write=2 * m * n),
    sizes={
        # The logits of 4,096 tokens: a row of tiles is 256 of them, and reads all of b, 512 MiB.
        "bench": {"m": 4096, "n": 65536, "k": 4096, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; TMA copies rows that begin at multiples of 16 bytes
        "test": {"m": 397, "n": 816, "k": 136, "dtype": "float16"},
    },
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)


@triton.jit
def product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tiles_n = tl.cdiv(n, N)
    i, j = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    row, column = i * M + tl.arange(0, M), j * N + tl.arange(0, N)
    left, right = a + row.to(tl.int64)[:, None] * k, b + column.to(tl.int64)[None, :] * k
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        at = first + tl.arange(0, K)
        x = tl.load(left + at[None, :], mask=(row < m)[:, None] & (at < k)[None, :], other=0.0)
        y = tl.load(right + at[:, None], mask=(at < k)[:, None] & (column < n)[None, :], other=0.0)
        total = tl.dot(x, y, total)
    place = out + row.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(row < m)[:, None] & (column < n)[None, :])


def tile() -> dict[str, int]:
    """The tile and its pipeline: wide where an SM has shared memory for it, as on an H100 or a B200."""
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    shape = {"M": 128, "N": 256, "K": 64} if roomy else {"M": 128, "N": 128, "K": 32}
    return {**shape, "num_warps": 8, "num_stages": 3}


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out, options = a.new_empty(m, n), tile()
    grid = (triton.cdiv(m, options["M"]) * triton.cdiv(n, options["N"]),)

    def step() -> Tensor:
        product[grid](a, b, out, m, n, k, **options)
        return out

    return step
