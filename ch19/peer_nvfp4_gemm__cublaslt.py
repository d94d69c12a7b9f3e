"""torch's scaled product of NVFP4 operands, which is cuBLASLt's own. Needs sm_100; not run."""

import torch
from torch import Tensor

from ch19.baseline_nvfp4_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_100a", "sm_103a"])


def prepare(a: Tensor, a_codes: Tensor, a_scales: Tensor, b: Tensor, b_codes: Tensor, b_scales: Tensor) -> Step:
    codes = [codes.view(torch.float4_e2m1fn_x2) for codes in (a_codes, b_codes)]
    scales = [scales.view(torch.float8_e4m3fn).flatten() for scales in (a_scales, b_scales)]

    def step() -> Tensor:
        return torch._scaled_mm(codes[0], codes[1].T, *scales, out_dtype=torch.bfloat16)

    return step
