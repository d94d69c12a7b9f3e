"""mma.sync multiplies four-bit codes and applies their scales, all from registers. Compiled for sm_120a, not run."""

from torch import Tensor

from ch19.baseline_nvfp4_gemm import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_120a", "sm_121a"])


def prepare(a: Tensor, a_codes: Tensor, a_scales: Tensor, b: Tensor, b_codes: Tensor, b_scales: Tensor) -> Step:
    gemm, out = load_cuda(__file__, "gemm"), a.new_empty(len(a), len(b))

    def step() -> Tensor:
        gemm(a_codes, a_scales, b_codes, b_scales, out, *out.shape, a.shape[1])
        return out

    return step
