"""One warpgroup applies bias and GELU to its sums in registers, while the other's products use the tensor cores."""

from torch import Tensor

from ch09.baseline_gemm_bias_gelu import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(targets=["sm_90a"])


def prepare(a: Tensor, b: Tensor, bias: Tensor) -> Step:
    (m, k), n, product = a.shape, len(b), load_cuda(__file__, "gemm_bias_gelu")
    out = a.new_empty(m, n)

    def step() -> Tensor:
        product(a, b, bias, out, m, n, k)
        return out

    return step
