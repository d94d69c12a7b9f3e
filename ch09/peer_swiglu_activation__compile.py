"""torch.compile of the three formulas together, which it fuses into one kernel too."""

import torch
from torch import Tensor

from ch09.baseline_swiglu_activation import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def swiglu_backward(gate: Tensor, up: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
    g, u, s = gate.float(), up.float(), slope.float()
    sigmoid = g.sigmoid()
    active = g * sigmoid
    results = active * u, s * u * (sigmoid + active * (1 - sigmoid)), s * active
    return tuple(result.to(gate.dtype) for result in results)


def prepare(gate: Tensor, up: Tensor, slope: Tensor) -> Step:
    compiled = torch.compile(swiglu_backward, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)

    def step() -> tuple[Tensor, ...]:
        return compiled(gate, up, slope)

    return step
