"""torch's copy_ of equal, contiguous tensors, which is the driver's device-to-device memcpy."""

from torch import Tensor, empty_like

from ch07.baseline_strided_copy import workload as workload
from common.python.workload import Step


def prepare(a: Tensor) -> Step:
    out = empty_like(a)

    def step() -> Tensor:
        return out.copy_(a)

    return step
