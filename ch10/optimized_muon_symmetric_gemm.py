"""Only tiles on and above the diagonal are multiplied; each tile above it is stored twice, as it is and transposed."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch10.baseline_muon_symmetric_gemm import metered
from ch10.baseline_muon_symmetric_gemm import workload as workload
from common.python.workload import Metered

GROUP = 8  # columns of tiles that take turns, so that what one program reads the next finds in the L2 cache


@triton.jit
def gram(rows, columns, out, order, tiles, n, k, SIDE: tl.constexpr, K: tl.constexpr):
    # Flattened, both loops are one, and its pipeline of loads runs on across the border between two tiles.
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        top, left = tl.load(order + 2 * number) * SIDE, tl.load(order + 2 * number + 1) * 2 * SIDE
        total = tl.zeros((SIDE, 2 * SIDE), tl.float32)
        for step in range(tl.cdiv(k, K)):
            x, y = rows.load([top, step * K]), columns.load([left, step * K])  # beyond the edges there are zeros
            total = tl.dot(x, y.T, total)
        # A tile is two squares, and all four stores of squares take turns in one buffer of shared memory.
        near, far = tl.split(total.to(out.dtype).reshape(SIDE, 2, SIDE).permute(0, 2, 1))
        out.store([top, left], near)
        out.store([top, left + SIDE], far)
        # Tiles on the diagonal hold both halves: their mirror would go to row n, beyond the edge, and is not stored.
        mirror = tl.where(top < left, left, n)
        out.store([mirror, top], near.T)
        out.store([mirror + SIDE, top], far.T)


def prepare(x: Tensor) -> Metered:
    (n, k), out = x.shape, x.new_empty(len(x), len(x))
    interpreted = triton.knobs.runtime.interpret
    roomy = interpreted or torch.cuda.get_device_properties().shared_memory_per_block_optin > 220_000
    side, depth = 128 if roomy else 64, 64
    down, across = triton.cdiv(n, side), triton.cdiv(n, 2 * side)
    order = [
        (i, j)
        for first in range(0, across, GROUP)
        for i in range(down)
        for j in range(first, min(first + GROUP, across))
        if i < 2 * j + 2
    ]
    places = torch.tensor(order, dtype=torch.int32, device=x.device)
    rows, columns = (TensorDescriptor.from_tensor(x, [height, depth]) for height in (side, 2 * side))
    into = TensorDescriptor.from_tensor(out, [side, side])
    # In the interpreter three programs, so that each has several tiles.
    programs = min(len(order), 3 if interpreted else torch.cuda.get_device_properties().multi_processor_count)

    def step() -> Tensor:
        gram[(programs,)](rows, columns, into, places, len(order), n, k, side, depth, num_warps=8, num_stages=3)
        return out

    return metered(step)
