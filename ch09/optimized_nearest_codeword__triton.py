"""A tile of scores is compared with the best so far while it is in registers: only the winner's number is stored."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch09.baseline_nearest_codeword import workload as workload
from common.python.workload import Step


@triton.jit
def half_squares(codebook, half, width, D: tl.constexpr):
    at = tl.arange(0, D)
    code = tl.program_id(0)
    values = tl.load(codebook + code * width + at, mask=at < width, other=0.0).to(tl.float32)
    tl.store(half + code, tl.sum(values * values, axis=0) / 2)


@triton.jit
def nearest(x, codebook, half, out, vectors, codes, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    first = tl.program_id(0) * M
    left = x.load([first, 0])  # stays in shared memory; beyond the edges there are zeros
    best, winner = tl.full((M,), float("-inf"), tl.float32), tl.zeros((M,), tl.int32)
    for start in range(0, codes, N):
        code = start + tl.arange(0, N)
        away = tl.load(half + code, mask=code < codes, other=float("inf"))
        # The nearer, the larger: the product, less half of the codeword's square.
        score = tl.dot(left, codebook.load([start, 0]).T) - away[None, :]
        top, place = tl.max(score, axis=1, return_indices=True)
        winner = tl.where(top > best, start + place, winner)
        best = tl.maximum(top, best)
    vector = first + tl.arange(0, M)
    tl.store(out + vector, winner.to(tl.int64), mask=vector < vectors)


def prepare(x: Tensor, codebook: Tensor) -> Step:
    (vectors, width), codes = x.shape, len(codebook)
    half, out = x.new_empty(codes, dtype=torch.float32), torch.empty(vectors, dtype=torch.int64, device=x.device)
    roomy = triton.knobs.runtime.interpret or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    depth = max(triton.next_power_of_2(width), 16)
    # 64 KB of vectors and twice 64 KB of codewords; a card with less shared memory takes smaller tiles.
    shape = {"M": 128, "N": 128, "num_stages": 2} if roomy else {"M": 64, "N": 32, "num_stages": 2}
    from_x = TensorDescriptor.from_tensor(x, [shape["M"], depth])
    from_codebook = TensorDescriptor.from_tensor(codebook, [shape["N"], depth])
    grid = (triton.cdiv(vectors, shape["M"]),)

    def step() -> Tensor:
        half_squares[(codes,)](codebook, half, width, D=depth, num_warps=1)
        nearest[grid](from_x, from_codebook, half, out, vectors, codes, **shape, D=depth, num_warps=8)
        return out

    return step
