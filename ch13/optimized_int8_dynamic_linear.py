"""Tokens are rounded to int8; pairs of blocks share weights, multiply by wgmma, and scale the sums they store."""

import torch
from torch import Tensor

from ch13.baseline_int8_dynamic_linear import metered
from ch13.baseline_int8_dynamic_linear import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(targets=["sm_90a"])


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    (m, k), n, linear = x.shape, len(codes), load_cuda(__file__, "linear")
    rounded, by_token, out = torch.empty_like(x, dtype=torch.int8), scales.new_empty(m), x.new_empty(m, n)

    def step() -> Tensor:
        linear(x, codes, scales, out, rounded, by_token, m, n, k)
        return out

    return metered(step, x)
