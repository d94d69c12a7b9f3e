"""For few tokens: tiles of 64 rows, split along the features so that multiprocessors share the weights equally."""

import torch
from torch import Tensor

from ch14.baseline_blockwise_fp8_gemm import BLOCK
from ch14.baseline_blockwise_fp8_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])
ROWS, COLUMNS = 64, 256  # of the kernel's tiles


def prepare(x: Tensor, codes: Tensor, by_block: Tensor) -> Step:
    (m, k), n, linear = x.shape, len(codes), load_cuda(__file__, "linear")
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    out, x_codes = x.new_empty(m, n), torch.empty_like(x, dtype=codes.dtype)
    x_scales, partial = by_block.new_empty(k // BLOCK, m), by_block.new_empty(blocks, 2, ROWS, COLUMNS)
    arrived = torch.zeros(-(-m // ROWS), -(-n // COLUMNS), dtype=torch.int32, device=x.device)

    def step() -> Tensor:
        linear(x, codes, by_block, out, x_codes, x_scales, partial, arrived, m, n, k, blocks)
        return out

    return step
