"""torch.compile of the recipe: the rotation is a product of cuBLAS, and what comes after it is fused."""

import torch
from torch import Tensor

from ch19.baseline_hadamard_fp4_quantize import metered, quantized
from ch19.baseline_hadamard_fp4_quantize import workload as workload
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=89)


def prepare(x: Tensor, rotation: Tensor, noise: Tensor) -> Metered:
    compiled = torch.compile(quantized, fullgraph=True, dynamic=False)

    def step() -> tuple[Tensor, Tensor]:
        codes, scales = compiled(x, rotation, noise)
        return codes, scales

    return metered(step, x, rotation, noise)
