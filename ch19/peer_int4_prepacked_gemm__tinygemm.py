"""torch's own int4 kernel, which repacks the checkpoint too: a block has 8 outputs and 16 rows, and no shared ring."""

import torch
from torch import Tensor

from ch19.baseline_int4_prepacked_gemm import GROUP, metered
from ch19.baseline_int4_prepacked_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=80)


def prepare(x: Tensor, codes: Tensor, scales: Tensor) -> Metered:
    weight = torch._convert_weight_to_int4pack(codes << 4 | codes >> 4, 8)  # it wants the even feature in the high bits
    scales_and_zeros = torch.stack((scales, torch.zeros_like(scales)), dim=2)  # a weight is (code - 8) * scale + zero

    def step() -> Tensor:
        return torch._weight_int4pack_mm(x, weight, GROUP, scales_and_zeros)

    return metered(step, x, len(codes))
