"""Sums begin at negated half squares, asked for a tile ahead: products end as scores, with nothing to subtract."""

import torch
from torch import Tensor

from ch09.baseline_nearest_codeword import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])
TILE = 128  # codewords at a time


def prepare(x: Tensor, codebook: Tensor) -> Step:
    nearest = load_cuda(__file__, f"nearest_{'bf16' if x.dtype == torch.bfloat16 else 'fp16'}")
    (vectors, width), codes = x.shape, len(codebook)
    half = x.new_empty((codes + TILE - 1) // TILE * TILE, dtype=torch.float32)
    out = torch.empty(vectors, dtype=torch.int64, device=x.device)

    def step() -> Tensor:
        nearest(x, codebook, half, out, vectors, codes, width)
        return out

    return step
