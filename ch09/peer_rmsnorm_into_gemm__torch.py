"""torch's fused RMSNorm, then cuBLAS."""

from torch import Tensor
from torch.nn.functional import linear, rms_norm

from ch09.baseline_rmsnorm_into_gemm import EPSILON
from ch09.baseline_rmsnorm_into_gemm import workload as workload
from common.python.workload import Step


def prepare(x: Tensor, gain: Tensor, weight: Tensor) -> Step:
    def step() -> Tensor:
        return linear(rms_norm(x, gain.shape, gain, EPSILON), weight)

    return step
