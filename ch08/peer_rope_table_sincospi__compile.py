"""torch.compile of the product, its cosine and its sine: one fused kernel, with the library's functions of radians."""

import torch
from torch import Tensor

from ch08.baseline_rope_table_sincospi import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(gpus=1)


def tabled(frequencies: Tensor, positions: int) -> Tensor:
    angles = torch.arange(positions, device=frequencies.device, dtype=torch.float32)[:, None] * frequencies
    return torch.stack([angles.cos(), angles.sin()])


def prepare(frequencies: Tensor, positions: int) -> Step:
    compiled = torch.compile(tabled, mode="max-autotune-no-cudagraphs", dynamic=False, fullgraph=True)

    def step() -> Tensor:
        return compiled(frequencies, positions)

    return step
