"""272 tiles on 132 multiprocessors: two full waves, then a third of eight tiles that takes as long as either."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from common.python.workload import Cost, Draw, Inputs, Step, Workload

GROUP = 8  # rows of tiles that take turns, so that what one program reads the next finds in the L2 cache


def inputs(draw: Draw, m: int, n: int, k: int, dtype: str) -> Inputs:
    element = getattr(torch, dtype)
    return {"a": draw.normal(m, k, dtype=element), "b": draw.normal(n, k, dtype=element)}  # b as a linear keeps it


workload = Workload(
    inputs=inputs,
    reference=lambda a, b: a @ b.T,
    cost=lambda m, n, k, dtype: Cost(flops=2 * m * n * k, dtype="bf16", read=2 * (m * k + n * k), write=2 * m * n),
    sizes={
        # 16 x 17 tiles of 128 x 256
        "bench": {"m": 2048, "n": 4352, "k": 8192, "dtype": "bfloat16"},
        # float16 because Triton's interpreter has no bf16 dot; TMA copies rows that begin at multiples of 16 bytes
        "test": {"m": 397, "n": 328, "k": 136, "dtype": "float16"},
    },
    tolerance=3e-3,  # the sums are fp32; rounding them to bf16 is off by 1.7e-3
)


@triton.jit
def product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    number, tiles_m, tiles_n = tl.program_id(0), tl.cdiv(m, M), tl.cdiv(n, N)
    i, j = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, GROUP)
    total = tl.zeros((M, N), tl.float32)
    for step in range(tl.cdiv(k, K)):
        x, y = a.load([i * M, step * K]), b.load([j * N, step * K])  # beyond the edges there are zeros
        total = tl.dot(x, y.T, total)
    out.store([i * M, j * N], total.to(out.dtype))


def tile() -> dict[str, int]:
    """The tile and its pipeline: wide where an SM has shared memory for it, as on an H100 or a B200."""
    # Before sm_90 there is no TMA: Triton makes plain loads and stores, whose addresses take registers.
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    shape = {"M": 128, "N": 256, "K": 64} if roomy else {"M": 128, "N": 64, "K": 32}
    return {**shape, "GROUP": GROUP, "num_warps": 8, "num_stages": 3}


def descriptors(a: Tensor, b: Tensor, out: Tensor, options: dict[str, int]) -> list[TensorDescriptor]:
    boxes = [options["M"], options["K"]], [options["N"], options["K"]], [options["M"], options["N"]]
    return [TensorDescriptor.from_tensor(matrix, box) for matrix, box in zip((a, b, out), boxes)]


def prepare(a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, len(b)
    out, options = a.new_empty(m, n), tile()
    matrices = descriptors(a, b, out, options)
    tiles = triton.cdiv(m, options["M"]) * triton.cdiv(n, options["N"])

    def step() -> Tensor:
        product[(tiles,)](*matrices, m, n, k, **options)
        return out

    return step
