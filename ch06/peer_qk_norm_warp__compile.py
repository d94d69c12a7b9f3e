"""torch.compile: one Triton kernel that takes several rows into a block and reduces each between its lanes."""

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from ch06.baseline_qk_norm_warp import EPSILON
from ch06.baseline_qk_norm_warp import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def normalize(x: Tensor, gain: Tensor) -> Tensor:
    return rms_norm(x, gain.shape, gain, EPSILON)


def prepare(x: Tensor, gain: Tensor) -> Step:
    compiled = torch.compile(normalize, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(x, gain)

    return step
