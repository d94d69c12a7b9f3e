"""torch's GELU with approximate="tanh": one elementwise kernel of four floats to an access, in single precision."""

from torch import Tensor
from torch.nn.functional import gelu

from ch06.baseline_float_literal_gelu import workload as workload
from common.python.workload import Step


def prepare(x: Tensor) -> Step:
    def step() -> Tensor:
        return gelu(x, approximate="tanh")

    return step
