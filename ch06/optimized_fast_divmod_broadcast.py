"""The host turns each divisor into a 32-bit factor and a shift, so memory is again what the kernel waits for."""

import torch
from torch import Tensor

from ch06.baseline_fast_divmod_broadcast import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(x: Tensor, scale: Tensor) -> Step:
    multiply, out = load_cuda(__file__, "scale_channels"), torch.empty_like(x)

    def step() -> Tensor:
        multiply(x, scale, out, x.numel(), *x.shape[1:])
        return out

    return step
