"""Programs take the tiles of the product row by row: those that run together read 132 different tiles of b."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

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
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    # Flattened, both loops are one, and its pipeline of loads runs on across the border between two tiles.
    for number in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        i, j = number // tiles_n, number % tiles_n
        total = tl.zeros((M, N), tl.float32)
        for step in range(tl.cdiv(k, K)):
            x, y = a.load([i * M, step * K]), b.load([j * N, step * K])  # beyond the edges there are zeros
            total = tl.dot(x, y.T, total)
        out.store([i * M, j * N], total.to(out.dtype))


def tile() -> dict[str, int]:
    """The tile and its pipeline: wide where an SM has shared memory for it, as on an H100 or a B200."""
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    shape = {"M": 128, "N": 256, "K": 64} if roomy else {"M": 128, "N": 128, "K": 32}
    return {**shape, "num_warps": 8, "num_stages": 3}


def described(a: Tensor, b: Tensor, out: Tensor) -> tuple[tuple[TensorDescriptor, ...], int]:
    """Both operands and the result for TMA, and how many programs share the tiles: as many as SMs."""
    m, n, k = (tile()[side] for side in ("M", "N", "K"))
    tiles = triton.cdiv(len(a), m) * triton.cdiv(len(b), n)
    # In the interpreter three programs, so that each has several tiles.
    most = 3 if triton.knobs.runtime.interpret else torch.cuda.get_device_properties().multi_processor_count
    boxes = (a, [m, k]), (b, [n, k]), (out, [m, n])
    return tuple(TensorDescriptor.from_tensor(*box) for box in boxes), min(most, tiles)


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out, options = a.new_empty(m, n), tile()
    descriptors, programs = described(a, b, out)

    def step() -> Tensor:
        product[(programs,)](*descriptors, m, n, k, **options)
        return out

    return step
