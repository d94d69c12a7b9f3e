"""A row as a 64 x 64 matrix between two small Hadamard matrices: two products on tensor cores, one trip by TMA."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from ch10.baseline_hadamard_tensor_core import workload as workload
from common.python.workload import Step

SIDE = 64
PLACES, STAGES = 3, 4  # programs of an SM; three rows of each are on their way


@triton.jit
def rotate(x, small, out, rows, SIDE: tl.constexpr, STAGES: tl.constexpr):
    line = tl.arange(0, SIDE)
    signs = tl.load(small + line[:, None] * SIDE + line[None, :])  # +1 and -1; the matrix is its own transpose
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        half = tl.dot(x.load([row * SIDE, 0]), signs) * 0.125
        whole = tl.dot(signs, half.to(signs.dtype)) * 0.125
        out.store([row * SIDE, 0], whole.to(signs.dtype))


def prepare(x: Tensor) -> Step:
    small, out = x.new_ones(1, 1), torch.empty_like(x)
    while len(small) < SIDE:
        small = torch.cat([torch.cat([small, small], 1), torch.cat([small, -small], 1)])
    source, target = (TensorDescriptor.from_tensor(side.view(-1, SIDE), [SIDE, SIDE]) for side in (x, out))
    most = 3 if triton.knobs.runtime.interpret else PLACES * torch.cuda.get_device_properties().multi_processor_count

    def step() -> Tensor:
        rotate[(min(most, len(x)),)](source, small, target, len(x), SIDE, STAGES, num_warps=4)
        return out

    return step
