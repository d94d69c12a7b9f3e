"""torch.compile of group norm: moments of a group by several blocks, combined by Welford's rule, then the result."""

import torch
from torch import Tensor
from torch.nn.functional import group_norm

from ch09.baseline_groupnorm_one_pass import EPSILON, TOGETHER
from ch09.baseline_groupnorm_one_pass import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def prepare(x: Tensor, gain: Tensor, shift: Tensor) -> Step:
    compiled = torch.compile(group_norm, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)
    groups = x.shape[1] // TOGETHER

    def step() -> Tensor:
        return compiled(x, groups, gain, shift, EPSILON)

    return step
