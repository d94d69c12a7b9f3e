"""Still four passes, each thread moves four neighbours as one float4: fewer instructions, the same bytes."""

from torch import Tensor, empty_like

from ch01.baseline_arithmetic_intensity import workload as workload
from common.python.cuda import load_cuda
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=80)


def prepare(x: Tensor) -> Step:
    four_passes, out = load_cuda(__file__, "four_passes_vectorized"), empty_like(x)

    def step() -> Tensor:
        four_passes(x, out, x.numel())
        return out

    return step
