"""torch's grouped product (CUTLASS), twice: ranks are not padded, and all adapters' tiles are one grid."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ch11.baseline_concurrent_lora_gemms import workload as workload
from common.python.requirements import needs
from common.python.workload import Step

requires = needs(sm=90)
VECTOR = 8  # bf16 numbers: rows must be whole vectors of 16 bytes, as those of the bench size are


def prepare(x: Tensor, down: list[Tensor], up: list[Tensor]) -> Step:
    width, missing = x.shape[2], -x.shape[2] % VECTOR
    ends = torch.tensor([len(b) for b in up], device=x.device).cumsum(0, dtype=torch.int32)
    first, second = pad(torch.cat(down, 1), (0, 0, 0, missing)), pad(torch.cat(up), (0, missing))

    def step() -> Tensor:
        rows = pad(x, (0, missing)) if missing else x
        ranks = torch._grouped_mm(rows, first, offs=ends)  # adapters side by side: some columns each
        return torch._grouped_mm(ranks, second, offs=ends)[..., :width]

    return step
