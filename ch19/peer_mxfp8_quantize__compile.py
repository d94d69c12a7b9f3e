"""torch.compile of the formula: one kernel too, with the exponent by a logarithm and a division for each number."""

import torch
from torch import Tensor

from ch19.baseline_mxfp8_quantize import BLOCK, cast
from ch19.baseline_mxfp8_quantize import workload as workload
from common.models.formats import metered
from common.python.requirements import needs
from common.python.workload import Metered

requires = needs(sm=89)


def prepare(x: Tensor) -> Metered:
    compiled = torch.compile(cast, mode="max-autotune-no-cudagraphs", fullgraph=True, dynamic=False)

    def step() -> tuple[Tensor, Tensor]:
        codes, exponents = compiled(x)
        return codes, exponents

    return metered(step, "e4m3", BLOCK)
