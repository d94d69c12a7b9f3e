"""torch.compile in max-autotune mode: it times its Triton products, with the norm before them, against cuBLAS."""

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm

from ch09.baseline_rmsnorm_into_gemm import EPSILON
from ch09.baseline_rmsnorm_into_gemm import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def norm_product(x: Tensor, gain: Tensor, weight: Tensor) -> Tensor:
    return linear(rms_norm(x, gain.shape, gain, EPSILON), weight)


def prepare(x: Tensor, gain: Tensor, weight: Tensor) -> Step:
    compiled = torch.compile(norm_product, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)

    def step() -> Tensor:
        return compiled(x, gain, weight)

    return step
