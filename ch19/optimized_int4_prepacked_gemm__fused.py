"""The checkpoint's codes are widened in registers on their way to mma.sync, each lane gathering them byte by byte."""

import torch
from torch import Tensor

from ch19.baseline_int4_prepacked_gemm import metered
from ch19.baseline_int4_prepacked_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=80)
TILE, MOST_ROWS = 256, 64  # of the kernel: outputs of a tile, and rows of x
BLOCKS = 3  # on a multiprocessor


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    multiply = load_cuda(__file__, "int4_linear")
    (rows, features), outputs = x.shape, len(codes)
    blocks = BLOCKS * torch.cuda.get_device_properties(x.device).multi_processor_count
    out = x.new_empty(rows, outputs)
    partial = x.new_empty(blocks, 2, MOST_ROWS, TILE, dtype=torch.float32)
    arrived = torch.zeros(-(-outputs // TILE), dtype=torch.int32, device=x.device)

    def step() -> Tensor:
        multiply(codes, scales, x, out, partial, arrived, rows, outputs, features, blocks)
        return out

    return metered(step, x, len(codes))
